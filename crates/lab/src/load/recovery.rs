//! How long does a pool take to recover? (report 003)
//!
//! A new pool is filled with incompressible data without duplicates, then damaged and repaired:
//! - a range of zeros on one disk, repaired by a scrub;
//! - scattered corrupt bytes on one disk, repaired by a scrub;
//! - a wiped disk, replaced and resilvered, and where the layout allows it wiped again and rebuilt
//!   sequentially;
//! - with Cenote, disks exchanged for new ones after a loss and before it, with and without users at work
//!   ([`exchange`]).
//!
//! Each repair is timed from the command until its completion is reported (`zpool wait`), to the millisecond.
//! For comparison, the whole disk is also copied: a resilver reads only allocated blocks, a copy reads
//! everything, but sequentially.
//!
//! For safeguards see [`pool`]. No other pool is ever named to `zpool`.

mod damage;
mod exchange;
mod holder;
mod pool;
mod users;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::load::control::Control;
use crate::load::machine::caches;
use crate::load::measurement::{Figure, Outcome, Stream, Tally, Tool};
use crate::load::target::Scratch;
use crate::load::workload::content::Content;
use crate::unit::Unit;
use crate::{LabError, Result};
use exchange::Exchanges;
use holder::Holder;
use pool::TestPool;

pub use exchange::UNREADABLE_PERCENT;
pub use holder::Engine;

const CHUNK_BYTES: usize = 1 << 20;
const FILE_BYTES: u64 = 256 << 20;
/// Default record size of these files.
pub const RECORD_BYTES: u64 = 1 << 20;

/// Layout of the pool, its fill, and the extent of the damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Implementation of ZFS under test.
    #[serde(default)]
    pub engine: Engine,
    /// `mirror`, `raidz1`, `draid1:2d:1s:4c`, as for `zpool create`.
    pub layout: String,
    /// `recordsize` of the data.
    #[serde(default = "usual_record_bytes")]
    pub record_bytes: u64,
    /// Number of disks.
    pub disks: usize,
    /// Bytes of each file used as a disk.
    pub disk_bytes: u64,
    /// Block devices to use instead of files: empty, or confirmed twice as expendable by the user.
    pub devices: Vec<PathBuf>,
    /// Fill of the pool in percent.
    pub fill_percent: u8,
    /// Share of one disk overwritten with zeros, in percent.
    pub zero_percent: u8,
    /// Number of corrupted regions on one disk.
    pub scattered: u32,
}

fn usual_record_bytes() -> u64 {
    RECORD_BYTES
}

impl Recovery {
    /// Runs the whole study; files are created in `place`.
    ///
    /// # Errors
    /// `zpool` is missing or refuses, the disk is full, a repair ends with errors, or the work was stopped.
    pub fn run(&self, place: &Path, control: &Control) -> Result<Outcome> {
        let scratch = Scratch::new(place)?;
        let holder = Holder::start(self.engine, scratch.path())?;
        let (name, version) = holder.version()?;
        let disks = self.disks(scratch.path())?;
        let mount = scratch.path().join("pool");
        fs::create_dir(&mount).map_err(LabError::io(mount.display().to_string()))?;
        let pool = TestPool::create(&holder, &self.layout, self.record_bytes, &disks, &mount)?;
        let mut figures = Vec::new();
        control.doing(format!("{}: filling to {} %", self.layout, self.fill_percent));
        let filled = self.fill(&mount, control)?;
        pool.sync()?;

        // Any disk would do; this one is not the first.
        let disk = &disks[1];
        control.doing(format!("{}: scrub after zeros", self.layout));
        let injured_bytes = damage::zeros(disk, self.zero_percent)?;
        figures.extend(repaired("zeros.scrub", &pool.scrub(control)?));
        figures.push(Figure::neutral("zeros.scrub.injured", injured_bytes as f64, Unit::Bytes));
        control.doing(format!("{}: scrub after scattered bytes", self.layout));
        let injured_bytes = damage::scatter(disk, self.scattered)?;
        figures.extend(repaired("scattered.scrub", &pool.scrub(control)?));
        figures.push(Figure::neutral("scattered.scrub.injured", injured_bytes as f64, Unit::Bytes));
        control.doing(format!("{}: resilver of a wiped disk", self.layout));
        pool.offline(disk)?;
        damage::wipe(disk, control)?;
        figures.extend(repaired("wiped.resilver", &pool.replace(disk, control)?));
        if self.can_rebuild() {
            control.doing(format!("{}: sequential rebuild of a wiped disk", self.layout));
            pool.offline(disk)?;
            damage::wipe(disk, control)?;
            figures.push(time("wiped.rebuild", pool.rebuild(disk, control)?));
        }
        control.doing(format!("{}: copy of a whole disk", self.layout));
        figures.extend(copy(disk, &scratch.path().join("copy"), control)?);
        let note = self.note(damage::size(disk)?);
        if self.exchanges() {
            let files = files_in(&mount)?;
            let exchanges = Exchanges { pool: &pool, redundancy: self.redundancy(), files: &files, control };
            let new = |number| self.disk(&scratch.path().join(format!("new{number}")));
            figures.extend(exchanges.all(disk, new)?);
        }
        pool.destroy()?;
        Ok(Outcome {
            tool: Tool { name, version, command: None },
            cpu: None,
            streams: vec![filled],
            others: figures,
            notes: vec![note],
        })
    }

