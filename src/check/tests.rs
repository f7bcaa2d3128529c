#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::live;
use super::report::{FileReport, Outcome, Report, Severity, Strictness, Verdict};
use super::service::{Said, of_deployment, of_expressions, running_pods};
use crate::analysis::{CheckReport, Finding};
use crate::cluster::{Inspection, Manifest, PauseInManifest};
use crate::config::{Config, Loaded, OnNoData, Service};
use crate::rollout::Replicas;
use crate::rollout::autoscaler::Autoscaler;
use crate::rollout::observation::{
    Deployment, DeploymentRest, DeploymentStatus, Disruption, Freshness, Hand, Life, Mark,
    Observation, Observed, Pod, PodPhase, Ready, ReplicaSet, ResourceVersion, Rolling, Uid,
    WallTime,
};
use crate::rollout::template::Template;

const TEXT: &str = r#"namespace: workers
prometheus-base-url: http://prometheus:9090/
orders:
  breakpoint: 50%
  step: 20%
  abort: 2m
  max_step_duration: 10m
  check_success_step_duration: 2m
  max_surge: 0
  max_unavailable: 5%
  success:
    - expr: errors{pod="<<pod>>"} == 0
    - expr: done{pod="<<pod>>"} > 5
"#;

fn loaded() -> Loaded {
    let loaded = Config::parse(Path::new("volery.yaml"), TEXT, &|_| Ok(())).unwrap();
    assert!(loaded.is_valid());
    loaded
}

fn service(loaded: &Loaded) -> &Service {
    loaded.config.services.values().next().unwrap()
}

fn template(tag: &str) -> Template {
    Template::new(json!({
        "metadata": {"labels": {"app": "orders"}},
        "spec": {"containers": [{"name": "worker", "image": format!("orders:{tag}")}]},
    }))
}

fn deployment(name: &str) -> Deployment {
    Deployment {
        name: name.to_owned(),
        uid: Uid(format!("uid-of-{name}")),
        resource_version: ResourceVersion("1".to_owned()),
        life: Life::Alive,
        owner: None,
        mark: Mark::Foreign,
        observed: Observed::Yes,
        rolling: Rolling::Unpaused,
        replicas: Replicas(10),
        hand: Hand::Unknown,
        template: template("v1"),
        labels: BTreeMap::new(),
        rest: DeploymentRest {
            selector: json!({"matchLabels": {"app": "orders"}}),
            strategy: json!({"type": "RollingUpdate"}),
            min_ready_seconds: 0,
            history_limit: 10,
        },
        status: DeploymentStatus {
            replicas: Replicas(10),
            updated: Replicas(10),
            available: Replicas(10),
        },
    }
}

fn replica_set(name: &str, tag: &str, replicas: u32) -> ReplicaSet {
    ReplicaSet {
        name: name.to_owned(),
        uid: Uid(format!("uid-of-{name}")),
        owner: Uid("uid-of-orders".to_owned()),
        life: Life::Alive,
        replicas: Replicas(replicas),
        template: template(tag),
        existing: Replicas(replicas),
        terminating: Replicas::ZERO,
        available: Replicas(replicas),
        observed: Observed::Yes,
        revision: None,
        failure: None,
    }
}

fn pod(name: &str, ready: Ready) -> Pod {
    Pod {
        name: name.to_owned(),
        uid: Uid(format!("uid-of-{name}")),
        owner: Uid("uid-of-orders-new".to_owned()),
        life: Life::Alive,
        ends_by: None,
        phase: PodPhase::Running,
        ready,
        containers: Vec::new(),
        disruption: Disruption::None,
        unschedulable: None,
    }
}

/// A settled Deployment of ten replicas with two older versions.
fn settled() -> Inspection {
    Inspection {
        observation: Observation {
            freshness: Freshness::Live,
            at: WallTime(0),
            original: Some(deployment("orders")),
            primary: None,
            canary: None,
            state: None,
            replica_sets: vec![
                replica_set("orders-old", "v0", 0),
                replica_set("orders-new", "v1", 10),
                replica_set("orders-ancient", "v-1", 0),
            ],
            pods: vec![
                pod("orders-new-b", Ready::Yes),
                pod("orders-new-a", Ready::Yes),
                pod("orders-new-c", Ready::No),
            ],
        },
        manifest: Some(Manifest {
            pause: PauseInManifest::LeftAlone,
            waits_for_ever: None,
        }),
    }
}

fn with(change: impl FnOnce(&mut Inspection)) -> Inspection {
    let mut inspection = settled();
    change(&mut inspection);
    inspection
}

fn finding(expression: &str, pod: &str, said: &str) -> Finding {
    let (pod, expression) = (Some(pod.to_owned()), expression.to_owned());
    let text = format!("{expression} {said}");
    match said {
        "holds" => Finding::Passed { pod, expression },
        "has no series" => Finding::NoData {
            pod,
            expression,
            text,
            then: OnNoData::Fail,
        },
        _ => Finding::Failed {
            pod,
            expression,
            text,
        },
    }
}

