//! Properties of pools: verbs that set them and enable features, and how values are read.

pub mod compatibility;
pub mod options;
pub mod set;
pub mod upgrade;