    fn disks(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        if self.disks < 2 {
            return Err(LabError::Refused("recovery needs a redundant layout of at least two disks".into()));
        }
        if !self.devices.is_empty() {
            return match self.devices.get(..self.disks) {
                Some(devices) => Ok(devices.to_vec()),
                None => Err(LabError::Refused(format!(
                    "{} of {} disks: only {} devices were given",
                    self.layout,
                    self.disks,
                    self.devices.len()
                ))),
            };
        }
        (0..self.disks).map(|number| self.disk(&folder.join(format!("disk{number}")))).collect()
    }

    fn disk(&self, path: &Path) -> Result<PathBuf> {
        let file = File::create(path).map_err(LabError::io(path.display().to_string()))?;
        file.set_len(self.disk_bytes).map_err(LabError::io(path.display().to_string()))?;
        Ok(path.to_owned())
    }

    fn note(&self, disk_bytes: u64) -> String {
        format!(
            "{} of {} disks, {} each{}, records of {}, {} % full; {} % of a disk zeroed, {} regions \
             corrupted",
            self.layout,
            self.disks,
            Unit::Bytes.show(disk_bytes as f64),
            if self.devices.is_empty() { " (files)" } else { "" },
            Unit::Bytes.show(self.record_bytes as f64),
            self.fill_percent,
            self.zero_percent,
            self.scattered
        )
    }

    /// Only Cenote's file disks are exchanged for new ones.
    fn exchanges(&self) -> bool {
        self.engine == Engine::Cenote && self.devices.is_empty()
    }

    fn redundancy(&self) -> usize {
        let parity = |kind: &str| {
            let digits = self.layout.strip_prefix(kind)?;
            digits.get(..1)?.parse().ok()
        };
        parity("raidz").or_else(|| parity("draid")).unwrap_or(self.disks - 1)
    }

    fn can_rebuild(&self) -> bool {
        self.layout == "mirror" || self.layout.starts_with("draid")
    }

    /// Fills the pool; the stream gives its speed.
    fn fill(&self, mount: &Path, control: &Control) -> Result<Stream> {
        let what = || mount.display().to_string();
        let space = rustix::fs::statvfs(mount).map_err(|e| LabError::io(what())(e.into()))?;
        let wanted =
            (u128::from(space.f_bavail * space.f_frsize) * u128::from(self.fill_percent) / 100) as u64;
        let mut content = Content::new(CHUNK_BYTES, 1, 0)?;
        let began = Instant::now();
        let mut tally = Tally::new(began);
        let mut written = 0;
        while written < wanted {
            let path = mount.join(format!("fill{}", written / FILE_BYTES));
            let what = || path.display().to_string();
            let mut file = File::create(&path).map_err(LabError::io(what()))?;
            let end = (written + FILE_BYTES).min(wanted);
            while written < end {
                control.check()?;
                let chunk = content.next(end - written);
                let bytes = chunk.len() as u64;
                tally.time(bytes, || file.write_all(chunk)).map_err(LabError::io(what()))?;
                written += bytes;
                control.count(1, bytes);
                control.done(written, wanted);
            }
            file.sync_all().map_err(LabError::io(what()))?;
        }
        Ok(tally.into_stream("fill", began.elapsed().as_nanos() as u64))
    }
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let what = || folder.display().to_string();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(LabError::io(what()))? {
        files.push(entry.map_err(LabError::io(what()))?.path());
    }
    files.sort();
    Ok(files)
}

fn time(name: &str, elapsed_ns: u64) -> Figure {
    Figure::lower(format!("{name}.time"), elapsed_ns as f64, Unit::Nanoseconds)
}

fn repaired(name: &str, repair: &pool::Repair) -> Vec<Figure> {
    let rate = repair.examined_bytes as f64 / (repair.elapsed_ns.max(1) as f64 / 1e9);
    let mut figures = vec![
        time(name, repair.elapsed_ns),
        Figure::neutral(format!("{name}.repaired"), repair.repaired_bytes as f64, Unit::Bytes),
    ];
    if repair.examined_bytes > 0 {
        figures.push(Figure::higher(format!("{name}.rate"), rate, Unit::BytesPerSecond));
    }
    figures
}

/// Copies a whole disk sequentially, as a preventive copy would.
fn copy(disk: &Path, to: &Path, control: &Control) -> Result<Vec<Figure>> {
    let what = || format!("copy of {}", disk.display());
    let mut from = File::open(disk).map_err(LabError::io(what()))?;
    let mut out = File::create(to).map_err(LabError::io(what()))?;
    let whole = damage::size(disk)?;
    caches::drop_pages(&from);
    let mut buffer = vec![0; CHUNK_BYTES];
    let began = Instant::now();
    let mut copied = 0;
    loop {
        control.check()?;
        let bytes = from.read(&mut buffer).map_err(LabError::io(what()))?;
        if bytes == 0 {
            break;
        }
        out.write_all(&buffer[..bytes]).map_err(LabError::io(what()))?;
        copied += bytes as u64;
        control.done(copied, whole);
    }
    out.sync_all().map_err(LabError::io(what()))?;
    let elapsed_ns = began.elapsed().as_nanos() as f64;
    fs::remove_file(to).map_err(LabError::io(what()))?;
    Ok(vec![
        Figure::lower("copy.time", elapsed_ns, Unit::Nanoseconds),
        Figure::higher("copy.rate", copied as f64 / (elapsed_ns / 1e9), Unit::BytesPerSecond),
    ])
}
