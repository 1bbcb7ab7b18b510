//! A pool, its model, and one operation after the other on both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::Value;
use cenote_device::{Delayed, Device, Latency};
use cenote_engine::Engine;
use cenote_format::scan::ScanPhys;
use cenote_format::units::{Guid, ObjectId, Txg, VdevId};
use cenote_fs::write::{CloneSource, NewFile, NewKind};
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter, Refusal};
use cenote_pool::create::NewDevice;
use cenote_pool::{FoundDevice, VdevConfig};
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::{
    Away, Back, Expanded, InUse, Removed, Resilver, attach, attach_to_raidz, bring_back, clone_snapshot,
    create_filesystem, destroy_dataset, destroy_snapshots, discard_checkpoint, expansion, promote,
    rebuilding, removing_vdev, replace, rollback, run_expansion, run_rebuild, run_removal, run_scan,
    set_property, snapshot, start_removal, start_scrub, take_checkpoint, take_out,
};
use cenote_testkit::image::Image;

use super::end::{Left, number};
use super::{Event, Files, State};
use crate::journal::JournaledDisk;
use crate::pools::{Disks, Layout, POOL, change, create, fill, now, opened};

/// Operations before the disks change; most operations between two slices of the change; most slices.
const STEPS_BEFORE: usize = 40;
const STEPS_A_SLICE: u64 = 14;
const SLICES: usize = 24;

const RECORD: usize = 4096;
/// Different records: few, so that many are equal.
const RECORDS: u64 = 24;
const MOST_RECORDS: u64 = 10;
const NAMES: u64 = 10;
const MOST_HEADS: usize = 6;
/// `dedup=sha256`.
const SHA256: u64 = 8;

pub struct History {
    rt: Runtime,
    rng: Rng,
    disks: Disks,
    engine: Engine,
    event: Event,
    state: State,
    checkpoint: Option<State>,
    snapshots: u64,
    heads: u64,
    log: Vec<String>,
}

impl History {
    pub async fn begin(rt: &Runtime, layout: &Layout, event: Event, rng: &mut Rng) -> History {
        let (shape, count) = (layout.shape(), layout.disk_count());
        let disks = Disks::new(rt, shape, vec![Image::new(shape.size_bytes); count + 1]);
        let slow: Vec<_> = disks.disks[..count].iter().map(|disk| slow(rt, disk)).collect();
        let engine = create(rt, layout, &slow).await;
        for (name, value) in [("zfs_resilver_min_time_ms", 1), ("zfs_scrub_min_time_ms", 1)] {
            engine.background().settings().set(name, value).unwrap();
        }
        engine.background().settings().set("zfs_remove_max_segment", 16 << 10).unwrap();
        engine.frees().set_per_txg(20 + rng.below(200));
        if rng.below(2) == 0 {
            set_property(&engine, POOL, "dedup", Value::Number(SHA256)).await.unwrap();
        }
        let state = State { heads: BTreeMap::from([(POOL.into(), Files::new())]), ..State::default() };
        let (rt, rng) = (rt.clone(), Rng::new(rng.next_u64()));
        let (checkpoint, log) = Default::default();
        History { rt, rng, disks, engine, event, state, checkpoint, snapshots: 0, heads: 0, log }
    }

    pub async fn run(mut self) -> Left {
        for _ in 0..3 {
            self.make_head().await;
        }
        for _ in 0..STEPS_BEFORE {
            self.step().await;
        }
        self.begin_event().await;
        for _ in 0..SLICES {
            for _ in 0..self.rng.below(STEPS_A_SLICE) {
                self.step().await;
            }
            if self.slice().await {
                break;
            }
        }
        self.end_event().await;
        self.engine.sync_all().await.unwrap();
        let images = self.disks.images();
        Left { images, state: self.state, checkpoint: self.checkpoint, log: self.log }
    }

    fn say(&mut self, what: impl Into<String>) {
        self.log.push(what.into());
    }

    async fn step(&mut self) {
        match self.rng.below(24) {
            0..=4 => self.write().await,
            5..=13 => self.clone_file().await,
            14 => self.remove().await,
            15 => self.take_snapshot().await,
            16..=17 => self.destroy_snapshot().await,
            18 => self.clone_head().await,
            19 => self.promote().await,
            20 => self.roll_back().await,
            21 => self.destroy_head().await,
            22 => self.change_checkpoint().await,
            _ => self.sync().await,
        }
        if self.rng.below(3) == 0 {
            self.sync().await;
        }
    }

    async fn sync(&mut self) {
        self.engine.sync_all().await.unwrap();
        self.say("sync");
    }
}

/// Files.
impl History {
    fn any_head(&mut self) -> String {
        let pick = self.rng.below(self.state.heads.len() as u64) as usize;
        self.state.heads.keys().nth(pick).unwrap().clone()
    }

