//! The program on bad input: a sentence names the problem, the exit status gives the kind of failure, and
//! nothing panics or hangs.

mod command;
mod damaged;
mod fixtures;
mod keys;
mod misuse;
mod not_disks;
