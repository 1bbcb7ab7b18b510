//! OpenZFS on-disk structures as plain values, decoded from bytes and encoded to bytes.
//!
//! Idea: every structure on a disk or in a stream is a Rust value with `decode` and `encode`: no I/O, no
//! time, no threads, no `unsafe`. Input is untrusted. A decoder never panics, loops without progress or
//! allocates more than a small multiple of its input.
//!
//! Read in this order: `units`, `bytes`, `words`, `blkptr`, `gang`, `dnode`, `objset`, `uberblock`, `nvlist`,
//! `label`, `features`; then the pool's objects: `zap`, `dsl`, `props`, `bpobj`, `space_map`, `indirect`,
//! `draid`, `ddt`, `brt`, `scan`, `txg_log`, `history`, `errlog`; then a file system's objects: `sa`,
//! `znode`, `zil`; and, separate from these, `stream`.
#![forbid(unsafe_code)]

pub mod blkptr;
pub mod bpobj;
pub mod brt;
pub mod bytes;
pub mod ddt;
pub mod deleg;
pub mod dnode;
pub mod draid;
pub mod dsl;
pub mod errlog;
pub mod error;
pub mod features;
pub mod gang;
pub mod history;
pub mod indirect;
pub mod l2arc;
pub mod label;
pub mod nvlist;
pub mod objset;
pub mod props;
pub mod sa;
pub mod scan;
pub mod space_map;
pub mod stream;
pub mod text_or_bytes;
pub mod txg_log;
pub mod uberblock;
pub mod units;
pub mod unseen;
pub mod words;
pub mod zap;
pub mod zil;
pub mod znode;

pub use error::{FormatError, Result};
pub use words::Phys;
