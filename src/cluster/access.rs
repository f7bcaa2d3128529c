//! Whether the rights suffice: the API server is asked about each, with a `SelfSubjectAccessReview` (case K57).

use futures::StreamExt as _;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};

use super::error::Request;
use super::perform::within_deadline;
use super::rights::{Resource, Verb, rights};
use super::{Cluster, ClusterError};

/// How many questions are open at any time.
const AT_ONCE: usize = 8;

impl Cluster {
    /// Those of the rights that Volery needs in a namespace which this client's account does not have there, in the
    /// order of the Role.
    ///
    /// # Errors
    ///
    /// When the API server does not say.
    pub async fn missing_rights(
        &self,
        namespace: &str,
    ) -> Result<Vec<(Resource, Verb)>, ClusterError> {
        let rights: Vec<(Resource, Verb)> = rights()
            .into_iter()
            .flat_map(|(resource, verbs)| verbs.into_iter().map(move |verb| (resource, verb)))
            .collect();
        let questions = rights.into_iter().map(|(resource, verb)| async move {
            let granted = self.may(namespace, resource, verb).await?;
            Ok::<_, ClusterError>((!granted).then_some((resource, verb)))
        });
        let answers: Vec<Result<Option<(Resource, Verb)>, ClusterError>> =
            futures::stream::iter(questions)
                .buffered(AT_ONCE)
                .collect()
                .await;
        let answers: Result<Vec<_>, ClusterError> = answers.into_iter().collect();
        Ok(answers?.into_iter().flatten().collect())
    }

    async fn may(
        &self,
        namespace: &str,
        resource: Resource,
        verb: Verb,
    ) -> Result<bool, ClusterError> {
        let (name, subresource) = match resource.name.split_once('/') {
            Some((name, subresource)) => (name, Some(subresource.to_owned())),
            None => (resource.name, None),
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(namespace.to_owned()),
                    verb: Some(verb.name().to_owned()),
                    group: Some(resource.group.to_owned()),
                    resource: Some(name.to_owned()),
                    subresource,
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let what = format!(
            "ask whether {} on {} is allowed in {namespace}",
            verb.name(),
            resource.name
        );
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let asked = within_deadline(
            what,
            Request::Plain,
            api.create(&PostParams::default(), &review),
        )
        .await?;
        Ok(asked.status.is_some_and(|status| status.allowed))
    }
}
