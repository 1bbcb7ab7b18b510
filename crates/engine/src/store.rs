//! How blocks of a dataset are stored in the txg that is being written.

pub(crate) mod features;
pub(crate) mod policy;
pub(crate) mod sink;
pub mod space_delta;
pub(crate) mod txg;
