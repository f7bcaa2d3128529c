//! The core: everything that decides, as pure functions of configuration, observation and elapsed time.
//!
//! No I/O, clock, randomness, kube client or tokio in here, so that the same code runs against a real cluster and,
//! thousands of times a second, inside a simulated one (a test holds this module to it).
//!
//! The way of one pass: [`Observation`] → [`decide`] → [`Plan`]. The plan's [`Next`] says what to do: carry out
//! [`Action`]s, look again at the API server itself, ask Prometheus and then [`judge`], or wait. Decisions are levels,
//! not events: nothing is told what woke the pass, and a crash between any two writes loses nothing, because what was
//! done is seen again in the next observation (design section 4, promise 5).
//!
//! The life of a service, one file per part of it:
//!
//! ```text
//! register ──► rest ──► open ──► step ──► promote ──► close ──► rest
//!                │                 └── judge ── fail ──┘
//!                └──► release
//! ```
//!
//! A person's `command` changes the state, and everything follows from that; `freeze` is where a failure leads that must
//! not be rolled back.
//!
//! `hand` tells of numbers of clones that somebody else has set, `autoscaler` of autoscalers that would do so.
//!
//! `handover` is the one primitive by which pods change owner; `replicas` is the arithmetic of steps.

pub mod action;
pub mod autoscaler;
mod close;
pub mod command;
mod decide;
mod diff;
mod freeze;
mod hand;
mod handover;
mod judge;
pub mod observation;
mod open;
pub mod plan;
mod promote;
mod register;
mod release;
pub mod replicas;
mod rest;
pub mod state;
mod step;
pub mod template;
#[cfg(test)]
mod tests;

pub use action::Action;
pub use command::Command;
pub use decide::{Desired, Turn, Urgency, decide};
pub use diff::TemplateDiff;
pub use judge::judge;
pub use observation::Observation;
pub use plan::{Event, Next, Plan, Status};
pub use register::older_sets;

pub use crate::config::Replicas;
