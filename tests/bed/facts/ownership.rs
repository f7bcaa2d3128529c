//! Whose a ReplicaSet is, and what that means for its pods.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{apps::v1::ReplicaSet, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    A_WHILE,
    hand::{
        self, create_clone, create_rs, hand_over, is_of, move_rs, only_replica_set,
        owned_by_deployment, pause, reported, template, template_of,
    },
    under_each_lag,
};
use crate::{
    namespace::{Namespace, observed, uid},
    recorder::Object,
    scene::Trials,
    wait::{ensure, eventually, stays},
    worker::Worker,
};

pub fn register(trials: &mut Trials) {
    under_each_lag(
        trials,
        "fact_02::one_patch_moves_a_replicaset_and_it_is_never_an_orphan",
        moved,
    );
    under_each_lag(
        trials,
        "fact_02::a_paused_deployment_accepts_a_replicaset_that_we_create",
        accepted,
    );
    under_each_lag(
        trials,
        "fact_07::a_replicaset_moved_to_a_deleted_deployment_is_collected_with_its_pods",
        moved_to_deleted,
    );
    under_each_lag(
        trials,
        "fact_10::a_moved_replicaset_survives_its_old_owner",
        survives,
    );
    under_each_lag(
        trials,
        "fact_10::everything_goes_when_the_original_is_deleted",
        original_deleted,
    );
    trials.add("fact_10::changing_owners_needs_the_right_to_delete", async |scene| {
        let ns = scene.namespace().await;
        let x = ns.running(&Worker::default().replicas(1)).await;
        let x = pause(&ns, &x.name_any()).await;
        let clone = create_clone(&ns, &x, "primary", &template(&x), 1).await;
        let rs = only_replica_set(&ns, &x).await;
        let patch = Patch::Json::<()>(
            serde_json::from_value(json!([{"op": "replace", "path": "/metadata/ownerReferences", "value": owned_by_deployment(&clone)}])).unwrap(),
        );
        let rights = [("without", vec!["get", "patch"], Some(403)), ("with", vec!["get", "patch", "delete"], None)];
        for (user, verbs, refused) in rights {
            ns.grant(user, json!([{"apiGroups": ["apps"], "resources": ["replicasets"], "verbs": verbs}])).await;
            let api: Api<ReplicaSet> = Api::namespaced(ns.client_as(user).await, &ns.name);
            // The rights may take a moment to arrive in the API server's cache.
            let answer = eventually("the right to patch", async || match api.patch(&rs.name_any(), &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if !status.message.contains("ownerRef") => Err(status.message.clone()),
                answer => Ok(answer),
            })
            .await;
            let code = answer.err().and_then(|error| if let kube::Error::Api(status) = error { Some(status.code) } else { None });
            assert_eq!(code, refused, "{user} delete");
        }
    });
    trials.add("fact_11::only_owners_tell_the_pods_apart_and_a_budget_counts_them_all", async |scene| {
        let ns = scene.namespace().await;
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "orders"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "orders-worker"}}},
        });
        ns.kubectl_ok(&["apply", "-f", "-"], Some(&budget.to_string())).await;
        ns.running(&Worker::default().replicas(4)).await;
        let (x, _) = hand::register(&ns, "orders-worker").await;
        ns.apply(&Worker::default().replicas(4).tag("v2")).await;
        let x = ns.observed(&x.name_any()).await;
        let rs = only_replica_set(&ns, &x).await;
        let primary = create_clone(&ns, &x, "primary", &template_of(&rs), 4).await;
        hand_over(&ns, "orders-worker", "orders-worker-primary", &rs.name_any()).await;
        let canary = create_clone(&ns, &x, "canary", &template(&x), 0).await;
        create_rs(&ns, &canary, "candidate").await;
        hand::scale_clone(&ns, "orders-worker-canary", 1).await;
        hand::scale_clone(&ns, "orders-worker-primary", 3).await;
        eventually("the budget to count all four pods", async || {
            let budgets: Api<PodDisruptionBudget> = Api::namespaced(ns.bed.client.clone(), &ns.name);
            let status = budgets.get("orders").await.map_err(|e| e.to_string())?.status.unwrap_or_default();
            let numbers = (status.expected_pods, status.current_healthy, status.disruptions_allowed);
            ensure(numbers == (Some(4), Some(4), Some(1)), || format!("{numbers:?}"))
        })
        .await;
        let labelled = ns.pods().list(&ListParams::default().labels("app=orders-worker")).await.unwrap();
        assert_eq!(labelled.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count(), 4);
        let owned = [ns.pods_of(&x).await.len(), ns.pods_of(&primary).await.len(), ns.pods_of(&canary).await.len()];
        assert_eq!(owned, [0, 3, 1]);
    });
    trials.add("fact_14::a_clone_that_admission_changed_does_not_report_the_moved_pods_as_up_to_date", async |scene| {
        let ns = scene.namespace().await;
        // The policy is of the whole cluster, so it is told to look at this namespace only.
        let policy = format!("change-clones-in-{}", ns.name);
        let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]});
        let add = "[JSONPatch{op: \"add\", path: \"/spec/template/metadata/labels/injected\", value: \"yes\"}]";
        let manifest = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": policy},
                "spec": {
                    "matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                    "matchConditions": [{"name": "clones", "expression": "object.metadata.name.endsWith('-primary')"}],
                    "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": add}}],
                },
            },
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": policy},
                "spec": {"policyName": policy, "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.name}}}},
            },
        ]});
        ns.kubectl_ok(&["apply", "-f", "-"], Some(&manifest.to_string())).await;
        let x = ns.running(&Worker::default().replicas(2)).await;
        let x = pause(&ns, &x.name_any()).await;
        let rs = only_replica_set(&ns, &x).await;
        let clone = eventually("the policy to change clones", async || {
            let clone = create_clone(&ns, &x, "primary", &template_of(&rs), 2).await;
            if template(&clone) == template_of(&rs) {
                hand::delete(&ns, &clone).await;
                return Err("this one is not changed".to_owned());
            }
            Ok(clone)
        })
        .await;
        let start = ns.now().await;
        move_rs(&ns, &rs, &uid(&x), owned_by_deployment(&clone), json!([])).await.unwrap();
        eventually("the clone to report two pods, none up to date", async || {
            let clone = ns.deployment(&clone.name_any()).await;
            ensure(reported(&clone) == (2, 0), || format!("it reports {:?}", reported(&clone)))
        })
        .await;
        move_rs(&ns, &rs, &uid(&clone), owned_by_deployment(&x), json!([])).await.unwrap();
        eventually("the original to report them again", async || {
            let x = ns.deployment(&x.name_any()).await;
            ensure(reported(&x) == (2, 2), || format!("it reports {:?}", reported(&x)))
        })
        .await;
        ns.now().await;
        assert_eq!((ns.recorder.starts(start), ns.recorder.stops(start)), (BTreeMap::new(), BTreeMap::new()));
    });
    under_each_lag(
        trials,
        "fact_16::an_orphaned_replicaset_is_adopted_by_any_deployment_with_its_selector",
        orphaned,
    );
}

