//! Runs the corpus: every real structure and every input that ever failed, whole and truncated.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that can't go on must stop, and says where it is"
)]

use cenote_fuzz::targets::TARGETS;
use cenote_fuzz::{Target, corpus};

/// Targets that take longest: tests of their own, which run side by side.
const SLOW: [&str; 2] = ["fuse", "receive"];

/// Truncations per input.
fn cuts_of(target: &str) -> usize {
    match target {
        // Each opens or makes a pool.
        "tree" | "forged_read" | "forged_write" => 2,
        "receive" => 6,
        _ => 32,
    }
}

fn run(target: &Target) {
    let cuts = cuts_of(target.name);
    for (name, data) in corpus::load(target.name) {
        println!("{}/{name}", target.name); // shown if it fails
        (target.run)(&data);
        (0..cuts).for_each(|cut| (target.run)(&data[..data.len() * cut / cuts]));
    }
}

fn run_one(name: &str) {
    run(TARGETS.iter().find(|target| target.name == name).unwrap());
}

#[test]
fn every_input_passes_whole_and_cut() {
    TARGETS.iter().filter(|target| !SLOW.contains(&target.name)).for_each(run);
}

#[test]
fn every_input_of_fuse_passes_whole_and_cut() {
    run_one("fuse");
}

#[test]
fn every_stream_passes_whole_and_cut() {
    run_one("receive");
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
