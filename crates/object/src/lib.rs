//! Object sets, objects and the structures in them: OpenZFS's DMU, for reading and for changes in memory.
//!
//! ```text
//!   LiveObjset --view--> Objset --object(n)--> Object --> blocks, bytes
//!     |  edit            |  dnodes in batches   |  Zap: names to values
//!     v                  '- IntentLog           |  Bpobj, Deadlist: lists of block pointers
//!   Edit: ZapEdit, BlockLists, ...              '- Walk, DeadTree: all block pointers
//!     |
//!     '--> layers in memory --write::write_objset--> BlockSink: the engine stores the blocks
//! ```
//!
//! The crate knows neither datasets nor transaction groups: an object set is a root pointer, and a layer of
//! changes has a txg. A [`write::BlockSink`] decides where blocks go when a set is written.
//!
//! Read in this order: [`objset`], [`object`] (the tree of blocks), [`zap`], [`deadlist`], then [`live`]
//! (changes in memory) and [`write`].
#![forbid(unsafe_code)]

pub mod dead_tree;
pub mod deadlist;
mod error;
pub mod feature_counts;
mod intent_log;
pub mod live;
pub mod object;
pub mod objset;
mod prefetch;
mod traffic;
pub mod trail;
pub mod write;
pub mod zap;

pub use error::{DatasetError, Result};
pub use intent_log::IntentLog;
pub use live::{Edit, LiveObjset, NewObject};
pub use object::Object;
pub use objset::Objset;
pub use traffic::{Traffic, Wait, Waited};
pub use zap::{Cursor, NewZap, Zap, ZapEdit, ZapEntry, ZapKey, ZapValue};
