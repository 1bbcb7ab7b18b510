//! A disk as a log of objects created once, never overwritten, and deleted when nothing needs them.
//!
//! ```text
//!   write, discard   change the map and join the batch in memory      state
//!   full segment     is created in the background                     commit (create_segment)
//!   flush            waits for the batch's segments, then creates     commit (commit_batches)
//!                    commit N+1: all changes since commit N, with the data of small batches
//!   read             finds pieces by the map; ranges of one segment   read
//!                    that lie close together are one request
//!   open             newest commit, the checkpoint it names, and the  load
//!                    commits since
//! ```
//!
//! Ordering: a commit is atomic and includes all changes before the flush, so after a power cut the disk is
//! as at some commit. Changes of an unfinished batch are read from memory.
//!
//! Fence: to change a disk, a machine must first take it over: it creates the next commit with a higher
//! epoch, and lists the commits again. A higher one means that it came too late, and it gives up. Takeovers
//! and the newest commit are never deleted, and a writer's commits are consecutive, so a stopped machine that
//! returns finds the number of its next commit taken. No clock is involved. A disk is taken over at its first
//! change, not when opened: a refused import disturbs nobody.
//!
//! A request without an answer is repeated with the same bytes, and "exists" is then compared with them.
//! Names of segments and checkpoints include a random token of their writer, so late requests of a stopped
//! machine create objects that nothing names; the next takeover deletes them.
//!
//! Space: a segment without live data is deleted after the commit that made it so. If less than four fifths
//! of the stored bytes are live, those of the emptiest segments are written again (`pack`).
//!
//! Invariants that make this safe were checked by a model of all interleavings of three writers, and are by
//! the simulation in `tests/takeover.rs`.
//!
//! Source: LSVD (EuroSys 2022, doi 10.1145/3492321.3524271), for the idea of a disk as a log of objects.
//!
//! Locking: one mutex for the state, never held across an await; `owned` is held while the disk is taken
//! over. `progress` is changed only without the state's lock.

mod commit;
mod load;
mod pack;
mod read;
mod state;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, DeviceError, DeviceInfo, Distance, Io, Nature, Op, StorageLock};
use cenote_runtime::{Runtime, Watched};
use parking_lot::Mutex;

use crate::counts::{Counts, Requests};
use crate::map::SECTOR_BYTES;
use crate::patient::{Patience, Patient};
use crate::probe::{ROUNDS, probe};
use crate::store::{Store, StoreError};
use crate::wire::Identity;
pub use load::OpenError;
use state::{Sealing, State};

/// Data in memory, at most, before writes wait.
const BUFFER_BYTES: u64 = 128 << 20;
/// Changes in memory, at most, before a commit is made without a flush.
const BATCH_CHANGES: usize = 1 << 18;
/// Neighbouring operations are joined up to this size.
const BEST_IO_BYTES: u64 = 1 << 20;
/// A device that does not answer within this time is out of use: longer than a request is repeated.
const DEADLINE: Duration = Duration::from_secs(90);
/// Why operations are refused.
const TAKEN: &str = "another machine has taken over this disk";
/// Sizes of disks: multiples of the first, from the second to the third.
const SIZE_UNIT_BYTES: u64 = 4096;
const SIZE_BYTES_MIN: u64 = 64 << 20;
const SIZE_BYTES_MAX: u64 = 1 << 63;

/// How to open a disk.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the device, in messages.
    pub name: Arc<str>,
    /// Writes are refused.
    pub read_only: bool,
    /// Without a disk, make one of this size, at its first change.
    pub create_bytes: Option<u64>,
    /// Rounds of the probe before a disk is made.
    pub probes: usize,
    /// How long to wait for the store.
    pub patience: Patience,
    /// How it is reached, for the pool.
    pub nature: Nature,
    /// Users other than root and this program's own could write to it.
    pub others_may_write: bool,
    /// Counts its requests.
    pub counts: Arc<Counts>,
}

impl Options {
    /// A disk for reading and writing.
    pub fn new(name: impl Into<Arc<str>>) -> Options {
        Options {
            name: name.into(),
            read_only: false,
            create_bytes: None,
            probes: ROUNDS,
            patience: Patience::USUAL,
            nature: Nature {
                address: None,
                domain: None,
                distance: Distance::Network,
                best_io_bytes: BEST_IO_BYTES,
                deadline: DEADLINE,
                // It is taken over with the first change, not when opened.
                storage_lock: StorageLock::None,
            },
            others_may_write: false,
            counts: Arc::default(),
        }
    }
}

/// A disk in an object store.
pub struct LogDevice {
    info: DeviceInfo,
    log: Arc<Log>,
}

