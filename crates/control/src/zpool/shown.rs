//! What is to be seen of pools.

pub mod get;
pub mod list;
pub mod properties;
pub mod vdev_properties;
pub mod waits;
