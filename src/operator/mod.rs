//! The operator's hands: what a person reads of the services, and the orders that steer them.
//!
//! Everything here works from the cluster alone, without the configuration file, on the rights of whoever runs it. The
//! daemon never reads anything of this module: an order is an annotation that `kubectl annotate` could have written too.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `service` | which service is meant, and why it cannot be steered |
//! | `order` | giving an order and waiting for its answer |

mod order;
mod service;

pub use order::{OrderError, TakenBack, give, give_all};
pub use service::{DeploymentName, Service, Unusable, problem};
