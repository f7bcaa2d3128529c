//! The right to write. A daemon that may have been deposed must not: not even what it decided on while it led
//! (case K54). So it is asked about at the last moment, by the client itself, of every request that writes.

use std::time::Duration;

use http::Method;
use thiserror::Error;

use super::lease::LEASES;

/// Whether this process may write to the cluster at this moment.
pub trait Fence: Send + Sync {
    /// Within which time a write that is sent now must have arrived; none when it must not be sent.
    fn open_for(&self) -> Option<Duration>;
}

/// Of a process that nobody competes with: a daemon without a Lease, a person at a terminal.
#[derive(Clone, Copy, Debug)]
pub struct NoFence;

impl Fence for NoFence {
    fn open_for(&self) -> Option<Duration> {
        Some(Duration::MAX)
    }
}

/// Why a request was not sent.
#[derive(Debug, Error)]
#[error("this daemon does not lead")]
pub(super) struct Closed;

/// How long a request may take: one that writes as long as the fence is open. The Lease itself is written by who does not
/// lead yet.
pub(super) fn check(fence: &dyn Fence, method: &Method, path: &str) -> Result<Duration, Closed> {
    let reads = *method == Method::GET;
    let lease = path.starts_with(&format!("/apis/{}/", LEASES.group));
    if reads || lease {
        return Ok(Duration::MAX);
    }
    fence.open_for().ok_or(Closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shut;

    impl Fence for Shut {
        fn open_for(&self) -> Option<Duration> {
            None
        }
    }

    #[test]
    fn behind_a_closed_fence_only_reading_and_the_lease_are_possible() {
        let deployment = "/apis/apps/v1/namespaces/workers/deployments/orders";
        let lease = "/apis/coordination.k8s.io/v1/namespaces/volery/leases/volery";
        for (method, path, sent) in [
            (Method::GET, deployment, true),
            (Method::PATCH, deployment, false),
            (
                Method::POST,
                "/api/v1/namespaces/workers/podtemplates",
                false,
            ),
            (Method::DELETE, deployment, false),
            (Method::GET, lease, true),
            (Method::PATCH, lease, true),
            (
                Method::POST,
                "/apis/coordination.k8s.io/v1/namespaces/volery/leases",
                true,
            ),
        ] {
            assert_eq!(check(&Shut, &method, path).is_ok(), sent, "{method} {path}");
            assert!(check(&NoFence, &method, path).is_ok(), "{method} {path}");
        }
    }
}
