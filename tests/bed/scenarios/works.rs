//! People in the works: what Volery keeps is deleted, scaled, orphaned, un-paused or restored past it, at rest and open, with a daemon that
//! looks on and with none.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    base::{Base, Held, Since, Watch, config, entry},
    promises::{
        at_rest, deeds, never_beyond_the_step, never_more_of, no_other_pods, quiet, started, stash,
        step, stopped, untouched,
    },
};
use crate::{
    namespace::{Namespace, owned_by, uid},
    scene::{Scene, Trials},
    wait::{ensure, eventually, stays},
    worker::Worker,
};

const X: &str = "orders-worker";
const PRIMARY: &str = "orders-worker-primary";
const CANARY: &str = "orders-worker-canary";
const STATE: &str = "orders-worker-volery";
const AGAIN: &str = "orders-worker: orders-worker was un-paused; paused again";
const TAKEN_UP: &str = "orders-worker: taken up again: ";
const NEEDS_HELP: &str =
    "orders-worker: waiting to be registered: it is paused and does not run what its template says";
const FIGHT: &str = "orders-worker: blocked: orders-worker is un-paused again and again";

/// Long enough that a restless daemon would have done something.
const A_WHILE: Duration = Duration::from_secs(3);

pub fn register(trials: &mut Trials) {
    for watch in Watch::BOTH {
        let text = watch.text();
        trials.add_with_lags(
            &format!("works: the primary is deleted at (4,6){text} (K09)"),
            async move |scene| primary_deleted(&scene, watch).await,
        );
        trials.add(
            format!("works: the primary is deleted at (4,6) and leaves its pods{text} (K09)"),
            async move |scene| primary_orphaned(&scene, watch).await,
        );
        trials.add(
            format!("works: both clones are deleted at (4,6){text}"),
            async move |scene| clones_deleted(&scene, watch).await,
        );
        trials.add(
            format!("works: both clones and the state object are deleted at (4,6){text} (K09)"),
            async move |scene| all_deleted(&scene, watch).await,
        );
        trials.add(
            format!("works: the ReplicaSet is deleted at rest with a failed version on the Deployment{text} (K09)"),
            async move |scene| accepted_set_deleted(&scene, watch).await,
        );
        trials.add(
            format!("works: the ReplicaSet and the state object are deleted with a failed version on the Deployment{text} (K09)"),
            async move |scene| nothing_left(&scene, watch).await,
        );
        trials.add(
            format!("works: the state object is deleted at rest{text}"),
            async move |scene| state_deleted(&scene, watch).await,
        );
        trials.add(
            format!("works: the state object is deleted at (4,6), and restored{text}"),
            async move |scene| state_restored(&scene, watch).await,
        );
        trials.add(
            format!("works: the Deployment is deleted with orphans at rest and applied again{text} (K44)"),
            async move |scene| orphaned_at_rest(&scene, watch).await,
        );
        trials.add(
            format!("works: the Deployment is deleted with orphans at rest and applied again with a new version{text} (K44)"),
            async move |scene| orphaned_with_news(&scene, watch).await,
        );
        for (version, end) in [("v2", "goes on"), ("v1", "is cancelled")] {
            trials.add_with_lags(
                &format!("works: the Deployment is deleted with orphans at (4,6) and applied again: the rollout {end}{text} (K44)"),
                async move |scene| orphaned_while_open(&scene, watch, version).await,
            );
        }
        for place in [Place::AtRest, Place::Open] {
            trials.add(
                format!(
                    "works: the Deployment is deleted {} and made again{text} (K44)",
                    place.text()
                ),
                async move |scene| made_again(&scene, watch, place, Worker::default()).await,
            );
            trials.add(
                format!("works: the Deployment is deleted {} and made again with another selector{text} (K44)", place.text()),
                async move |scene| made_again(&scene, watch, place, other_selector()).await,
            );
            trials.add(
                format!(
                    "works: a backup is restored without owners {}{text}",
                    place.text()
                ),
                async move |scene| restored(&scene, watch, place).await,
            );
        }
        trials.add(
            format!("works: the Deployment is deleted with orphans at rest and made again with another selector{text} (K44)"),
            async move |scene| orphaned_with_another_selector(&scene, watch).await,
        );
        trials.add(
            format!("works: both clones are scaled by hand at (4,6){text} (K37)"),
            async move |scene| clones_scaled(&scene, watch).await,
        );
        trials.add_with_lags(
            &format!(
                "works: the manifest says paused: false at rest, with a new image{text} (K40)"
            ),
            async move |scene| unpaused_by_manifest(&scene, watch).await,
        );
    }
    trials.add(
        "works: single pods and a ReplicaSet's number at rest are Kubernetes' business",
        at_rest_natively,
    );
    trials.add("works: single pods are deleted at (4,6)", async |scene| {
        pods_deleted(&scene).await
    });
    trials.add_with_lags(
        "works: the manifest says paused: false at (4,6) (K40)",
        async |scene| unpaused_while_open(&scene).await,
    );
    trials.add(
        "works: the manifest says paused: false three times in ten minutes (K40)",
        async |scene| fight(&scene).await,
    );
    for name in [CANARY, PRIMARY] {
        trials.add(
            format!("works: a Deployment {name} of somebody else's comes when the service is at rest (K43)"),
            async move |scene| foreign_later(&scene, name).await,
        );
        trials.add(
            format!("works: a Deployment {name} is somebody else's (K43)"),
            async move |scene| foreign(scene, Foreign::Deployment(name)).await,
        );
    }
    trials.add(
        "works: the PodTemplate of the state's name is somebody else's (K43)",
        async |scene| foreign(scene, Foreign::State).await,
    );
}

