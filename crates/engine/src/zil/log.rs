//! The intent log of a dataset: takes records and commits.

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

/// `zfs_immediate_write_sz`: longer writes get their own blocks, unless there is a log device.
const IMMEDIATE_WRITE_BYTES: u64 = 32 << 10;

/// A dataset's intent log; cheap to clone.
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
    pub(crate) asked: AtomicU64,
    pub(crate) turn: tokio::sync::Mutex<Turn>,
}

impl Log {
    /// `total` counts the memory of records.
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

    /// Property `sync=always`: commit each operation before it returns.
    pub fn is_always(&self) -> bool {
        self.0.policy.read().sync == SyncPolicy::Always
    }

    /// Records an operation of the held txg; no-op during replay.
    pub fn append(&self, txg: Txg, operation: Operation) {
        if !self.0.chain.lock().is_replaying() {
            self.0.records.lock().append(txg, Note::Said(operation.into()));
        }
    }

    /// [`Log::append`] after all waiting notes of `objects`, which decide the outcome.
    pub fn append_after(&self, txg: Txg, objects: &[ObjectId], operation: Operation) {
        if !self.0.chain.lock().is_replaying() {
            let mut records = self.0.records.lock();
            objects.iter().for_each(|&object| records.release(Some(object)));
            records.append(txg, Note::Said(operation.into()));
        }
    }

    /// Records a truncation. Call it **before** truncating: commits read written data from the blocks.
    pub fn append_cut(&self, txg: Txg, operation: Operation, (object, size_bytes): (ObjectId, u64)) {
        if !self.0.chain.lock().is_replaying() {
            let mut records = self.0.records.lock();
            records.cut(object, size_bytes);
            records.append(txg, Note::Said(operation.into()));
        }
    }

    /// Records a write to a file with blocks of `block_bytes`.
    pub fn append_write(&self, txg: Txg, object: ObjectId, range: Range<u64>, block_bytes: u64) {
        let is_long = range.end - range.start >= IMMEDIATE_WRITE_BYTES;
        self.append_written(txg, object, range, block_bytes, is_long);
    }

    /// Records a write to a volume with blocks of `block_bytes`.
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

    /// Notes a change that no record can describe: the next commit writes the txg.
    pub fn cannot_say(&self, txg: Txg) {
        if !self.0.chain.lock().is_replaying() {
            self.0.records.lock().cannot_say(txg);
        }
    }

    /// The last txg on disk, where a replay starts.
    ///
    /// # Errors
    /// The pool is closed, or a txg could not be written.
    pub fn last_synced(&self) -> Result<Txg> {
        self.0.engine.upgrade()?.synced()
    }

    /// Orders waiting notes before later records, which give the object another name.
    pub fn release(&self, object: ObjectId) {
        self.0.records.lock().release(Some(object));
    }

    /// Drops waiting notes: after the loss of the last name was recorded, or before a free or truncation that
    /// [`Log::append_cut`] does not cover.
    pub fn forget(&self, object: ObjectId) {
        self.0.records.lock().forget(object);
    }

    pub(crate) fn drop_through(&self, txg: Txg) {
        self.0.records.lock().drop_through(txg);
    }

    pub(crate) fn is_touched(&self, txg: Txg) -> bool {
        self.0.chain.lock().is_touched(txg)
    }

    /// Waits for blocks in flight.
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

    /// Ends the log once txgs cover its records: `txg` or the next.
    pub(crate) fn end(&self, txg: Txg) {
        self.0.chain.lock().end(txg);
        self.0.settled.notify_waiters();
    }

    /// Takes all blocks of the log.
    pub(crate) fn abandon(&self, quiet: &Quiet) -> Vec<Blkptr> {
        self.0.chain.lock().abandon(quiet.txg())
    }

    /// Whether an old log must be replayed first.
    pub fn needs_replay(&self) -> bool {
        self.0.chain.lock().is_replaying()
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({})", self.0.dataset)
    }
}
