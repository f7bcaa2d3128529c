//! Where questions are asked.

use std::time::Duration;

use futures::future::BoxFuture;

use super::answer::Response;
use super::prometheus::{Prometheus, Unavailable};

/// Something that evaluates instant queries: Prometheus, or a simulated one.
pub trait Metrics: Send + Sync {
    /// Evaluates `query` now; gives up after `deadline`.
    fn query<'a>(
        &'a self,
        query: &'a str,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Response, Unavailable>>;
}

impl Metrics for Prometheus {
    fn query<'a>(
        &'a self,
        query: &'a str,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Response, Unavailable>> {
        Box::pin(self.query(query, deadline))
    }
}

/// No Prometheus at all: what a configuration without success expressions asks.
pub struct NoMetrics;

impl Metrics for NoMetrics {
    fn query<'a>(
        &'a self,
        _query: &'a str,
        _deadline: Duration,
    ) -> BoxFuture<'a, Result<Response, Unavailable>> {
        let reason = "no prometheus-base-url is configured".to_owned();
        Box::pin(std::future::ready(Err(Unavailable::Unreachable(reason))))
    }
}
