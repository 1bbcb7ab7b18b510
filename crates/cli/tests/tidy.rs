//! House rules, checked on the whole tree: short files that say what they are, and engine crates that
//! take time, tasks and randomness from `runtime` only.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::fs;
use std::path::{Path, PathBuf};

/// No source file is longer, unless it is a table of facts.
const MOST_LINES: usize = 800;
/// Tables: facts by the line.
const TABLES: [&str; 3] = ["format/src/features/", "format/src/props/", "format/src/draid/"];
/// Crates whose code also runs in the simulator.
const ENGINE: [&str; 8] = ["format", "codec", "device", "pool", "cache", "dataset", "fs", "inspect"];
/// What the engine must not call.
const FORBIDDEN: [&str; 7] = [
    "std::time::Instant",
    "SystemTime",
    "thread::spawn",
    "tokio::spawn",
    "tokio::time",
    "rand::",
    "thread::sleep",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            found.push(entry);
        }
    }
}

/// (path from the root, text) of every Rust file under `crates`.
fn all_sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    let relative = |p: &Path| p.strip_prefix(root()).unwrap_or(p).to_string_lossy().into_owned();
    found.iter().map(|p| (relative(p), fs::read_to_string(p).unwrap())).collect()
}

fn assert_none(rule: &str, broken: Vec<String>) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn no_file_is_too_long() {
    let broken = all_sources()
        .into_iter()
        .filter(|(path, _)| !TABLES.iter().any(|table| path.contains(table)))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|&(_, lines)| lines > MOST_LINES)
        .map(|(path, lines)| format!("{path}: {lines} lines"));
    assert_none("files of at most 800 lines", broken.collect());
}

#[test]
fn every_module_says_what_it_is() {
    let is_test = |path: &str| path.ends_with("tests.rs") || path.contains("/tests/");
    let broken = all_sources()
        .into_iter()
        .filter(|(path, text)| !text.starts_with("//!") && !is_test(path))
        .map(|(path, _)| path);
    assert_none("a file opens with a //! comment", broken.collect());
}

#[test]
fn nothing_is_left_to_do() {
    let broken = all_sources().into_iter().filter(|(path, text)| {
        !path.ends_with("tidy.rs")
            && ["todo!(", "unimplemented!(", "FIXME", "XXX"].iter().any(|mark| text.contains(mark))
    });
    assert_none("no stubs", broken.map(|(path, _)| path).collect());
}

#[test]
fn the_engine_takes_time_and_tasks_from_the_runtime() {
    let in_engine = |path: &str| ENGINE.iter().any(|krate| path.starts_with(&format!("crates/{krate}/src/")));
    let mut broken = Vec::new();
    for (path, text) in all_sources().into_iter().filter(|(path, _)| in_engine(path)) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(word) = FORBIDDEN.iter().find(|word| code.contains(**word)) {
                broken.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    assert_none("engine crates take time, tasks and randomness from cenote-runtime", broken);
}

#[test]
fn unsafe_stands_only_in_marked_modules() {
    let broken = all_sources().into_iter().filter(|(path, text)| {
        let allowed = text.contains("#![allow(unsafe_code)]");
        !path.ends_with("tidy.rs")
            && !allowed
            && text.lines().any(|line| {
                let code = line.split("//").next().unwrap_or_default();
                code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl")
            })
    });
    assert_none(
        "unsafe needs #![allow(unsafe_code)] in its module, with a reason",
        broken.map(|(path, _)| path).collect(),
    );
}
