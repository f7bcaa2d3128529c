//! What the daemon says about itself.

pub mod exposition;
pub mod health;
pub mod log;
pub mod reloads;
