//! Verbs that explain a pool, a file each: `scan` lists every file, `verify` checks every block.

pub mod scan;
pub mod verify;
