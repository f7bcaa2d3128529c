//! `volery simulate`: a whole rollout of a service on a simulated cluster, in virtual time.
//!
//! The daemon is the one that production runs, [`crate::daemon::run`]; only what it stands on is simulated.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`cluster`] | the API server with its controllers, pods and watches |
//! | `prometheus` | answers to whatever the configuration asks |
//! | [`scenario`] | what happens when: applies, scaling, bad versions, outages, kills |
//! | [`play`](mod@play) | a scenario, played from a service at rest until all is quiet again |
//! | [`summary`] | what came of it, in numbers |
//! | [`clock`] | the virtual time of day |

pub mod clock;
pub mod cluster;
pub mod play;
mod prometheus;
pub mod scenario;
pub mod summary;

pub use play::{PlayError, Played, play};
pub use scenario::Scenario;
pub use summary::{Ending, Summary};
