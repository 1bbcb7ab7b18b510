//! The program on bad input: what is wrong is said in a sentence that names it, the exit status tells what kind of failure it
//! is, and nothing panics or hangs.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod command;
mod damaged;
mod fixtures;
mod keys;
mod misuse;
mod not_disks;
