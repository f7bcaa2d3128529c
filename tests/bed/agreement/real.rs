//! A script on the real control plane, with the real binary.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;
use tokio::time::sleep;

use super::{
    account::{Account, Write, normalised},
    gauge::Gauge,
    script::{Deed, End, Past, Script, When, X, version},
    sight::{Sight, set_tag},
};
use crate::{
    namespace::Namespace,
    prometheus::Answer,
    recorder::Object,
    scene::Scene,
    wait::{ensure, within},
};

/// How long nothing is written before it is over.
const QUIET: Duration = Duration::from_secs(2);

/// How long anything may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(240);

pub async fn play(scene: &Scene, script: &Script) -> Account {
    let namespace = scene.namespace().await;
    let begun = namespace.now().await;
    let gauge = Gauge::held_at(script.held_at());
    let stub = namespace.prometheus_stub().await;
    let answering = gauge.clone();
    stub.answers(Answer::By(Arc::new(move |query| answering.answer(query))));
    match script.past {
        Past::Nothing => namespace.running(&Script::worker()).await,
        Past::TwoVersions => namespace.history(&Script::worker()).await,
    };
    let [with, without] = script.configs(&namespace.name, &stub.url());
    let mut setup = namespace.daemon_setup(&with);
    let mut daemon = namespace.daemon(&setup).await;
    for (when, deed) in &script.deeds {
        within(LONGEST, &format!("{when:?}"), async || {
            let sight = look(&namespace).await?;
            ensure(when.holds(&sight), || sight.lines().join("\n"))
        })
        .await;
        namespace.note(&format!("{deed:?}"));
        match *deed {
            Deed::Apply(tag, behaviour) => {
                namespace.patch(X, version(tag, behaviour)).await;
            }
            Deed::Scale(replicas) => {
                namespace
                    .patch(X, json!({"spec": {"replicas": replicas}}))
                    .await;
            }
            Deed::Errors(value) => gauge.set(value),
            Deed::Turn(tag, behaviour) => namespace.turn(tag, behaviour),
            Deed::Remove => {
                assert!(daemon.terminate().await.success());
                setup.write_config(&without);
                setup.extra_args = vec!["--release-after".to_owned(), "1s".to_owned()];
                daemon = namespace.daemon(&setup).await;
            }
        }
        if matches!(when, When::Step(..)) {
            within(LONGEST, &format!("{deed:?} to be answered"), async || {
                let sight = look(&namespace).await?;
                ensure(!when.holds(&sight), || "nothing moves".to_owned())
            })
            .await;
            gauge.release();
        }
    }
    let sight = comes_to(&namespace, script.end).await;
    namespace.now().await;
    Account {
        starts: namespace.recorder.starts(begun),
        steps: namespace.recorder.steps(X, begun),
        writes: writes(&namespace).await,
        told: told(&namespace).await,
        left: sight.lines(),
    }
}

/// Waits until the worker has come to this end, and nothing is written any more.
pub async fn comes_to(namespace: &Arc<Namespace>, end: End) -> Sight {
    within(LONGEST, &format!("the end, {end:?}"), async || {
        end.reached(&look(namespace).await?)?;
        let writes = namespace.daemon_writes().await.len();
        sleep(QUIET).await;
        let now = namespace.daemon_writes().await.len();
        ensure(writes == now, || "it goes on writing".to_owned())?;
        let sight = look(namespace).await?;
        end.reached(&sight)?;
        Ok(sight)
    })
    .await
}

async fn look(namespace: &Arc<Namespace>) -> Result<Sight, String> {
    let all = ListParams::default();
    let told = |error: kube::Error| error.to_string();
    Ok(Sight {
        deployments: namespace
            .deployments()
            .list(&all)
            .await
            .map_err(told)?
            .items,
        replica_sets: namespace
            .replica_sets()
            .list(&all)
            .await
            .map_err(told)?
            .items,
        pods: namespace.pods().list(&all).await.map_err(told)?.items,
        templates: namespace
            .pod_templates()
            .list(&all)
            .await
            .map_err(told)?
            .items,
    })
}

async fn writes(namespace: &Namespace) -> Vec<Write> {
    let events = namespace.recorder.events();
    let versions: HashMap<String, String> = events
        .iter()
        .filter_map(|event| match &event.object {
            Object::ReplicaSet(set) => Some((set.name_any(), set_tag(set))),
            Object::Pod(_) | Object::Deployment(_) => None,
        })
        .collect();
    let mut requests = namespace.daemon_writes().await;
    requests.retain(|request| (200..300).contains(&request.code()) && !request.only_tells());
    let write = |request: &crate::audit::Request| {
        let name = request.name().to_owned();
        Write {
            verb: request.verb.clone(),
            resource: request.resource(),
            object: versions.get(&name).cloned().unwrap_or(name),
        }
    };
    normalised(requests.iter().map(write).collect(), X)
}

/// The reasons of the Events that were made; one that was made before is patched.
async fn told(namespace: &Namespace) -> Vec<String> {
    let mut requests = namespace.daemon_writes().await;
    requests.retain(|request| request.resource() == "events" && request.verb == "create");
    requests.retain(|request| (200..300).contains(&request.code()));
    let reason = |request: &crate::audit::Request| {
        let reason = request.request_object["reason"].as_str();
        reason.unwrap_or_default().to_owned()
    };
    requests.iter().map(reason).collect()
}
