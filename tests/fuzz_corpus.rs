//! What the fuzzers hold every input to (`fuzz/properties.rs`), replayed on their corpus: what they once found stays found.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../fuzz/properties.rs"]
mod properties;

use std::path::Path;

/// Replays a folder of the corpus; how many inputs it holds.
fn replay(target: &str, property: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut inputs = 0;
    for file in folder.read_dir().unwrap() {
        let file = file.unwrap().path();
        let input = std::fs::read(&file).unwrap();
        let outcome = std::panic::catch_unwind(|| property(&input));
        assert!(outcome.is_ok(), "{} does not hold", file.display());
        inputs += 1;
    }
    inputs
}

#[test]
fn the_loader_reads_or_refuses_whatever_it_is_given() {
    assert!(replay("config", properties::config) >= 50);
}

#[test]
fn an_accepted_expression_can_be_asked_about_any_pod() {
    assert!(replay("promql", properties::promql) >= 50);
}

#[test]
fn an_answer_of_whatever_bytes_is_judged_or_refused() {
    assert!(replay("response", properties::response) >= 40);
}
