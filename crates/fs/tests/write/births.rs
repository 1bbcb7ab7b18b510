//! Blocks that gain owners after they were written: clones and deduplicated blocks, during a resilver and
//! under a checkpoint. Such a pointer is younger than its block; missing copies and checkpoints depend on the
//! block's birth.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::{ImportOptions, Value, import};
use cenote_device::{Delayed, Device, Latency, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{BlockId, Guid, ObjectId, VdevId};
use cenote_fs::write::CloneSource;
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter};
use cenote_pool::create::NewDevice;
use cenote_pool::{FoundDevice, discover_devices};
use cenote_runtime::{Runtime, SimConfig};
use cenote_tasks::{Away, Back, Resilver, attach, bring_back, detach, run_scan, take_checkpoint, take_out};

use crate::intent_log::{DISK, create_on};
use crate::on_disk::POOL;
use crate::scratch::{at, file, noise};

const RECORD: u64 = 128 << 10;
const FILE: u64 = 16 * RECORD;
const DISK_BYTES: usize = 192 << 20;
/// `dedup=sha256`.
const SHA256: u64 = 8;

/// A pool of one disk, with a file system; others join.
struct World {
    rt: Runtime,
    old: Arc<MemoryDevice>,
    engine: Engine,
    fs: FsWriter,
}

impl World {
    async fn new(rt: &Runtime) -> World {
        let old = Arc::new(MemoryDevice::new("old", DISK_BYTES));
        // Forces a resilver into several slices.
        let latency = Latency { fixed: Duration::from_micros(300), ..Latency::default() };
        let slow: Arc<dyn Device> = Arc::new(Delayed::new(old.clone() as Arc<dyn Device>, latency, rt));
        let engine = create_on(rt, &[DISK], |_, _| slow.clone()).await;
        let fs = FsWriter::open(engine.dataset(POOL).await.unwrap(), FsOptions::default()).await.unwrap();
        World { rt: rt.clone(), old, engine, fs }
    }

    async fn change<T>(&self, act: impl AsyncFnOnce(&FsWriter, Change<'_>) -> T) -> T {
        let _hold = self.engine.hold().await.unwrap();
        let edit = self.fs.live().edit();
        act(&self.fs, Change { edit: &edit, now: at(2) }).await
    }

    async fn id(&self, name: &str) -> ObjectId {
        if let Some(entry) = self.fs.lookup(self.fs.root(), name.as_bytes()).await.unwrap() {
            return entry.object;
        }
        self.change(async |fs, change| fs.create(change, fs.root(), name.as_bytes(), &file(0o644)).await)
            .await
            .unwrap()
    }

    async fn write(&self, name: &str, data: &[u8]) {
        let (id, data) = (self.id(name).await, Bytes::copy_from_slice(data));
        self.change(async |fs, change| fs.write(change, id, 0, data).await).await.unwrap();
    }

    async fn clone_file(&self, from: &str, to: &str) {
        let (from, to) = (self.id(from).await, self.id(to).await);
        let clone = async |fs: &FsWriter, change: Change<'_>| {
            fs.clone_range(change, CloneSource::Live(fs), (from, 0), (to, 0), FILE).await
        };
        assert_eq!(self.change(clone).await.unwrap(), FILE);
    }

