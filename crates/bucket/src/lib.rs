//! Disks in object stores.
//!
//! ```text
//!   LogDevice   a disk: map, open segment, commits, packing       log, map, wire
//!   Patient     repeats requests, limits them, sends slow ones twice   patient
//!   Store       create if absent, read a range, list, delete      store
//!     S3        the protocol, over HTTP                           s3
//!     SimStore  in virtual time, with faults                      sim
//! ```
//!
//! Idea: a store has no blocks to overwrite, so a disk is a log (LSVD): writes gather in memory, and go out
//! as objects never changed. The pool above knows only a [`cenote_device::Device`].
//!
//! Read in this order: [`store`](Store), `log`, `log/state`, `log/commit`, `log/load`, `log/pack`.
#![forbid(unsafe_code)]

mod counts;
mod log;
mod map;
mod patient;
mod probe;
mod s3;
mod sim;
mod store;
mod wire;

pub use counts::{Counts, Kind, Requests};
pub use log::{LogDevice, OpenError, Options};
pub use patient::Patience;
pub use probe::probe_store as probe;
pub use s3::{S3, S3Error, S3Target};
pub use sim::{Behaviour, SimClient, SimStore};
pub use store::{Body, Call, Created, Page, Store, StoreError};
