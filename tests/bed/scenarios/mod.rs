//! What the design promises, tried with the real daemon on the real control plane. A file of scenarios is one line here, twice.

mod base;
mod between;
mod failed;
mod handover;
mod killed;
mod metrics;
mod promises;
mod promoted;

use crate::scene::Trials;

/// Adds all scenarios.
pub fn register(trials: &mut Trials) {
    failed::register(trials);
    handover::register(trials);
    killed::register(trials);
    metrics::register(trials);
    promoted::register(trials);
}
