//! Runs the corpus: every real structure and every input that ever failed, whole and truncated.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use cenote_fuzz::corpus;
use cenote_fuzz::targets::TARGETS;

/// Truncations per input.
const CUTS: usize = 32;

#[test]
fn every_input_passes_whole_and_cut() {
    for target in TARGETS {
        for (name, data) in corpus::load(target.name) {
            println!("{}/{name}", target.name); // shown if it fails
            (target.run)(&data);
            let is_pool = target.name == "tree" || target.name.starts_with("forged");
            let cuts = if is_pool { 2 } else { CUTS };
            for cut in 0..cuts {
                (target.run)(&data[..data.len() * cut / cuts]);
            }
        }
    }
}

#[test]
fn every_target_has_something_to_start_from() {
    let without: Vec<&str> =
        TARGETS.iter().map(|t| t.name).filter(|name| corpus::load(name).is_empty()).collect();
    assert!(without.is_empty(), "no corpus: {without:?}");
}

#[test]
fn the_trees_are_whole_pools() {
    for (name, tree) in corpus::load("tree").iter().filter(|(name, _)| name.ends_with(".zst")) {
        let files = cenote_fuzz::targets::stack::files_of(tree);
        assert!(files > 20, "{name}: {files} files are read before anything is damaged");
    }
}

#[test]
fn requests_of_the_corpus_are_carried_out() {
    for (name, request) in corpus::load("socket").iter().filter(|(name, _)| name.starts_with("made-")) {
        assert!(cenote_fuzz::targets::doors::is_carried_out(request), "{name} is refused");
    }
    for (name, requests) in corpus::load("fuse").iter().filter(|(name, _)| name.starts_with("made-")) {
        let answered = cenote_fuzz::targets::doors::answered(requests);
        assert!(answered >= 5, "{name}: {answered} requests succeed");
    }
}
