//! Space maps as txgs change them: what each pass allocated and freed is noted on disk.

pub mod checkpoint;
pub(crate) mod flush;
pub(crate) mod log;
pub mod map_edit;
pub(crate) mod maps;
pub(crate) mod missed;
pub(crate) mod removed;
pub mod write;
