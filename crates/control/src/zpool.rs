//! The verbs of `zpool`, a file each.
//!
//! `work` takes time: scrubs, resilvers, passes over free space, and waiting for them. `leaves` go out of use
//! and come back. `whole`: what is done with a pool as such.

pub mod leaves;
pub mod whole;
pub mod work;
