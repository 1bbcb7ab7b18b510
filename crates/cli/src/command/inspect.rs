//! Commands that walk whole pools.

pub mod dump;
pub mod features;
pub mod rebalance;
pub mod rescue;
pub mod scan;
pub mod verify;
