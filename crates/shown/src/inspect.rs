//! Answers of tools: verification, scans, rescues, dumps of structures.

pub mod dump;
pub mod features;
pub mod rebalance;
pub mod rescue;
pub mod scan;
pub mod verify;
