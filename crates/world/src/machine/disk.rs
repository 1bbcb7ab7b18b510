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
//! * A flush makes writes durable that were done before it was asked; it counts when it is done.
//! * A power cut keeps each sector of all other writes or loses it, in any order; a seed decides.
//! * If only the program is killed, the disk completes its writes and keeps its cache.
//! * After a failed flush (a layer above fails it), unflushed writes stay uncertain for ever, as on Linux.
//!
//! A disk may have bad [`Habits`]: see [`super::faults`].
//!
//! Locking: one mutex, held for one look or change.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, DeviceError, DeviceInfo, Io, Nature, Op};
use cenote_runtime::{Rng, Runtime};
use cenote_testkit::image::Image;
use parking_lot::Mutex;

use super::power::Power;

/// Shortest time of an operation, and the most added.
const LATENCY: Duration = Duration::from_micros(20);
const JITTER_NS: u64 = 150_000;

/// Faults of the disk itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Habits {
    /// Its flushes do nothing.
    pub flushes_lie: bool,
    /// Share of writes that go to another place.
    pub misdirects: f64,
}

/// A disk; it outlives the machine's runtimes.
pub struct Disk {
    info: DeviceInfo,
    power: Arc<Power>,
    state: Mutex<State>,
}

struct State {
    habits: Habits,
    /// As read.
    live: Image,
    /// After a power cut that loses all it can.
    durable: Image,
    /// In the order of their requests.
    uncertain: Vec<Write>,
    asked: u64,
    /// Cuts so far: operations of an earlier life fail, without effect.
    life: u64,
}

#[derive(Clone)]
struct Write {
    number: u64,
    offset: u64,
    data: Bytes,
    is_done: bool,
    /// A flush failed: no later one makes it durable.
    is_stuck: bool,
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.offset < range.end && range.start < self.end()
    }

    /// The parts before and behind a range.
    fn outside(&self, range: &Range<u64>) -> impl Iterator<Item = Write> + use<> {
        let within = |at: u64| (at.clamp(self.offset, self.end()) - self.offset) as usize;
        let (start, end) = (within(range.start), within(range.end));
        let before = Write { data: self.data.slice(..start), ..self.clone() };
        let offset = self.offset + end as u64;
        let behind = Write { offset, data: self.data.slice(end..), ..self.clone() };
        [before, behind].into_iter().filter(|part| !part.data.is_empty())
    }
}

impl Disk {
    /// An empty disk.
    pub fn new(path: &str, size_bytes: u64, sector_bytes: u32, power: Arc<Power>) -> Disk {
        let info = DeviceInfo {
            path: path.into(),
            size_bytes,
            sector_bytes,
            rotational: Some(false),
            read_only: false,
            others_may_write: false,
            nature: Nature::LOCAL,
        };
        let (live, durable) = (Image::new(size_bytes), Image::new(size_bytes));
        let (habits, uncertain) = (Habits::default(), Vec::new());
        let state = State { habits, live, durable, uncertain, asked: 0, life: 0 };
        Disk { info, power, state: state.into() }
    }

