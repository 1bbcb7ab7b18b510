//! The policies.

mod arc;
mod belady;
mod lirs;
mod lru;
mod s3_fifo;
mod sieve;
mod tiny_lfu;
mod zfs_2014;
mod zfs_2022;
mod zfs_states;

pub use arc::ClassicArc;
pub use belady::Belady;
pub use lirs::Lirs;
pub use lru::Lru;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
pub use tiny_lfu::WTinyLfu;
pub use zfs_2014::{Arc2014, Patch, Switches};
pub use zfs_2022::Arc2022;
