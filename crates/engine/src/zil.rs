//! The intent log as it is written: what makes `fsync` durable without a transaction group.
//!
//! ```text
//!   operation --append--> records of its txg, in memory          records
//!   commit    --turn----> log blocks: | link | record | record |   write, chain
//!                         written side by side, then one flush
//!   txg synced -------> its records are forgotten, its blocks freed, the head leads to the rest
//! ```
//!
//! Idea: every operation leaves a record of what it did. When somebody wants to know an object (or all) safe,
//! those records that no txg on disk covers yet are written to a chain of blocks outside of the tree, which
//! the head of the object set leads to. After a power cut the next import replays them. Who commits while
//! another commit is being written waits, and is then written together with all others who wait: one block,
//! one flush for all.
//!
//! How to use it, from the outside in:
//!
//! - `fs.commit(Some(object)).await` is `fsync`, `fs.commit(None).await` is `sync` of one file system. **Not
//!   under a hold**: the log itself needs one, and the first commit of a dataset writes a txg.
//! - [`Log::is_always`]: the property `sync=always` wants a commit after each operation.
//! - Replay after a cut: [`crate::engine::Engine::logs_to_replay`].
//!
//! Order: records of names go into the log in the order of the operations. Records about one object alone
//! (content, attributes) wait with that object, and are written when it is committed, or all is, or a record
//! of names depends on it ([`Log::append_after`]); replay takes it that they are late. Changes of flags and
//! projects don't wait: they decide which operations on names come after them.
//!
//! Memory: the records of the two txgs that are not on disk, counted as changes. Written bytes lie in the
//! blocks that they went into only.
//!
//! Source: OpenZFS `zil.c`. Commits of one log take turns here instead of following each other in states of a
//! block.

mod chain;
pub(crate) mod claim;
mod commit;
mod content;
pub(crate) mod log;
pub(crate) mod policy;
mod records;
mod replay;
mod turn;
mod write;

pub use log::Log;
pub use replay::PendingReplay;
