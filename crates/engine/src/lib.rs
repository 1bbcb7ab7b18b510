//! The transaction engine: transaction groups (txgs), their content and the order in which it is written.
//!
//! ```text
//!   operation --hold--> open txg: layers over object sets         (memory only)      holds, room, throttle
//!   sync task --run---> syncing txg: the MOS                      (cenote-tasks)     run, context
//!
//!   sync:  freeze layers -> write datasets -> settle their space in the MOS -> sync tasks
//!          -> write the MOS and space maps, again until nothing changes
//!          -> labels and uberblock                                (the txg is on disk)
//!
//!   fsync: records in memory --commit--> log blocks, outside of any tree      zil
//! ```
//!
//! Idea: a change to one object set (files, volumes) happens in the open txg under a [`Hold`] and stays in
//! memory until the txg is written. A change to the pool or several datasets is a *sync task*: it runs alone
//! while its txg is written, on the MOS as that txg leaves it. So a snapshot shows a dataset at the end of a
//! txg.
//!
//! ```text
//!   txgs, run, sync            which txg is open; tasks; how a txg is written
//!   context, features, history,  state and operations of a sync task ([`SyncContext`])
//!     account, deadlists, dirs
//!   store, sharing, space        where blocks go: policy, deduplication, space maps
//!   in_use                     heads and snapshots that a task may take away
//!   touched                    datasets whose mounts may have to follow a command
//!   livelist, bookmarks, freeing per-dataset bookkeeping of every txg
//!   logs, zil                    the intent log
//!   background                   which scrub, resilver, removal, expansion or rebuild runs
//!   second                     cache devices (L2ARC)
//!   txg_times                  times of txgs
//!   open, state, rewind          opening and closing a pool
//!   multihost                  heartbeats
//! ```
//!
//! Read in this order: `txgs`, `engine`, `context`, `sync`, then [`zil`].
//!
//! Source: OpenZFS `spa.c` (`spa_sync`), `dsl_pool.c` (`dsl_pool_sync`), `dsl_synctask.c`, `txg.c`.

#![forbid(unsafe_code)]

pub mod account;
mod background;
pub mod bookmarks;
mod context;
mod deadlists;
mod dirs;
mod engine;
pub mod features;
pub mod freeing;
mod handles;
pub mod history;
mod holds;
mod host;
mod import_export;
mod in_use;
mod kept_deadlists;
mod kstat;
pub mod livelist;
mod load;
mod locks;
pub mod logs;
mod multihost;
mod names;
mod open;
mod open_dataset;
mod pending_frees;
mod rewind;
mod room;
mod run;
mod second;
mod sharing;
pub mod space;
mod space_check;
mod state;
pub mod store;
mod suspended;
mod sync;
mod throttle;
mod touched;
mod txg_times;
mod txgs;
mod writable;
pub mod zil;

pub use background::{Background, Pass, ScanSettings, Work};
pub use cenote_l2arc::{DeviceUse, L2Settings, L2Stats};
pub use context::SyncContext;
pub use engine::{Engine, WeakEngine};
pub use freeing::Frees;
pub use handles::Handle;
pub use history::History;
pub use host::Host;
pub use in_use::uses::{Quiet, Snapshot, SnapshotHold, Withdrawn};
pub use kstat::{Kstats, TxgRecord};
pub use load::Load;
pub use logs::{Logs, LostLog};
pub use multihost::{BeatCounts, BeatRecord, Heartbeats};
pub use names::Names;
pub use open::NewEngine;
pub use open_dataset::OpenDataset;
pub use rewind::OlderState;
pub use room::Need;
pub use second::L2arc;
pub use space_check::{SpaceCheck, check_space};
pub use state::Ownership;
pub use store::policy::compression_now;
pub use suspended::Suspension;
pub use throttle::default_dirty_bytes_max;
pub use touched::{Reach, Touch, Touched};
pub use txgs::Hold;
pub use zil::Log;
