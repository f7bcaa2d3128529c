//! The core: pure decisions, no I/O, clock, randomness, kube client or tokio.
