//! Judging a candidate: `PromQL` templating, the Prometheus client, verdicts.
