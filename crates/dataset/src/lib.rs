//! Objects (DMU), datasets (DSL), properties and the intent log; and the engine that changes them in transaction groups.
//!
//! ```text
//!   FoundPool --import--> Mos --dataset("pool/a@s")--> Dataset --objset--> Objset --object(n)--> Object --> bytes
//!                          |  config, features,          |  properties, space,       |  dnodes in batches
//!                          |  history, error log,        |  snapshots, clones,       Zap: names to values
//!                          |  space maps, dedup          |  keys, bookmarks, holds
//!   Mos --Engine::start--> Engine --dataset--> OpenDataset --edit--> Edit     layers in memory, written group by group
//!                            '--run--> SyncContext                         tasks on the MOS
//! ```
//!
//! Read in this order: [`objset`], [`object`] (the tree of blocks), `zap`, `import`, `dsl`, then [`live`], `sync`, [`engine`], [`zil`], then the rest.
#![forbid(unsafe_code)]

mod capacity;
pub mod dead_tree;
pub mod deadlist;
pub mod dsl;
pub mod engine;
pub mod errlog;
mod error;
pub mod features;
pub mod history;
pub mod import;
pub mod intent_log;
pub mod keys;
pub mod live;
mod mos;
pub mod object;
pub mod objset;
pub mod properties;
mod removal;
pub mod sharing;
pub mod spacemaps;
mod sync;
pub mod usage;
pub mod zap;
pub mod zil;

pub use cenote_format::units::{BlockId, DatasetId, ObjectId, Txg};
pub use dsl::{Bookmark, Dataset, DatasetKind, Dir};
pub use error::{DatasetError, Result};
pub use import::{ImportOptions, Rewind, import};
pub use intent_log::IntentLog;
pub use keys::{EncryptionInfo, KeySource, KeyStatus, UserKey};
pub use mos::{FeatureState, Mos};
pub use object::Object;
pub use objset::Objset;
pub use properties::{Property, Source, Value};
pub use zap::{NewZap, Zap, ZapEdit, ZapEntry, ZapKey, ZapValue};