/// A disk's log, shared by its operations and background tasks.
struct Log {
    store: Arc<Patient>,
    runtime: Runtime,
    identity: Identity,
    /// The object `device` exists.
    exists: bool,
    state: Mutex<State>,
    flushes: Mutex<Flushes>,
    /// Taken over.
    owned: tokio::sync::Mutex<bool>,
    progress: Watched<Progress>,
    /// Segments under way, which the next commit waits for.
    creating: Mutex<Vec<cenote_runtime::JoinHandle<()>>>,
    /// Kept while the disk is in use.
    _kept: Box<dyn std::any::Any + Send + Sync>,
}

#[derive(Default)]
struct Flushes {
    /// The batch to be committed.
    wanted: u64,
    is_committing: bool,
    is_packing: bool,
}

#[derive(Default)]
struct Progress {
    /// Data in memory.
    buffered_bytes: u64,
    /// The last batch in a commit.
    committed: u64,
    /// Why the disk can't be used any more.
    over: Option<Over>,
}

/// Why a disk can't be used any more.
#[derive(Debug, Clone)]
enum Over {
    /// Another machine has taken it over.
    Taken,
    /// The store failed for too long, or refused.
    Failed(StoreError),
}

impl From<StoreError> for Over {
    fn from(error: StoreError) -> Over {
        Over::Failed(error)
    }
}

impl LogDevice {
    /// Opens a disk. `kept`: dropped once nothing uses the disk any more.
    ///
    /// # Errors
    /// There is none and no size is given, the store fails, or an object is damaged.
    pub async fn open(
        store: Arc<dyn Store>,
        options: Options,
        runtime: &Runtime,
        kept: impl Send + Sync + 'static,
    ) -> Result<LogDevice, OpenError> {
        let store = Arc::new(Patient::new(store, options.patience, options.counts, runtime));
        let loaded = load::load(&store).await?;
        let identity = match (loaded.identity, options.create_bytes) {
            (Some(found), Some(size)) if found.size_bytes != size => {
                return Err(OpenError::Exists(found.size_bytes));
            }
            (Some(found), _) => found,
            (None, None) => return Err(OpenError::Absent),
            (None, Some(size_bytes)) => Identity { guid: runtime.random_u64(), size_bytes },
        };
        let size_bytes = identity.size_bytes;
        if !size_bytes.is_multiple_of(SIZE_UNIT_BYTES)
            || !(SIZE_BYTES_MIN..=SIZE_BYTES_MAX).contains(&size_bytes)
        {
            return Err(OpenError::Size);
        }
        if loaded.identity.is_none() && !options.read_only {
            probe(&store, options.probes).await?;
        }
        let info = DeviceInfo {
            path: options.name,
            size_bytes,
            sector_bytes: SIZE_UNIT_BYTES as u32,
            rotational: None,
            read_only: options.read_only,
            others_may_write: options.others_may_write,
            nature: options.nature,
        };
        let log = Log {
            store,
            runtime: runtime.clone(),
            identity,
            exists: loaded.identity.is_some(),
            state: Mutex::new(loaded.state),
            flushes: Mutex::default(),
            owned: tokio::sync::Mutex::new(false),
            progress: Watched::new(Progress::default()),
            creating: Mutex::default(),
            _kept: Box::new(kept),
        };
        Ok(LogDevice { info, log: Arc::new(log) })
    }

    /// Requests to the store so far.
    pub fn requests(&self) -> Requests {
        self.log.store.counts.now()
    }

    /// Bytes in objects with data, and the live ones among them.
    pub fn space(&self) -> (u64, u64) {
        let state = self.log.state.lock();
        (state.stored_bytes(), state.map.live_sectors() * SECTOR_BYTES)
    }

    /// Number of the newest commit known here.
    pub fn last_commit(&self) -> u64 {
        self.log.state.lock().last
    }

    fn failed(&self, op: Op, offset: u64, len: u64) -> impl Fn(Over) -> DeviceError + Send + 'static {
        let info = self.info.clone();
        move |over| match over {
            Over::Taken => DeviceError::Fenced { path: info.path.clone(), op, why: TAKEN.into() },
            Over::Failed(error) => info.io_error(op, offset, len, std::io::Error::other(error)),
        }
    }

    fn check_aligned(&self, op: Op, offset: u64, len: u64) -> Result<(), DeviceError> {
        if offset.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES) {
            return Ok(());
        }
        Err(DeviceError::Misaligned { path: self.info.path.clone(), op, offset, len, align: SECTOR_BYTES })
    }

    fn write(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let checked = self.info.check_writable(Op::Write, offset, len);
        if let Err(error) = checked.and_then(|()| self.check_aligned(Op::Write, offset, len)) {
            return Io::done(Err(error));
        }
        let failed = self.failed(Op::Write, offset, len);
        if let Some(over) = self.log.over() {
            return Io::done(Err(failed(over)));
        }
        // Partial sectors are put together.
        let whole = pieces.iter().all(|piece| (piece.len() as u64).is_multiple_of(SECTOR_BYTES));
        let pieces = if whole { pieces } else { vec![pieces.concat().into()] };
        self.log.write(offset, pieces);
        if self.log.has_room() {
            return Io::done(Ok(()));
        }
        let log = self.log.clone();
        Io::pending(&self.log.runtime, async move { log.room().await.map_err(failed) })
    }
}