/// Where a service is when something happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    AtRest,
    Open,
}

impl Place {
    const fn text(self) -> &'static str {
        match self {
            Self::AtRest => "at rest",
            Self::Open => "at (4,6)",
        }
    }
}

async fn delete(namespace: &Namespace, kind: &str, name: &str) {
    namespace.kubectl_ok(&["delete", kind, name], None).await;
}

async fn orphan(namespace: &Namespace, name: &str) {
    let words = ["delete", "deployment", name, "--cascade=orphan"];
    namespace.kubectl_ok(&words, None).await;
}

/// The name of the ReplicaSet of a Deployment with this tag.
async fn set_name(namespace: &Namespace, deployment: &str, version: &str) -> String {
    let owner = uid(&namespace.deployment(deployment).await);
    namespace
        .replica_sets_of(&owner)
        .await
        .iter()
        .find(|set| super::promises::set_tag(set) == version)
        .map(kube::ResourceExt::name_any)
        .expect("it owns one of this version")
}

async fn promoted(held: &Held, since: Instant) {
    held.go_on();
    held.base
        .daemon
        .log_contains_since(
            since,
            "at rest: 10 replicas of registry.example/orders-worker:v2",
        )
        .await;
    at_rest(&held.base.namespace, X, "v2", 10).await;
    no_other_pods(&held.base.namespace, X).await;
}

async fn primary_deleted(scene: &Scene, watch: Watch) {
    let (held, _, at) = Held::at(scene, 4, 6).await;
    let held = held
        .meanwhile(watch, async |namespace, _| {
            delete(&namespace, "deployment", PRIMARY).await
        })
        .await;
    let namespace = &held.base.namespace;
    held.base
        .daemon
        .log_contains_since(at.at, "the accepted version's ReplicaSet was gone: registry.example/orders-worker:v1 is started again")
        .await;
    step(namespace, X, at.at, (4, 6)).await;
    eventually("six pods of the accepted version", async || {
        let sets = namespace
            .replica_sets_of(&uid(&namespace.deployment(PRIMARY).await))
            .await;
        let available: Vec<_> = sets
            .iter()
            .filter_map(|set| set.status.as_ref()?.available_replicas)
            .collect();
        ensure(available == [6], || format!("{available:?}"))
    })
    .await;
    never_more_of(namespace, at.at, "v2", 4).await;
    promoted(&held, at.at).await;
    started(namespace, at.at, &[("v1", 6), ("v2", 6)]).await;
}

