//! Writing an object set: from the frozen changes of a txg to a new root.
//!
//! Read in this order: [`tree`] (one object, bottom up), [`objset`] (one object set), [`sink`] (the receiver
//! of blocks).

mod batches;
mod objset;
mod owners;
mod sink;
mod tree;

pub use objset::write_objset;
pub use sink::{BlockSink, NewBlock};
