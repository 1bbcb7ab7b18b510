//! Sampling: the machine's activity during a measurement.
//!
//! A [`Sampler`] reads all sources at an interval in its own thread. Every series has a point at both ends,
//! so a counter's growth covers the whole measurement. Sources that cannot be sampled never stop it: they are
//! in [`Samples::missing`] with the reason.
//!
//! `docs/lab-series.md` lists sources, subjects, names and units.
//!
//! Memory: [`MOST_TICKS`] points per series, after which every other point is dropped. 300 changing series
//! take 9 MB, however long the measurement.

mod device;
mod iostat;
mod kernel;
mod kstat;
mod processes;
mod recorder;
pub mod smart;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Result;
use crate::load::machine::zpool::Zpool;
use crate::load::machine::{Machine, Root, Transport};
use crate::load::samples::{SampledHistogram, Samples};
pub use recorder::MOST_TICKS;
use recorder::Recorder;

/// Pools and devices of a measurement. Beyond these, only facts about the machine as a whole are sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Pool names.
    pub pools: Vec<String>,
    /// Block devices, by their names in `/sys/block`.
    pub devices: Vec<String>,
    /// Devices that may have SMART records.
    pub disks: Vec<String>,
    /// Network interfaces.
    pub interfaces: Vec<String>,
}

impl Scope {
    /// Everything in the machine's description: the devices and pools under its targets, and the interfaces
    /// that are up.
    pub fn of(machine: &Machine) -> Scope {
        let physical = |transport| {
            use Transport::{FibreChannel, Nvme, Sas, Sata, Unknown, Usb};
            matches!(transport, Nvme | Sata | Sas | Usb | FibreChannel | Unknown)
        };
        Scope {
            pools: machine.pools.iter().map(|pool| pool.name.clone()).collect(),
            devices: machine.disks.iter().map(|disk| disk.name.clone()).collect(),
            disks: machine.disks.iter().filter(|d| physical(d.transport)).map(|d| d.name.clone()).collect(),
            interfaces: machine.interfaces.iter().map(|interface| interface.name.clone()).collect(),
        }
    }
}

/// Samples until stopped.
#[derive(Debug)]
pub struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Samples>>,
}

impl Sampler {
    /// Starts to sample this machine; returns after the first points.
    pub fn start(scope: &Scope, interval: Duration) -> Sampler {
        Sampler::start_at(&Root::default(), Zpool::find(), scope, interval)
    }

    /// Starts to sample a machine with `/proc` and `/sys` under `root` and its pools in `zpool`.
    pub fn start_at(root: &Root, zpool: Result<Zpool>, scope: &Scope, interval: Duration) -> Sampler {
        let began = Instant::now();
        let (stop, stopped) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let (root, scope) = (root.clone(), scope.clone());
        let thread = thread::spawn(move || {
            let mut sources = Sources::open(root, zpool, scope, interval);
            sources.read(began, true);
            // On failure the sampler was dropped and no thread waits.
            let _ = ready.send(());
            sources.smart();
            sources.follow(began, interval, &stopped);
            sources.finish(began)
        });
        // An error means that the thread has ended, which `stop` reports.
        let _ = is_ready.recv();
        Sampler { stop: Some(stop), thread: Some(thread) }
    }

    /// Takes the last points, and returns all samples.
    pub fn stop(mut self) -> Samples {
        self.stop = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(samples)) => samples,
            _ => {
                let mut nothing = Recorder::default();
                nothing.missing("sampler", "sampling ended early; this is a bug in Cenote");
                nothing.finish()
            }
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Sources {
    root: Root,
    zpool: Option<Zpool>,
    scope: Scope,
    recorder: Recorder,
    pools: kstat::Pools,
    threads: processes::KernelThreads,
    follower: Option<iostat::Follower>,
    histograms: Vec<SampledHistogram>,
}

impl Sources {
    fn open(root: Root, zpool: Result<Zpool>, scope: Scope, interval: Duration) -> Sources {
        let mut recorder = Recorder::default();
        let mut follower = None;
        let zpool = zpool.map_err(|error| recorder.missing("iostat", error.to_string())).ok();
        if let Some(zpool) = zpool.as_ref().filter(|_| !scope.pools.is_empty()) {
            follower = iostat::Follower::start(zpool, &scope.pools, interval)
                .map_err(|error| recorder.missing("iostat", error.to_string()))
                .ok();
        }
        let pools = kstat::Pools::default();
        let threads = processes::KernelThreads::default();
        let mut sources =
            Sources { root, zpool, scope, recorder, pools, threads, follower, histograms: Vec::new() };
        sources.histograms = sources.histograms_now();
        sources
    }

    /// Reads the sources for every tick, and at both ends also the slow ones.
    fn read(&mut self, began: Instant, is_end: bool) {
        let at_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if !self.recorder.tick(at_ns, is_end) {
            return;
        }
        let (root, recorder) = (&self.root, &mut self.recorder);
        kernel::cpu(root, recorder);
        processes::own(root, recorder);
        if is_end {
            self.threads.read(root, recorder);
        }
        kernel::memory(root, recorder);
        kernel::pressure(root, recorder);
        device::disks(root, &self.scope.devices, recorder);
        device::networks(root, &self.scope.interfaces, recorder);
        kstat::module(root, recorder);
        for pool in &self.scope.pools {
            self.pools.read(root, pool, recorder);
        }
        if let Some(follower) = &mut self.follower {
            follower.note(recorder);
        }
    }

    fn follow(&mut self, began: Instant, interval: Duration, stopped: &Receiver<()>) {
        let mut next = began;
        loop {
            // Skip ticks missed because the machine was busy.
            while next <= Instant::now() {
                next += interval.max(Duration::from_millis(1));
            }
            match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => self.read(began, false),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn finish(mut self, began: Instant) -> Samples {
        self.read(began, true);
        self.smart();
        let after = self.histograms_now();
        let grown = iostat::growth(&self.histograms, after);
        grown.into_iter().for_each(|histogram| self.recorder.histogram(histogram));
        self.recorder.finish()
    }

    fn histograms_now(&mut self) -> Vec<SampledHistogram> {
        let mut all = Vec::new();
        for pool in &self.scope.pools {
            all.extend(kstat::assign_waits(&self.root, pool));
            match self.zpool.as_ref().map(|zpool| iostat::histograms(zpool, pool)) {
                Some(Ok(histograms)) => all.extend(histograms),
                Some(Err(error)) => self.recorder.missing("iostat", error.to_string()),
                None => {}
            }
        }
        all
    }

    /// Asks the disks for their SMART records, which may take a second each.
    fn smart(&mut self) {
        for disk in &self.scope.disks {
            match smart::Smart::read(disk) {
                Ok(smart) => smart.note(disk, &mut self.recorder),
                Err(error) => self.recorder.missing("smart", format!("{disk}: {error}")),
            }
        }
    }
}

#[cfg(test)]
mod tests;
