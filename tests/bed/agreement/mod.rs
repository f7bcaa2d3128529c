//! The simulated cluster is held to the real one: the same scripts are played on both, each with the unchanged daemon, and must agree in
//! outcome, pod starts, steps and the daemon's writes (design section 7).
//!
//! | module | what it holds |
//! | --- | --- |
//! | `script` | what is played: a worker, and what its user does when |
//! | `sight` | the objects at one moment, and what can be read from them |
//! | `gauge` | what Prometheus says |
//! | `account` | what is compared |
//! | `real`, `simulated` | the two stages |

mod account;
mod gauge;
mod real;
mod script;
mod sight;
mod simulated;

use similar::TextDiff;

use crate::{
    kubelet::Behaviour,
    scene::{Scene, Trials},
};
use account::Account;
pub use real::comes_to;
pub use script::End;
use script::{Deed, Past, Script, When};

pub fn register(trials: &mut Trials) {
    for script in scripts() {
        trials.add(format!("agreement: {}", script.name), async move |scene| {
            agrees(&scene, &script).await
        });
    }
}

async fn agrees(scene: &Scene, script: &Script) {
    // On a thread of its own, where the clock is a virtual one.
    let simulated = {
        let script = script.clone();
        tokio::task::spawn_blocking(move || simulated::play(&script))
    };
    let real = real::play(scene, script).await;
    let simulated = simulated.await.expect("the simulation ends");
    assert_same(&real, &simulated);
}

fn assert_same(real: &Account, simulated: &Account) {
    let (real, simulated) = (real.to_string(), simulated.to_string());
    if real != simulated {
        let diff = TextDiff::from_lines(&real, &simulated);
        let diff = diff
            .unified_diff()
            .context_radius(100)
            .header("the real cluster", "the simulated cluster")
            .to_string();
        panic!("the two clusters differ:\n{diff}");
    }
}

/// The life of a worker as the scenarios of the bed tell it.
fn scripts() -> Vec<Script> {
    let crash = Behaviour::CrashLoop {
        up: std::time::Duration::from_millis(300),
        down: std::time::Duration::from_millis(300),
        exit_code: 137,
    };
    let good = |tag| Deed::Apply(tag, Behaviour::default());
    let at = When::Step;
    vec![
        Script::new("registered with a history", End::Accepted("v1")).past(Past::TwoVersions),
        Script::new("promoted", End::Accepted("v2")).then(When::AtRest("v1"), good("v2")),
        Script::new(
            "rolled back by metrics at the second step",
            End::Rejected("v2"),
        )
        .then(When::AtRest("v1"), good("v2"))
        .then(at(4, 6), Deed::Errors(1.0)),
        Script::new("crashing in the first step", End::Rejected("v2"))
            .then(When::AtRest("v1"), good("v2"))
            .then(at(2, 8), Deed::Turn("v2", crash)),
        Script::new("never ready", End::Rejected("v2"))
            .config("abort: 3s")
            .then(When::AtRest("v1"), Deed::Apply("v2", Behaviour::NeverReady)),
        Script::new("image cannot be pulled", End::Rejected("v2"))
            .config("abort: 3s")
            .then(When::AtRest("v1"), Deed::Apply("v2", Behaviour::ImagePull)),
        Script::new("superseded at the second step", End::Accepted("v3"))
            .then(When::AtRest("v1"), good("v2"))
            .then(at(4, 6), good("v3")),
        Script::new("cancelled at the second step", End::Accepted("v1"))
            .then(When::AtRest("v1"), good("v2"))
            .then(at(4, 6), good("v1")),
        Script::new("scaled up at the first step", End::Accepted("v2"))
            .then(When::AtRest("v1"), good("v2"))
            .then(at(2, 8), Deed::Scale(14)),
        Script::new("a new version and back again", End::Accepted("v1"))
            .then(When::AtRest("v1"), good("v2"))
            .then(When::AtRest("v2"), good("v1")),
        Script::new("released", End::Released)
            .past(Past::TwoVersions)
            .then(When::AtRest("v1"), Deed::Remove),
        Script::new("released after a rollout", End::Released)
            .then(When::AtRest("v1"), good("v2"))
            .then(When::AtRest("v2"), Deed::Remove),
    ]
}
