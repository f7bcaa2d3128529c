//! Where questions are asked.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::answer::Response;
use super::prometheus::{Prometheus, PrometheusError, Unavailable};
use crate::config::PrometheusSettings;
use crate::secret::Environment;

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

/// What a configuration asks.
///
/// # Errors
/// Those of [`Prometheus::new`].
pub fn metrics(
    settings: Option<&PrometheusSettings>,
    environment: &Environment<'_>,
) -> Result<Arc<dyn Metrics>, PrometheusError> {
    Ok(match settings {
        Some(settings) => Arc::new(Prometheus::new(settings, environment)?),
        None => Arc::new(NoMetrics),
    })
}
