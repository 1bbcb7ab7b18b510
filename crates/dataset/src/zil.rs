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
//! Memory: the records of the two groups that are not on disk. Written bytes are shared with the blocks that they went into.
//!
//! Source: OpenZFS `zil.c`. Commits of one log take turns here instead of following each other in states of a block.

mod chain;
mod claim;
mod commit;
mod indirect;
mod records;
mod replay;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_format::zil::record::{Operation, WriteData};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::engine::WeakEngine;
use crate::error::Result;
use chain::Chain;
use commit::Turn;
use records::Records;

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
    pub(crate) fn new(dataset: DatasetId, engine: WeakEngine, policy: LogPolicy, found: Found) -> Log {
        Log(Arc::new(Inner {
            dataset,
            engine,
            policy: policy.into(),
            records: Mutex::default(),
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
            self.0.records.lock().append(txg, operation);
        }
    }

    /// Notes that bytes were written to a file with blocks of `block_bytes`.
    pub fn append_write(&self, txg: Txg, object: ObjectId, offset: u64, data: Bytes, block_bytes: u64) {
        let is_long = data.len() as u64 >= IMMEDIATE_WRITE_BYTES;
        self.append_write_as(txg, object, offset, data, block_bytes, is_long);
    }

    /// Notes that bytes were written to a volume with blocks of `block_bytes`.
    pub fn append_volume_write(
        &self,
        txg: Txg,
        object: ObjectId,
        offset: u64,
        data: Bytes,
        block_bytes: u64,
    ) {
        let is_long = data.len() as u64 >= block_bytes && block_bytes > IMMEDIATE_WRITE_BYTES;
        self.append_write_as(txg, object, offset, data, block_bytes, is_long);
    }

    fn append_write_as(
        &self,
        txg: Txg,
        object: ObjectId,
        offset: u64,
        data: Bytes,
        block: u64,
        is_long: bool,
    ) {
        let has_log_device = || self.0.engine.has_log_device();
        let write = |offset, len, data| write_of(object, offset, len, Blkptr::HOLE, data);
        if !(self.0.policy.read().for_throughput || (is_long && !has_log_device())) {
            return self.append(txg, write(offset, data.len() as u64, WriteData::Copied(data)));
        }
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let next = end.min((at / block + 1) * block);
            self.append(txg, write(at, next - at, WriteData::Indirect));
            at = next;
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

    /// An object is gone: what waits with it will never be written, as its number may soon be another's.
    pub fn forget(&self, object: ObjectId) {
        self.0.records.lock().forget(object);
    }

    /// Group `txg` is on disk, and with it all that happened until then.
    pub(crate) fn drop_through(&self, txg: Txg) {
        self.0.records.lock().drop_through(txg);
    }
}

/// That bytes were written; `bp` is where they lie if they have a block of their own.
fn write_of(
    object: ObjectId,
    offset_bytes: u64,
    length_bytes: u64,
    bp: Blkptr,
    data: WriteData,
) -> Operation {
    let (already_synced, block_offset) = (false, 0);
    Operation::Write { already_synced, object, offset_bytes, length_bytes, block_offset, bp, data }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({})", self.0.dataset)
    }
}
