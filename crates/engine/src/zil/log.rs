//! The intent log of a dataset: records are noted here, and commits begin here.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cenote_format::blkptr::Blkptr;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_format::zil::record::Operation;
use cenote_object::Result;
use cenote_object::live::DirtyTotal;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::engine::WeakEngine;
use crate::in_use::uses::Quiet;
use crate::zil::chain::{Chain, Settled};
use crate::zil::claim::FoundLog;
use crate::zil::policy::{LogPolicy, SyncPolicy};
use crate::zil::records::{Note, Records, WriteNote};
use crate::zil::turn::Turn;

/// `zfs_immediate_write_sz`: longer writes to files go into blocks of their own, if there is no log device.
const IMMEDIATE_WRITE_BYTES: u64 = 32 << 10;

/// The intent log of a dataset that takes changes. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct Log(pub(crate) Arc<LogInner>);

pub(crate) struct LogInner {
    pub(crate) dataset: DatasetId,
    pub(crate) engine: WeakEngine,
    pub(crate) policy: RwLock<LogPolicy>,
    pub(crate) records: Mutex<Records>,
    pub(crate) chain: Mutex<Chain>,
    /// A block was written, or never will be.
    pub(crate) settled: Notify,
    /// How many have asked for a commit.
    pub(crate) asked: AtomicU64,
    pub(crate) turn: tokio::sync::Mutex<Turn>,
}

impl Log {
    /// A log whose records count in a sum of changes.
    pub(crate) fn new(
        dataset: DatasetId,
        engine: WeakEngine,
        policy: LogPolicy,
        found: FoundLog,
        total: DirtyTotal,
    ) -> Log {
        Log(Arc::new(LogInner {
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

    /// Notes what an operation did in txg `txg`, which is held open. While a log is replayed, nothing is
    /// noted.
    pub fn append(&self, txg: Txg, operation: Operation) {
        if !self.0.chain.lock().is_replaying() {
            self.0.records.lock().append(txg, Note::Said(operation.into()));
        }
    }

    /// Notes an operation whose outcome depends on the state of some objects: what waits with those is
    /// written before it.
    pub fn append_after(&self, txg: Txg, objects: &[ObjectId], operation: Operation) {
        if !self.0.chain.lock().is_replaying() {
            let mut records = self.0.records.lock();
            objects.iter().for_each(|&object| records.release(Some(object)));
            records.append(txg, Note::Said(operation.into()));
        }
    }

    /// Notes an operation that cuts an object off behind so many bytes. **Before** it does so: a commit takes
    /// what was written from the blocks.
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
            records
                .append(txg, Note::WriteNote(WriteNote { object, range: start..end, block_bytes, is_apart }));
            start = end;
        }
    }

    /// Something happened in txg `txg` that no record can say: the next commit writes that txg.
    pub fn cannot_say(&self, txg: Txg) {
        if !self.0.chain.lock().is_replaying() {
            self.0.records.lock().cannot_say(txg);
        }
    }

    /// The last txg on disk: what is in it, a replay will find.
    ///
    /// # Errors
    /// The pool was closed, or a txg could not be written.
    pub fn last_synced(&self) -> Result<Txg> {
        self.0.engine.upgrade()?.synced()
    }

    /// What waits with an object is written before what is appended from now on: it gets another name.
    pub fn release(&self, object: ObjectId) {
        self.0.records.lock().release(Some(object));
    }

    /// An object has lost its last name, which is noted, or is about to be freed or cut otherwise than
    /// [`Log::append_cut`] says: what waits with it will never be written.
    pub fn forget(&self, object: ObjectId) {
        self.0.records.lock().forget(object);
    }

    /// SyncingTxg `txg` is on disk, and with it all that happened until then.
    pub(crate) fn drop_through(&self, txg: Txg) {
        self.0.records.lock().drop_through(txg);
    }

    /// Whether txg `txg`, which closes, has anything to do with the log.
    pub(crate) fn is_touched(&self, txg: Txg) -> bool {
        self.0.chain.lock().is_touched(txg)
    }

    /// What txg `txg`, which is being written, leaves of the log. Waits for blocks that are on their way.
    pub(crate) async fn settle(&self, txg: Txg) -> Settled {
        loop {
            let mut settled = std::pin::pin!(self.0.settled.notified());
            settled.as_mut().enable();
            {
                let mut chain = self.0.chain.lock();
                if chain.is_complete(txg) {
                    return chain.settle(txg);
                }
            }
            settled.await;
        }
    }

    /// The log ends with what it holds: it goes with the txgs that cover that, the open txg `txg` or the
    /// next.
    pub(crate) fn end(&self, txg: Txg) {
        self.0.chain.lock().end(txg);
        self.0.settled.notify_waiters();
    }

    /// The dataset goes, or gets another tree: all blocks of its log, of which nobody will hear again.
    pub(crate) fn abandon(&self, quiet: &Quiet) -> Vec<Blkptr> {
        self.0.chain.lock().abandon(quiet.txg())
    }

    /// Whether it was found, and its records have to be done again before anything else.
    pub fn needs_replay(&self) -> bool {
        self.0.chain.lock().is_replaying()
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({})", self.0.dataset)
    }
}
