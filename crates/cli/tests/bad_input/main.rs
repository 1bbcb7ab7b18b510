//! The program on bad input: a sentence names the problem, the exit status gives the kind of failure, and
//! nothing panics or hangs.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod command;
mod damaged;
mod fixtures;
mod keys;
mod misuse;
mod not_disks;
