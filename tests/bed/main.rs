//! The test bed: a real control plane without containers, and everything that is tried on it (design section 8).
//!
//! One cluster serves the whole run: it starts with the first trial that runs (so `--list` and a filter that matches nothing start
//! none) and every trial gets namespaces of its own on it. The first run builds the programs it needs and keeps them in the
//! user's cache. A bed that cannot start fails every trial, with the reason.
// The parts of the bed offer whole sets (all faults, all answers), whether or not a scenario uses each today.
#![allow(
    dead_code,
    clippy::disallowed_methods,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout
)]

mod agreement;
mod audit;
mod bed;
mod control_plane;
mod daemon;
mod facts;
mod guarded;
mod itself;
mod kubelet;
mod measures;
mod metrics;
mod namespace;
mod process;
mod programs;
mod prometheus;
mod proxy;
mod recorder;
mod scenarios;
mod scene;
mod wait;
mod worker;

use libtest_mimic::Arguments;

/// Trials spend their time waiting, so more of them than cores run side by side.
const SIDE_BY_SIDE: usize = 6;

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(SIDE_BY_SIDE);

    let runtime = tokio::runtime::Runtime::new().expect("the tokio runtime starts");
    let mut trials = scene::Trials::new(runtime.handle().clone());
    // `--bench` runs the measures, one after the other, and `cargo test` everything else.
    if std::mem::take(&mut arguments.bench) {
        arguments.test_threads = Some(1);
        measures::register(&mut trials);
    } else {
        itself::register(&mut trials);
        facts::register(&mut trials);
        scenarios::register(&mut trials);
        agreement::register(&mut trials);
    }
    let conclusion = libtest_mimic::run(&arguments, trials.into_vec());
    runtime.block_on(bed::stop());
    conclusion.exit();
}
