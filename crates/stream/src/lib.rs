//! Send streams: reads and writes them, receives them into a pool, makes them from one.
//!
//! Idea: a stream is records (`cenote_format::stream`) with payloads and running sums. [`StreamReader`] turns
//! bytes into verified records, [`StreamWriter`] records into bytes; both know packages (`zfs send -R`).
//! Everything else here builds on the two.
//!
//! Memory: one record's payload, which is at most a block, or the properties at the beginning
//! (`MAX_NVLIST_BYTES`).
//!
//! Source: OpenZFS `dmu_recv.c`, `dmu_send.c`, `libzfs_sendrecv.c`.

#![forbid(unsafe_code)]

mod content;
pub mod dump;
mod error;
mod file;
pub mod filter;
mod reader;
pub mod receive;
pub mod send;
mod sum;
pub mod token;
pub mod verify;
mod writer;

pub use content::{Content, content_of};
pub use error::{Result, StreamError};
pub use file::StreamFile;
pub use reader::{Item, StreamReader};
pub use writer::StreamWriter;
