//! What the design promises, tried with the real daemon on the real control plane. A file of scenarios is one line here, twice.

mod alerts;
pub mod base;
mod batching;
mod between;
mod break_glass;
mod bypass;
mod changes;
mod check;
mod envelope;
mod events;
mod failed;
mod frozen;
mod handover;
mod installed;
mod killed;
mod leaders;
mod leaving;
mod metrics;
mod neighbours;
mod orders;
mod promises;
mod promoted;
mod quiet;
mod registered;
mod reload;
mod shapes;
mod small;
mod two;
mod unpaused;
mod works;

use crate::scene::Trials;

/// Adds all scenarios.
pub fn register(trials: &mut Trials) {
    alerts::register(trials);
    batching::register(trials);
    break_glass::register(trials);
    bypass::register(trials);
    changes::register(trials);
    check::register(trials);
    events::register(trials);
    envelope::register(trials);
    failed::register(trials);
    frozen::register(trials);
    handover::register(trials);
    installed::register(trials);
    killed::register(trials);
    leaders::register(trials);
    leaving::register(trials);
    metrics::register(trials);
    orders::register(trials);
    neighbours::register(trials);
    promoted::register(trials);
    quiet::register(trials);
    registered::register(trials);
    reload::register(trials);
    shapes::register(trials);
    small::register(trials);
    two::register(trials);
    unpaused::register(trials);
    works::register(trials);
}
