//! A file against a cluster and its Prometheus: reads, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::report::{Remark, ServiceReport, Severity};
use super::service::{self, Said};
use crate::analysis::{Checker, Metrics, PodName, Pods, Query};
use crate::chain::chain;
use crate::cluster::{Cluster, ClusterError, Resource, Verb};
use crate::config::{Loaded, Position, Service};
use crate::rollout::autoscaler::Autoscaler;

/// Expressions are asked about so many pods of a service at most.
const MOST_PODS: usize = 20;

/// How long a question to Prometheus may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks about every service of a file that could be used, in the order of their names; of a single namespace, if that is
/// named. The remarks that come along concern the file as a whole.
pub async fn ask(
    loaded: &Loaded,
    cluster: &Cluster,
    metrics: &Arc<dyn Metrics>,
    namespace: Option<&str>,
) -> (Vec<Remark>, Vec<ServiceReport>) {
    let services: Vec<&Service> = loaded
        .config
        .services
        .values()
        .filter(|service| namespace.is_none_or(|namespace| service.namespace == namespace))
        .collect();
    let namespaces: BTreeSet<&str> = services
        .iter()
        .map(|service| service.namespace.as_str())
        .collect();
    let mut remarks = Vec::new();
    let mut autoscalers: BTreeMap<&str, Vec<Autoscaler>> = BTreeMap::new();
    for namespace in namespaces {
        remarks.extend(rights(cluster, namespace).await);
        // Whoever may not list them has just been told so.
        let listed = cluster.autoscalers(namespace).await.unwrap_or_default();
        autoscalers.insert(namespace, listed);
    }
    let mut reports = Vec::new();
    for service in services {
        let around = autoscalers.get(service.namespace.as_str());
        let said = look(service, cluster, metrics, around.map_or(&[], Vec::as_slice)).await;
        reports.push(report(loaded, service, said));
    }
    (remarks, reports)
}

async fn rights(cluster: &Cluster, namespace: &str) -> Vec<Remark> {
    let error = |message: String| Remark {
        severity: Severity::Error,
        at: Position::START,
        key: String::new(),
        message,
    };
    match cluster.missing_rights(namespace).await {
        Ok(missing) => by_resource(&missing)
            .into_iter()
            .map(|(resource, verbs)| {
                error(format!(
                    "in namespace {namespace} this account may not {verbs} {resource}, which Volery needs: bind the Role of \
                     deploy/role.yaml there, or name Volery's own account with --as"
                ))
            })
            .collect(),
        Err(problem) => vec![error(told(&problem))],
    }
}

fn by_resource(missing: &[(Resource, Verb)]) -> Vec<(String, String)> {
    let mut by_resource: BTreeMap<Resource, Vec<&str>> = BTreeMap::new();
    for (resource, verb) in missing {
        by_resource.entry(*resource).or_default().push(verb.name());
    }
    let named = |resource: Resource| match resource.group {
        "" => resource.name.to_owned(),
        group => format!("{}.{group}", resource.name),
    };
    by_resource
        .into_iter()
        .map(|(resource, verbs)| (named(resource), verbs.join(", ")))
        .collect()
}

async fn look(
    service: &Service,
    cluster: &Cluster,
    metrics: &Arc<dyn Metrics>,
    autoscalers: &[Autoscaler],
) -> Vec<Said> {
    let inspected = cluster
        .inspect(&service.namespace, &service.deployment)
        .await;
    let inspection = match inspected {
        Ok(inspection) => inspection,
        Err(problem) => return vec![Said::Remark(Severity::Error, told(&problem))],
    };
    let mut said = service::of_deployment(service, &inspection, autoscalers);
    if inspection.observation.original.is_some() {
        let pods = service::running_pods(&inspection.observation);
        said.extend(expressions(service, metrics, &pods).await);
    }
    said
}

/// Asks each expression about the pods that run.
async fn expressions(
    service: &Service,
    metrics: &Arc<dyn Metrics>,
    running: &[String],
) -> Vec<Said> {
    if service.success.is_empty() {
        return vec![Said::Fact(
            "no success expressions: only restarts and availability are judged".to_owned(),
        )];
    }
    if running.is_empty() {
        return vec![Said::Fact(
            "no pod runs, so no expression was asked".to_owned(),
        )];
    }
    let pods: Vec<PodName> = running
        .iter()
        .take(MOST_PODS)
        .filter_map(|name| PodName::new(name).ok())
        .collect();
    let asked = pods.len();
    // As if the version that runs were tried beside itself.
    let pods = Pods {
        canary: pods.clone(),
        primary: pods,
    };
    let report = Checker::new(Arc::clone(metrics), PATIENCE)
        .check(&Query::of(service), &pods)
        .await;
    service::of_expressions(&report, asked, running.len())
}

pub(super) fn report(loaded: &Loaded, service: &Service, said: Vec<Said>) -> ServiceReport {
    let at = loaded.places.get(&service.name);
    let mut report = ServiceReport {
        service: service.name.to_string(),
        deployment: format!("{}/{}", service.namespace, service.deployment),
        facts: Vec::new(),
        remarks: Vec::new(),
    };
    for said in said {
        match said {
            Said::Fact(fact) => report.facts.push(fact),
            Said::Remark(severity, message) => report.remarks.push(Remark {
                severity,
                at: at.copied().unwrap_or(Position::START),
                key: service.name.to_string(),
                message,
            }),
        }
    }
    report
}

fn told(problem: &ClusterError) -> String {
    // Its own text speaks of the daemon's Role, which is not whoever asks here.
    if let ClusterError::Forbidden { what, message } = problem {
        return format!("{what}: forbidden: {message}");
    }
    chain(problem)
}
