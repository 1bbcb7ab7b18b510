//! Leaves: devices with counters; and slots: leaves that hold the same bytes.
//!
//! An operation that has begun is brought to its end, and keeps its permit until then, even if its future is
//! dropped ([`Patience`]); one that still waits in the queue leaves it.
//!
//! Locking: none; counters are atomics and all methods may be called concurrently. Error counters and the
//! state are relaxed. `writes` is incremented (release) after a write is done, and a flush reads it (acquire)
//! before it begins; so `flushed_writes` never counts a write that the flush may have missed.

use crate::health::ErrorCounts;
use crate::label::{Label, read_labels};
use crate::vdev::patience::{Owed, Patience};
use crate::vdev::queue::{Ask, ClassLoad, IoClass, Moved, Queue, QueueSettings, Turn};
use bytes::Bytes;
use cenote_device::{Device, DeviceError, Op};
use cenote_format::label::{BOOT_ENV_OFFSET, VDEV_LABELS, VDEV_PAD_SIZE, label_offset};
use cenote_format::units::Guid;
use cenote_runtime::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a seek of a spinning disk costs, in operations (`zfs_vdev_mirror_rotating_seek_inc`).
const SEEK_COST: u64 = 5;
/// Bytes that a probe reads and writes at once.
const PROBE_SIZE: u64 = 4 << 10;
/// A way that costs half a seek (`zfs_vdev_mirror_rotating_seek_offset`).
const SEEK_OFFSET_BYTES: u64 = 1 << 20;

/// What a device that has failed is found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// It can be read and written.
    Works,
    /// It can't.
    Fails,
    /// It is not there any more.
    Gone,
}

/// A device as a vdev.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) guid: Guid,
    /// The distributed spares, from the outermost, whose bytes are meant when it is reached by them.
    through: Vec<Guid>,
    pub(crate) device: Arc<dyn Device>,
    queue: Arc<Queue>,
    patience: Arc<Patience>,
    /// Shared with the same device under another guid: the last one of a mirror takes over the mirror's.
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Known to lack some of what its slot should hold, and not known what.
    stale: AtomicBool,
    /// Offline by the administrator, or truncated: see [`Leaf::is_out_of_use`].
    away: AtomicBool,
    /// Resilvers read it before others that hold the same.
    read_first: AtomicBool,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    /// Completed writes.
    writes: AtomicU64,
    /// Writes that were complete when the last flush began.
    flushed_writes: AtomicU64,
    checksum_errors: AtomicU64,
}

/// A write is done, whatever came of it, when this is dropped.
struct Written(Arc<State>);

impl Drop for Written {
    fn drop(&mut self) {
        self.0.writes.fetch_add(1, Ordering::Release);
    }
}

impl Leaf {
    pub(crate) fn new(
        runtime: &Runtime,
        guid: Guid,
        device: Arc<dyn Device>,
        settings: &Arc<QueueSettings>,
    ) -> Leaf {
        let patience = Arc::new(Patience::new(runtime, device.clone()));
        let queue = Arc::new(Queue::new(runtime, guid, settings, &patience));
        Leaf { guid, through: Vec::new(), device, queue, patience, state: Arc::default() }
    }

    /// The same device under another guid: counters and unflushed writes are those of both.
    pub(crate) fn renamed(&self, guid: Guid) -> Leaf {
        Leaf { guid, ..self.clone() }
    }

    /// The same leaf on the same device, which has grown.
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

    /// The same device, for what distributed spares have on it.
    pub(crate) fn reached_through(&self, spares: &[Guid]) -> Leaf {
        Leaf { through: spares.to_vec(), ..self.clone() }
    }

