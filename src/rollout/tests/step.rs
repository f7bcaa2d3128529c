//! The steps of an open rollout.

use super::*;
use crate::config::Bound;
use crate::rollout::plan::Attention;
use crate::rollout::state::{Cause, Outcome};

#[test]
fn numbers_move_canary_first_and_primary_only_for_available_canary_pods() {
    for (why, canary, available, primary, expected) in [
        (
            "the canary is raised first",
            0,
            0,
            10,
            Some(vec!["canary 2"]),
        ),
        ("its pods are awaited", 2, 1, 10, None),
        (
            "then the primary is lowered",
            2,
            2,
            10,
            Some(vec!["primary 8"]),
        ),
    ] {
        let mut seen = in_step(2, raising(), canary, primary);
        seen.replica_sets[1].available = Replicas(available);
        let plan = decided(&seen, 1);
        match expected {
            Some(expected) => assert_eq!(scales(&plan), expected, "{why}"),
            None => assert!(matches!(plan.next, Next::Wait(Some(_))), "{why}"),
        }
    }
}

#[test]
fn availability_is_believed_only_when_pods_and_replica_set_agree() {
    let mut seen = in_step(2, raising(), 2, 10);
    for pod in &mut seen.pods {
        pod.ready = Ready::No;
    }
    assert!(matches!(decided(&seen, 1).next, Next::Wait(Some(_))));
}

#[test]
fn the_canary_is_not_raised_while_lowered_primary_pods_still_live() {
    let mut seen = in_step(4, raising(), 2, 8);
    seen.replica_sets[0].existing = Replicas(10);
    assert!(matches!(decided(&seen, 1).next, Next::Wait(_)));
}

#[test]
fn canary_pods_have_as_long_as_abort_says() {
    let mut seen = in_step(2, raising(), 2, 10);
    seen.replica_sets[1].available = Replicas(1);
    assert_eq!(
        decided(&seen, 59).next,
        Next::Wait(Some(Duration::from_secs(1)))
    );
    let plan = decided(&seen, 60);
    let rejected = written(&plan).rejected.as_ref().expect("is rejected");
    assert_eq!(rejected.failure.cause, Cause::NotAvailable);
    assert!(matches!(
        written(&plan).phase,
        Phase::Closing {
            outcome: Outcome::RolledBack,
            ..
        }
    ));
}

#[test]
fn a_step_goes_through_its_stages_in_order() {
    let settled = in_step(2, raising(), 2, 8);
    let mut settling = settled.clone();
    let mut going = pods(&set("orders-1", "orders-primary", V1, 9))
        .last()
        .expect("has pods");
    going.life = Life::Deleting;
    settling.pods.push(going);
    let stage = |seen: &Observation, since| {
        let plan = decided(seen, since);
        let Phase::Stepping { step, .. } = &written(&plan).phase else {
            panic!("{}", plan.status)
        };
        step.stage
    };
    assert_eq!(stage(&settling, 1), Stage::Settling);
    let warm_up = Stage::WarmingUp {
        elapsed: Elapsed::ZERO,
    };
    assert_eq!(stage(&settled, 1), warm_up);
    let warming = in_step(2, warm_up, 2, 8);
    assert_eq!(
        decided(&warming, 4).next,
        Next::Wait(Some(Duration::from_secs(1)))
    );
    assert_eq!(stage(&warming, 5), Stage::Checking);
    let checking = in_step(2, Stage::Checking, 2, 8);
    assert!(
        matches!(decided(&checking, 0).next, Next::Check(pods) if pods.canary.len() == 2 && pods.primary.len() == 8)
    );
}

/// The service may have no pod more than R.
fn capped() -> Service {
    Service {
        max_surge: Some(Bound::Zero),
        ..service()
    }
}

fn decided_capped(seen: &Observation, since: u64) -> Plan {
    decide(
        &capped(),
        Desired::Managed(Turn::Taken),
        seen,
        Duration::from_secs(since),
    )
}