/// Whoever adopts the pods, the accepted version runs in full or the new one is promoted in the end, and nothing is left over.
async fn primary_orphaned(scene: &Scene, watch: Watch) {
    let (held, _, at) = Held::at(scene, 4, 6).await;
    let held = held
        .meanwhile(watch, async |namespace, _| {
            orphan(&namespace, PRIMARY).await
        })
        .await;
    never_more_of(&held.base.namespace, at.at, "v2", 4).await;
    promoted(&held, at.at).await;
}

/// Nothing runs any more: the accepted version comes back first, and the rollout starts again.
async fn clones_deleted(scene: &Scene, watch: Watch) {
    let (held, _, at) = Held::at(scene, 4, 6).await;
    let held = held
        .meanwhile(watch, async |namespace, _| {
            delete(&namespace, "deployment", PRIMARY).await;
            delete(&namespace, "deployment", CANARY).await;
        })
        .await;
    promoted(&held, at.at).await;
    // Never from the template of X, before its steps.
    never_beyond_the_step(&held.base.namespace, X, at.at).await;
}

/// Which version was accepted is not known any more: nothing is written, and a person decides.
async fn all_deleted(scene: &Scene, watch: Watch) {
    let (held, _, at) = Held::at(scene, 4, 6).await;
    let held = held
        .meanwhile(watch, async |namespace, _| {
            delete(&namespace, "podtemplate", STATE).await;
            delete(&namespace, "deployment", PRIMARY).await;
            delete(&namespace, "deployment", CANARY).await;
        })
        .await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    base.daemon.log_contains_since(at.at, NEEDS_HELP).await;
    quiet(namespace, A_WHILE).await;
    never_more_of(namespace, at.at, "v2", 4).await;
    namespace
        .kubectl_ok(&["rollout", "resume", "deployment/orders-worker"], None)
        .await;
    base.daemon
        .log_contains_since(at.at, "orders-worker: registered: 10 replicas")
        .await;
    at_rest(namespace, X, "v2", 10).await;
}

async fn accepted_set_deleted(scene: &Scene, watch: Watch) {
    let base = Base::rejected(scene).await;
    let since = base.now().await;
    let set = set_name(&base.namespace, X, "v1").await;
    let base = base
        .meanwhile(watch, async |namespace, _| {
            delete(&namespace, "replicaset", &set).await
        })
        .await;
    base.daemon
        .log_contains_since(since, "the accepted version's ReplicaSet was gone: registry.example/orders-worker:v1 is started again")
        .await;
    at_rest(&base.namespace, X, "v1", 10).await;
    started(&base.namespace, since, &[("v1", 10)]).await;
    no_other_pods(&base.namespace, X).await;
}

async fn nothing_left(scene: &Scene, watch: Watch) {
    let base = Base::rejected(scene).await;
    let since = base.now().await;
    let set = set_name(&base.namespace, X, "v1").await;
    let writes = deeds(&base.namespace).await.len();
    let base = base
        .meanwhile(watch, async |namespace, _| {
            delete(&namespace, "podtemplate", STATE).await;
            delete(&namespace, "replicaset", &set).await;
        })
        .await;
    let namespace = &base.namespace;
    base.daemon.log_contains_since(since, NEEDS_HELP).await;
    stays("nothing to happen", A_WHILE, async || {
        let pods = namespace.pods_of(&namespace.deployment(X).await).await;
        ensure(pods.is_empty(), || format!("{} pods run", pods.len()))
    })
    .await;
    assert_eq!(deeds(namespace).await.len(), writes, "nothing is written");
    started(namespace, since, &[]).await;

    // What the line asks for.
    namespace.apply(&base.worker).await;
    namespace
        .kubectl_ok(&["rollout", "resume", "deployment/orders-worker"], None)
        .await;
    base.daemon
        .log_contains_since(since, "orders-worker: registered: 10 replicas")
        .await;
    at_rest(namespace, X, "v1", 10).await;
    started(namespace, since, &[("v1", 10)]).await;
}

