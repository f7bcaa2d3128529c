//! Supervision: one task per service, the clock, start and shutdown.
