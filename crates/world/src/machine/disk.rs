//! A disk with a volatile cache, which keeps any part of it when the power fails.
//!
//! Fault model:
//!
//! ```text
//!   write    asked --------- done ............ flushed
//!            may survive     may survive       survives a power cut
//! ```
//!
//! * Operations take time, and complete in any order.
//! * A write is read as written from the moment it is asked.
//! * A flush makes those writes durable that were done before it was asked; it counts when it is done.
//! * A power cut keeps each sector of all other writes or loses it, in any order; a seed decides.
//! * If only the program is killed, the disk completes its writes and keeps its cache.
//!
//! Locking: one mutex, held for one look or change.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, DeviceInfo, Io, Op};
use cenote_runtime::{Rng, Runtime};
use cenote_testkit::image::Image;
use parking_lot::Mutex;

/// Shortest time of an operation, and the most that is added.
const LATENCY: Duration = Duration::from_micros(20);
const JITTER_NS: u64 = 150_000;

/// A disk; it outlives the machine's runtimes.
pub struct Disk {
    info: DeviceInfo,
    /// Its flushes do nothing.
    lies: bool,
    state: Mutex<State>,
}

struct State {
    /// As read.
    live: Image,
    /// After a power cut that loses all it can.
    durable: Image,
    /// In the order of their requests.
    uncertain: Vec<Write>,
    asked: u64,
    /// Cuts so far: operations of an earlier life have no effect.
    life: u64,
}

struct Write {
    number: u64,
    offset: u64,
    data: Bytes,
    is_done: bool,
}

impl Write {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.offset < range.end && range.start < self.offset + self.data.len() as u64
    }
}

impl Disk {
    /// An empty disk. `lies`: its flushes do nothing.
    pub fn new(path: &str, size_bytes: u64, sector_bytes: u32, lies: bool) -> Disk {
        let info = DeviceInfo {
            path: path.into(),
            size_bytes,
            sector_bytes,
            rotational: Some(false),
            read_only: false,
            others_may_write: false,
        };
        let (live, durable) = (Image::new(size_bytes), Image::new(size_bytes));
        let state = State { live, durable, uncertain: Vec::new(), asked: 0, life: 0 };
        Disk { info, lies, state: state.into() }
    }

    /// Cuts the power.
    pub fn cut(&self, rng: &mut Rng) {
        let state = &mut *self.state.lock();
        state.life += 1;
        // All, none and some are equally likely: this makes cuts beside a flush as likely as others.
        let kept = [0.0, 0.2, 0.5, 0.9, 1.0][rng.below(5) as usize];
        let mut survivors: BTreeMap<u64, Vec<Bytes>> = BTreeMap::new();
        for write in state.uncertain.drain(..) {
            for (offset, data) in sectors(&write, self.info.sector_bytes) {
                if rng.chance(kept) {
                    survivors.entry(offset).or_default().push(data);
                }
            }
        }
        for (offset, candidates) in survivors {
            let data = &candidates[rng.below(candidates.len() as u64) as usize];
            state.durable.write(offset, data);
        }
        state.live = state.durable.clone();
    }

    /// Kills the program that uses the disk.
    pub fn kill(&self) {
        let state = &mut *self.state.lock();
        state.life += 1;
        state.uncertain.iter_mut().for_each(|write| write.is_done = true);
    }

    /// The device of this life.
    pub fn attach(self: &Arc<Disk>, runtime: &Runtime) -> Arc<dyn Device> {
        let (disk, runtime, life) = (self.clone(), runtime.clone(), self.state.lock().life);
        Arc::new(Attached { disk, runtime, life })
    }

    fn ask(&self, life: u64, offset: u64, data: Bytes) -> Option<u64> {
        let state = &mut *self.state.lock();
        if state.life != life {
            return None;
        }
        state.live.write(offset, &data);
        state.asked += 1;
        state.uncertain.push(Write { number: state.asked, offset, data, is_done: false });
        Some(state.asked)
    }

    /// Makes the writes durable that `is_meant`.
    fn settle(&self, life: u64, is_meant: impl Fn(&Write) -> bool) {
        let State { durable, uncertain, life: now, .. } = &mut *self.state.lock();
        if *now == life && !self.lies {
            for write in uncertain.extract_if(.., |write| is_meant(write)) {
                durable.write(write.offset, &write.data);
            }
        }
    }
}

