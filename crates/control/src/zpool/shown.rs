//! Displays of pools.

pub mod events;
pub mod get;
pub mod history;
pub mod iostat;
pub mod list;
pub mod properties;
pub mod status;
pub mod vdev_properties;
pub mod waits;
