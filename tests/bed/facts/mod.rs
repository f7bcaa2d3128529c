//! What the design takes for granted about Kubernetes (its section 3), proven on the version that the bed runs. The number of the fact is
//! in each trial's name. Where a fact is a danger the trial shows it happen: that is what makes the rule.

mod caches;
mod hand;
mod history;
mod life;
mod ownership;
mod paused;

use std::{sync::Arc, time::Duration};

use crate::{
    namespace::Namespace,
    proxy::Kind,
    scene::{Scene, Trials},
};

/// Adds all facts.
pub fn register(trials: &mut Trials) {
    paused::register(trials);
    ownership::register(trials);
    caches::register(trials);
    history::register(trials);
    life::register(trials);
}

/// Adds the trial three times: plain, and with each of the two watches that the deployment controller decides on half a second late in
/// its namespace.
fn under_each_lag<F>(trials: &mut Trials, name: &str, trial: fn(Arc<Namespace>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let lags = [
        ("", None),
        ("_with_late_deployments", Some(Kind::Deployments)),
        ("_with_late_replicasets", Some(Kind::ReplicaSets)),
    ];
    for (suffix, kind) in lags {
        trials.add(format!("{name}{suffix}"), async move |scene: Arc<Scene>| {
            let ns = scene.namespace().await;
            if let Some(kind) = kind {
                ns.lag(kind, Duration::from_millis(500));
            }
            trial(ns).await;
        });
    }
}

/// Long enough for the controllers to do what they would do, also half a second late.
const A_WHILE: Duration = Duration::from_secs(2);
