//! Writing the intent log (ZIL), which makes `fsync` durable without a txg.
//!
//! ```text
//!   operation --append--> records of its txg, in memory          records
//!   commit    --turn----> log blocks: | link | record | record |   write, chain
//!                         written side by side, then one flush
//!   txg synced -------> drop its records, free its blocks, point the header at the rest
//! ```
//!
//! Idea: every operation leaves a record. A commit, of one object or all, writes the records that no txg on
//! disk covers to a chain of blocks outside the tree; the object set's header points to it. After a power
//! cut, the next import replays them. Commits that arrive while another is written go together: one block,
//! one flush.
//!
//! Usage:
//!
//! - `fs.commit(Some(object)).await` is `fsync`, `fs.commit(None).await` is `sync` of one file system. **Not
//!   under a hold**: the log itself needs one, and a dataset's first commit writes a txg.
//! - [`Log::is_always`]: property `sync=always` asks for a commit after each operation.
//! - Replay after a power cut: [`crate::Logs::awaiting_replay`].
//!
//! Order: records about names enter the log in order. Records about one object's content or attributes wait
//! until that object or all are committed, or a record about names depends on them ([`Log::append_after`]);
//! replay expects them late. Changes of flags and projects don't wait, since they decide which later
//! operations on names are allowed.
//!
//! Memory: records of the two txgs not on disk, counted as dirty data. Written bytes are only in the file's
//! blocks.
//!
//! Source: OpenZFS `zil.c`. Here, commits of one log take turns; OpenZFS pipelines them as block states.

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
