//! The daemon's own metrics, as a Prometheus scrapes them.

use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::reloads::Reloads;

/// What `/metrics` shows. Clones share it.
#[derive(Clone, Debug)]
pub struct Exposition(Arc<Registry>);

impl Exposition {
    /// The metrics of a daemon.
    pub fn of(reloads: &Reloads) -> Self {
        let mut registry = Registry::default();
        reloads.register(&mut registry);
        Self(Arc::new(registry))
    }

    /// In the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.0);
        text
    }

    pub(super) fn answer(&self) -> impl IntoResponse + use<> {
        let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(CONTENT_TYPE, format)], self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::reloads::Reload;

    #[test]
    fn reloads_are_shown_by_their_outcome() {
        let reloads = Reloads::default();
        let exposition = Exposition::of(&reloads);
        reloads.count(Reload::Applied);
        reloads.count(Reload::Refused);
        let text = exposition.text();
        for line in [
            "# TYPE volery_config_reloads counter",
            "volery_config_reloads_total{outcome=\"applied\"} 1",
            "volery_config_reloads_total{outcome=\"in_part\"} 0",
            "volery_config_reloads_total{outcome=\"refused\"} 1",
            "volery_config_last_reload_successful 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
    }
}