async fn moved(ns: Arc<Namespace>) {
    ns.running(&Worker::default().replicas(3)).await;
    let x = pause(&ns, "orders-worker").await;
    let rs = only_replica_set(&ns, &x).await;
    let clone = create_clone(&ns, &x, "primary", &template_of(&rs), 3).await;
    let start = ns.now().await;
    let wrong = move_rs(
        &ns,
        &rs,
        "somebody-else",
        owned_by_deployment(&clone),
        json!([]),
    )
    .await;
    assert!(
        matches!(&wrong, Err(kube::Error::Api(status)) if status.code == 422),
        "{wrong:?}"
    );
    move_rs(&ns, &rs, &uid(&x), owned_by_deployment(&clone), json!([]))
        .await
        .unwrap();
    eventually(
        "the new owner to report it as its current one, the old one nothing",
        async || {
            let (x, clone) = (
                ns.deployment("orders-worker").await,
                ns.deployment(&clone.name_any()).await,
            );
            let reported = (reported(&x), reported(&clone));
            ensure(reported == ((0, 0), (3, 3)), || {
                format!("reported are {reported:?}")
            })
        },
    )
    .await;
    stays("the move", A_WHILE, async || {
        let reported = reported(&ns.deployment(&clone.name_any()).await);
        ensure(reported == (3, 3), || format!("reported are {reported:?}"))
    })
    .await;
    ns.now().await;
    assert_eq!(
        (ns.recorder.starts(start), ns.recorder.stops(start)),
        (BTreeMap::new(), BTreeMap::new())
    );
    for event in ns.recorder.events() {
        if let Object::ReplicaSet(state) = &event.object
            && uid(&**state) == uid(&rs)
        {
            assert!(
                is_of(state, &x) || is_of(state, &clone),
                "{:?}",
                state.owner_references()
            );
        }
    }
}

async fn accepted(ns: Arc<Namespace>) {
    ns.running(&Worker::default().replicas(1)).await;
    let x = pause(&ns, "orders-worker").await;
    let mut candidate = template(&x);
    candidate.spec.as_mut().unwrap().containers[0].image =
        Some("registry.example/orders-worker:v2".into());
    let canary = create_clone(&ns, &x, "canary", &candidate, 0).await;
    let rs = create_rs(&ns, &canary, "any-name-at-all").await;
    hand::set_revision(&ns, &rs, 7).await;
    hand::scale_clone(&ns, &canary.name_any(), 2).await;
    let canary = ns.deployment(&canary.name_any()).await;
    assert_eq!(reported(&canary), (2, 2));
    let rs = only_replica_set(&ns, &canary).await;
    assert_eq!(
        rs.annotations().get(hand::REVISION).map(String::as_str),
        Some("7"),
        "a raised revision stays"
    );
    assert!(
        ns.pods_of(&canary)
            .await
            .iter()
            .all(|pod| pod.name_any().starts_with("orders-worker-any-name-at-all-"))
    );
}

