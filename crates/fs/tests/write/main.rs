//! Changes to file systems and volumes in memory, compared with the module's results and with a model.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod against_model;
mod births;
mod broken_off;
mod clones;
#[path = "../common/mod.rs"]
mod common;
mod dropped;
mod flush_errors;
mod holder;
mod hostile;
mod idle;
mod intent_log;
mod like_module;
mod model;

mod new_like_module;
mod next_txg;
mod numbers;
mod on_disk;
mod operations;
mod queue_entries;
mod quotas;
mod random;
mod scratch;
mod slow_disks;
mod suspended;
mod together;
mod touched;
mod unreadable;
mod used_elsewhere;
mod volume;
