//! The program as its users run it, by room. One test binary: it is linked once, and its long tests overlap.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that can't go on must stop; one that is skipped says so"
)]

mod bad_input;
mod common;
mod completions;
mod copies;
mod corrected;
mod datasets;
mod delegation;
mod demo;
mod devices;
mod dump;
mod encryption;
mod expansion;
mod failure_domains;
mod features;
mod files;
mod forged;
mod golden_outputs;
mod growth;
mod json;
mod json_everywhere;
mod lab;
mod lost_logs;
mod manual;
mod mount;
mod names;
mod passes;
mod pools;
mod programs;
mod redacted;
mod refusals;
mod removal;
mod replace;
mod replicate;
mod replication;
mod rescue;
mod rewind;
mod scan;
mod send_streams;
mod serve;
mod stopped;
mod streams;
mod verify;
mod write;
mod zfs;
mod zpool;
mod zpool_flags;
mod zpool_vdevs;
