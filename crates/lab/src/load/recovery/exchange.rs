//! Disks exchanged for new ones, after a loss or before it.
//!
//! ```text
//!   lost.resilver      the disk is offline        data come from the other disks
//!   well.evacuate      it works                   from itself
//!   failing.evacuate   5 % of its sectors are     from itself, the rest from the other disks
//!                      unreadable
//!   ... .busy          the same while users work
//! ```
//!
//! Idea: report 003 asks whether copying active data off a working disk is faster than a resilver after it
//! fails. Each exchange gives its time, the bytes read from and written to all disks, and the lowest
//! redundancy: each disk out of use in a sample of the pool lowers it by one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::pool::{Look, TestPool};
use super::users::Users;
use crate::load::control::Control;
use crate::load::measurement::{Figure, Stream};
use crate::unit::Unit;
use crate::{LabError, Result};

/// Unreadable sectors of a failing disk, in percent.
pub const UNREADABLE_PERCENT: u8 = 5;
/// Time that users work alone, for comparison.
const ALONE: Duration = Duration::from_secs(3);
/// Interval between looks at the pool: at least this, and later a fraction of the time so far.
const FIRST_LOOKS: Duration = Duration::from_millis(50);
const LOOKS_PART: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Taken offline, then replaced and resilvered.
    Lost,
    /// Evacuated, with this share of its sectors unreadable.
    Evacuated { unreadable_percent: u8 },
}

const WAYS: [(&str, Way); 3] = [
    ("lost.resilver", Way::Lost),
    ("well.evacuate", Way::Evacuated { unreadable_percent: 0 }),
    ("failing.evacuate", Way::Evacuated { unreadable_percent: UNREADABLE_PERCENT }),
];

pub struct Exchanges<'a> {
    pub pool: &'a TestPool<'a>,
    /// Number of its disks that may fail.
    pub redundancy: usize,
    /// Files that users work on.
    pub files: &'a [PathBuf],
    pub control: &'a Control,
}

impl Exchanges<'_> {
    /// Exchanges a disk in every way, each time for a new one.
    ///
    /// # Errors
    /// A repair fails, or leaves errors; users' operations fail; the work was stopped.
    pub fn all(
        &self,
        disk: &Path,
        mut new_disk: impl FnMut(usize) -> Result<PathBuf>,
    ) -> Result<Vec<Figure>> {
        let mut users = Users::of(self.files)?;
        let mut figures = Vec::new();
        self.control.doing("users alone");
        let stop = AtomicBool::new(false);
        let streams = thread::scope(|scope| {
            let working = scope.spawn(|| users.work(&stop));
            thread::sleep(ALONE);
            stop.store(true, Ordering::Relaxed);
            joined(working)
        })?;
        figures.extend(of_users("users.alone", &streams));
        let mut disk = disk.to_owned();
        for (number, (name, way)) in WAYS.into_iter().enumerate() {
            for is_busy in [false, true] {
                self.control.check()?;
                let new = new_disk(2 * number + usize::from(is_busy))?;
                let name = format!("{name}{}", if is_busy { ".busy" } else { "" });
                self.control.doing(format!("exchange of a disk: {}", name.replace('.', ", ")));
                figures.extend(self.one(&name, way, &disk, &new, is_busy.then_some(&mut users))?);
                fs::remove_file(&disk).map_err(LabError::io(disk.display().to_string()))?;
                disk = new;
            }
        }
        Ok(figures)
    }

    fn one(
        &self,
        name: &str,
        way: Way,
        disk: &Path,
        new: &Path,
        users: Option<&mut Users>,
    ) -> Result<Vec<Figure>> {
        self.pool.sync()?;
        let before = self.pool.look(disk)?;
        let over = AtomicBool::new(false);
        let (repair, watched, streams) = thread::scope(|scope| {
            let watching = scope.spawn(|| watch(self.pool, disk, &over));
            let working = users.map(|users| scope.spawn(|| users.work(&over)));
            let repair = self.exchange(way, disk, new);
            over.store(true, Ordering::Relaxed);
            (repair, joined(watching), working.map(joined).transpose())
        });
        let (repair, watched, streams) = (repair?, watched?, streams?);
        self.pool.sync()?;
        let after = self.pool.look(disk)?;
        let left = self.redundancy - usize::from(watched.was_out);
        let bytes =
            |what: &str, bytes: u64| Figure::lower(format!("{name}.{what}"), bytes as f64, Unit::Bytes);
        let time =
            |what: &str, ns: u64| Figure::lower(format!("{name}.{what}"), ns as f64, Unit::Nanoseconds);
        let mut figures = vec![
            time("time", repair),
            bytes("read", after.read_bytes.saturating_sub(before.read_bytes)),
            bytes("written", after.written_bytes.saturating_sub(before.written_bytes)),
            Figure::higher(format!("{name}.may_fail"), left as f64, Unit::Count),
            time("less_redundant", watched.out_ns),
        ];
        figures.extend(streams.iter().flat_map(|streams| of_users(name, streams)));
        Ok(figures)
    }

    /// Returns the duration of the exchange in nanoseconds.
    fn exchange(&self, way: Way, disk: &Path, new: &Path) -> Result<u64> {
        let repair = match way {
            Way::Lost => {
                self.pool.offline(disk)?;
                self.pool.exchange(disk, new, self.control)?
            }
            Way::Evacuated { unreadable_percent } => {
                if unreadable_percent > 0 {
                    self.pool.spoil(disk, unreadable_percent)?;
                }
                self.pool.evacuate(disk, new, self.control)?
            }
        };
        Ok(repair.elapsed_ns)
    }
}

#[derive(Debug, Default)]
struct Watched {
    was_out: bool,
    /// Time out of use.
    out_ns: u64,
}

fn watch(pool: &TestPool<'_>, disk: &Path, over: &AtomicBool) -> Result<Watched> {
    let (began, mut watched) = (Instant::now(), Watched::default());
    while !over.load(Ordering::Relaxed) {
        let at = Instant::now();
        let Look { is_out, .. } = pool.look(disk)?;
        watched.was_out |= is_out;
        let pause = FIRST_LOOKS.max(began.elapsed() / LOOKS_PART);
        while at.elapsed() < pause && !over.load(Ordering::Relaxed) {
            thread::sleep(FIRST_LOOKS / 10);
        }
        watched.out_ns += if is_out { at.elapsed().as_nanos() as u64 } else { 0 };
    }
    Ok(watched)
}

/// 99th percentiles of users' latencies.
fn of_users(name: &str, streams: &[Stream; 2]) -> Vec<Figure> {
    let p99 = |stream: &Stream| {
        let name = format!("{name}.{}_p99", stream.operation);
        Figure::lower(name, stream.latency.percentile_ns(99.0) as f64, Unit::Nanoseconds)
    };
    streams.iter().filter(|stream| stream.operations > 0).map(p99).collect()
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
