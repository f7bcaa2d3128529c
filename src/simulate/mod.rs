//! A simulated cluster: an in-process API server with controllers, pods and metrics under virtual time.

pub mod cluster;