/// A write, split at sector boundaries.
fn sectors(write: &Write, sector_bytes: u32) -> impl Iterator<Item = (u64, Bytes)> {
    let (sector, mut at) = (u64::from(sector_bytes), 0);
    std::iter::from_fn(move || {
        let offset = write.offset + at as u64;
        let len = (sector - offset % sector).min((write.data.len() - at) as u64) as usize;
        at += len;
        (len > 0).then(|| (offset, write.data.slice(at - len..at)))
    })
}

/// A disk in one life of the machine.
struct Attached {
    disk: Arc<Disk>,
    runtime: Runtime,
    life: u64,
}

impl Attached {
    fn takes(&self) -> impl Future<Output = ()> + Send + use<> {
        let (runtime, jitter_ns) = (self.runtime.clone(), self.runtime.random_u64() % JITTER_NS);
        async move { runtime.sleep(LATENCY + Duration::from_nanos(jitter_ns)).await }
    }

    /// A write; `then` is called with its number when it is done.
    fn change(&self, offset: u64, data: Bytes, then: impl FnOnce(&Disk, u64) + Send + 'static) -> Io<()> {
        if let Err(error) = self.info().check_writable(Op::Write, offset, data.len() as u64) {
            return Io::done(Err(error));
        }
        let number = self.disk.ask(self.life, offset, data);
        let (disk, takes) = (self.disk.clone(), self.takes());
        Io::pending(&self.runtime, async move {
            takes.await;
            if let Some(number) = number {
                then(&disk, number);
            }
            Ok(())
        })
    }
}

impl Device for Attached {
    fn info(&self) -> &DeviceInfo {
        &self.disk.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        if let Err(error) = self.info().check_range(Op::Read, offset, len as u64) {
            return Io::done(Err(error));
        }
        let (disk, takes) = (self.disk.clone(), self.takes());
        Io::pending(&self.runtime, async move {
            takes.await;
            Ok(disk.state.lock().live.read(offset, len))
        })
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        let (life, range) = (self.life, offset..offset + data.len() as u64);
        self.change(offset, data, move |disk, number| {
            let state = &mut *disk.state.lock();
            if state.life == life {
                // Overlapping writes are made in the order of their requests.
                let done = |write: &&mut Write| write.number <= number && write.overlaps(&range);
                state.uncertain.iter_mut().filter(done).for_each(|write| write.is_done = true);
            }
        })
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        let (life, range) = (self.life, offset..offset + data.len() as u64);
        self.change(offset, data, move |disk, number| {
            disk.settle(life, |write| write.number <= number && write.overlaps(&range));
        })
    }

    fn flush(&self) -> Io<()> {
        let (disk, takes, life) = (self.disk.clone(), self.takes(), self.life);
        let state = disk.state.lock();
        let done = state.uncertain.iter().filter(|write| write.is_done).map(|write| write.number);
        let done: BTreeSet<u64> = done.collect();
        drop(state);
        Io::pending(&self.runtime, async move {
            takes.await;
            disk.settle(life, |write| done.contains(&write.number));
            Ok(())
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.write_at(offset, vec![0; len as usize].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_saves_what_was_done_before_it() {
        for seed in 0..20 {
            let disk = Arc::new(Disk::new("/disk", 1 << 20, 512, false));
            let run = |runtime: Runtime| {
                let device = disk.attach(&runtime);
                async move {
                    device.write_at(0, vec![1; 4096].into()).await.unwrap();
                    device.flush().await.unwrap();
                    device.write_at(4096, vec![2; 4096].into()).await.unwrap();
                    device.write_through(8192, vec![3; 512].into()).await.unwrap();
                }
            };
            Runtime::simulate(cenote_runtime::SimConfig::seed(seed), run);
            disk.cut(&mut Rng::new(seed));
            let state = disk.state.lock();
            assert_eq!(state.live.read(0, 4096)[..], [1; 4096]);
            assert_eq!(state.live.read(8192, 512)[..], [3; 512]);
            assert!(state.live.read(4096, 4096).iter().all(|byte| [0, 2].contains(byte)));
        }
    }
}
