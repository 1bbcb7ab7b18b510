//! Properties of pools: verbs that set them and enable features, and how values are read.

pub mod compatibility;
pub mod options;
pub mod set;
mod set_vdev;
pub mod upgrade;