fn stage_of(plan: &Plan) -> Stage {
    let Phase::Stepping { step, .. } = &written(plan).phase else {
        panic!("{}", plan.status)
    };
    step.stage
}

#[test]
fn under_the_cap_the_primary_goes_first_and_no_time_counts_until_its_pods_are_gone() {
    let begun = in_step(2, raising(), 0, 10);
    let plan = decided_capped(&begun, 1);
    assert_eq!(scales(&plan), ["primary 8"]);
    assert_eq!(stage_of(&plan), Stage::MakingRoom);

    let mut going = in_step(2, Stage::MakingRoom, 0, 8);
    let lowered: Vec<Pod> = pods(&set("orders-1", "orders-primary", V1, 10))
        .skip(8)
        .map(|pod| Pod {
            life: Life::Deleting,
            ..pod
        })
        .collect();
    going.pods.extend(lowered.clone());
    let plan = decided_capped(&going, 3600);
    assert_eq!(plan.next, Next::Wait(None));
    assert_eq!(
        plan.status.to_string(),
        "step 1/3: to canary 2, primary 8; 2 pods of the primary must end first, there may be 10 at most; however long \
         that takes, no time counts"
    );

    // Each that is gone makes room for one, whose own time begins.
    going.pods.pop();
    let plan = decided_capped(&going, 3600);
    assert_eq!(scales(&plan), ["canary 1"]);
    assert_eq!(stage_of(&plan), raising());
}

#[test]
fn under_the_cap_a_pod_that_only_its_replica_set_tells_of_counts_too() {
    let mut seen = in_step(2, Stage::MakingRoom, 0, 8);
    seen.replica_sets[0].terminating = Replicas(2);
    assert_eq!(decided_capped(&seen, 1).next, Next::Wait(None));
}

#[test]
fn one_more_and_one_fewer_may_both_be_used() {
    let mut service = service();
    service.max_surge = Some(Bound::AtMost("1".parse().expect("a number")));
    service.max_unavailable = service.max_surge;
    let seen = in_step(2, raising(), 0, 10);
    let plan = decide(
        &service,
        Desired::Managed(Turn::Taken),
        &seen,
        Duration::ZERO,
    );
    assert_eq!(scales(&plan), ["primary 9", "canary 1"]);
}

#[test]
fn a_pod_that_does_not_end_is_named_and_fails_nothing() {
    let mut seen = in_step(2, Stage::Settling, 2, 8);
    let mut lost = pods(&set("orders-1", "orders-primary", V1, 9))
        .last()
        .expect("has pods");
    lost.life = Life::Deleting;
    lost.ends_by = Some(WallTime(seen.at.0 - 61));
    seen.pods.push(lost);
    let plan = decided(&seen, 3600);
    assert_eq!(plan.next, Next::Wait(None));
    assert_eq!(plan.status.attention(), Attention::Wanted);
    assert_eq!(
        plan.status.to_string(),
        "step 1/3: canary 2/2 available, primary 8, waiting for the primary's removed pods to end; orders-1-8 is still \
         there long after its grace period, if its node is lost: kubectl -n workers delete pod orders-1-8 --force"
    );
}

#[test]
fn at_zero_replicas_both_go_to_zero_and_the_step_is_kept() {
    let mut seen = in_step(4, Stage::Checking, 4, 6);
    x(&mut seen).replicas = Replicas::ZERO;
    let plan = decided(&seen, 1);
    assert_eq!(scales(&plan), ["primary 0", "canary 0"]);
    assert!(matches!(
        &written(&plan).phase,
        Phase::Stepping { step, .. } if step.stage == Stage::Sleeping && step.canary == Replicas(4)
    ));
}