async fn state_deleted(scene: &Scene, watch: Watch) {
    let base = Base::registered(scene, "").await;
    let since = base.now().await;
    let base = base
        .meanwhile(watch, async |namespace, _| {
            delete(&namespace, "podtemplate", STATE).await
        })
        .await;
    base.daemon
        .log_contains_since(since, "orders-worker: registered: 10 replicas")
        .await;
    at_rest(&base.namespace, X, "v1", 10).await;
    untouched(&base.namespace, since).await;
}

async fn state_restored(scene: &Scene, watch: Watch) {
    let (held, before, at) = Held::at(scene, 4, 6).await;
    let backup = get(&held.base.namespace, "podtemplate", STATE).await;
    let held = held
        .meanwhile(watch, async |namespace, _| {
            delete(&namespace, "podtemplate", STATE).await
        })
        .await;
    let namespace = &held.base.namespace;
    held.base
        .daemon
        .log_contains_since(
            at.at,
            "orders-worker: blocked: the state object is gone while clones exist",
        )
        .await;
    quiet(namespace, A_WHILE).await;
    untouched(namespace, at.at).await;
    create(namespace, backup).await;
    promoted(&held, at.at).await;
    started(namespace, before.at, &[("v2", 10)]).await;
    stopped(namespace, before.at, &[("v1", 10)]).await;
}

async fn orphaned_at_rest(scene: &Scene, watch: Watch) {
    let base = Base::with_history(scene).await;
    let since = base.now().await;
    let history = stash(&base.namespace, X).await;
    let base = base
        .meanwhile(watch, async |namespace, worker| {
            orphan(&namespace, X).await;
            namespace.apply(&worker).await;
        })
        .await;
    base.daemon.log_contains_since(since, TAKEN_UP).await;
    at_rest(&base.namespace, X, "v1", 10).await;
    untouched(&base.namespace, since).await;
    assert_eq!(stash(&base.namespace, X).await, history);
    is_owned(&base.namespace, &[]).await;
    quiet(&base.namespace, A_WHILE).await;
}

/// While a daemon looks on, the new version is vetted; while none does, Kubernetes rolls it out, and that is somebody's decision.
async fn orphaned_with_news(scene: &Scene, watch: Watch) {
    let base = Base::registered(scene, "").await;
    let since = base.now().await;
    let base = base
        .meanwhile(watch, async |namespace, worker| {
            orphan(&namespace, X).await;
            namespace.apply(&worker.tag("v2")).await;
            if watch == Watch::Down {
                namespace.complete(X).await;
            }
        })
        .await;
    base.daemon.log_contains_since(since, TAKEN_UP).await;
    let how = match watch {
        Watch::Kept => "promoted: registry.example/orders-worker:v2",
        Watch::Down => {
            "registry.example/orders-worker:v2 was rolled out by hand and carries the load"
        }
    };
    base.daemon.log_contains_since(since, how).await;
    at_rest(&base.namespace, X, "v2", 10).await;
    is_owned(&base.namespace, &[]).await;
    no_other_pods(&base.namespace, X).await;
}

async fn orphaned_while_open(scene: &Scene, watch: Watch, version: &'static str) {
    let (held, _, at) = Held::at(scene, 4, 6).await;
    let primary = held.base.namespace.deployment(PRIMARY).await;
    let kept: Vec<String> = held
        .base
        .namespace
        .pods_of(&primary)
        .await
        .iter()
        .map(uid)
        .collect();
    let held = held
        .meanwhile(watch, async |namespace, worker| {
            orphan(&namespace, X).await;
            namespace.apply(&worker.tag(version)).await;
            if watch == Watch::Down {
                namespace.complete(X).await;
            }
        })
        .await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    base.daemon.log_contains_since(at.at, TAKEN_UP).await;
    base.daemon.log_contains_since(at.at, AGAIN_OR_TAKEN).await;
    if version == "v2" {
        is_owned(namespace, &[PRIMARY, CANARY]).await;
        promoted(&held, at.at).await;
    } else {
        base.daemon
            .log_contains_since(at.at, "cancelled: the accepted template is wanted again")
            .await;
        let pods = at_rest(namespace, X, "v1", 10).await;
        assert!(
            kept.iter().all(|uid| pods.contains(uid)),
            "{kept:?} not all in {pods:?}"
        );
        no_other_pods(namespace, X).await;
    }
}