    async fn opened(&self, head: &str) -> FsWriter {
        opened(&self.engine, head, RECORD as u32).await
    }

    async fn change<T>(&self, fs: &FsWriter, act: impl AsyncFnOnce(Change<'_>) -> T) -> T {
        change(&self.engine, fs, act).await
    }

    async fn id_in(&self, fs: &FsWriter, name: &str) -> ObjectId {
        if let Some(entry) = fs.lookup(fs.root(), name.as_bytes()).await.unwrap() {
            return entry.object;
        }
        let new = NewFile { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
        self.change(fs, async |change| fs.create(change, fs.root(), name.as_bytes(), &new).await)
            .await
            .unwrap()
    }

    async fn write(&mut self) {
        let (head, name) = (self.any_head(), format!("f{}", self.rng.below(NAMES)));
        let fs = self.opened(&head).await;
        let id = self.id_in(&fs, &name).await;
        let at = self.rng.below(MOST_RECORDS) as usize * RECORD;
        let records = 1 + self.rng.below(4);
        let data: Vec<u8> = (0..records).flat_map(|_| record(self.rng.below(RECORDS))).collect();
        let bytes = Bytes::from(data.clone());
        self.change(&fs, async |change| fs.write(change, id, at as u64, bytes).await).await.unwrap();
        self.say(format!("write {records} records of {head}/{name} at {at}"));
        let file = Arc::make_mut(self.state.heads.get_mut(&head).unwrap().entry(name).or_default());
        file.resize(file.len().max(at + data.len()), 0);
        file[at..at + data.len()].copy_from_slice(&data);
    }

    /// Removes a file, if it is there.
    async fn unlink(&mut self, head: &str, name: &str) {
        if self.state.heads.get_mut(head).unwrap().remove(name).is_none() {
            return;
        }
        let fs = self.opened(head).await;
        let unlink = async |change: Change<'_>| {
            let gone = fs.unlink(change, fs.root(), name.as_bytes()).await.unwrap().unwrap();
            assert!(fs.free_unlinked(change, gone).await.unwrap());
        };
        self.change(&fs, unlink).await;
        self.say(format!("remove {head}/{name}"));
    }

    async fn remove(&mut self) {
        let (head, name) = (self.any_head(), format!("f{}", self.rng.below(NAMES)));
        self.unlink(&head, &name).await;
    }

    /// Clones a file of a file system or snapshot to a new one; then its source may be removed.
    async fn clone_file(&mut self) {
        let (to, new) = (self.any_head(), format!("f{}", self.rng.below(NAMES)));
        let source = match self.rng.below(4) {
            0 => self.any_snapshot().await,
            _ => None,
        };
        let from = source.unwrap_or_else(|| self.any_head());
        let files = match number(&from) {
            Some(number) => &self.state.snapshots[&number],
            None => &self.state.heads[&from],
        };
        if files.is_empty() {
            return;
        }
        let (name, content) = files.iter().nth(self.rng.below(files.len() as u64) as usize).unwrap();
        let (name, content) = (name.clone(), content.clone());
        if (&from, &name) == (&to, &new) {
            return;
        }
        self.unlink(&to, &new).await;
        let mut is_done = self.clone_to((&from, &name), (&to, &new), content.len() as u64).await;
        if is_done == Err(Some(Refusal::Again)) {
            self.sync().await;
            is_done = self.clone_to((&from, &name), (&to, &new), content.len() as u64).await;
        }
        self.say(format!("clone {from}/{name} to {to}/{new}: {is_done:?}"));
        let content = if is_done.is_ok() { content } else { Arc::default() };
        self.state.heads.get_mut(&to).unwrap().insert(new, content);
        if self.rng.below(4) > 0 && number(&from).is_none() {
            if self.rng.below(2) == 0 {
                self.sync().await;
            }
            self.unlink(&from, &name).await;
        }
    }

    async fn clone_to(
        &self,
        (from, name): (&str, &str),
        (to, new): (&str, &str),
        len: u64,
    ) -> Result<(), Option<Refusal>> {
        let fs = self.opened(to).await;
        let to = self.id_in(&fs, new).await;
        let clone = async |origin: CloneSource<'_>, source: ObjectId| {
            let clone =
                async |change: Change<'_>| fs.clone_range(change, origin, (source, 0), (to, 0), len).await;
            match self.change(&fs, clone).await {
                Ok(done) => {
                    assert_eq!(done, len);
                    Ok(())
                }
                Err(error) => Err(error.refusal()),
            }
        };
        if number(from).is_none() {
            // A file system is opened once, even if both source and target.
            let other = self.opened(from).await;
            let is_same = other.live().dataset_id() == fs.live().dataset_id();
            let origin = if is_same { &fs } else { &other };
            let source = self.id_in(origin, name).await;
            return clone(CloneSource::Live(origin), source).await;
        }
        let (dataset, snapshot) = self.engine.snapshot(from).await.unwrap();
        let held = snapshot.hold().unwrap();
        let snapshot = Filesystem::open(dataset.objset().await.unwrap()).await.unwrap();
        let source = snapshot.lookup(snapshot.root(), name.as_bytes()).await.unwrap().unwrap().object;
        clone(CloneSource::Snapshot(&snapshot, &held), source).await
    }
}