#[test]
fn what_ends_a_rollout_from_outside_ends_it_first() {
    for (image, outcome) in [(V1, Outcome::Cancelled), (V3, Outcome::Superseded)] {
        let mut seen = in_step(4, Stage::Checking, 4, 6);
        x(&mut seen).template = template(image);
        let plan = decided(&seen, 100);
        assert!(
            matches!(&written(&plan).phase, Phase::Closing { outcome: how, .. } if *how == outcome),
            "{image}"
        );
    }
}

#[test]
fn a_vanished_primary_is_made_again_at_once_and_never_from_x() {
    let mut seen = in_step(4, Stage::Checking, 4, 6);
    seen.primary = None;
    seen.replica_sets.remove(0);
    let plan = decided(&seen, 1);
    assert!(
        matches!(
            actions(&plan),
            [Action::CreateClone { template: made, replicas: Replicas(6), .. }] if *made == template(V1)
        ),
        "{:?}",
        plan.next
    );
}

#[test]
fn a_step_is_the_same_of_as_many_while_no_replicas_are_wanted() {
    let mut seen = in_step(4, raising(), 4, 6);
    x(&mut seen).replicas = Replicas::ZERO;
    assert_eq!(
        decided(&seen, 0).status.to_string(),
        "step 2/3: no replicas wanted, going on when there are some; nothing runs and no time counts"
    );
}

#[test]
fn a_rollout_that_opened_without_replicas_begins_when_there_are_some() {
    let mut seen = in_step(0, raising(), 0, 0);
    state(&mut seen).phase = Phase::Stepping {
        candidate: candidate(),
        step: Step::new(1, Replicas::ZERO, Replicas::ZERO),
    };
    let plan = decided(&seen, 0);
    assert_eq!(actions(&plan).len(), 1, "not the state alone");
    let Phase::Stepping { step, .. } = &written(&plan).phase else {
        panic!("{}", plan.status)
    };
    assert_eq!((step.number, step.canary.0, step.wanted.0), (1, 2, 10));
}

#[test]
fn an_evicted_pod_of_the_primary_is_not_waited_for() {
    let mut seen = in_step(2, Stage::Settling, 2, 8);
    let mut evicted = seen.pods.first().expect("has pods").clone();
    evicted.uid = uid("evicted");
    evicted.phase = crate::rollout::observation::PodPhase::Failed;
    seen.pods.push(evicted.clone());
    let plan = decided(&seen, 0);
    let Phase::Stepping { step, .. } = &written(&plan).phase else {
        panic!("not stepping")
    };
    assert!(matches!(step.stage, Stage::WarmingUp { .. }), "{step:?}");
    seen.pods.last_mut().expect("has pods").life = Life::Deleting;
    assert!(
        matches!(decided(&seen, 0).next, Next::Wait(_)),
        "one that is being stopped is"
    );
}

#[test]
fn what_lies_ahead_is_noted_with_each_write() {
    // Three checked steps, each with a warm-up of 5s and 30s of checks.
    let service = service();
    let ahead = |step: Option<&Step>| {
        let ahead = crate::rollout::step::ahead(&service, Replicas(10), step);
        (ahead.of, ahead.at_least.duration().as_secs())
    };
    assert_eq!(ahead(None), (3, 105));
    let at = |number, stage, checked: u64| {
        let mut step = Step::new(number, Replicas(2 * number), Replicas(10));
        step.stage = stage;
        step.checks.elapsed = Duration::from_secs(checked).into();
        ahead(Some(&step))
    };
    let warming_up = Stage::WarmingUp {
        elapsed: Duration::from_secs(1).into(),
    };
    assert_eq!(at(1, Stage::RAISING, 0), (3, 105));
    assert_eq!(at(1, warming_up, 0), (3, 104));
    assert_eq!(at(1, Stage::Checking, 4), (3, 96));
    assert_eq!(at(3, Stage::Checking, 30), (3, 0));
    assert_eq!(at(3, Stage::Checking, 99), (3, 0));
    // R has fallen: a fourth step, where there were four.
    assert_eq!(at(4, Stage::Checking, 10), (4, 20));
}
