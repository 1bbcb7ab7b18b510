//! Writing a transaction group: from frozen layers to a new root.
//!
//! Read in this order: [`tree`] (one object, bottom up), [`objset`] (one object set), [`blocks`] (where blocks go), [`policy`] (in what form).

pub(crate) mod blocks;
pub(crate) mod objset;
pub(crate) mod owners;
pub(crate) mod policy;
pub(crate) mod tree;