/// The pause is part of taking up.
const AGAIN_OR_TAKEN: &str =
    "had lost the Deployment that owned them; paused, and going on where it was";

async fn orphaned_with_another_selector(scene: &Scene, watch: Watch) {
    let base = Base::registered(scene, "").await;
    let since = base.now().await;
    let base = base
        .meanwhile(watch, async |namespace, _| {
            orphan(&namespace, X).await;
            namespace.apply(&other_selector()).await;
        })
        .await;
    let namespace = &base.namespace;
    // The old pods are somebody's, and nobody's business here; the new Deployment's are the worker.
    base.daemon
        .log_contains_since(since, "orders-worker: blocked: orders-worker-volery has lost its owner and cannot be taken up again")
        .await;
    quiet(namespace, A_WHILE).await;
    let x = namespace.complete(X).await;
    assert_ne!(
        x.spec.and_then(|spec| spec.paused),
        Some(true),
        "it is not touched"
    );
    stopped(namespace, since, &[]).await;
    delete(namespace, "podtemplate", STATE).await;
    base.daemon
        .log_contains_since(since, "orders-worker: registered: 10 replicas")
        .await;
    stopped(namespace, since, &[]).await;
}

fn other_selector() -> Worker {
    let labels = json!({"app": X, "generation": "second"});
    Worker::default().spec(json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}},
    }))
}

async fn made_again(scene: &Scene, watch: Watch, place: Place, worker: Worker) {
    let base = match place {
        Place::AtRest => Base::with_history(scene).await,
        Place::Open => Held::at(scene, 4, 6).await.0.base,
    };
    let since = base.now().await;
    let base = base
        .meanwhile(watch, async |namespace, _| {
            // Not waiting for what it owned.
            delete(&namespace, "deployment", X).await;
            namespace.apply(&worker).await;
        })
        .await;
    let namespace = &base.namespace;
    base.daemon
        .log_contains_since(since, "orders-worker: registered: 10 replicas")
        .await;
    at_rest(namespace, X, "v1", 10).await;
    started(namespace, since, &[("v1", 10)]).await;
    assert_eq!(stash(namespace, X).await, []);
    is_owned(namespace, &[]).await;
    quiet(namespace, A_WHILE).await;
    let absent = base
        .daemon
        .log()
        .iter()
        .filter(|line| line.at >= since && line.text.contains("there is no Deployment"))
        .count();
    assert!(absent <= 1, "{absent} lines while it was absent");
}

async fn get(namespace: &Namespace, kind: &str, name: &str) -> Value {
    let text = namespace
        .kubectl_ok(&["get", kind, name, "-o", "json"], None)
        .await;
    serde_json::from_str(&text).expect("kubectl prints JSON")
}

/// Creates an object of a backup, without what only the server gives.
async fn create(namespace: &Namespace, mut object: Value) {
    for pointer in [
        "/metadata/uid",
        "/metadata/resourceVersion",
        "/metadata/creationTimestamp",
        "/metadata/generation",
        "/metadata/managedFields",
        "/status",
    ] {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            fields.remove(key);
        }
    }
    namespace
        .kubectl_ok(&["create", "-f", "-"], Some(&object.to_string()))
        .await;
}

