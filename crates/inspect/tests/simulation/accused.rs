//! Disks vanish and return, lie and are slow while their pool gets another disk, grows, resilvers or is
//! scrubbed, and while files are written, read and removed. No data is lost, and no other disk is accused.
//!
//! ```text
//!   victims   as many disks as the vdev can do without        fail, hang, lose writes, return wrong bytes
//!   oracle    which of them have failed, and which have lied
//!   always    a file reads as it was written; only liars have checksum errors, only failed disks have read
//!             and write errors
//!   end       all disks are well, and a scrub is done: files read back without as many of the other disks
//! ```
//!
//! A rebuild and an expansion copy without looking at checksums, as in OpenZFS: a lie that they meet moves to
//! another disk. There, disks fail but do not lie.
//!
//! `CENOTE_DEVICE_HISTORIES=100000` runs as many instead of a few; `CENOTE_SEED` repeats one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Delayed, Device, Fault, Faulty, Latency, Op};
use cenote_engine::Engine;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_fs::write::{NewFile, NewKind};
use cenote_fs::{Change, Filesystem, FsWriter};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::{Disk, Draid, Mirror, Raidz};
use cenote_pool::create::NewDevice;
use cenote_pool::{FoundDevice, VdevConfig};
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::{
    Away, Back, Expanded, Resilver, attach, attach_to_raidz, bring_back, expansion, mend, rebuilding,
    replace, run_expansion, run_rebuild, run_scan, start_scrub, take_out,
};
use cenote_testkit::image::Image;

use crate::check::check_sound;
use crate::cuts::{number, on_kinds, simulate};
use crate::pools::{Disks, Layout, POOL, Vdev, change, create, open, opened};

/// Histories: one of each case; `CENOTE_DEVICE_HISTORIES` sets another number.
const HISTORIES: u64 = CASES.len() as u64;
const STEPS_BEFORE: usize = 24;
const STEPS_A_SLICE: u64 = 6;
const SLICES: usize = 14;
/// Most resilvers until all data is where it belongs.
const ROUNDS: usize = 4;
const RECORD: usize = 4096;
const MOST_RECORDS: u64 = 24;
const NAMES: u64 = 8;
const CACHE_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The last disk replaces the first, or joins it if the first is alone.
    Joins,
    /// The same by a sequential rebuild.
    IsRebuilt,
    /// A victim is out of use for a while; a resilver then restores the txgs it missed.
    Resilvers,
    /// The vdev gets the last disk.
    Grows,
    IsScrubbed,
}

const MIRROR: Vdev = (Mirror, 0, 2, Normal);
const MIRROR3: Vdev = (Mirror, 0, 3, Normal);
const RAIDZ1: Vdev = (Raidz, 1, 3, Normal);
const RAIDZ2: Vdev = (Raidz, 2, 4, Normal);
const DRAID: Vdev = (Draid, 1, 4, Normal);

const CASES: &[(Vdev, Event)] = &[
    ((Disk, 0, 1, Normal), Event::Joins),
    (MIRROR, Event::Joins),
    (MIRROR, Event::IsRebuilt),
    (MIRROR, Event::Resilvers),
    (MIRROR, Event::IsScrubbed),
    (MIRROR3, Event::Joins),
    (MIRROR3, Event::IsScrubbed),
    (RAIDZ1, Event::Joins),
    (RAIDZ1, Event::Resilvers),
    (RAIDZ1, Event::Grows),
    (RAIDZ1, Event::IsScrubbed),
    (RAIDZ2, Event::Joins),
    (RAIDZ2, Event::Resilvers),
    (RAIDZ2, Event::Grows),
    (RAIDZ2, Event::IsScrubbed),
    (DRAID, Event::Joins),
    (DRAID, Event::IsRebuilt),
    (DRAID, Event::IsScrubbed),
];

/// The number of disks a vdev can do without.
fn spare_disks((kind, parity, count, _): &Vdev) -> usize {
    if *kind == Mirror { count - 1 } else { *parity }
}

struct History {
    rt: Runtime,
    rng: Rng,
    disks: Disks,
    faulty: Vec<Arc<Faulty>>,
    engine: Engine,
    event: Event,
    victims: Vec<usize>,
    may_lie: bool,
    failed: BTreeSet<String>,
    lied: BTreeSet<String>,
    files: BTreeMap<String, Vec<u8>>,
    log: Vec<String>,
}

