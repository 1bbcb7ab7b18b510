//! OpenZFS on-disk structures as plain values. Bytes in, values out, and back.
//!
//! Idea: every structure that lies on a disk or in a stream is here a plain Rust value with a
//! `decode` and an `encode`, and nothing else: no I/O, no time, no threads, no `unsafe`. Input is
//! untrusted. A decoder never panics, never loops without progress and never allocates more than
//! a small multiple of the bytes it was given.
//!
//! Read in this order: `units` (the numbers that must not be mixed up), `bytes` (the bounded,
//! endian-aware reader), `words` (structures that are only 64-bit words), `blkptr`, `gang`, `dnode`,
//! `objset`, `uberblock`, `nvlist`, `label`, `features`; then what the pool's objects hold: `zap`, `dsl`,
//! `props`, `bpobj`, `space_map`, `indirect`, `draid`, `ddt`, `brt`, `scan`, `history`, `errlog`; then a file
//! system's: `sa`, `znode`, `zil`.
#![forbid(unsafe_code)]

pub mod blkptr;
pub mod bpobj;
pub mod brt;
pub mod bytes;
pub mod ddt;
pub mod dnode;
pub mod draid;
pub mod dsl;
pub mod errlog;
pub mod error;
pub mod features;
pub mod gang;
pub mod history;
pub mod indirect;
pub mod label;
pub mod nvlist;
pub mod objset;
pub mod props;
pub mod sa;
pub mod scan;
pub mod space_map;
pub mod uberblock;
pub mod units;
pub mod words;
pub mod zap;
pub mod zil;
pub mod znode;

pub use error::{FormatError, Result};
pub use words::Phys;
