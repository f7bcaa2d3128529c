//! A good version: rolled out by steps, checked, promoted; nothing restarts that need not.

use super::base::Base;
use crate::scene::Trials;

pub fn register(trials: &mut Trials) {
    trials.add(
        "promoted: a new image applied with its replicas starts exactly ten pods",
        async |scene| {
            let base = Base::registered(&scene, "").await;
            let before = base.now().await;
            base.namespace.apply(&base.worker.clone().tag("v2")).await;
            base.daemon.log_contains("promoted: ").await;
            base.daemon
                .log_contains("at rest: 10 replicas of registry.example/orders-worker:v2")
                .await;
            base.now().await;
            assert_eq!(
                base.namespace
                    .recorder
                    .starts(before)
                    .into_iter()
                    .collect::<Vec<_>>(),
                [("v2".to_owned(), 10)]
            );
        },
    );
}
