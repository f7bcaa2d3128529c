//! Orders as they lie on a service's state object: a person puts them there, the daemon takes them off.

use kube::api::DynamicObject;
use serde_json::json;

use super::error::Request;
use super::object;
use super::perform::{annotation, patch_of, put, remove, test, unchanged, within_deadline};
use super::{ANSWER_ANNOTATION, COMMAND_ANNOTATION, Cluster, ClusterError, Kind};
use crate::rollout::action::state_name;
use crate::rollout::command::Answer;
use crate::rollout::observation::{StateObject, Uid};

/// A service's state object, as far as orders go.
#[derive(Clone, Debug)]
pub struct OrderBook {
    /// The object itself.
    pub object: StateObject,
    /// The order that waits to be taken off, word for word.
    pub waiting: Option<String>,
    /// What the last one was answered.
    pub answered: Option<Answer>,
}

impl OrderBook {
    pub(super) fn read(raw: &DynamicObject) -> Self {
        let annotation = |key: &str| raw.metadata.annotations.as_ref()?.get(key).cloned();
        Self {
            object: object::state_object(raw),
            waiting: annotation(COMMAND_ANNOTATION),
            answered: annotation(ANSWER_ANNOTATION)
                .and_then(|text| serde_json::from_str(&text).ok()),
        }
    }
}

impl Cluster {
    /// What lies on the state object of this Deployment; none where there is no such object.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub async fn order_book(
        &self,
        namespace: &str,
        deployment: &str,
    ) -> Result<Option<OrderBook>, ClusterError> {
        let name = state_name(deployment);
        let kind = Kind::PodTemplate;
        let what = format!("get {} {namespace}/{name}", kind.plural());
        let read = self.api(kind, namespace);
        let raw = within_deadline(what, Request::Plain, read.get_opt(&name)).await?;
        Ok(raw.as_ref().map(OrderBook::read))
    }

    /// Puts an order on a state object on which none lay when it was read.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Stale`] when the object has changed since; others as the API server says.
    pub async fn give_order(
        &self,
        namespace: &str,
        deployment: &str,
        seen: &StateObject,
        order: &str,
    ) -> Result<(), ClusterError> {
        let mut operations = unchanged(&seen.uid, &seen.resource_version);
        operations.push(put(&annotation(COMMAND_ANNOTATION), json!(order)));
        self.patch(
            Kind::PodTemplate,
            namespace,
            &state_name(deployment),
            &patch_of(operations),
        )
        .await
    }

    /// Takes an order off again that nobody has taken yet.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Stale`] when it does not lie there any more; others as the API server says.
    pub async fn take_order_back(
        &self,
        namespace: &str,
        deployment: &str,
        of: &Uid,
        order: &str,
    ) -> Result<(), ClusterError> {
        let operations = vec![
            test("/metadata/uid", json!(of)),
            test(&annotation(COMMAND_ANNOTATION), json!(order)),
            remove(&annotation(COMMAND_ANNOTATION)),
        ];
        self.patch(
            Kind::PodTemplate,
            namespace,
            &state_name(deployment),
            &patch_of(operations),
        )
        .await
    }
}
