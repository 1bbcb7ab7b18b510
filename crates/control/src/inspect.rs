//! Verbs that walk whole pools, a file each: `scan` lists every file, `verify` checks every block,
//! `rebalance` rewrites blocks that belong elsewhere by now. `features` lists feature flags.

pub mod features;
pub mod rebalance;
pub mod scan;
pub mod verify;