impl Log {
    fn over(&self) -> Option<Over> {
        self.progress.borrow().over.clone()
    }

    fn end(&self, over: Over) {
        self.progress.modify(|progress| {
            progress.over.get_or_insert(over);
        });
    }

    fn has_room(&self) -> bool {
        self.progress.borrow().buffered_bytes <= BUFFER_BYTES
    }

    async fn room(&self) -> Result<(), Over> {
        let mut watch = self.progress.watch();
        let is_over =
            |progress: &Progress| progress.buffered_bytes <= BUFFER_BYTES || progress.over.is_some();
        let over = watch.until(is_over).await.ok().and_then(|progress| progress.over.clone());
        over.map_or(Ok(()), Err)
    }

    /// Changes the disk in memory; never waits.
    fn write(self: &Arc<Self>, offset: u64, pieces: Vec<Bytes>) {
        let len: usize = pieces.iter().map(Bytes::len).sum();
        self.progress.modify(|progress| progress.buffered_bytes += len as u64);
        let (mut full, mut at) = (Vec::new(), offset / SECTOR_BYTES);
        let mut state = self.state.lock();
        for piece in pieces {
            let sectors = piece.len() as u64 / SECTOR_BYTES;
            full.extend(state.write(at, piece));
            at += sectors;
        }
        self.create_segments(full);
        let is_large = state.batch.changes.len() >= BATCH_CHANGES;
        drop(state);
        if is_large {
            self.want_commit();
        }
    }

    /// Begins to create segments, before any commit of their batch is prepared.
    fn create_segments(self: &Arc<Self>, full: Vec<Sealing>) {
        for sealing in full {
            let task = self.runtime.spawn(self.clone().create_segment(sealing));
            self.creating.lock().push(task);
        }
    }

    /// Asks for a commit of all changes so far. Returns the last batch of them.
    fn want_commit(self: &Arc<Self>) -> u64 {
        let state = self.state.lock();
        let target = if state.batch.is_empty() { state.filling - 1 } else { state.filling };
        drop(state);
        let mut flushes = self.flushes.lock();
        flushes.wanted = flushes.wanted.max(target);
        if !flushes.is_committing && self.progress.borrow().committed < flushes.wanted {
            flushes.is_committing = true;
            self.runtime.spawn(self.clone().commit_batches()).detach();
        }
        target
    }

    async fn flush(self: Arc<Self>) -> Result<(), Over> {
        let target = self.want_commit();
        self.committed(target).await
    }

    async fn committed(&self, target: u64) -> Result<(), Over> {
        let mut watch = self.progress.watch();
        let reached = watch.until(|now| now.committed >= target || now.over.is_some()).await;
        // A batch in a commit is safe, even if the disk was taken over later.
        match reached {
            Ok(now) if now.committed < target => now.over.clone().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }
}

impl Device for LogDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        if let Err(error) = self.info.check_range(Op::Read, offset, len as u64) {
            return Io::done(Err(error));
        }
        let failed = self.failed(Op::Read, offset, len as u64);
        match self.log.over() {
            Some(over) => Io::done(Err(failed(over))),
            None => match self.log.read_in_memory(offset, len) {
                Some(bytes) => Io::done(Ok(bytes)),
                None => {
                    let log = self.log.clone();
                    Io::pending(&self.log.runtime, async move { log.read(offset, len).await.map_err(failed) })
                }
            },
        }
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.write(offset, vec![data])
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        let written = self.write(offset, vec![data]);
        let flushed = self.flush();
        written.then(|()| flushed)
    }

    fn write_pieces(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        self.write(offset, pieces)
    }

    fn flush(&self) -> Io<()> {
        let failed = self.failed(Op::Flush, 0, 0);
        if let Some(over) = self.log.over() {
            return Io::done(Err(failed(over)));
        }
        let log = self.log.clone();
        let target = self.log.want_commit();
        Io::pending(&self.log.runtime, async move { log.committed(target).await.map_err(failed) })
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        if let Err(error) = self.info.check_writable(Op::Discard, offset, len) {
            return Io::done(Err(error));
        }
        if let Some(over) = self.log.over() {
            return Io::done(Err(self.failed(Op::Discard, offset, len)(over)));
        }
        // Whole sectors within the range.
        let (start, end) = (offset.div_ceil(SECTOR_BYTES), (offset + len) / SECTOR_BYTES);
        if start < end {
            self.log.state.lock().discard(start, end - start);
        }
        Io::done(Ok(()))
    }

    fn align_bytes(&self) -> u32 {
        SECTOR_BYTES as u32
    }

    fn is_there(&self) -> Io<bool> {
        Io::done(Ok(self.log.over().is_none()))
    }
}
