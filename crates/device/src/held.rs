//! A layer that holds writes back in memory until approved.
//!
//! Idea: whether a change is wanted may become clear only after other writes. So those wait behind a
//! [`Gate`], one for all devices of a pool, and reads see them as made. Once open, it makes them in the order
//! of issue, flushes included, and passes later writes through. If it never opens, no device changes.
//!
//! A waiting write was reported as done, and its device may fail to make it. If the pool can do without that
//! device's writes, the rest is dropped: the device has a prefix.
//!
//! Locking: one task opens the gate. A mutex guards the waiting steps, never across a transfer. `is_open` is
//! set under it once no step waits, and writers check it again under it, so no write overtakes an earlier
//! one. A step stays in the list until its transfer is done, so reads always find it.

use crate::error::Op;
use crate::io::Io;
use crate::{Device, DeviceError, DeviceInfo, pieces};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Holds back the writes of some devices. Clones share one gate.
#[derive(Clone, Default)]
pub struct Gate(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_open: AtomicBool,
    state: Mutex<HeldState>,
}

#[derive(Default)]
struct HeldState {
    devices: Vec<Arc<dyn Device>>,
    waiting: VecDeque<Step>,
    held_bytes: u64,
    /// Devices whose writes were dropped: they hold nothing back any more.
    dropped: BTreeSet<usize>,
    /// A failed flush, which may have lost earlier writes.
    failed: Option<DeviceError>,
}

#[derive(Clone)]
enum Step {
    Write { device: usize, offset: u64, data: Bytes },
    Flush { device: usize },
}

impl Step {
    fn device(&self) -> usize {
        let (Step::Write { device, .. } | Step::Flush { device }) = self;
        *device
    }

    fn bytes(&self) -> u64 {
        if let Step::Write { data, .. } = self { data.len() as u64 } else { 0 }
    }
}

impl HeldState {
    fn drop_steps(&mut self, of: usize) {
        self.dropped.insert(of);
        self.waiting.retain(|step| step.device() != of);
        self.held_bytes = self.waiting.iter().map(Step::bytes).sum();
    }
}

impl Gate {
    /// Puts a device behind this gate.
    pub fn hold(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let mut state = self.0.state.lock();
        state.devices.push(device.clone());
        Arc::new(Held { inner: device, index: state.devices.len() - 1, gate: self.clone() })
    }

    /// The devices below, without waiting writes; empty once the gate is open, so as to keep none open.
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.0.state.lock().devices.clone()
    }

    /// Whether nothing is held back any more.
    pub fn is_open(&self) -> bool {
        self.0.is_open.load(Ordering::Acquire)
    }

    /// Bytes of waiting writes.
    pub fn held_bytes(&self) -> u64 {
        self.0.state.lock().held_bytes
    }

    /// Makes all waiting writes in order, and lets later ones through. `do_without` notes that a device fails
    /// to make its own; they are read as made until it returns.
    ///
    /// # Errors
    /// Those of `do_without`; the remaining writes keep waiting. If a flush failed, the gate never opens
    /// then: the next flush would succeed although writes may be lost.
    pub async fn open<E: From<DeviceError>>(
        &self,
        mut do_without: impl FnMut(&dyn Device, &DeviceError) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        loop {
            let (step, devices) = {
                let mut state = self.0.state.lock();
                if let Some(failed) = &state.failed {
                    return Err(failed.clone().into());
                }
                let Some(step) = state.waiting.front().cloned() else {
                    // Set under the lock: later operations find the gate open.
                    self.0.is_open.store(true, Ordering::Release);
                    state.devices.clear();
                    return Ok(());
                };
                (step, state.devices.clone())
            };
            let device = &devices[step.device()];
            let made = match &step {
                Step::Write { offset, data, .. } => device.write_at(*offset, data.clone()).await,
                Step::Flush { .. } => device.flush().await,
            };
            let borne = made.or_else(|error| {
                let lasting = matches!(step, Step::Flush { .. }).then(|| error.clone());
                let borne = do_without(&**device, &error);
                let mut state = self.0.state.lock();
                match borne {
                    Ok(()) => state.drop_steps(step.device()),
                    Err(_) => state.failed = lasting,
                }
                borne
            });
            borne?;
            // Only now: until a write is made, reads find it here.
            let mut state = self.0.state.lock();
            if !state.dropped.contains(&step.device())
                && let Some(step) = state.waiting.pop_front()
            {
                state.held_bytes -= step.bytes();
            }
        }
    }
}

#[derive(Clone)]
struct Held {
    inner: Arc<dyn Device>,
    index: usize,
    gate: Gate,
}

