//! Leaves: devices with counters; and slots: leaves that hold the same bytes.
//!
//! An operation that has begun runs to its end and keeps its permit, even if its future is dropped
//! ([`Patience`]). An operation still in the queue leaves it.
//!
//! A leaf owns its flush state ([`Unflushed`]), because the system reports a failed flush or write-through
//! only once, perhaps to a caller that lost nothing.
//!
//! Locking: counters are relaxed atomics and all methods may be called concurrently. `flushing` admits one
//! flush at a time, because the system would report an error to only one of two. Write-throughs hold
//! `through` for reading. A flush takes it for writing at its end, in case one is about to report the flush's
//! error.

use crate::health::ErrorCounts;
use crate::label::{Label, read_labels};
use crate::vdev::missed::Missed;
use crate::vdev::patience::{Haste, Owed, Patience, SLOW};
use crate::vdev::queue::{Ask, ClassLoad, IoClass, Moved, Queue, QueueSettings, Turn};
use crate::vdev::unflushed::{FlushMark, Stake, Unflushed};
use bytes::Bytes;
use cenote_device::{Device, DeviceError, Distance, Op};
use cenote_format::label::{BOOT_ENV_OFFSET, VDEV_LABELS, VDEV_PAD_SIZE, label_offset};
use cenote_format::units::{Guid, Txg};
use cenote_runtime::{Instant, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A nearer device is read first, unless this many more operations are waiting for it.
const NETWORK_COST: u64 = 16;
const PROBE_SIZE: u64 = 4 << 10;

/// The result of probing a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Readable and writable.
    Works,
    /// Not readable or not writable.
    Fails,
    /// No longer present.
    Gone,
}

/// A device as a vdev.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) guid: Guid,
    /// Distributed spares on the way to it, outermost first.
    through: Vec<Guid>,
    pub(crate) device: Arc<dyn Device>,
    queue: Arc<Queue>,
    patience: Arc<Patience>,
    /// Shared under several guids: the last disk of a mirror takes over the mirror's.
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Incomplete, with unknown extent.
    stale: AtomicBool,
    /// Offline by the administrator, or truncated: see [`Leaf::is_out_of_use`].
    away: AtomicBool,
    /// See [`Leaf::is_read_first`].
    read_first: AtomicBool,
    /// See [`Leaf::sits_out`]; 0: it does not.
    sits_out_until_ns: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    checksum_errors: AtomicU64,
    /// See [`Leaf::take_suspicion`].
    is_suspect: AtomicBool,
    unflushed: Unflushed,
    flushing: tokio::sync::Mutex<()>,
    through: tokio::sync::RwLock<()>,
}

/// Dropped when the write has ended.
struct Writing {
    state: Arc<State>,
    stake: Stake,
    is_durable: bool,
}

impl Writing {
    fn begin(state: &Arc<State>, stake: Stake) -> Writing {
        state.unflushed.begin(stake);
        Writing { state: state.clone(), stake, is_durable: false }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.state.unflushed.end(self.stake, self.is_durable);
    }
}

impl Leaf {
    pub(crate) fn new(
        runtime: &Runtime,
        guid: Guid,
        device: Arc<dyn Device>,
        settings: &Arc<QueueSettings>,
    ) -> Leaf {
        let patience = Arc::new(Patience::new(runtime, device.clone(), settings));
        let queue = Arc::new(Queue::new(runtime, guid, settings, &patience));
        Leaf { guid, through: Vec::new(), device, queue, patience, state: Arc::default() }
    }

    /// Shares counters and unflushed writes.
    pub(crate) fn renamed(&self, guid: Guid) -> Leaf {
        Leaf { guid, ..self.clone() }
    }

    pub(crate) fn on(
        &self,
        runtime: &Runtime,
        grown: Arc<dyn Device>,
        settings: &Arc<QueueSettings>,
    ) -> Leaf {
        let patience = Arc::new(self.patience.on(grown.clone()));
        let queue = Arc::new(Queue::new(runtime, self.guid, settings, &patience));
        Leaf { through: Vec::new(), device: grown, queue, patience, ..self.clone() }
    }

    pub(crate) fn reached_through(&self, spares: &[Guid]) -> Leaf {
        Leaf { through: spares.to_vec(), ..self.clone() }
    }