    async fn remove(&self, name: &str) {
        let remove = async |fs: &FsWriter, change: Change<'_>| {
            let gone = fs.unlink(change, fs.root(), name.as_bytes()).await.unwrap().unwrap();
            assert!(fs.free_unlinked(change, gone).await.unwrap());
        };
        self.change(remove).await;
    }

    async fn sync(&self) {
        self.engine.sync_all().await.unwrap();
    }

    async fn pointers(&self, name: &str) -> Vec<Blkptr> {
        let opened = self.fs.live().on_disk().object(self.id(name).await).await.unwrap();
        let mut all = Vec::new();
        for block in 0..=opened.dnode().max_block_id.0 {
            all.push(opened.blkptr(0, BlockId(block)).await.unwrap());
        }
        all
    }

    fn disk(&self) -> Guid {
        let top = self.engine.pool().tree().vdevs().top(VdevId(0)).cloned().unwrap();
        top.children.first().map_or(top.guid, |first| first.guid)
    }

    /// Another disk joins the first one; nothing is copied to it yet.
    async fn join(&self, device: Arc<dyn Device>) {
        let new = NewDevice { path: device.describe().to_owned(), device, is_file: false };
        attach(&self.engine, self.disk(), new, Resilver::Healing).await.unwrap();
    }

    /// Resilvers in small slices until past a file, but not to the end.
    async fn resilver_past(&self, name: &str) {
        let (dataset, object) = (self.fs.live().dataset_id(), self.id(name).await);
        self.set("zfs_resilver_min_time_ms", 1);
        loop {
            self.set("zfs_scan_suspend_progress", 0);
            let engine = self.engine.clone();
            let stop = move |_| engine.background().settings().set("zfs_scan_suspend_progress", 1).unwrap();
            run_scan(&self.engine, &stop).await.unwrap();
            let scan = self.engine.mos().await.unwrap().scan_status().await.unwrap().unwrap();
            assert!(scan.is_running() && scan.is_resilver(), "it has ended");
            if scan.bookmark.dataset == dataset && scan.bookmark.object > object {
                return;
            }
        }
    }

    async fn come_back(&self, leaf: Guid, disk: Arc<MemoryDevice>) {
        let devices = BTreeMap::from([(leaf, FoundDevice::new(disk as Arc<dyn Device>))]);
        bring_back(&self.engine, Some(leaf), Back::Online, devices).await.unwrap();
    }

    async fn resilver(&self) {
        self.set("zfs_scan_suspend_progress", 0);
        let done = run_scan(&self.engine, &|_| {}).await.unwrap();
        assert!(done.incomplete.is_empty() && done.errors == 0, "{done:?}");
        assert!(self.engine.pool().lacking().behind().is_empty());
    }

    fn set(&self, name: &str, value: u64) {
        self.engine.background().settings().set(name, value).unwrap();
    }

    /// A file's content, read from one disk alone.
    async fn content_on(
        &self,
        disk: &Arc<MemoryDevice>,
        name: &str,
        checkpoint: bool,
    ) -> Result<Vec<u8>, String> {
        let found = discover_devices(vec![disk.clone() as Arc<dyn Device>]).await;
        let options = ImportOptions { checkpoint, ..ImportOptions::default() };
        let mos = import(&self.rt, &found.pools[0], &options).await.map_err(|error| error.to_string())?;
        let objset = mos.dataset(POOL).await.unwrap().objset().await.map_err(|error| error.to_string())?;
        let fs = Filesystem::open(objset).await.map_err(|error| error.to_string())?;
        let entry = fs.lookup(fs.root(), name.as_bytes()).await.map_err(|error| error.to_string())?;
        let open = fs.open_file(entry.unwrap().object).await.map_err(|error| error.to_string())?;
        open.read(0, open.attr().size).await.map(|data| data.to_vec()).map_err(|error| error.to_string())
    }

    async fn assert_on(&self, disk: &Arc<MemoryDevice>, name: &str, checkpoint: bool, expected: &[u8]) {
        match self.content_on(disk, name, checkpoint).await {
            Ok(found) => assert!(found == expected, "{name} has other content"),
            Err(why) => panic!("{name} is lost: {why}"),
        }
    }
}

fn simulate<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    Runtime::simulate(SimConfig::default(), |rt| async move { test(World::new(&rt).await).await });
}

fn memory(name: &str) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(name, DISK_BYTES))
}

#[test]
fn a_checkpoint_keeps_blocks_whose_last_owner_was_a_later_clone() {
    simulate(async |world| {
        let old = noise(11, FILE as usize);
        world.write("a", &old).await;
        world.sync().await;
        let blocks = world.pointers("a").await;
        take_checkpoint(&world.engine).await.unwrap();
        world.clone_file("a", "b").await;
        world.sync().await;
        for name in ["a", "b"] {
            world.remove(name).await;
            world.sync().await;
        }
        for _ in 0..4 {
            world.engine.force_sync().await.unwrap();
        }
        for dva in blocks.iter().flat_map(Blkptr::dvas) {
            let range = (dva.offset_bytes, dva.offset_bytes + dva.asize.0);
            let in_use = world.engine.allocator().in_use(VdevId(0), range.0, range.1);
            assert_eq!(in_use.total_bytes(), dva.asize.0, "{dva:?} was given away");
        }
        world.assert_on(&world.old, "a", true, &old).await;
    });
}

