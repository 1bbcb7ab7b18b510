//! Storing blocks in the syncing txg.

pub(crate) mod features;
pub(crate) mod policy;
pub(crate) mod sink;
pub mod space_delta;
pub(crate) mod txg;