    /// Guids whose DTLs apply.
    pub(crate) fn names(&self) -> impl Iterator<Item = Guid> + '_ {
        [self.guid].into_iter().chain(self.through.iter().copied())
    }

    /// Takes effect for operations under way, too.
    pub(crate) fn set_state(&self, stale: bool, away: bool) {
        self.state.stale.store(stale, Ordering::Relaxed);
        self.state.away.store(away, Ordering::Relaxed);
    }

    /// Incomplete, with unknown extent.
    pub(crate) fn is_stale(&self) -> bool {
        self.state.stale.load(Ordering::Relaxed)
    }

    /// Offline or too small.
    pub(crate) fn is_away(&self) -> bool {
        self.state.away.load(Ordering::Relaxed)
    }

    /// Being evacuated: resilvers read it first.
    pub(crate) fn is_read_first(&self) -> bool {
        self.state.read_first.load(Ordering::Relaxed)
    }

    pub(crate) fn set_read_first(&self, is_first: bool) {
        self.state.read_first.store(is_first, Ordering::Relaxed);
    }

    /// Clients' reads avoid it if parity can make up for it (`vdev_sit_out_reads`).
    pub(crate) fn sits_out(&self) -> bool {
        let until_ns = self.state.sits_out_until_ns.load(Ordering::Relaxed);
        until_ns != 0 && self.patience.runtime().now().as_ns() < until_ns
    }

    /// 0: it reads again.
    pub(crate) fn sit_out_until(&self, until_ns: u64) {
        self.state.sits_out_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// Not written, and read only for data that no other leaf has.
    pub(crate) fn is_out_of_use(&self) -> bool {
        self.is_away() || self.is_hung()
    }

    pub(crate) fn is_hung(&self) -> bool {
        self.patience.is_hung()
    }

    /// Reads a range, labels included; counts a failure.
    pub(crate) async fn read(
        &self,
        class: IoClass,
        offset_bytes: u64,
        len: usize,
    ) -> Result<Bytes, DeviceError> {
        let turn = self.queue.enter(Ask::read(class, offset_bytes, len)).await;
        self.read_in_turn(Haste::Patient, turn, offset_bytes, len).await
    }

    /// Gives up on a slow device, since others may have the range.
    pub(crate) async fn read_hastily(
        &self,
        class: IoClass,
        offset_bytes: u64,
        len: usize,
    ) -> Result<Bytes, DeviceError> {
        let slow = || {
            let why = std::io::Error::from(std::io::ErrorKind::TimedOut);
            self.device.info().io_error(Op::Read, offset_bytes, len as u64, why)
        };
        if self.is_slow() {
            return Err(slow());
        }
        let ask = Ask::read(class, offset_bytes, len);
        match self.patience.runtime().timeout(SLOW, self.queue.enter(ask)).await {
            Ok(turn) => self.read_in_turn(Haste::Hasty, turn, offset_bytes, len).await,
            Err(_) => Err(slow()),
        }
    }

    async fn read_in_turn(
        &self,
        haste: Haste,
        turn: Turn,
        offset_bytes: u64,
        len: usize,
    ) -> Result<Bytes, DeviceError> {
        let permit = match turn {
            Turn::Go(permit) => permit,
            Turn::Done(bytes) => return Ok(bytes),
        };
        let io = self.patience.begin(Op::Read, |device| device.read_at(offset_bytes, len));
        let result = self.patience.answer((Op::Read, offset_bytes, len as u64), permit, io, haste).await;
        let is_fenced = matches!(result, Err(DeviceError::Fenced { .. }));
        if result.is_err() && !is_fenced && !(haste == Haste::Hasty && self.is_slow()) {
            self.state.read_errors.fetch_add(1, Ordering::Relaxed);
            self.state.is_suspect.store(true, Ordering::Relaxed);
        }
        result
    }

    pub(crate) fn slow_since(&self) -> Option<Instant> {
        self.patience.slow_since()
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.patience.is_slow()
    }

    /// Takes it out of use without further waiting.
    pub(crate) fn give_up(&self) {
        self.patience.give_up();
    }

    /// Puts it back into use, if all late operations are answered.
    pub(crate) fn forgive_if_answered(&self) {
        if self.patience.has_answered() {
            self.patience.forgive();
        }
    }

    /// Queue depth plus seek and way; the cheapest leaf is read (`vdev_mirror_load`).
    pub(crate) fn read_cost(&self, offset_bytes: u64) -> u64 {
        let distance = offset_bytes.abs_diff(self.queue.reached());
        let seek = self.patience.settings().seek_cost(self.device.info().rotational == Some(true), distance);
        let way = match self.device.info().nature.distance {
            Distance::Local => 0,
            Distance::Network => NETWORK_COST,
        };
        self.queue.depth() + seek + way
    }

    /// Writes a range; counts a failure. Durable after a successful flush for `stake`.
    pub(crate) async fn write(
        &self,
        class: IoClass,
        stake: Stake,
        offset_bytes: u64,
        data: Bytes,
    ) -> Result<(), DeviceError> {
        self.write_padded(class, stake, offset_bytes, data, 0).await
    }

    /// The next `padding` bytes are unused and may be overwritten with zeros.
    pub(crate) async fn write_padded(
        &self,
        class: IoClass,
        stake: Stake,
        offset_bytes: u64,
        data: Bytes,
        padding: usize,
    ) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        let writing = Writing::begin(&self.state, stake);
        let result = match self.queue.enter(Ask::write(class, offset_bytes, &data, padding)).await {
            Turn::Go(permit) => {
                let (what, kept) = ((Op::Write, offset_bytes, len), (permit, writing));
                self.patience.ask(what, kept, |device| device.write_at(offset_bytes, data)).await
            }
            Turn::Done(_) => {
                drop(writing);
                Ok(())
            }
        };
        self.counting_writes(result)
    }

    /// Durable on completion. The error may be that of any unflushed write.
    pub(crate) async fn write_through(
        &self,
        stake: Stake,
        offset_bytes: u64,
        data: Bytes,
        missed: &Arc<Missed>,
    ) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        let permit = self.queue.enter_alone(Ask::write(IoClass::SyncWrite, offset_bytes, &data, 0)).await;
        let (leaf, missed) = (self.clone(), missed.clone());
        // Runs to its end, because nobody else would hear of an error.
        let through = async move {
            let _through = leaf.state.through.read().await;
            let (mut writing, mark) = (Writing::begin(&leaf.state, stake), missed.mark());
            let what = (Op::Write, offset_bytes, len);
            let write = |device: &dyn Device| device.write_through(offset_bytes, data);
            leaf.counting_writes(leaf.patience.ask(what, permit, write).await)
                .inspect_err(|error| leaf.lose(error, &missed))?;
            writing.is_durable = true;
            // Another flush may have received this write's error.
            leaf.lost_since(mark).map_or(Ok(()), Err)
        };
        self.patience.runtime().to_end(through).await
    }

    /// Counts a failure, unless the device does not support it.
    pub(crate) async fn discard(&self, offset_bytes: u64, len: u64) -> Result<(), DeviceError> {
        let what = (Op::Discard, offset_bytes, len);
        let result = self.patience.ask(what, (), |device| device.discard(offset_bytes, len)).await;
        match result {
            Err(DeviceError::Unsupported { .. }) => result,
            _ => self.counting_writes(result),
        }
    }

    /// Makes earlier writes durable, or records them as missed and lost. An earlier caller may have received
    /// their error, so [`Leaf::lost_of`] and [`Leaf::lost_since`] tell whether particular writes are durable.
    /// A leaf out of use loses them without a flush.
    pub(crate) async fn flush(&self, missed: &Arc<Missed>) {
        if self.is_out_of_use() {
            return self.lose(&self.out_of_use(), missed);
        }
        if !self.state.unflushed.is_any() {
            return;
        }
        let (leaf, missed) = (self.clone(), missed.clone());
        let flush = async move {
            let _alone = leaf.state.flushing.lock().await;
            if !leaf.state.unflushed.begin_flush() {
                return;
            }
            let flushed = leaf.patience.ask((Op::Flush, 0, 0), (), |device| device.flush()).await;
            match leaf.counting_writes(flushed) {
                Ok(()) => {
                    drop(leaf.state.through.write().await);
                    leaf.state.unflushed.flushed();
                }
                Err(error) => leaf.lose(&error, &missed),
            }
        };
        self.patience.runtime().to_end(flush).await;
    }

    /// Makes writes since `mark` durable.
    pub(crate) async fn flush_since(&self, mark: FlushMark, missed: &Arc<Missed>) -> Result<(), DeviceError> {
        self.flush(missed).await;
        self.lost_since(mark).map_or(Ok(()), Err)
    }

    pub(crate) fn forget_lost(&self, txg: Txg) -> bool {
        self.state.unflushed.forget_lost(txg)
    }

    pub(crate) fn lost_of(&self, txg: Txg) -> Option<DeviceError> {
        self.state.unflushed.lost_of(txg)
    }

    pub(crate) fn lost_since(&self, mark: FlushMark) -> Option<DeviceError> {
        self.state.unflushed.lost_since(mark)
    }

    fn lose(&self, error: &DeviceError, missed: &Missed) {
        let runs = self.state.unflushed.lose(|| missed.next_failure(), error);
        runs.into_iter().for_each(|run| missed.note_all(self.guid, run));
    }

    fn out_of_use(&self) -> DeviceError {
        let why = std::io::Error::other("the device is out of use, and was not flushed");
        self.device.info().io_error(Op::Flush, 0, 0, why)
    }

    /// Reads a place in the labels' pads, and rewrites one unchanged (`vdev_probe`). The places are small, so
    /// a worn disk with some bad sectors passes.
    pub(crate) async fn probe(&self) -> Probe {
        let (mut is_read, mut is_written) = (false, false);
        let pads = (0..VDEV_LABELS).filter_map(|label| label_offset(self.device.size_bytes(), label));
        let places = pads.flat_map(|label| {
            (0..VDEV_PAD_SIZE / PROBE_SIZE).map(move |place| label + BOOT_ENV_OFFSET + place * PROBE_SIZE)
        });
        for at in places {
            let reading = |device: &dyn Device| device.read_at(at, PROBE_SIZE as usize);
            let read = self.patience.ask((Op::Read, at, PROBE_SIZE), (), reading).await;
            let Ok(place) = read else { continue };
            is_read = true;
            let writing = |device: &dyn Device| device.write_at(at, place);
            is_written |= self.patience.ask((Op::Write, at, PROBE_SIZE), (), writing).await.is_ok();
            if is_written {
                break;
            }
        }
        match is_read && is_written {
            true => Probe::Works,
            false if self.is_there().await => Probe::Fails,
            false => Probe::Gone,
        }
    }

    /// `None` if the device does not answer. Counts nothing.
    pub(crate) async fn labels(&self) -> Option<Vec<Label>> {
        self.patience.within(read_labels(&*self.device)).await
    }

    pub(crate) async fn is_there(&self) -> bool {
        // A hung device is present.
        !matches!(self.patience.within(self.device.is_there()).await, Some(Ok(false)))
    }

    /// Whether the host file system must still allocate part of a range.
    pub(crate) async fn has_hole(&self, offset_bytes: u64, len: u64) -> bool {
        let io = self.device.has_hole(offset_bytes, len);
        let has_hole = if io.is_done() { Some(io.await) } else { self.patience.within(io).await };
        matches!(has_hole, Some(Ok(true)))
    }

    /// Current size of the device, if it answers.
    pub(crate) async fn size_now(&self) -> Option<u64> {
        self.patience.within(self.device.size_now()).await?.ok()
    }

    /// The device with its new size, if it has grown.
    pub(crate) async fn grown(&self) -> Option<Arc<dyn Device>> {
        self.patience.within(self.device.grown()).await?.ok()?
    }

    /// Marks a series of writes as under way until dropped.
    pub(crate) fn owe(&self) -> Owed {
        self.patience.owe()
    }

    /// Waits for all changes, even abandoned ones, unless the device hangs.
    pub(crate) async fn idle(&self) {
        self.patience.idle().await;
    }

    fn counting_writes(&self, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        // A fence says nothing about the device.
        if result.as_ref().is_err_and(|error| !matches!(error, DeviceError::Fenced { .. })) {
            self.count_write_error();
        }
        result
    }

    pub(crate) fn count_write_error(&self) {
        self.state.write_errors.fetch_add(1, Ordering::Relaxed);
        self.state.is_suspect.store(true, Ordering::Relaxed);
    }

    /// Operations that took `zio_slow_io_ms` or longer, since the errors were cleared.
    pub(crate) fn slow_ios(&self) -> u64 {
        self.patience.slow_ios()
    }

    /// Whether reads or writes have failed since the last call. Clearing the counters does not change it: a
    /// device that is gone must be found even if its errors are cleared at once.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.state.is_suspect.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn load(&self) -> [ClassLoad; IoClass::ALL.len()] {
        self.queue.load()
    }

    pub(crate) fn moved(&self) -> [Moved; 2] {
        self.queue.moved()
    }

    pub(crate) fn blame(&self) {
        self.state.checksum_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The data was missing, not damaged.
    pub(crate) fn forgive_mismatches(&self) {
        self.state.checksum_errors.store(0, Ordering::Relaxed);
    }

    /// Gives a hung device another chance, too.
    pub(crate) fn clear_errors(&self) {
        let state = &self.state;
        for count in [&state.read_errors, &state.write_errors, &state.checksum_errors] {
            count.store(0, Ordering::Relaxed);
        }
        self.sit_out_until(0);
        self.patience.forget_slow_ios();
        self.patience.forgive();
    }

    pub(crate) fn errors(&self) -> ErrorCounts {
        ErrorCounts {
            read: self.state.read_errors.load(Ordering::Relaxed),
            write: self.state.write_errors.load(Ordering::Relaxed),
            checksum: self.state.checksum_errors.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;

/// Leaves with the same bytes at the same offsets.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) leaves: Vec<Arc<Leaf>>,
    /// Distributed spares in use here: guids and numbers.
    pub(crate) spares: Vec<(Guid, u64)>,
    /// Leaves without a device.
    pub(crate) absent: Vec<Guid>,
}
