//! The unchanged daemon on a simulated cluster in virtual time: the design's promises (section 4) are checked after
//! every single write, the cluster's own and each pod's turn included.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `world` | a cluster, the daemon in it, and the person who does things to both |
//! | `gauges` | a simulated Prometheus |
//! | `limits` | how far pods may stray from R |
//! | `promises` | what must hold after every write |
//! | `log`, `timeline` | what was said and done, for people |
//! | `stories` | what happens to a worker, one story each, under every lag |
//! | `orders` | what a person orders, in several phases |
//! | `sight` | what a person sees of all that |
//! | `query` | what `volery query` says |
//! | `crashes` | each story with the daemon killed at each of its writes |
//! | `events` | what people see with kubectl |
//! | `hands` | people and autoscalers that set the clones' numbers |
//! | `alerts` | what people are told by webhooks |
//! | `reloads` | the file changes while the daemon runs |
//! | `schedules` | seeded schedules of everything at once |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm
)]

mod alerts;
mod crashes;
mod events;
mod gauges;
mod hands;
mod limits;
mod log;
mod orders;
mod promises;
mod query;
mod reloads;
mod schedules;
mod sight;
mod stories;
mod timeline;
mod world;
