//! Pools: labels and configuration, the vdev tree, and the pipeline between block pointers and bytes.
//!
//! ```text
//!   paths --discover--> FoundPool --assemble--> Pool --read(bp)--> bytes
//!           labels,       config, uberblocks,     vdev tree
//!           uberblocks    devices by guid         pipeline  --write(bytes)--> bp --labels().write--> on disk
//! ```
//!
//! This crate knows no objects: a block pointer comes in, a block or a typed error goes out. `read` and
//! [`write`] show the path of a block from top to bottom; [`vdev`] locates its bytes.
//!
//! Read in this order: [`config`] and [`discover`] (describing and finding pools), [`vdev`] (geometry),
//! `read` (one block), `read_many` (many blocks in disk order), [`verify`] (every copy); then [`alloc`]
//! (placement), [`write`], [`label`] (making a txg the pool's state).

pub mod alloc;
mod as_stored;
mod batches;
mod buffers;
mod by_range;
mod check;
pub mod config;
mod context;
pub mod create;
pub mod crypt;
mod devices;
pub mod discover;
mod error;
mod extents;
mod gang;
mod heal;
pub mod health;
pub mod label;
mod lacking;
mod leaf_io;
mod mismatch;
pub mod multihost;
mod pool;
pub mod ranges;
mod read;
mod read_errors;
mod read_many;
mod recorder;
mod recover;
mod reflow;
mod second;
mod sit_out;
mod status;
mod suspend;
mod tunables;
pub mod vdev;
pub mod verify;
pub mod write;
pub mod zbookmark;

pub use as_stored::AsStored;
pub use by_range::{
    ByRange,
    unused::{INITIALIZE_PATTERN, Pass, Stuck, Treatment},
};
pub use config::{PoolConfig, PoolState, VdevClass, VdevConfig, VdevKind, least_leaf_bytes};
pub use context::{Form, InLog, ReadContext};
pub use crypt::DatasetKey;
pub use devices::{Devices, identity::Identity};
pub use discover::{
    Discovery, FoundDevice, FoundPool, History, LostStates, Problem, discover, discover_devices,
    discover_places,
};
pub use error::{PoolError, Result};
pub use gang::MAX_GANG_DEPTH;
pub use heal::{Healed, Repair};
pub use health::{ErrorCounts, PoolHealth, Trouble, VdevState, VdevStatus};
pub use lacking::Lacking;
pub use leaf_io::{LeafIo, LeafIoTable};
pub use pool::{Counters, LeavesInUse, Pool, Tree, Trusted};
pub use read_errors::ReadErrors;
pub use recorder::{Recorder, Recording};
pub use reflow::{Expansion, reachable, reflow_end, reflow_info};
pub use second::{Offer, SecondLevel, Secondary};
pub use sit_out::CannotSitOut;
pub use suspend::state::{Cause, FailMode, Standstill, Suspended, Suspension, Waits};
pub use tunables::{BadSetting, Tunable, Tunables};
pub use vdev::VdevTree;
pub use vdev::leaf::Probe;
pub use vdev::queue::{ClassLoad, IoClass, Moved, QueueSettings, Transfer};
pub use vdev::reflow::Reflowed;
pub use vdev::unflushed::FlushMark;
pub use vdev::write::Durable;
pub use verify::{Fault, Finding, VerifyItem};
pub use write::{Kept, LogBlocks, Restored, TxgWrites, WriteProps, Written};
pub use zbookmark::{SPILL_BLOCK, Zbookmark};
