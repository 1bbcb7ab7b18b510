//! Sampling: what goes on in the machine while something is measured.
//!
//! A [`Sampler`] reads all sources at an interval in a thread of its own, from the moment it is started until it is stopped: both ends
//! are points of every series, so that the growth of a counter is that of the whole measurement. What can't be had is in
//! [`Samples::missing`], with the reason; nothing of it stops a measurement.
//!
//! | source | subject | names | unit |
//! |---|---|---|---|
//! | `cpu` | empty (all), `cpu0`... | `user`, `nice`, `system`, `idle`, `iowait`, `irq`, `softirq`, `steal`; of all: gauges `procs_running`, `procs_blocked`, counter `context_switches` | ns of processor time |
//! | `memory` | empty | as in `/proc/meminfo`: `MemAvailable`, `Dirty`, `Writeback`, `Cached`... | bytes, gauges |
//! | `pressure` | `cpu`, `memory`, `io` | `some_total`, `full_total`: ns in which some or all tasks waited; gauges `some_avg10`... in percent | ns |
//! | `diskstats` | device | `read_ios`, `read_bytes`, `read_time`, the same of `write_`, `discard_` and `flush_`, `io_time`, `weighted_io_time`; gauge `in_flight` | counts, bytes, ns |
//! | `network` | interface | `rx_bytes`, `tx_bytes`, packets, errors, dropped; gauge `link_speed` | bytes, bytes/s |
//! | `arcstats`, `zil`, `dbufstats`, `dmu_tx`, `zfetchstats`, `abdstats`, `dnodestats`... | empty | as in the kstat | counts, bytes |
//! | `objset` | dataset | `reads`, `nread`, `writes`, `nwritten`, `zil_*`, as in its kstat | counts, bytes |
//! | `txgs` | pool | `synced`, `dirty_bytes`, `read_bytes`, `written_bytes`, `open_time`, `quiesce_time`, `wait_time`, `sync_time` of groups that ended | counts, bytes, ns |
//! | `iostats` | pool | as in the kstat | counts, bytes |
//! | `iostat` | `POOL`, `POOL/VDEV` | gauges `read_ops`, `write_bytes`, `total_wait.read`, `disk_wait.write`, `sync_read.pending`, `async_write.active`... | /s, bytes/s, ns, counts |
//! | `smart` | disk | gauges `temperature`, `wear`, `reallocated`... (see [`smart`]), at both ends only | °C, percent, counts |
//!
//! Disks are raw counters; over an interval `dt` their utilisation is `io_time / dt`, the mean number in the queue
//! `weighted_io_time / dt`, the mean time of a read `read_time / read_ios`. Histograms are those of `zpool iostat -w` and `-r`
//! (sources `iostat_latency`, `iostat_size`: names as in `iostat`) and of waits for a transaction group (`dmu_tx_assign`), as they grew.
//!
//! Memory: [`MOST_TICKS`] points a series, then every second goes; 300 series that change take 9 MB however long it takes.

mod device;
mod iostat;
mod kernel;
mod kstat;
mod recorder;
pub mod smart;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Result;
use crate::machine::zpool::Zpool;
use crate::machine::{Machine, Root, Transport};
use crate::samples::{SampledHistogram, Samples};
pub use recorder::MOST_TICKS;
use recorder::Recorder;

/// What belongs to a measurement: nothing else is sampled, but for what concerns the machine as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Pools, by name.
    pub pools: Vec<String>,
    /// Block devices, by their names in `/sys/block`.
    pub devices: Vec<String>,
    /// Those of them that may have SMART records.
    pub disks: Vec<String>,
    /// Network interfaces.
    pub interfaces: Vec<String>,
}

impl Scope {
    /// All that the machine's description names: the devices and pools under its targets, the interfaces that are up.
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

/// Samples until it is stopped.
#[derive(Debug)]
pub struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Samples>>,
}

impl Sampler {
    /// Starts to sample this machine; the first points are there when this returns.
    pub fn start(scope: &Scope, interval: Duration) -> Sampler {
        Sampler::start_at(&Root::default(), Zpool::find(), scope, interval)
    }

    /// Starts to sample a machine whose `/proc` and `/sys` are under `root`, and whose pools `zpool` knows.
    pub fn start_at(root: &Root, zpool: Result<Zpool>, scope: &Scope, interval: Duration) -> Sampler {
        let began = Instant::now();
        let (stop, stopped) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let (root, scope) = (root.clone(), scope.clone());
        let thread = thread::spawn(move || {
            let mut sources = Sources::open(root, zpool, scope, interval);
            sources.read(began, false);
            // Nobody waits any more: the sampler was dropped.
            let _ = ready.send(());
            sources.smart();
            sources.follow(began, interval, &stopped);
            sources.finish(began)
        });
        // An error means that the thread has ended: `stop` says so.
        let _ = is_ready.recv();
        Sampler { stop: Some(stop), thread: Some(thread) }
    }

    /// Takes the last points, and gives all.
    pub fn stop(mut self) -> Samples {
        self.stop = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(samples)) => samples,
            _ => {
                let mut nothing = Recorder::default();
                nothing.missing("sampler", "the sampling ended before its time; this is a fault of Cenote");
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

/// Everything that is read.
struct Sources {
    root: Root,
    zpool: Option<Zpool>,
    scope: Scope,
    recorder: Recorder,
    pools: kstat::Pools,
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
        let mut sources = Sources { root, zpool, scope, recorder, pools, follower, histograms: Vec::new() };
        sources.histograms = sources.histograms_now();
        sources
    }

    /// Reads all that is read at each tick.
    fn read(&mut self, began: Instant, last: bool) {
        let at_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if !self.recorder.tick(at_ns, last) {
            return;
        }
        let (root, recorder) = (&self.root, &mut self.recorder);
        kernel::cpu(root, recorder);
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

    /// Reads at each interval until it is to stop.
    fn follow(&mut self, began: Instant, interval: Duration, stopped: &Receiver<()>) {
        let mut next = began;
        loop {
            // Ticks that were missed, for the machine was busy, are left out.
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

    /// Asks the disks for their records: some take a second to answer.
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
