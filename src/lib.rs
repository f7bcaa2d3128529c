//! Volery rolls new versions of queue workers out a few pods at a time, judged by Prometheus.

pub mod analysis;
pub mod chain;
pub mod check;
pub mod cluster;
pub mod config;
pub mod daemon;
pub mod notify;
pub mod operator;
mod retry_after;
pub mod rollout;
pub mod secret;
pub mod simulate;
pub mod telemetry;