/// A backup tool brings all back as it was, but for who owned whom: every object has a new uid and no owner.
async fn restored(scene: &Scene, watch: Watch, place: Place) {
    let (base, held) = match place {
        Place::AtRest => (Base::with_history(scene).await, None),
        Place::Open => {
            let (held, ..) = Held::at(scene, 4, 6).await;
            let Held { base, stub } = held;
            (base, Some(stub))
        }
    };
    let since = base.now().await;
    let mut backup: Vec<Value> = Vec::new();
    for kind in ["replicasets", "deployments", "podtemplates"] {
        let text = base
            .namespace
            .kubectl_ok(&["get", kind, "-o", "json"], None)
            .await;
        let list: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
        backup.extend(list["items"].as_array().cloned().unwrap_or_default());
    }
    let base = base
        .meanwhile(watch, async |namespace, _| {
            delete(&namespace, "deployment", X).await;
            all_gone(&namespace).await;
            for mut object in backup {
                object["metadata"]
                    .as_object_mut()
                    .expect("metadata")
                    .remove("ownerReferences");
                create(&namespace, object).await;
            }
        })
        .await;
    let namespace = &base.namespace;
    match held {
        None => {
            // The state object comes last: by then the Deployment may be registered as one that was never known.
            at_rest(namespace, X, "v1", 10).await;
            started(namespace, since, &[("v1", 10)]).await;
            let kept: Vec<String> = stash(namespace, X)
                .await
                .into_iter()
                .map(|(tag, _)| tag)
                .collect();
            assert_eq!(kept, ["h1", "h2"]);
        }
        Some(stub) => {
            stub.answers(crate::prometheus::Answer::Real);
            base.daemon.log_contains_since(since, TAKEN_UP).await;
            at_rest(namespace, X, "v2", 10).await;
        }
    }
    is_owned(namespace, &[]).await;
    no_other_pods(namespace, X).await;
    quiet(namespace, A_WHILE).await;
}

async fn all_gone(namespace: &Namespace) {
    eventually("all to be gone with the Deployment", async || {
        let kinds = "deployments,replicasets,pods,podtemplates";
        let left = namespace
            .kubectl_ok(&["get", kinds, "-o", "name"], None)
            .await;
        ensure(left.trim().is_empty(), || format!("there is {left}"))
    })
    .await;
}

/// X is the owner of the state object and of these clones, and of no other.
async fn is_owned(namespace: &Namespace, clones: &[&str]) {
    eventually("the Deployment to own what is Volery's", async || {
        let x = uid(&namespace
            .deployments()
            .get(X)
            .await
            .map_err(|e| e.to_string())?);
        let state = namespace
            .pod_templates()
            .get(STATE)
            .await
            .map_err(|e| e.to_string())?;
        ensure(owned_by(state.owner_references(), &x), || {
            "the state object is not its".to_owned()
        })?;
        for name in clones {
            let clone = namespace
                .deployments()
                .get(name)
                .await
                .map_err(|e| e.to_string())?;
            ensure(owned_by(clone.owner_references(), &x), || {
                format!("{name} is not its")
            })?;
        }
        Ok(())
    })
    .await;
}

async fn clones_scaled(scene: &Scene, watch: Watch) {
    let (mut held, _, at) = Held::at(scene, 4, 6).await;
    for (primary, canary) in [(9, 4), (6, 9), (2, 4), (6, 0)] {
        let since = held.base.now().await;
        held = held
            .meanwhile(watch, async |namespace, _| {
                namespace.scale(PRIMARY, primary).await;
                namespace.scale(CANARY, canary).await;
            })
            .await;
        let namespace = &held.base.namespace;
        eventually("the step's numbers", async || {
            let numbers = [CANARY, PRIMARY].map(|name| namespace.deployment(name));
            let [canary, primary] = numbers;
            let (canary, primary) = (canary.await, primary.await);
            let replicas = |x: &k8s_openapi::api::apps::v1::Deployment| {
                let available = x
                    .status
                    .as_ref()
                    .and_then(|status| status.available_replicas);
                (x.spec.as_ref().and_then(|spec| spec.replicas), available)
            };
            let now = (replicas(&canary), replicas(&primary));
            ensure(now == ((Some(4), Some(4)), (Some(6), Some(6))), || {
                format!("{now:?}")
            })
        })
        .await;
        step(namespace, X, since, (4, 6)).await;
    }
    promoted(&held, at.at).await;
}