#[test]
fn a_clone_made_during_a_resilver_is_on_the_new_disk_although_its_source_went() {
    simulate(async |world| {
        let old = noise(11, FILE as usize);
        world.write("a", &old).await;
        world.sync().await;
        let new = memory("new");
        world.join(new.clone()).await;
        // Later than the last txg that the new disk lacks.
        for _ in 0..6 {
            world.engine.force_sync().await.unwrap();
        }
        world.clone_file("a", "b").await;
        world.sync().await;
        world.remove("a").await;
        world.sync().await;
        world.resilver().await;
        detach(&world.engine, world.disk()).await.unwrap();
        world.sync().await;
        world.assert_on(&new, "b", false, &old).await;
    });
}

/// The file "b" is empty and comes first, "a" is full and comes last. A new disk joins, and its resilver is
/// between them.
async fn between_two_files(world: &World) -> (Arc<MemoryDevice>, Vec<u8>) {
    let old = noise(11, FILE as usize);
    world.id("b").await;
    for n in 0..40 {
        world.write(&format!("file{n}"), &noise(100 + n, 3 * RECORD as usize)).await;
    }
    world.write("a", &old).await;
    world.sync().await;
    let new = memory("new");
    world.join(new.clone()).await;
    world.resilver_past("b").await;
    (new, old)
}

#[test]
fn a_clone_into_what_a_resilver_has_passed_is_on_the_new_disk() {
    simulate(async |world| {
        let (new, old) = between_two_files(&world).await;
        world.clone_file("a", "b").await;
        world.sync().await;
        world.remove("a").await;
        world.sync().await;
        world.resilver().await;
        world.assert_on(&new, "b", false, &old).await;
    });
}

#[test]
fn a_deduplicated_block_is_on_the_new_disk_although_its_first_owner_went() {
    simulate(async |world| {
        let dedup = Value::Number(SHA256);
        cenote_tasks::set_property(&world.engine, POOL, "dedup", dedup).await.unwrap();
        let (new, old) = between_two_files(&world).await;
        world.write("b", &old).await;
        world.sync().await;
        assert!(world.pointers("b").await.iter().all(|bp| bp.physical_birth().txg() < bp.logical_birth()));
        world.remove("a").await;
        world.sync().await;
        world.resilver().await;
        world.assert_on(&new, "b", false, &old).await;
    });
}

#[test]
fn a_clone_made_before_its_disk_is_resilvered_is_brought_to_it() {
    simulate(async |world| {
        let back = memory("new");
        world.join(back.clone()).await;
        world.resilver().await;
        let mirror = world.engine.pool().tree().vdevs().top(VdevId(0)).cloned().unwrap();
        let away = mirror.children[1].guid;
        take_out(&world.engine, away, Away::Offline).await.unwrap();
        let old = noise(11, FILE as usize);
        world.write("a", &old).await;
        world.sync().await;
        world.set("zfs_scan_suspend_progress", 1);
        world.come_back(away, back.clone()).await;
        for _ in 0..6 {
            world.engine.force_sync().await.unwrap();
        }
        world.clone_file("a", "b").await;
        world.sync().await;
        world.remove("a").await;
        world.sync().await;
        world.resilver().await;
        world.assert_on(&back, "b", false, &old).await;
    });
}

#[test]
fn a_checkpoint_taken_during_a_resilver_is_on_the_new_disk() {
    simulate(async |world| {
        let (new, old) = between_two_files(&world).await;
        take_checkpoint(&world.engine).await.unwrap();
        world.remove("a").await;
        world.sync().await;
        world.resilver().await;
        world.sync().await;
        world.assert_on(&new, "a", true, &old).await;
    });
}
