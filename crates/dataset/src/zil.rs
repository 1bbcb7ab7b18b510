//! The intent log as it is written: what makes `fsync` durable without a transaction group.
//!
//! ```text
//!   operation --append--> records of its group, in memory          records
//!   commit    --turn----> log blocks: | link | record | record |   write, chain
//!                         written side by side, then one flush
//!   group synced -------> its records are forgotten, its blocks freed, the head leads to the rest
//! ```
//!
//! Idea: every operation leaves a record of what it did. When somebody wants to know an object (or all) safe, those records that no group on
//! disk covers yet are written to a chain of blocks outside of the tree, which the head of the object set leads to. After a power cut the
//! next import replays them. Who commits while another commit is being written waits, and is then written together with all
//! others who wait: one block, one flush for all.
//!
//! How to use it, from the outside in:
//!
//! - `fs.commit(Some(object)).await` is `fsync`, `fs.commit(None).await` is `sync` of one file system. **Not under a hold**: the log itself needs
//!   one, and the first commit of a dataset writes a group.
//! - [`Log::is_always`]: the property `sync=always` wants a commit after each operation.
//! - Replay after a cut: [`crate::engine::Engine::logs_to_replay`].
//!
//! Order: records of names go into the log in the order of the operations. Records about one object alone (content, attributes) wait with that object,
//! and are written when it is committed, or all is, or it is renamed; replay takes it that they are late.
//!
//! Memory: the records of the two groups that are not on disk, counted as changes. Written bytes lie in the blocks that they went into only.
//!
//! Source: OpenZFS `zil.c`. Commits of one log take turns here instead of following each other in states of a block.

mod chain;
mod claim;
mod commit;
mod content;
mod records;
mod replay;
mod write;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_format::zil::record::Operation;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::engine::WeakEngine;
use crate::error::Result;
use crate::live::DirtyTotal;
use chain::Chain;
use commit::Turn;
use records::{Note, Records, Written};

pub(crate) use claim::Found;
pub use replay::PendingReplay;

/// `zfs_immediate_write_sz`: longer writes to files go into blocks of their own, if there is no log device.
const IMMEDIATE_WRITE_BYTES: u64 = 32 << 10;

/// What properties say of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogPolicy {
    pub(crate) sync: SyncPolicy,
    /// `logbias=throughput`: content always goes into blocks of its own.
    pub(crate) for_throughput: bool,
}

/// Property `sync`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum SyncPolicy {
    #[default]
    Standard,
    Always,
    Disabled,
}

impl LogPolicy {
    pub(crate) fn of_numbers(sync: u64, logbias: u64) -> LogPolicy {
        let sync = match sync {
            1 => SyncPolicy::Always,
            2 => SyncPolicy::Disabled,
            _ => SyncPolicy::Standard,
        };
        LogPolicy { sync, for_throughput: logbias == 1 }
    }
}

/// The intent log of a dataset that takes changes. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    dataset: DatasetId,
    engine: WeakEngine,
    policy: RwLock<LogPolicy>,
    records: Mutex<Records>,
    chain: Mutex<Chain>,
    /// A block was written, or never will be.
    settled: Notify,
    /// How many have asked for a commit.
    asked: AtomicU64,
    turn: tokio::sync::Mutex<Turn>,
}

impl Log {
    /// A log whose records count in a sum of changes.
    pub(crate) fn new(
        dataset: DatasetId,
        engine: WeakEngine,
        policy: LogPolicy,
        found: Found,
        total: DirtyTotal,
    ) -> Log {
        Log(Arc::new(Inner {
            dataset,
            engine,
            policy: policy.into(),
            records: Records::new(total).into(),
            chain: Chain::of(found).into(),
            settled: Notify::new(),
            asked: AtomicU64::new(0),
            turn: tokio::sync::Mutex::default(),
        }))
    }

    pub(crate) fn set_policy(&self, policy: LogPolicy) {
        *self.0.policy.write() = policy;
    }

    /// Property `sync=always`: each operation is to be committed before it is reported as done.
    pub fn is_always(&self) -> bool {
        self.0.policy.read().sync == SyncPolicy::Always
    }

    /// Notes what an operation did in group `txg`, which is held open. While a log is replayed, nothing is noted.
    pub fn append(&self, txg: Txg, operation: Operation) {
        if !self.0.chain.lock().is_replaying() {
            self.0.records.lock().append(txg, Note::Said(operation.into()));
        }
    }

    /// Notes an operation that cuts an object off behind so many bytes. **Before** it does so: a commit takes what was written from the blocks.
    pub fn append_cut(&self, txg: Txg, operation: Operation, (object, size_bytes): (ObjectId, u64)) {
        if !self.0.chain.lock().is_replaying() {
            let mut records = self.0.records.lock();
            records.cut(object, size_bytes);
            records.append(txg, Note::Said(operation.into()));
        }
    }

    /// Notes that a range of a file with blocks of `block_bytes` was written.
    pub fn append_write(&self, txg: Txg, object: ObjectId, range: Range<u64>, block_bytes: u64) {
        let is_long = range.end - range.start >= IMMEDIATE_WRITE_BYTES;
        self.append_written(txg, object, range, block_bytes, is_long);
    }

    /// Notes that a range of a volume with blocks of `block_bytes` was written.
    pub fn append_volume_write(&self, txg: Txg, object: ObjectId, range: Range<u64>, block_bytes: u64) {
        let is_long = range.end - range.start >= block_bytes && block_bytes > IMMEDIATE_WRITE_BYTES;
        self.append_written(txg, object, range, block_bytes, is_long);
    }

    fn append_written(&self, txg: Txg, object: ObjectId, range: Range<u64>, block_bytes: u64, is_long: bool) {
        if self.0.chain.lock().is_replaying() {
            return;
        }
        let is_apart = self.0.policy.read().for_throughput || (is_long && !self.0.engine.has_log_device());
        let mut records = self.0.records.lock();
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min((start / block_bytes + 1) * block_bytes);
            records.append(txg, Note::Written(Written { object, range: start..end, block_bytes, is_apart }));
            start = end;
        }
    }

    /// Something happened in group `txg` that no record can say: the next commit writes that group.
    pub fn cannot_say(&self, txg: Txg) {
        if !self.0.chain.lock().is_replaying() {
            self.0.records.lock().cannot_say(txg);
        }
    }

    /// The last group on disk: what is in it, a replay will find.
    ///
    /// # Errors
    /// The pool was closed, or a group could not be written.
    pub fn last_synced(&self) -> Result<Txg> {
        self.0.engine.upgrade()?.synced()
    }

    /// What waits with an object is written before what is appended from now on: it gets another name.
    pub fn release(&self, object: ObjectId) {
        self.0.records.lock().release(Some(object));
    }

    /// An object has lost its last name, which is noted, or is about to be freed or cut otherwise than [`Log::append_cut`] says: what waits with it
    /// will never be written.
    pub fn forget(&self, object: ObjectId) {
        self.0.records.lock().forget(object);
    }

    /// Group `txg` is on disk, and with it all that happened until then.
    pub(crate) fn drop_through(&self, txg: Txg) {
        self.0.records.lock().drop_through(txg);
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({})", self.0.dataset)
    }
}