/// Datasets. A task that refuses changes nothing.
impl History {
    async fn make_head(&mut self) {
        self.heads += 1;
        let (name, at) = (format!("{POOL}/h{}", self.heads), now(&self.rt));
        let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
            Box::pin(fill(live, at, FsOptions::default()))
        });
        create_filesystem(&self.engine, &name, Vec::new(), fill).await.unwrap();
        self.say(format!("create {name}"));
        self.state.heads.insert(name, Files::new());
    }

    /// The name of a snapshot.
    async fn any_snapshot(&mut self) -> Option<String> {
        let mut names = Vec::new();
        for head in self.engine.mos().await.unwrap().all_datasets().await.unwrap() {
            let snapshots = head.snapshots().await.unwrap();
            names.extend(snapshots.iter().map(|snapshot| snapshot.name().to_owned()));
        }
        let pick = self.rng.below(names.len() as u64) as usize;
        names.get(pick).cloned()
    }

    async fn take_snapshot(&mut self) {
        let head = self.any_head();
        self.snapshots += 1;
        let name = format!("{head}@s{}", self.snapshots);
        snapshot(&self.engine, std::slice::from_ref(&name)).await.unwrap();
        self.say(format!("snapshot {name}"));
        self.state.snapshots.insert(self.snapshots, self.state.heads[&head].clone());
    }

    async fn destroy_snapshot(&mut self) {
        let Some(name) = self.any_snapshot().await else { return };
        let done = destroy_snapshots(&self.engine, std::slice::from_ref(&name), InUse::Refuse).await;
        self.say(format!("destroy {name}: {}", done.is_ok()));
        if done.is_ok() {
            self.state.snapshots.remove(&number(&name).unwrap());
        }
    }

    async fn clone_head(&mut self) {
        if self.state.heads.len() >= MOST_HEADS {
            return;
        }
        let Some(origin) = self.any_snapshot().await else { return };
        self.heads += 1;
        let name = format!("{POOL}/h{}", self.heads);
        clone_snapshot(&self.engine, &origin, &name, Vec::new()).await.unwrap();
        self.say(format!("clone {origin} to {name}"));
        self.state.heads.insert(name, self.state.snapshots[&number(&origin).unwrap()].clone());
    }

    async fn promote(&mut self) {
        let head = self.any_head();
        let done = promote(&self.engine, &head).await;
        self.say(format!("promote {head}: {}", done.is_ok()));
    }

    async fn roll_back(&mut self) {
        let Some(name) = self.any_snapshot().await else { return };
        self.sync().await;
        let done = rollback(&self.engine, &name).await;
        self.say(format!("rollback {name}: {}", done.is_ok()));
        if done.is_ok() {
            let files = self.state.snapshots[&number(&name).unwrap()].clone();
            self.state.heads.insert(name.split_once('@').unwrap().0.into(), files);
        }
    }

    async fn destroy_head(&mut self) {
        let head = self.any_head();
        if head == POOL {
            return;
        }
        let done = destroy_dataset(&self.engine, &head).await;
        self.say(format!("destroy {head}: {}", done.is_ok()));
        if done.is_ok() {
            self.state.heads.remove(&head);
        }
    }

    async fn change_checkpoint(&mut self) {
        if self.checkpoint.is_some() {
            if self.rng.below(3) == 0 {
                discard_checkpoint(&self.engine).await.unwrap();
                self.say("discard the checkpoint");
                self.checkpoint = None;
            }
            return;
        }
        let done = take_checkpoint(&self.engine).await;
        self.say(format!("checkpoint: {}", done.is_ok()));
        self.checkpoint = done.is_ok().then(|| self.state.clone());
    }
}

/// The disks.
impl History {
    fn new_device(&self) -> NewDevice {
        let device = slow(&self.rt, self.disks.disks.last().unwrap());
        NewDevice { path: device.describe().to_owned(), device, is_file: false }
    }

    fn first_leaf(&self) -> Guid {
        let path = self.disks.disks[0].describe();
        let config = self.engine.pool().tree().config();
        let mut leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
        leaves.find(|leaf| leaf.path.as_deref() == Some(path)).unwrap().guid
    }