    /// Changes its habits.
    pub fn behave(&self, habits: Habits) {
        self.state.lock().habits = habits;
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

    /// All of it, as a program reads it.
    pub fn image(&self) -> Image {
        self.state.lock().live.clone()
    }

    /// Gives it another content, all of it durable.
    pub fn restore(&self, image: &Image) {
        let state = &mut *self.state.lock();
        (state.live, state.durable) = (image.clone(), image.clone());
        state.uncertain.clear();
        state.life += 1;
    }

    /// The device of this life.
    pub fn attach(self: &Arc<Disk>, runtime: &Runtime) -> Arc<dyn Device> {
        let (disk, runtime, life) = (self.clone(), runtime.clone(), self.state.lock().life);
        Arc::new(Attached { disk, runtime, life })
    }

    fn ask(&self, life: u64, offset: u64, data: Bytes) -> Option<u64> {
        let state = &mut *self.state.lock();
        if state.life != life || !self.power.write() {
            return None;
        }
        state.live.write(offset, &data);
        state.asked += 1;
        let number = state.asked;
        state.uncertain.push(Write { number, offset, data, is_done: false, is_stuck: false });
        Some(number)
    }

    /// Makes the writes durable that `is_meant`.
    fn settle(&self, life: u64, is_meant: impl Fn(&Write) -> bool) {
        let State { durable, uncertain, life: now, habits, .. } = &mut *self.state.lock();
        if *now != life || habits.flushes_lie {
            return;
        }
        let settled: Vec<Write> =
            uncertain.extract_if(.., |write| !write.is_stuck && is_meant(write)).collect();
        for write in settled {
            durable.write(write.offset, &write.data);
            // Older stuck writes must not come back over it.
            let range = write.offset..write.end();
            let is_under =
                |old: &mut Write| old.is_stuck && old.number < write.number && old.overlaps(&range);
            let under: Vec<Write> = uncertain.extract_if(.., is_under).collect();
            uncertain.splice(0..0, under.iter().flat_map(|old| old.outside(&range)));
        }
    }

    fn is_of(&self, life: u64) -> bool {
        self.state.lock().life == life
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

    /// A write; `then` is called with its number and range when it is done.
    fn change(
        &self,
        offset: u64,
        data: Bytes,
        then: impl FnOnce(&Disk, u64, Range<u64>) + Send + 'static,
    ) -> Io<()> {
        let len = data.len() as u64;
        if let Err(error) = self.info().check_writable(Op::Write, offset, len) {
            return Io::done(Err(error));
        }
        let at = self.place(offset, len);
        let number = self.disk.ask(self.life, at, data);
        let (disk, takes, life) = (self.disk.clone(), self.takes(), self.life);
        let gone = self.gone(Op::Write, offset, len);
        Io::pending(&self.runtime, async move {
            takes.await;
            disk.power.on().await;
            match number.filter(|_| disk.is_of(life)) {
                Some(number) => then(&disk, number, at..at + len),
                None => return Err(gone),
            }
            Ok(())
        })
    }

    /// The place to which a write goes.
    fn place(&self, offset: u64, len: u64) -> u64 {
        let misdirects = self.disk.state.lock().habits.misdirects;
        let sector = u64::from(self.info().sector_bytes);
        match misdirects > 0.0 && self.runtime.rng().chance(misdirects) {
            true => self.runtime.random_u64() % ((self.info().size_bytes - len) / sector + 1) * sector,
            false => offset,
        }
    }

    fn gone(&self, op: Op, offset: u64, len: u64) -> DeviceError {
        self.info().io_error(op, offset, len, std::io::Error::other("the disk lost its power"))
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
        let (disk, takes, life) = (self.disk.clone(), self.takes(), self.life);
        let gone = self.gone(Op::Read, offset, len as u64);
        Io::pending(&self.runtime, async move {
            takes.await;
            disk.power.on().await;
            let state = disk.state.lock();
            if state.life == life { Ok(state.live.read(offset, len)) } else { Err(gone) }
        })
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        let life = self.life;
        self.change(offset, data, move |disk, number, range| {
            let state = &mut *disk.state.lock();
            if state.life == life {
                // Overlapping writes are made in the order of their requests.
                let done = |write: &&mut Write| write.number <= number && write.overlaps(&range);
                state.uncertain.iter_mut().filter(done).for_each(|write| write.is_done = true);
            }
        })
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        let life = self.life;
        self.change(offset, data, move |disk, number, range| {
            disk.settle(life, |write| write.number <= number && write.overlaps(&range));
        })
    }

    fn flush(&self) -> Io<()> {
        let (disk, takes, life) = (self.disk.clone(), self.takes(), self.life);
        let state = disk.state.lock();
        let done = state.uncertain.iter().filter(|write| write.is_done).map(|write| write.number);
        let done: BTreeSet<u64> = done.collect();
        drop(state);
        let gone = self.gone(Op::Flush, 0, 0);
        Io::pending(&self.runtime, async move {
            takes.await;
            disk.power.on().await;
            disk.settle(life, |write| done.contains(&write.number));
            if disk.is_of(life) { Ok(()) } else { Err(gone) }
        })
    }

    fn lose_unflushed(&self) {
        let state = &mut *self.disk.state.lock();
        if state.life == self.life {
            state.uncertain.iter_mut().for_each(|write| write.is_stuck = true);
        }
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
            let disk = Arc::new(Disk::new("/disk", 1 << 20, 512, Arc::default()));
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
    /// Runs `work` on a disk, then cuts its power.
    fn cut_after(seed: u64, disk: &Arc<Disk>, work: impl AsyncFnOnce(Arc<dyn Device>)) {
        let device = |runtime: &Runtime| disk.attach(runtime);
        Runtime::simulate(cenote_runtime::SimConfig::seed(seed), |runtime| work(device(&runtime)));
        disk.cut(&mut Rng::new(seed));
    }

    #[test]
    fn writes_of_a_failed_flush_are_not_saved_by_the_next_and_do_not_come_back_over_newer_ones() {
        let mut lost = 0;
        for seed in 0..20 {
            let disk = Arc::new(Disk::new("/disk", 1 << 20, 512, Arc::default()));
            cut_after(seed, &disk, async |device| {
                device.write_at(0, vec![1; 4096].into()).await.unwrap();
                device.lose_unflushed();
                device.write_at(1024, vec![2; 512].into()).await.unwrap();
                device.flush().await.unwrap();
            });
            let state = disk.state.lock();
            assert_eq!(state.live.read(1024, 512)[..], [2; 512]);
            lost += usize::from(state.live.read(0, 512)[0] == 0);
        }
        assert!(lost > 2, "{lost}");
    }

    #[test]
    fn operations_fail_once_the_disk_lost_its_power() {
        let disk = Arc::new(Disk::new("/disk", 1 << 20, 512, Arc::default()));
        cut_after(1, &disk, async |device| {
            let (read, write, flush) =
                (device.read_at(0, 512), device.write_at(0, vec![1; 512].into()), device.flush());
            disk.cut(&mut Rng::new(1));
            assert!(read.await.is_err() && write.await.is_err() && flush.await.is_err());
            assert!(device.write_at(0, vec![1; 512].into()).await.is_err());
        });
    }

    #[test]
    fn bad_habits_show() {
        let disk = Arc::new(Disk::new("/disk", 1 << 20, 512, Arc::default()));
        disk.behave(Habits { misdirects: 1.0, flushes_lie: false });
        cut_after(1, &disk, async |device| {
            device.write_at(0, vec![1; 512].into()).await.unwrap();
            device.flush().await.unwrap();
        });
        let is_there = |disk: &Disk, at: u64| disk.state.lock().live.read(at * 512, 512)[0] == 1;
        assert!(!is_there(&disk, 0) && (0..2048).any(|at| is_there(&disk, at)));
        let lost = (0..20).filter(|seed| {
            let disk = Arc::new(Disk::new("/disk", 1 << 20, 512, Arc::default()));
            disk.behave(Habits { misdirects: 0.0, flushes_lie: true });
            cut_after(*seed, &disk, async |device| {
                device.write_at(0, vec![1; 512].into()).await.unwrap();
                device.flush().await.unwrap();
            });
            !is_there(&disk, 0)
        });
        assert!(lost.count() > 2);
    }
}
