//! The operator's hands: what a person reads of the services, and the orders that steer them.
//!
//! Everything here works from the cluster alone (but for `query`, without the configuration file), on the rights of whoever runs it. The
//! daemon never reads anything of this module: an order is an annotation that `kubectl annotate` could have written too.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `service` | which service is meant, and why it cannot be steered |
//! | `order` | giving an order and waiting for its answer |
//! | `status` | how services stand |
//! | `history` | the versions that ran, and those that did not make it |
//! | `wait` | waiting until a version is rolled out, or is not |
//! | `query` | trying success expressions on the pods that run |
//! | `table` | columns of text |

mod history;
mod order;
mod query;
mod service;
mod status;
mod table;
mod wait;

pub use history::{Mark, Version, history, versions};
pub use order::{OrderError, TakenBack, give, give_all};
pub use query::{Cast, Found, Part, Row, Tried, cast, summary, try_out};
pub use service::{DeploymentName, Service, Unusable, problem};
pub use status::{Report, Standing, table};
pub use wait::{Waited, wait};