    async fn begin_event(&mut self) {
        if self.checkpoint.take().is_some() {
            discard_checkpoint(&self.engine).await.unwrap();
        }
        self.say(format!("{:?} ...", self.event));
        let (engine, new, first) = (self.engine.clone(), self.new_device(), self.first_leaf());
        let resilver = match self.event {
            Event::IsRebuilt => Resilver::Sequential,
            _ => Resilver::Healing,
        };
        match self.event {
            Event::Joins | Event::IsRebuilt => {
                match engine.pool().tree().vdevs().tops().next().unwrap().is_leaf() {
                    true => attach(&engine, first, new, resilver).await.unwrap(),
                    false => replace(&engine, first, new, resilver).await.unwrap(),
                }
            }
            Event::IsAway => {
                take_out(&engine, first, Away::Offline).await.unwrap();
                for _ in 0..STEPS_BEFORE / 2 {
                    self.step().await;
                }
                let disk = slow(&self.rt, &self.disks.disks[0]);
                let devices = BTreeMap::from([(first, FoundDevice::new(disk))]);
                bring_back(&engine, Some(first), Back::Online, devices).await.unwrap();
                self.say("the disk is back");
            }
            Event::Leaves => start_removal(&engine, VdevId(0)).await.unwrap(),
            Event::Grows => attach_to_raidz(&engine, VdevId(0), new).await.unwrap(),
            Event::IsScrubbed => start_scrub(&engine, Txg(0)).await.unwrap(),
        }
    }

    /// Runs the change of the disks one slice further; returns whether it is over.
    async fn slice(&mut self) -> bool {
        let (engine, stopped) = (self.engine.clone(), self.engine.clone());
        let set = move |name: &str, value| engine.background().settings().set(name, value).unwrap();
        let engine = stopped;
        match self.event {
            Event::Leaves => {
                set("zfs_removal_suspend_progress", 0);
                let times = std::sync::atomic::AtomicUsize::new(0);
                let stop = |_| {
                    if times.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 {
                        set("zfs_removal_suspend_progress", 1);
                    }
                };
                run_removal(&engine, &stop).await.unwrap();
            }
            Event::Grows => {
                let mos = engine.mos().await.unwrap();
                let so_far = expansion(&engine, &mos).await.unwrap();
                let most = so_far.map_or(1, |progress| progress.done_bytes) + (64 << 10);
                set("raidz_expand_max_reflow_bytes", most);
                run_expansion(&engine, &|_| {}).await.unwrap();
            }
            Event::Joins | Event::IsRebuilt | Event::IsAway | Event::IsScrubbed => {
                let stop = |_| set("zfs_scan_suspend_progress", 1);
                set("zfs_scan_suspend_progress", 0);
                run_rebuild(&engine, &stop).await.unwrap();
                if !engine.background().settings().is_suspended() {
                    run_scan(&engine, &stop).await.unwrap();
                }
            }
        }
        let mos = engine.mos().await.unwrap();
        let scan = mos.scan_status().await.unwrap();
        let is_scanning = scan.as_ref().is_some_and(ScanPhys::is_running);
        let is_changing = !rebuilding(&mos).await.unwrap().is_empty()
            || removing_vdev(&mos).await.unwrap().is_some()
            || expansion(&engine, &mos).await.unwrap().is_some();
        let scan = scan.map(|scan| (scan.state, scan.bookmark.dataset, scan.bookmark.object));
        self.say(format!("  a slice; the scan is at {scan:?}"));
        !is_changing && !is_scanning
    }

    async fn end_event(&mut self) {
        let engine = &self.engine;
        for (name, value) in [
            ("zfs_removal_suspend_progress", 0),
            ("raidz_expand_max_reflow_bytes", 0),
            ("zfs_scan_suspend_progress", 0),
        ] {
            engine.background().settings().set(name, value).unwrap();
        }
        run_rebuild(engine, &|_| {}).await.unwrap();
        assert_eq!(run_expansion(engine, &|_| {}).await.unwrap(), Expanded::Done);
        assert_eq!(run_removal(engine, &|_| {}).await.unwrap(), Removed::Done);
        let scanned = run_scan(engine, &|_| {}).await.unwrap();
        assert!(scanned.incomplete.is_empty() && scanned.errors == 0, "{scanned:?}\n{}", self.log.join("\n"));
        assert!(engine.pool().lacking().behind().is_empty());
        self.say("... is done");
    }
}

/// A disk on which an operation takes as long as a slice of a scan, so that each slice makes one step.
fn slow(rt: &Runtime, disk: &Arc<JournaledDisk>) -> Arc<dyn Device> {
    let latency = Latency { fixed: Duration::from_millis(1), ..Latency::default() };
    Arc::new(Delayed::new(disk.clone() as Arc<dyn Device>, latency, rt))
}

fn record(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    (0..RECORD / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}
