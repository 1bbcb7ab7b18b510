//! The verbs of `zfs`, a file each.

pub mod wait;