fn report(said: Vec<Said>) -> Report {
    let loaded = loaded();
    let of_service = live::report(&loaded, service(&loaded), said);
    Report {
        files: vec![FileReport {
            file: PathBuf::from("volery.yaml"),
            outcome: Outcome::Read { services: 1 },
            remarks: Vec::new(),
            services: vec![of_service],
        }],
    }
}

fn told(inspection: &Inspection, autoscalers: &[Autoscaler], findings: Vec<Finding>) -> String {
    let loaded = loaded();
    let mut said = of_deployment(service(&loaded), inspection, autoscalers);
    if !findings.is_empty() {
        let report = CheckReport { findings };
        said.extend(of_expressions(&report, 2, 2));
    }
    report(said).to_string()
}

const ERRORS: &str = "errors{pod=\"<<pod>>\"} == 0";
const DONE: &str = "done{pod=\"<<pod>>\"} > 5";

#[test]
fn a_paragraph_says_how_a_service_stands_and_what_registering_changes() {
    let (a, b) = ("orders-new-a", "orders-new-b");
    let autoscaler = |name: &str, target: &str| Autoscaler {
        name: name.to_owned(),
        target: target.to_owned(),
    };
    let paragraphs = [
        (
            "all is well",
            told(
                &settled(),
                &[autoscaler("orders", "orders")],
                vec![finding(ERRORS, a, "holds"), finding(ERRORS, b, "holds")],
            ),
        ),
        (
            "there is none",
            told(&with(|it| it.observation.original = None), &[], vec![]),
        ),
        (
            "a name is taken",
            told(
                &with(|it| it.observation.canary = Some(deployment("orders-canary"))),
                &[],
                vec![],
            ),
        ),
        (
            "it rolls",
            told(
                &with(|it| it.observation.replica_sets[0] = replica_set("orders-old", "v0", 3)),
                &[],
                vec![],
            ),
        ),
        (
            "somebody has paused it in the middle",
            told(
                &with(|it| {
                    if let Some(original) = &mut it.observation.original {
                        original.rolling = Rolling::Paused;
                        original.template = template("v2");
                    }
                }),
                &[],
                vec![],
            ),
        ),
        (
            "no replicas",
            told(
                &with(|it| {
                    if let Some(original) = &mut it.observation.original {
                        original.replicas = Replicas::ZERO;
                        original.status = DeploymentStatus::default();
                    }
                    it.observation.replica_sets[1] = replica_set("orders-new", "v1", 0);
                }),
                &[],
                vec![],
            ),
        ),
        (
            "everything that is doubtful",
            told(
                &with(|it| {
                    if let Some(original) = &mut it.observation.original {
                        original.rest.strategy = json!({"type": "Recreate"});
                    }
                    it.manifest = Some(Manifest {
                        pause: PauseInManifest::SaysUnpaused,
                        waits_for_ever: Some("Helm"),
                    });
                }),
                &[autoscaler("a", "orders"), autoscaler("b", "orders-canary")],
                vec![
                    finding(ERRORS, a, "has no series"),
                    finding(ERRORS, b, "has no series"),
                    finding(DONE, a, "is false: value 4"),
                    finding(DONE, b, "has no series"),
                    Finding::Unavailable {
                        text: "Prometheus cannot be reached: connection refused".to_owned(),
                    },
                ],
            ),
        ),
    ];
    let paragraphs = paragraphs.map(|(what, told)| format!("--- {what}\n{told}"));
    insta::assert_snapshot!(paragraphs.join("\n\n"));
}

#[test]
fn pods_that_are_not_ready_or_not_ours_are_not_asked_about() {
    let inspection = with(|it| {
        let mut stray = pod("stray", Ready::Yes);
        stray.owner = Uid("uid-of-another".to_owned());
        it.observation.pods.push(stray);
    });
    assert_eq!(
        running_pods(&inspection.observation),
        ["orders-new-a", "orders-new-b"]
    );
}

#[test]
fn what_a_cluster_says_counts_like_what_the_file_says() {
    for (severity, lenient, strict) in [
        (Severity::Error, Verdict::Wrong, Verdict::Wrong),
        (Severity::Warning, Verdict::Fine, Verdict::Wrong),
    ] {
        let report = report(vec![
            Said::Fact("it runs".to_owned()),
            Said::Remark(severity, "it limps".to_owned()),
        ]);
        assert_eq!(report.verdict(Strictness::Lenient), lenient);
        assert_eq!(report.verdict(Strictness::Strict), strict);
        let json = report.json();
        let list = format!("{}s", severity.word());
        assert_eq!(json[&list], 1, "{json}");
        assert_eq!(json["files"][0][&list][0]["line"], 3, "{json}");
        assert_eq!(json["files"][0]["live"][0]["facts"][0], "it runs", "{json}");
    }
}
