//! Space maps: writing each pass's allocations and frees.

pub mod checkpoint;
pub(crate) mod flush;
pub(crate) mod log;
pub mod map_edit;
pub(crate) mod maps;
pub(crate) mod missed;
pub(crate) mod removed;
pub mod write;
