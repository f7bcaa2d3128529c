//! What can go wrong between a client and the server.

use std::time::Duration;

use super::journal::Request;
use super::refusal::Refusal;

/// What happens to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// nothing: it is served
    None,
    /// it is carried out, but only after this time
    Delay(Duration),
    /// it is not carried out, and answered with this
    Refuse(Refusal),
    /// it is not carried out, and never answered
    Hang,
    /// it is carried out, and never answered
    ApplyThenHang,
    /// it is carried out, and the connection breaks before the answer
    ApplyThenBreak,
    /// it is not carried out, and the connection breaks
    Break,
}

/// Decides what happens to each request; called with the store locked, so it must not call the cluster.
pub type Intercept = Box<dyn FnMut(&Request) -> Fault + Send>;
