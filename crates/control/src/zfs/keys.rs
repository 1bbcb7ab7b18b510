//! Keys of encrypted datasets: verbs that change, load and unload them.
//!
//! Keys stay loaded in the daemon until unloaded or the pool is exported. Without a daemon no key outlives a
//! verb, so loading one can only mean checking it.

pub mod change_key;
pub mod load_key;
mod roots;
pub mod unload_key;

pub use roots::Keys;