async fn moved_to_deleted(ns: Arc<Namespace>) {
    ns.running(&Worker::default().replicas(2)).await;
    let x = pause(&ns, "orders-worker").await;
    let rs = only_replica_set(&ns, &x).await;
    let clone = create_clone(&ns, &x, "primary", &template_of(&rs), 2).await;
    let start = ns.now().await;
    hand::delete(&ns, &clone).await;
    move_rs(&ns, &rs, &uid(&x), owned_by_deployment(&clone), json!([]))
        .await
        .expect("the patch is accepted all the same");
    eventually("the ReplicaSet and its pods to be gone", async || {
        let left = ns
            .replica_sets()
            .get_opt(&rs.name_any())
            .await
            .map_err(|e| e.to_string())?;
        let stopped = ns.recorder.stops(start);
        ensure(
            left.is_none() && stopped == BTreeMap::from([("v1".into(), 2)]),
            || format!("stopped are {stopped:?}"),
        )
    })
    .await;
}

async fn survives(ns: Arc<Namespace>) {
    ns.running(&Worker::default().replicas(2)).await;
    let x = pause(&ns, "orders-worker").await;
    let rs = only_replica_set(&ns, &x).await;
    let clone = create_clone(&ns, &x, "primary", &template_of(&rs), 2).await;
    hand_over(&ns, "orders-worker", &clone.name_any(), &rs.name_any()).await;
    let start = ns.now().await;
    move_rs(&ns, &rs, &uid(&clone), owned_by_deployment(&x), json!([]))
        .await
        .unwrap();
    hand::delete(&ns, &clone).await;
    eventually("the original to report the pods", async || {
        let x = ns.deployment("orders-worker").await;
        ensure(reported(&x) == (2, 2), || {
            format!("it reports {:?}", reported(&x))
        })
    })
    .await;
    stays("the moved ReplicaSet", A_WHILE, async || {
        ensure(ns.recorder.stops(start).is_empty(), || {
            "pods were stopped".into()
        })
    })
    .await;
}

async fn original_deleted(ns: Arc<Namespace>) {
    ns.history(&Worker::default().replicas(2)).await;
    let (x, state) = hand::register(&ns, "orders-worker").await;
    let rs = only_replica_set(&ns, &x).await;
    let primary = create_clone(&ns, &x, "primary", &template_of(&rs), 2).await;
    hand_over(&ns, "orders-worker", &primary.name_any(), &rs.name_any()).await;
    hand::delete(&ns, &x).await;
    eventually("everything to be gone", async || {
        let parameters = ListParams::default();
        let left = [
            ns.deployments()
                .list(&parameters)
                .await
                .map_err(|e| e.to_string())?
                .items
                .len(),
            ns.replica_sets()
                .list(&parameters)
                .await
                .map_err(|e| e.to_string())?
                .items
                .len(),
            ns.pods()
                .list(&parameters)
                .await
                .map_err(|e| e.to_string())?
                .items
                .len(),
            usize::from(
                ns.pod_templates()
                    .get_opt(&state.name_any())
                    .await
                    .map_err(|e| e.to_string())?
                    .is_some(),
            ),
        ];
        ensure(left == [0; 4], || {
            format!("left are {left:?} deployments, replicasets, pods and state objects")
        })
    })
    .await;
}

async fn orphaned(ns: Arc<Namespace>) {
    ns.running(&Worker::default().replicas(3)).await;
    let x = pause(&ns, "orders-worker").await;
    let rs = only_replica_set(&ns, &x).await;
    // Another Deployment with the same selector, nobody's clone.
    let mut other = Worker::default()
        .replicas(1)
        .spec(json!({"paused": true}))
        .deployment();
    other.metadata.name = Some("other".into());
    ns.deployments()
        .create(&Default::default(), &other)
        .await
        .unwrap();
    let other = ns.observed("other").await;
    let start = ns.now().await;
    ns.deployments()
        .delete("orders-worker", &DeleteParams::orphan())
        .await
        .unwrap();
    eventually(
        "the ReplicaSet to be adopted and scaled to the other's number",
        async || {
            let rs = ns
                .replica_sets()
                .get(&rs.name_any())
                .await
                .map_err(|e| e.to_string())?;
            let number = rs.spec.as_ref().and_then(|spec| spec.replicas);
            ensure(is_of(&rs, &other) && number == Some(1), || {
                format!("it has {number:?} and owners {:?}", rs.owner_references())
            })
        },
    )
    .await;
    eventually("two of three pods to be stopped", async || {
        let stopped = ns.recorder.stops(start);
        ensure(
            stopped == BTreeMap::from([("v1".into(), 2)])
                && observed(&ns.deployment("other").await),
            || format!("{stopped:?}"),
        )
    })
    .await;
}
