//! Objects (DMU), datasets (DSL), properties and the intent log, read-only.
//!
//! ```text
//!   FoundPool --import--> Mos --dataset("pool/a@s")--> Dataset --objset--> Objset --object(n)--> Object --> bytes
//!                          |  config, features,          |  properties, space,       |  dnodes in batches
//!                          |  history, error log,        |  snapshots, clones,       Zap: names to values
//!                          |  space maps, dedup          |  keys, bookmarks, holds
//! ```
//!
//! Read in this order: [`objset`], [`object`] (the tree of blocks), `zap`, `import`, `dsl`, then the rest.
#![forbid(unsafe_code)]

mod error;
pub mod object;
pub mod objset;

pub use cenote_format::units::{BlockId, DatasetId, ObjectId, Txg};
pub use error::{DatasetError, Result};
pub use object::Object;
pub use objset::Objset;