impl History {
    async fn begin(rt: &Runtime, layout: &Layout, event: Event, rng: &mut Rng) -> History {
        let (shape, count) = (layout.shape(), layout.disk_count());
        let disks = Disks::new(rt, shape, vec![Image::new(shape.size_bytes); count + 1]);
        let latency = Latency { fixed: Duration::from_millis(1), ..Latency::default() };
        let faulty =
            |device| Arc::new(Faulty::new(Arc::new(Delayed::new(device, latency, rt)), rng.next_u64()));
        let faulty: Vec<_> = disks.devices().into_iter().map(faulty).collect();
        let devices: Vec<_> = faulty[..count].iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
        let engine = create(rt, layout, &devices).await;
        for name in ["zfs_resilver_min_time_ms", "zfs_scrub_min_time_ms"] {
            engine.background().settings().set(name, 1).unwrap();
        }
        // A disk that replaces another counts among those that may fail.
        let candidates =
            if event == Event::IsScrubbed || event == Event::Resilvers { count } else { count + 1 };
        let mut victims = BTreeSet::new();
        // The new side of the mirror being made.
        victims.extend((spare_disks(&layout.vdevs[0]) == 0).then_some(count));
        while victims.len() < spare_disks(&layout.vdevs[0]) {
            victims.insert(rng.below(candidates as u64) as usize);
        }
        History {
            rt: rt.clone(),
            rng: Rng::new(rng.next_u64()),
            disks,
            faulty,
            engine,
            event,
            victims: victims.into_iter().collect(),
            may_lie: event != Event::IsRebuilt && event != Event::Grows,
            failed: BTreeSet::new(),
            lied: BTreeSet::new(),
            files: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// Runs the history; returns the images of the disks, the files and the log.
    async fn run(mut self) -> Result<Left, String> {
        let done = self.live().await;
        let log = std::mem::take(&mut self.log);
        done.map_err(|why| format!("{why}; victims {:?}\n{}", self.victims, log.join("\n")))?;
        let paths = self.leaves().into_iter().map(|(_, path)| path).collect();
        Ok(Left { images: self.disks.images(), files: self.files, victims: self.victims, paths, log })
    }

    async fn live(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_BEFORE {
            self.step().await?;
        }
        self.begin_event().await;
        for _ in 0..SLICES {
            for _ in 0..self.rng.below(STEPS_A_SLICE) {
                self.step().await?;
                if self.rng.below(3) == 0 {
                    self.happen().await;
                }
            }
            let is_over = self.slice().await;
            self.accuses_nobody_else()?;
            if is_over {
                break;
            }
        }
        self.end().await
    }

    fn say(&mut self, what: impl Into<String>) {
        self.log.push(what.into());
    }

    fn leaves(&self) -> Vec<(Guid, String)> {
        let config = self.engine.pool().tree().config();
        let leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
        leaves.filter_map(|leaf| Some((leaf.guid, leaf.path.clone()?))).collect()
    }

    fn guid_of(&self, disk: usize) -> Option<Guid> {
        let path = self.faulty[disk].describe();
        self.leaves().into_iter().find(|(_, of)| of == path).map(|(guid, _)| guid)
    }

    /// The oracle.
    fn accuses_nobody_else(&self) -> Result<(), String> {
        let paths: BTreeMap<Guid, String> = self.leaves().into_iter().collect();
        for (guid, errors) in self.engine.pool().counters().errors() {
            let Some(path) = paths.get(&guid) else { continue };
            if errors.checksum > 0 && !self.lied.contains(path) {
                return Err(format!("{path} never lied: {errors:?}"));
            }
            if errors.read + errors.write > 0 && !self.failed.contains(path) {
                return Err(format!("{path} never failed: {errors:?}"));
            }
        }
        Ok(())
    }
}

/// Clients.
impl History {
    async fn opened(&self) -> FsWriter {
        opened(&self.engine, POOL, RECORD as u32).await
    }

    async fn step(&mut self) -> Result<(), String> {
        let name = format!("f{}", self.rng.below(NAMES));
        match self.rng.below(8) {
            0..=3 => self.write(&name).await,
            4 => self.remove(&name).await,
            5 => self.read(&name).await?,
            _ => {
                self.engine.sync_all().await.map_err(|error| format!("a txg fails: {error}"))?;
                self.say("sync");
            }
        }
        mend(&self.engine).await.map_err(|error| format!("mending fails: {error}"))?;
        self.accuses_nobody_else()
    }

    async fn write(&mut self, name: &str) {
        let fs = self.opened().await;
        let id = match fs.lookup(fs.root(), name.as_bytes()).await.unwrap() {
            Some(entry) => entry.object,
            None => {
                let new = NewFile { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
                let create =
                    async |change: Change<'_>| fs.create(change, fs.root(), name.as_bytes(), &new).await;
                change(&self.engine, &fs, create).await.unwrap()
            }
        };
        let at = self.rng.below(MOST_RECORDS) as usize * RECORD;
        let words = RECORD / 8 * (1 + self.rng.below(6)) as usize;
        let data: Vec<u8> = (0..words).flat_map(|_| self.rng.next_u64().to_le_bytes()).collect();
        let bytes = Bytes::from(data.clone());
        change(&self.engine, &fs, async |change| fs.write(change, id, at as u64, bytes).await).await.unwrap();
        self.say(format!("write {} bytes of {name} at {at}", data.len()));
        let file = self.files.entry(name.into()).or_default();
        file.resize(file.len().max(at + data.len()), 0);
        file[at..at + data.len()].copy_from_slice(&data);
    }

    async fn remove(&mut self, name: &str) {
        if self.files.remove(name).is_none() {
            return;
        }
        let fs = self.opened().await;
        let unlink = async |change: Change<'_>| {
            let gone = fs.unlink(change, fs.root(), name.as_bytes()).await.unwrap().unwrap();
            assert!(fs.free_unlinked(change, gone).await.unwrap());
        };
        change(&self.engine, &fs, unlink).await;
        self.say(format!("remove {name}"));
    }

    /// From the disks.
    async fn read(&mut self, name: &str) -> Result<(), String> {
        let Some(expected) = self.files.get(name) else { return Ok(()) };
        self.engine.cache().set_budget(0);
        let fs = self.opened().await;
        let id = fs.lookup(fs.root(), name.as_bytes()).await.unwrap().unwrap().object;
        let file = fs.view().open_file(id).await.map_err(|error| format!("{name}: {error}"))?;
        let read = file.read(0, file.attr().size).await.map_err(|error| format!("{name}: {error}"))?;
        self.engine.cache().set_budget(CACHE_BYTES);
        if read[..] == expected[..] { Ok(()) } else { Err(format!("{name} has other content")) }
    }
}

/// The disks.
impl History {
    /// Lets something happen to a victim.
    async fn happen(&mut self) {
        let victim = self.victims[self.rng.below(self.victims.len() as u64) as usize];
        let (disk, rt) = (self.faulty[victim].clone(), self.rt.clone());
        let path = disk.describe().to_owned();
        let times = 1 + self.rng.below(20);
        let what = match self.rng.below(9) {
            0 | 1 => {
                [Op::Read, Op::Write, Op::Flush].into_iter().for_each(|op| _ = disk.add(Fault::error(op)));
                "vanishes"
            }
            2 | 3 => {
                self.returns(victim).await;
                "is back"
            }
            4 => {
                let by = Duration::from_millis(self.rng.below(20_000));
                [Op::Read, Op::Write]
                    .into_iter()
                    .for_each(|op| _ = disk.add(Fault::delay(op, by, &rt).times(times)));
                "is slow"
            }
            5 => {
                disk.add(Fault::error(Op::Flush).times(times));
                "fails to flush"
            }
            6 if self.may_lie => {
                disk.add(Fault::corruption().chance(0.5).times(times));
                "reads wrong bytes"
            }
            7 if self.may_lie => {
                disk.add(Fault::lost_write().chance(0.5).times(times));
                "loses writes"
            }
            8 if self.may_lie => {
                disk.add(Fault::torn_write().chance(0.5).times(times));
                "tears writes"
            }
            _ => return,
        };
        match what {
            "vanishes" | "fails to flush" => _ = self.failed.insert(path.clone()),
            "reads wrong bytes" | "loses writes" | "tears writes" => _ = self.lied.insert(path.clone()),
            _ => {}
        }
        self.say(format!("  {path} {what}"));
    }

    /// Heals a disk.
    async fn returns(&mut self, disk: usize) {
        self.faulty[disk].heal();
        let Some(guid) = self.guid_of(disk) else { return };
        for back in [Back::Online, Back::Cleared] {
            let is_gone = self.engine.pool().tree().device(guid).is_none();
            let device = || (guid, FoundDevice::new(self.faulty[disk].clone()));
            let devices = is_gone.then(device).into_iter().collect();
            bring_back(&self.engine, Some(guid), back, devices).await.unwrap();
        }
    }

    async fn begin_event(&mut self) {
        self.say(format!("{:?} ...", self.event));
        let engine = self.engine.clone();
        let device = self.faulty.last().unwrap().clone() as Arc<dyn Device>;
        let new = NewDevice { path: device.describe().to_owned(), device, is_file: false };
        let first = self.guid_of(0).unwrap();
        let order = if self.event == Event::IsRebuilt { Resilver::Sequential } else { Resilver::Healing };
        match self.event {
            Event::Joins | Event::IsRebuilt => {
                match engine.pool().tree().vdevs().tops().next().unwrap().is_leaf() {
                    true => attach(&engine, first, new, order).await.unwrap(),
                    false => replace(&engine, first, new, order).await.unwrap(),
                }
            }
            Event::Resilvers => {
                let victim = self.victims[0];
                take_out(&engine, self.guid_of(victim).unwrap(), Away::Offline).await.unwrap();
                for _ in 0..STEPS_BEFORE / 2 {
                    self.step().await.unwrap_or_else(|why| panic!("{why}\n{}", self.log.join("\n")));
                }
                self.returns(victim).await;
            }
            Event::Grows => attach_to_raidz(&engine, VdevId(0), new).await.unwrap(),
            Event::IsScrubbed => start_scrub(&engine, Txg(0)).await.unwrap(),
        }
    }

    /// Runs the event a little further; returns whether it is over.
    async fn slice(&mut self) -> bool {
        let engine = self.engine.clone();
        if self.event == Event::Grows {
            let mos = engine.mos().await.unwrap();
            let so_far = expansion(&engine, &mos).await.unwrap();
            let most = so_far.map_or(1, |progress| progress.done_bytes) + (64 << 10);
            engine.background().settings().set("raidz_expand_max_reflow_bytes", most).unwrap();
            run_expansion(&engine, &|_| {}).await.ok();
            return expansion(&engine, &engine.mos().await.unwrap()).await.unwrap().is_none();
        }
        let stopped = engine.clone();
        let stop = move |_| stopped.background().settings().set("zfs_scan_suspend_progress", 1).unwrap();
        engine.background().settings().set("zfs_scan_suspend_progress", 0).unwrap();
        run_rebuild(&engine, &stop).await.ok();
        if !engine.background().settings().is_suspended() {
            run_scan(&engine, &stop).await.ok();
        }
        let mos = engine.mos().await.unwrap();
        let scan = mos.scan_status().await.unwrap();
        rebuilding(&mos).await.unwrap().is_empty() && !scan.is_some_and(|scan| scan.is_running())
    }

    /// Heals all disks; unfinished events end, and a scrub finds the remaining errors.
    async fn end(&mut self) -> Result<(), String> {
        for victim in self.victims.clone() {
            self.returns(victim).await;
        }
        self.say("all are well");
        let engine = self.engine.clone();
        // With slices of the usual length: those of a millisecond have had their turn.
        for (name, value) in [
            ("raidz_expand_max_reflow_bytes", 0),
            ("zfs_scan_suspend_progress", 0),
            ("zfs_resilver_min_time_ms", 3000),
            ("zfs_scrub_min_time_ms", 3000),
        ] {
            engine.background().settings().set(name, value).unwrap();
        }
        let failed = |what: &'static str| move |error| format!("{what}: {error}");
        // An expansion waits for disks that lack data; a resilver that met an absent disk starts again.
        for round in 1.. {
            run_rebuild(&engine, &|_| {}).await.map_err(failed("rebuild"))?;
            let expanded = run_expansion(&engine, &|_| {}).await.map_err(failed("expansion"))?;
            run_scan(&engine, &|_| {}).await.map_err(failed("scan"))?;
            if expanded == Expanded::Done && engine.pool().lacking().behind().is_empty() {
                break;
            }
            if round == ROUNDS {
                return Err(format!(
                    "after {round} rounds: {expanded:?}, {:?}",
                    engine.pool().lacking().behind()
                ));
            }
        }
        start_scrub(&engine, Txg(0)).await.map_err(failed("scrub"))?;
        let scanned = run_scan(&engine, &|_| {}).await.map_err(failed("scrub"))?;
        mend(&engine).await.map_err(failed("mend"))?;
        self.accuses_nobody_else()?;
        engine.sync_all().await.map_err(failed("sync"))?;
        let behind = engine.pool().lacking().behind();
        if scanned.errors > 0 || !scanned.incomplete.is_empty() || !behind.is_empty() {
            return Err(format!("{scanned:?}, behind: {behind:?}"));
        }
        Ok(())
    }
}

/// The outcome of a history.
struct Left {
    images: Vec<Image>,
    files: BTreeMap<String, Vec<u8>>,
    victims: Vec<usize>,
    /// Paths of the pool's disks.
    paths: BTreeSet<String>,
    log: Vec<String>,
}

/// Checks that the pool is sound, and that all files are readable without as many disks as it can do without;
/// victims stay.
async fn check(rt: &Runtime, layout: &Layout, left: &Left) -> Result<(), String> {
    let again = Disks::new(rt, layout.shape(), left.images.clone());
    let in_use = |disk: &usize| left.paths.contains(again.disks[*disk].describe());
    let others: Vec<usize> =
        (0..left.images.len()).filter(|disk| !left.victims.contains(disk)).filter(in_use).collect();
    let can_go = spare_disks(&layout.vdevs[0]).max(usize::from(left.paths.len() > layout.disk_count()));
    let gone = &others[..others.len().min(can_go)];
    check_sound(&open(rt, again.devices()).await?).await?;
    let again = Disks::new(rt, layout.shape(), left.images.clone());
    let mos = open(rt, again.devices_but(gone)).await?;
    let text = |error: cenote_fs::FsError| error.to_string();
    let objset = mos.dataset(POOL).await.unwrap().objset().await.map_err(|error| error.to_string())?;
    let fs = Filesystem::open(objset).await.map_err(text)?;
    for (name, expected) in &left.files {
        let entry = fs.lookup(fs.root(), name.as_bytes()).await.map_err(text)?;
        let Some(entry) = entry else { return Err(format!("{name} is gone")) };
        let file = fs.open_file(entry.object).await.map_err(text)?;
        let read =
            file.read(0, file.attr().size).await.map_err(|e| format!("{name}, without {gone:?}: {e}"))?;
        if read[..] != expected[..] {
            return Err(format!("{name} has other content without {gone:?}"));
        }
    }
    Ok(())
}

fn case_of(rng: &mut Rng) -> usize {
    rng.below(CASES.len() as u64) as usize
}

fn run(seed: u64) {
    let mut rng = Rng::stream(seed, 12);
    let (vdev, event) = &CASES[case_of(&mut rng)];
    let layout = Layout { vdevs: vec![vdev.clone()], sector_bytes: 512, spares: 0 };
    let left = simulate(seed, async |rt| History::begin(&rt, &layout, *event, &mut rng).await.run().await);
    let left = left.unwrap_or_else(|why| panic!("{vdev:?} {event:?}: {why}"));
    simulate(seed, async |rt| check(&rt, &layout, &left).await)
        .unwrap_or_else(|why| panic!("{vdev:?} {event:?}: {why}\n{}", left.log.join("\n")));
}

#[test]
fn disks_that_fail_and_lie_while_disks_change_cost_nothing_and_accuse_nobody_else() {
    let runs = number("CENOTE_DEVICE_HISTORIES").unwrap_or(HISTORIES);
    let test = "disks_that_fail_and_lie_while_disks_change_cost_nothing_and_accuse_nobody_else";
    let cases: Vec<usize> = (0..CASES.len()).collect();
    on_kinds(test, runs, &cases, |seed| case_of(&mut Rng::stream(seed, 12)), run);
}

/// Seeds of histories that once failed.
#[test]
fn histories_that_once_failed() {
    // A disk tears the writes of all its configurations and is then taken for a stranger.
    [17_460_869_717_431_136_422, 12_225_269_875_351_578_894, 12_095_209_537_944_351_396]
        .into_iter()
        .for_each(run);
}
