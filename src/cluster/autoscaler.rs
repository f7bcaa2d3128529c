//! HorizontalPodAutoscalers, read when a service is registered and when a rollout opens: nothing is decided on them, so they
//! are not watched, and at rest nothing is asked.

use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use super::error::Request;
use super::perform::within_deadline;
use super::rights::Resource;
use super::{Cluster, ClusterError, Kind};
use crate::rollout::autoscaler::Autoscaler;

/// `autoscaling/v2` HorizontalPodAutoscalers.
pub(super) const AUTOSCALERS: Resource = Resource {
    group: "autoscaling",
    name: "horizontalpodautoscalers",
};

impl Cluster {
    /// The autoscalers of Deployments in a namespace.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub async fn autoscalers(&self, namespace: &str) -> Result<Vec<Autoscaler>, ClusterError> {
        let resource = AUTOSCALERS.in_version("v2", "HorizontalPodAutoscaler");
        let api = self.api_of(&resource, namespace);
        let what = format!("list {} in {namespace}", AUTOSCALERS.name);
        let list = within_deadline(what, Request::Plain, api.list(&ListParams::default())).await?;
        Ok(list.items.iter().filter_map(autoscaler).collect())
    }
}

/// What an object scales, if that is a Deployment.
fn autoscaler(object: &DynamicObject) -> Option<Autoscaler> {
    let target = object.data.pointer("/spec/scaleTargetRef")?;
    let text = |member: &str| target.get(member).and_then(Value::as_str);
    let group = text("apiVersion")?.split('/').next();
    let is_deployment =
        group == Some(Kind::Deployment.group()) && text("kind") == Some(Kind::Deployment.name());
    is_deployment.then_some(Autoscaler {
        name: object.metadata.name.clone()?,
        target: text("name")?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_autoscaler_of_a_deployment_counts() {
        for (api_version, kind, counts) in [
            ("apps/v1", "Deployment", true),
            ("apps/v1", "StatefulSet", false),
            ("example.org/v1", "Deployment", false),
        ] {
            let object: DynamicObject = serde_json::from_value(json!({
                "metadata": {"name": "scaler"},
                "spec": {"scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": "orders"}},
            }))
            .expect("is an object");
            let expected = counts.then(|| Autoscaler {
                name: "scaler".to_owned(),
                target: "orders".to_owned(),
            });
            assert_eq!(autoscaler(&object), expected, "{api_version} {kind}");
        }
    }
}
