//! What is done with a pool as a whole.

pub mod checkpoint;
pub mod destroy;
pub mod export;
pub mod reguid;
pub mod sync;
