//! The `volery` command.

fn main() {}
