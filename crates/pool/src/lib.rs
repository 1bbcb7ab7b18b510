//! Pools: labels and configuration, the vdev tree, and the pipeline that turns a block pointer into bytes and back.
//!
//! ```text
//!   paths --discover--> FoundPool --assemble--> Pool --read(bp)--> bytes
//!           labels,       config, uberblocks,     vdev tree
//!           uberblocks    devices by guid         pipeline  --write(bytes)--> bp --write_labels--> on disk
//! ```
//!
//! Nothing here knows objects: a block pointer comes in, a block or a typed error goes out. The path of a
//! block reads top to bottom in `read` and in [`write`]; where its bytes lie is the business of [`vdev`].
//!
//! Read in this order: [`config`] (what pools say of themselves), [`discover`] (finding them), [`vdev`]
//! (geometry), `read` (one block), `read_many` (many in disk order), [`verify`] (every copy);
//! then [`alloc`] (where the next block goes), [`write`], [`label`] (how a group becomes the pool's state).

pub mod alloc;
mod batches;
mod check;
pub mod config;
mod copy;
pub mod create;
pub mod crypt;
pub mod discover;
mod error;
mod extents;
mod gang;
pub mod health;
pub mod label;
mod place;
mod pool;
pub mod ranges;
mod read;
mod read_many;
mod recover;
mod spare;
mod status;
pub mod vdev;
pub mod verify;
pub mod write;

pub use config::{PoolConfig, PoolState, VdevClass, VdevConfig, VdevKind};
pub use crypt::DatasetKey;
pub use discover::{Discovery, FoundDevice, FoundPool, Problem, discover, discover_devices};
pub use error::{PoolError, Result};
pub use gang::MAX_GANG_DEPTH;
pub use health::{ErrorCounts, PoolHealth, Trouble, VdevState, VdevStatus};
pub use place::Place;
pub use pool::{Pool, ReadContext, Trusted};
pub use vdev::VdevTree;
pub use vdev::write::Durable;
pub use verify::{Fault, Finding, VerifyItem};
pub use write::{WriteProps, Written};