async fn at_rest_natively(scene: Arc<Scene>) {
    let base = Base::registered(&scene, "").await;
    let namespace = &base.namespace;
    let since = base.now().await;
    let writes = deeds(namespace).await.len();
    let pods = namespace.pods_of(&namespace.deployment(X).await).await;
    for pod in pods.iter().take(2) {
        delete(namespace, "pod", &pod.name_any()).await;
    }
    at_rest(namespace, X, "v1", 10).await;
    started(namespace, since, &[("v1", 2)]).await;
    let set = set_name(namespace, X, "v1").await;
    for replicas in [12, 7] {
        let words = [
            "scale",
            "replicaset",
            &set,
            &format!("--replicas={replicas}"),
        ];
        namespace.kubectl_ok(&words, None).await;
        at_rest(namespace, X, "v1", 10).await;
    }
    assert_eq!(
        deeds(namespace).await.len(),
        writes,
        "none of Volery's business"
    );
}

async fn pods_deleted(scene: &Scene) {
    let (held, before, at) = Held::at(scene, 4, 6).await;
    let namespace = &held.base.namespace;
    for clone in [PRIMARY, CANARY] {
        let pods = namespace.pods_of(&namespace.deployment(clone).await).await;
        delete(namespace, "pod", &pods[0].name_any()).await;
    }
    promoted(&held, at.at).await;
    started(namespace, before.at, &[("v1", 1), ("v2", 11)]).await;
    stopped(namespace, before.at, &[("v1", 11), ("v2", 1)]).await;
}

fn unpausing(worker: &Worker) -> Worker {
    worker.clone().spec(json!({"paused": false}))
}

async fn unpaused_by_manifest(scene: &Scene, watch: Watch) {
    let base = Base::registered(scene, "").await;
    let since = base.now().await;
    let base = base
        .meanwhile(watch, async |namespace, worker| {
            namespace.apply(&unpausing(&worker.tag("v2"))).await;
        })
        .await;
    let namespace = &base.namespace;
    base.daemon.log_contains_since(since, AGAIN).await;
    // A daemon that comes too late finds v2 with the load already.
    let ends = "at rest: 10 replicas of registry.example/orders-worker:v2";
    base.daemon.log_contains_since(since, ends).await;
    at_rest(namespace, X, "v2", 10).await;
    no_other_pods(namespace, X).await;
    // maxUnavailable of the Deployment's own strategy is what can be lost until the pause is observed.
    let (fewest, _) = namespace.recorder.range(since, |pods| pods.available);
    assert!(fewest >= 8, "{fewest} available");
    quiet(namespace, A_WHILE).await;
}

async fn unpaused_while_open(scene: &Scene) {
    let (held, before, at) = Held::at(scene, 4, 6).await;
    let (base, namespace) = (&held.base, &held.base.namespace);
    namespace
        .apply(&unpausing(&base.worker.clone().tag("v2")))
        .await;
    at.log(&base.daemon, AGAIN).await;
    promoted(&held, at.at).await;
    let (fewest, _) = namespace.recorder.range(before.at, |pods| pods.available);
    assert!(fewest >= 10, "{fewest} available");
    assert_eq!(namespace.recorder.starts(before.at).get("v1"), None);
}

async fn fight(scene: &Scene) {
    let base = Base::registered(scene, "").await;
    let namespace = &base.namespace;
    let mut since = Since::now(namespace, &base.daemon).await;
    let first = since.at;
    for _ in 0..3 {
        namespace.apply(&unpausing(&base.worker)).await;
        since = since.log(&base.daemon, AGAIN).await;
    }
    since.log(&base.daemon, FIGHT).await;
    // Paused each time, and nothing is rolled out any more.
    namespace
        .apply(&unpausing(&base.worker.clone().tag("v2")))
        .await;
    since.log(&base.daemon, AGAIN).await;
    at_rest(namespace, X, "v1", 10).await;
    quiet(namespace, A_WHILE).await;
    no_other_pods(namespace, X).await;
    let log = since.lines(&base.daemon).join("\n");
    assert!(!log.contains("rollout 1"), "{log}");
    let stops = namespace.recorder.stops(first).get("v1").copied();
    assert!(stops.unwrap_or(0) <= 2, "accepted pods stopped: {stops:?}");
}