impl Held {
    /// Queues steps; `false` if nothing of the device is held back any more.
    fn wait(&self, steps: impl IntoIterator<Item = Step>) -> bool {
        let mut state = self.gate.0.state.lock();
        if self.gate.is_open() || state.dropped.contains(&self.index) {
            return false;
        }
        for step in steps {
            state.held_bytes += step.bytes();
            state.waiting.push_back(step);
        }
        true
    }

    fn write(&self, offset: u64, data: &Bytes) -> Step {
        Step::Write { device: self.index, offset, data: data.clone() }
    }

    /// Waiting writes that overlap a range, the oldest first.
    fn over(&self, offset: u64, len: usize) -> Vec<(u64, Bytes)> {
        if self.gate.is_open() {
            return Vec::new();
        }
        let end = offset.saturating_add(len as u64);
        let state = self.gate.0.state.lock();
        let over = state.waiting.iter().filter_map(|step| match step {
            Step::Write { device, offset: at, data }
                if *device == self.index && *at < end && at + data.len() as u64 > offset =>
            {
                Some((*at, data.clone()))
            }
            _ => None,
        });
        over.collect()
    }
}

impl Device for Held {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        let over = self.over(offset, len);
        if over.is_empty() {
            return self.inner.read_at(offset, len);
        }
        self.inner.read_at(offset, len).map(move |below| {
            let mut read = BytesMut::from(&below?[..]);
            for (at, data) in over {
                let start = at.max(offset);
                let end = (at + data.len() as u64).min(offset + len as u64);
                let part = &data[(start - at) as usize..(end - at) as usize];
                read[(start - offset) as usize..(end - offset) as usize].copy_from_slice(part);
            }
            Ok(read.freeze())
        })
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        if self.gate.is_open() {
            return self.inner.write_at(offset, data);
        }
        match self.info().check_writable(Op::Write, offset, data.len() as u64) {
            Err(error) => Io::done(Err(error)),
            Ok(()) if self.wait([self.write(offset, &data)]) => Io::done(Ok(())),
            Ok(()) => self.inner.write_at(offset, data),
        }
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        if self.gate.is_open() {
            return self.inner.write_through(offset, data);
        }
        let of = self.clone();
        self.write_at(offset, data).then(move |()| of.flush())
    }

    fn read_pieces(&self, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
        match self.gate.is_open() {
            true => self.inner.read_pieces(offset, lens),
            false => pieces::read(self, offset, lens),
        }
    }

    fn write_pieces(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        match self.gate.is_open() {
            true => self.inner.write_pieces(offset, pieces),
            false => pieces::write(self, offset, pieces),
        }
    }

    fn flush(&self) -> Io<()> {
        match self.gate.is_open() || !self.wait([Step::Flush { device: self.index }]) {
            true => self.inner.flush(),
            false => Io::done(Ok(())),
        }
    }

    fn lose_unflushed(&self) {
        self.inner.lose_unflushed();
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        match self.gate.is_open() {
            true => self.inner.discard(offset, len),
            // Only a hint, not worth holding back.
            false => {
                Io::done(Err(DeviceError::Unsupported { path: self.info().path.clone(), op: Op::Discard }))
            }
        }
    }

    fn has_hole(&self, offset: u64, len: u64) -> Io<bool> {
        self.inner.has_hole(offset, len)
    }

    fn is_there(&self) -> Io<bool> {
        self.inner.is_there()
    }

    fn size_now(&self) -> Io<u64> {
        self.inner.size_now()
    }

    fn grown(&self) -> Io<Option<Arc<dyn Device>>> {
        // The gate is open, so the larger device needs no gate.
        if self.gate.is_open() { self.inner.grown() } else { Io::done(Ok(None)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Faulty, MemoryDevice, Traced};
    use cenote_runtime::{Runtime, SimConfig};

    fn never(_: &dyn Device, error: &DeviceError) -> Result<(), DeviceError> {
        Err(error.clone())
    }

    /// Two gated devices, and traces below them.
    fn held(rt: &Runtime) -> (Gate, [Arc<Traced>; 2], [Arc<dyn Device>; 2]) {
        let gate = Gate::default();
        let below = [0, 1].map(|_| Arc::new(Traced::new(Arc::new(MemoryDevice::new("disk", 4096)), 100, rt)));
        let above = below.clone().map(|device| gate.hold(device));
        (gate, below, above)
    }

    #[test]
    fn reads_see_what_waits_and_devices_do_not() {
        Runtime::simulate(SimConfig::default(), |rt| async move {
            let (gate, below, [a, _]) = held(&rt);
            a.write_at(0, Bytes::from_static(b"abcdef")).await.unwrap();
            a.write_through(4, Bytes::from_static(b"XYZ")).await.unwrap();
            assert_eq!(&a.read_at(2, 6).await.unwrap()[..], b"cdXYZ\0");
            assert_eq!(&a.read_at(100, 2).await.unwrap()[..], b"\0\0");
            assert!(a.write_at(4095, Bytes::from_static(b"ab")).await.is_err(), "beyond the end");
            assert_eq!((gate.held_bytes(), gate.is_open()), (9, false));
            let written = |op| below[0].count(op).ended;
            assert_eq!((written(Op::Write), written(Op::Flush)), (0, 0));
        });
    }

    #[test]
    fn an_open_gate_makes_all_writes_in_order_and_holds_no_more() {
        Runtime::simulate(SimConfig::default(), |rt| async move {
            let (gate, below, [a, b]) = held(&rt);
            a.write_at(0, Bytes::from_static(b"old")).await.unwrap();
            b.write_at(8, Bytes::from_static(b"b")).await.unwrap();
            a.flush().await.unwrap();
            a.write_at(0, Bytes::from_static(b"new")).await.unwrap();
            gate.open(never).await.unwrap();
            assert_eq!((gate.held_bytes(), gate.is_open()), (0, true));
            let ops: Vec<Op> = below[0].take_events().iter().map(|event| event.op).collect();
            assert_eq!(ops, [Op::Write, Op::Flush, Op::Write]);
            b.write_at(9, Bytes::from_static(b"c")).await.unwrap();
            assert_eq!(&below[0].read_at(0, 3).await.unwrap()[..], b"new");
            assert_eq!(&below[1].read_at(8, 2).await.unwrap()[..], b"bc");
        });
    }

    #[test]
    fn a_device_that_leaves_is_closed_once_the_gate_is_open() {
        Runtime::simulate(SimConfig::default(), |rt| async move {
            let (gate, below, [leaves, stays]) = held(&rt);
            let [a, b] = below.map(|device| Arc::downgrade(&device));
            leaves.write_at(0, Bytes::from_static(b"x")).await.unwrap();
            gate.open(never).await.unwrap();
            drop(leaves);
            assert!(a.upgrade().is_none() && b.upgrade().is_some());
            drop(stays);
        });
    }

    /// Two gated devices, of which one fails.
    fn half_faulty(op: Op) -> (Gate, [Arc<MemoryDevice>; 2], [Arc<dyn Device>; 2]) {
        let gate = Gate::default();
        let memory = ["bad", "good"].map(|name| Arc::new(MemoryDevice::new(name, 4096)));
        let bad = Faulty::new(memory[0].clone(), 1).with(Fault::error(op).after(1));
        let above = [gate.hold(Arc::new(bad)), gate.hold(memory[1].clone())];
        (gate, memory, above)
    }

    async fn write_twice(devices: &[Arc<dyn Device>]) {
        for byte in [1, 2] {
            for device in devices {
                device.write_at(byte, Bytes::from(vec![byte as u8])).await.unwrap();
                device.flush().await.unwrap();
            }
        }
    }

    #[test]
    fn a_device_that_fails_keeps_a_prefix_of_its_writes_if_the_pool_can_do_without() {
        for op in [Op::Write, Op::Flush] {
            Runtime::simulate(SimConfig::default(), |_| async move {
                let (gate, [bad, good], above) = half_faulty(op);
                write_twice(&above).await;
                let mut failed = Vec::new();
                let do_without = |device: &dyn Device, error: &DeviceError| {
                    failed.push((device.describe().to_owned(), error.to_string()));
                    Ok::<(), DeviceError>(())
                };
                gate.open(do_without).await.unwrap();
                assert!(gate.is_open() && gate.held_bytes() == 0);
                assert_eq!(failed.len(), 1);
                assert_eq!(failed[0].0, "bad");
                assert_eq!(good.live_image()[1..3], [1, 2]);
                let second = if op == Op::Write { 0 } else { 2 };
                assert_eq!(bad.live_image()[1..3], [1, second]);
            });
        }
    }

    #[test]
    fn the_gate_stays_closed_if_the_pool_can_not_do_without_a_device() {
        for op in [Op::Write, Op::Flush] {
            Runtime::simulate(SimConfig::default(), |_| async move {
                let (gate, [_, good], above) = half_faulty(op);
                write_twice(&above).await;
                gate.open(never).await.unwrap_err();
                assert!(!gate.is_open() && good.live_image()[2] == 0);
                assert_eq!(above[1].read_at(2, 1).await.unwrap()[..], [2], "it still waits");
            });
        }
    }
}
