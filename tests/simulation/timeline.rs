//! Everything that happened, in order, for people.

use std::fmt::Write as _;
use std::time::Duration;

use volery::simulate::cluster::{Cluster, Journal, Moment, Part};

use super::log::Log;

/// Log, writes and pod turns in the order of their time.
pub fn timeline(cluster: &Cluster, log: &Log) -> String {
    let journal = cluster.journal();
    let mut lines: Vec<(Duration, u8, String)> = Vec::new();
    for (at, line) in log.lines() {
        lines.push((at, 2, format!("        {line}")));
    }
    for write in told(&journal) {
        lines.push((write.at, 0, write_line(write)));
    }
    for turn in &journal.pods {
        let text = format!("    pod {} ({}) {:?}", turn.pod, turn.image, turn.turn);
        lines.push((turn.at, 1, text));
    }
    lines.sort_by_key(|(at, rank, _)| (*at, *rank));
    let mut text = String::new();
    for (at, _, line) in lines {
        let _ = writeln!(text, "{} {line}", Moment(at));
    }
    text
}

/// The daemon's writes and the daemon's words, to be compared between two runs of one seed.
pub fn decisions(cluster: &Cluster, log: &Log) -> Vec<String> {
    let mut lines: Vec<(Duration, String)> = log.lines();
    let journal = cluster.journal();
    lines.extend(
        journal
            .writes_by("volery")
            .map(|write| (write.at, write_line(write))),
    );
    lines.sort();
    lines
        .into_iter()
        .map(|(at, line)| format!("{} {line}", Moment(at)))
        .collect()
}

fn told(journal: &Journal) -> impl Iterator<Item = &volery::simulate::cluster::Request> {
    journal
        .writes
        .iter()
        .filter(|write| write.agent != "kubelet" && write.part != Part::Status)
}

fn write_line(write: &volery::simulate::cluster::Request) -> String {
    format!(
        "{} {} {} {}",
        write.agent,
        write.verb.name(),
        write.kind.plural(),
        write.name
    )
}