#[derive(Clone, Copy)]
enum Foreign {
    Deployment(&'static str),
    State,
}

/// What is not ours is never written: that entry alone waits.
async fn foreign(scene: Arc<Scene>, what: Foreign) {
    let namespace = scene.namespace().await;
    let billing = Worker::named("billing-worker").tag("b1");
    let (kind, name) = match what {
        Foreign::Deployment(name) => {
            namespace.apply(&Worker::named(name).replicas(3)).await;
            namespace.complete(name).await;
            ("deployment", name)
        }
        Foreign::State => {
            let template = json!({"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]}});
            let object = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": STATE}, "template": template});
            namespace
                .kubectl_ok(&["create", "-f", "-"], Some(&object.to_string()))
                .await;
            ("podtemplate", STATE)
        }
    };
    namespace.running(&billing).await;
    namespace.running(&Worker::default()).await;
    for tag in ["b1", "b2", "v1"] {
        namespace.set_metric(tag, "my_errors", 0.0);
    }
    let text = config(&namespace, &namespace.bed.prometheus.url, "")
        + &entry(&namespace, "billing-worker", "");
    let version = async || {
        let object = get(&namespace, kind, name).await;
        object["metadata"]["resourceVersion"].clone()
    };
    let as_it_was = version().await;
    let daemon = namespace.daemon(&namespace.daemon_setup(&text)).await;
    daemon
        .log_contains(&format!(
            "{name} exists and is not Volery's; it is not touched"
        ))
        .await;
    daemon.log_contains("billing-worker: at rest").await;
    namespace.apply(&billing.tag("b2")).await;
    daemon
        .log_contains("billing-worker: at rest: 10 replicas of registry.example/billing-worker:b2")
        .await;
    at_rest(&namespace, "billing-worker", "b2", 10).await;
    assert_eq!(version().await, as_it_was, "{name} was written");
    let x = namespace.deployment(X).await;
    assert_ne!(
        x.spec.and_then(|spec| spec.paused),
        Some(true),
        "the Deployment of the refused entry is not touched"
    );
    let writes = deeds(&namespace).await;
    assert!(
        writes
            .iter()
            .all(|write| !write.name().starts_with("orders-worker")),
        "a write about the refused entry"
    );
    // Out of the way, and it is registered.
    delete(&namespace, kind, name).await;
    daemon
        .log_contains("orders-worker: registered: 10 replicas")
        .await;
    at_rest(&namespace, X, "v1", 10).await;
}

/// The name is taken when a rollout needs it: the accepted version runs on natively, and nothing is rolled out.
async fn foreign_later(scene: &Scene, name: &str) {
    let base = Base::registered(scene, "").await;
    let namespace = &base.namespace;
    let since = Since::now(namespace, &base.daemon).await;
    namespace.apply(&Worker::named(name).replicas(1)).await;
    namespace.complete(name).await;
    let taken = format!("orders-worker: blocked: Deployment {name} exists and is not Volery's");
    let blocked = since.log(&base.daemon, &taken).await;
    let before = get(namespace, "deployment", name).await;
    namespace
        .apply(&base.worker.clone().tag("v2").replicas(12))
        .await;
    eventually("two more of the accepted version", async || {
        let x = namespace.deployment(X).await;
        let available = x.status.and_then(|status| status.available_replicas);
        ensure(available == Some(12), || format!("{available:?}"))
    })
    .await;
    quiet(namespace, A_WHILE).await;
    never_more_of(namespace, since.at, "v2", 0).await;
    let after = get(namespace, "deployment", name).await;
    assert_eq!(
        after["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
    delete(namespace, "deployment", name).await;
    blocked
        .log(
            &base.daemon,
            "at rest: 12 replicas of registry.example/orders-worker:v2",
        )
        .await;
    at_rest(namespace, X, "v2", 12).await;
}