    /// Whose DTLs may say that something is lacking here: its own, and those of distributed spares.
    pub(crate) fn names(&self) -> impl Iterator<Item = Guid> + '_ {
        [self.guid].into_iter().chain(self.through.iter().copied())
    }

    /// What a new tree of vdevs says of it; at once, for operations under way too.
    pub(crate) fn set_state(&self, stale: bool, away: bool) {
        self.state.stale.store(stale, Ordering::Relaxed);
        self.state.away.store(away, Ordering::Relaxed);
    }

    /// It lacks some of what its slot should hold, and nothing says what.
    pub(crate) fn is_stale(&self) -> bool {
        self.state.stale.load(Ordering::Relaxed)
    }

    /// Out of use by decision, or because it is too small.
    pub(crate) fn is_away(&self) -> bool {
        self.state.away.load(Ordering::Relaxed)
    }

    /// Resilvers read it before others that hold the same: it is being evacuated.
    pub(crate) fn is_read_first(&self) -> bool {
        self.state.read_first.load(Ordering::Relaxed)
    }

    pub(crate) fn set_read_first(&self, is_first: bool) {
        self.state.read_first.store(is_first, Ordering::Relaxed);
    }

    /// Nothing is written to it, and it is read only for data that no other leaf has.
    pub(crate) fn is_out_of_use(&self) -> bool {
        self.is_away() || self.is_hung()
    }

    /// It failed to answer an operation.
    pub(crate) fn is_hung(&self) -> bool {
        self.patience.is_hung()
    }

    /// Reads a range of the device, labels included; counts a failure.
    pub(crate) async fn read(
        &self,
        class: IoClass,
        offset_bytes: u64,
        len: usize,
    ) -> Result<Bytes, DeviceError> {
        let permit = match self.queue.enter(Ask::read(class, offset_bytes, len)).await {
            Turn::Go(permit) => permit,
            Turn::Done(bytes) => return Ok(bytes),
        };
        let what = (Op::Read, offset_bytes, len as u64);
        let result = self.patience.ask(what, permit, |device| device.read_at(offset_bytes, len)).await;
        if result.is_err() {
            self.state.read_errors.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// What a read here would cost: the operations that it would share the device with, and the way there.
    /// Among leaves that hold the same, the cheapest is read (`vdev_mirror_load`).
    pub(crate) fn read_cost(&self, offset_bytes: u64) -> u64 {
        let distance = offset_bytes.abs_diff(self.queue.reached());
        let seek = match self.device.info().rotational {
            _ if distance == 0 => 0,
            Some(true) if distance < SEEK_OFFSET_BYTES => SEEK_COST / 2,
            Some(true) => SEEK_COST,
            _ => 1,
        };
        self.queue.depth() + seek
    }

    /// Writes a range of the device, labels included; counts a failure.
    pub(crate) async fn write(
        &self,
        class: IoClass,
        offset_bytes: u64,
        data: Bytes,
    ) -> Result<(), DeviceError> {
        self.write_padded(class, offset_bytes, data, 0).await
    }

    /// The same; so many bytes after it hold nothing, and may be written over with zeros.
    pub(crate) async fn write_padded(
        &self,
        class: IoClass,
        offset_bytes: u64,
        data: Bytes,
        padding: usize,
    ) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        let result = match self.queue.enter(Ask::write(class, offset_bytes, &data, padding)).await {
            Turn::Go(permit) => {
                let (what, kept) = ((Op::Write, offset_bytes, len), (permit, Written(self.state.clone())));
                self.patience.ask(what, kept, |device| device.write_at(offset_bytes, data)).await
            }
            Turn::Done(_) => {
                drop(Written(self.state.clone()));
                Ok(())
            }
        };
        self.counting_writes(result)
    }

    /// The same, but durable on completion.
    pub(crate) async fn write_through(&self, offset_bytes: u64, data: Bytes) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        let permit = self.queue.enter_alone(Ask::write(IoClass::SyncWrite, offset_bytes, &data, 0)).await;
        let what = (Op::Write, offset_bytes, len);
        let writing = |device: &dyn Device| device.write_through(offset_bytes, data);
        self.counting_writes(self.patience.ask(what, permit, writing).await)
    }

    /// Gives up what a range holds; counts a failure, but not that the device can't do it.
    pub(crate) async fn discard(&self, offset_bytes: u64, len: u64) -> Result<(), DeviceError> {
        let what = (Op::Discard, offset_bytes, len);
        let result = self.patience.ask(what, (), |device| device.discard(offset_bytes, len)).await;
        match result {
            Err(DeviceError::Unsupported { .. }) => result,
            _ => self.counting_writes(result),
        }
    }

    /// Makes durable what was written; counts a failure. Does nothing if nothing was written since the last
    /// flush.
    pub(crate) async fn flush(&self) -> Result<(), DeviceError> {
        let writes = self.state.writes.load(Ordering::Acquire);
        if self.state.flushed_writes.load(Ordering::Acquire) >= writes {
            return Ok(());
        }
        let flushed = self.patience.ask((Op::Flush, 0, 0), (), |device| device.flush()).await;
        let result = self.counting_writes(flushed);
        if result.is_ok() {
            self.state.flushed_writes.fetch_max(writes, Ordering::AcqRel);
        }
        result
    }

    /// Whether the device works at all: whether one place in its labels' pads can be read, and one be written
    /// as it is. Nothing is counted (`vdev_probe`). Places are small: a worn disk of which some sectors can't
    /// be read works.
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

    /// Its labels as they are on the device; `None` if it does not answer. Nothing is counted.
    pub(crate) async fn labels(&self) -> Option<Vec<Label>> {
        self.patience.within(read_labels(&*self.device)).await
    }

    /// Whether it is still part of the machine.
    pub(crate) async fn is_there(&self) -> bool {
        // Something that hangs is there.
        !matches!(self.patience.within(self.device.is_there()).await, Some(Ok(false)))
    }

    /// Whether it must first allocate space for a part of a range.
    pub(crate) async fn has_hole(&self, offset_bytes: u64, len: u64) -> bool {
        let io = self.device.has_hole(offset_bytes, len);
        let has_hole = if io.is_done() { Some(io.await) } else { self.patience.within(io).await };
        matches!(has_hole, Some(Ok(true)))
    }

    /// The same open device with the size that it has by now, if it has grown.
    pub(crate) async fn grown(&self) -> Option<Arc<dyn Device>> {
        self.patience.within(self.device.grown()).await?.ok()?
    }

    /// Writes that belong together count as under way until this is dropped.
    pub(crate) fn owe(&self) -> Owed {
        self.patience.owe()
    }

    /// Waits until no change is under way at the device, not even one that nobody waits for any more;
    /// unless it hangs.
    pub(crate) async fn idle(&self) {
        self.patience.idle().await;
    }

    fn counting_writes(&self, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        if result.is_err() {
            self.state.write_errors.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// What waits for the device and is under way, by class.
    pub(crate) fn load(&self) -> [ClassLoad; IoClass::ALL.len()] {
        self.queue.load()
    }

    /// What the device was sent: reads and writes.
    pub(crate) fn moved(&self) -> [Moved; 2] {
        self.queue.moved()
    }

    /// Counts a range that did not hold what was written.
    pub(crate) fn blame(&self) {
        self.state.checksum_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts from 0 again; if it did not answer, it gets another chance.
    pub(crate) fn clear_errors(&self) {
        let state = &self.state;
        for count in [&state.read_errors, &state.write_errors, &state.checksum_errors] {
            count.store(0, Ordering::Relaxed);
        }
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

/// Leaves that hold the same bytes at the same offsets; without missing ones.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) leaves: Vec<Arc<Leaf>>,
    /// Distributed spares of the dRAID around it that stand in here: their guids and numbers.
    pub(crate) spares: Vec<(Guid, u64)>,
    /// Leaves that it should have but that have no device.
    pub(crate) absent: Vec<Guid>,
}
