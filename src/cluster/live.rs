//! Looking at the API server itself: what is read here is newer than any watch (design section 3, fact 4).

use std::collections::BTreeSet;

use kube::api::ListParams;
use serde_json::Value;

use super::error::Request;
use super::perform::within_deadline;
use super::{Cluster, ClusterError, Kind, store};
use crate::rollout::Observation;
use crate::rollout::action::{CloneRole, state_name};
use crate::rollout::observation::Freshness;

impl Cluster {
    /// Reads X, its clones, its state object and their ReplicaSets, and observes.
    ///
    /// # Errors
    ///
    /// When one of the reads fails; the store then holds what was read before it.
    pub async fn look_live(
        &self,
        namespace: &str,
        deployment: &str,
    ) -> Result<Observation, ClusterError> {
        let names = [
            (Kind::Deployment, deployment.to_owned()),
            (Kind::Deployment, CloneRole::Primary.name(deployment)),
            (Kind::Deployment, CloneRole::Canary.name(deployment)),
            (Kind::PodTemplate, state_name(deployment)),
        ];
        let known: Vec<String> = names.iter().map(|(_, name)| name.clone()).collect();
        let before = self.store.newest(namespace, &known);
        let reads = names
            .iter()
            .map(|(kind, name)| self.read(*kind, namespace, name, before));
        futures::future::try_join_all(reads).await?;
        let seen = self.observe(namespace, deployment, Freshness::Live);
        if let Some(original) = &seen.original {
            let owners = [&seen.original, &seen.primary, &seen.canary]
                .into_iter()
                .flatten()
                .map(|owner| &owner.uid);
            let owners = owners
                .chain(seen.state.as_ref().map(|state| &state.uid))
                .cloned()
                .collect();
            let what = format!("list replicasets in {namespace}");
            let params = ListParams::default().labels(&selector_text(&original.rest.selector));
            let list = within_deadline(
                what,
                Request::Plain,
                self.api(Kind::ReplicaSet, namespace).list(&params),
            )
            .await?;
            let version = list
                .metadata
                .resource_version
                .as_deref()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let listed: BTreeSet<_> = list.items.iter().map(store::key_of).collect();
            list.items
                .iter()
                .for_each(|set| self.store.answered(Kind::ReplicaSet, set));
            self.store.listed_sets(&owners, &listed, version);
        }
        Ok(self.observe(namespace, deployment, Freshness::Live))
    }

    async fn read(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        before: u64,
    ) -> Result<(), ClusterError> {
        let what = format!("get {} {namespace}/{name}", kind.plural());
        match within_deadline(
            what,
            Request::Plain,
            self.api(kind, namespace).get_opt(name),
        )
        .await?
        {
            Some(object) => self.store.answered(kind, &object),
            None => self.store.absent(kind, namespace, name, before),
        }
        Ok(())
    }
}

/// A label selector as the API's query parameter writes it.
pub(super) fn selector_text(selector: &Value) -> String {
    let labels = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let equal = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let expressions = selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let sets = expressions.filter_map(|expression| {
        let key = expression.get("key")?.as_str()?;
        let values = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let values = values
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(",");
        match expression.get("operator")?.as_str()? {
            "In" => Some(format!("{key} in ({values})")),
            "NotIn" => Some(format!("{key} notin ({values})")),
            "Exists" => Some(key.to_owned()),
            "DoesNotExist" => Some(format!("!{key}")),
            _ => None,
        }
    });
    equal.chain(sets).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_written_as_query_parameters() {
        let selector = json!({
            "matchLabels": {"app": "a"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["x", "y"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(selector_text(&selector), "app=a,tier in (x,y),!old");
    }
}
