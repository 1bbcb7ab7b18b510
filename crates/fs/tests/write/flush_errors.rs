//! A failed flush is reported once, and its data are lost: no acknowledged write may depend on which caller
//! sees the error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::{ImportOptions, Mos, import};
use cenote_device::{Delayed, Device, Fault, Faulty, Latency, MemoryDevice, Op};
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter};
use cenote_pool::{VdevClass, VdevKind, discover_devices};
use cenote_runtime::{Runtime, SimConfig};

use crate::intent_log::{DISK, Layout, NOW, create_on, empty_filesystem};
use crate::on_disk::POOL;
use crate::scratch::{at, file, noise};

/// Latency of each disk operation.
const WAIT: Duration = Duration::from_millis(10);
const DISK_BYTES: usize = 80 << 20;
const MIRROR: Layout = (VdevClass::Normal, VdevKind::Mirror, 0, 2);
/// A dataset whose log is used while another one's txg is written.
const SMALL: &str = "made/a";

/// A slow disk that loses its cache when a flush fails.
struct Disk {
    memory: Arc<MemoryDevice>,
    faulty: Faulty,
    device: Arc<dyn Device>,
}

impl Disk {
    fn new(rt: &Runtime) -> Disk {
        let memory = Arc::new(MemoryDevice::new("disk", DISK_BYTES));
        let faulty = Faulty::new(memory.clone(), 1);
        let latency = Latency { fixed: WAIT, ..Latency::default() };
        let device = Arc::new(Delayed::new(Arc::new(faulty.clone()), latency, rt));
        Disk { memory, faulty, device }
    }

    fn fail_flush(&self, after: u64) {
        self.faulty.add(Fault::error(Op::Flush).after(after).times(1));
    }

    /// Its contents after a power cut: flushed data, except those lost by a failed flush.
    fn after_power_cut(&self) -> Arc<dyn Device> {
        Arc::new(MemoryDevice::with_content("disk", self.memory.durable_image()))
    }
}

/// A pool with two datasets, a file in each.
struct Stage {
    engine: Engine,
    big: (FsWriter, ObjectId),
    small: (FsWriter, ObjectId),
}

impl Stage {
    async fn new(rt: &Runtime, layout: Layout, disks: &[Disk]) -> Stage {
        let engine = create_on(rt, &[layout], |_, index| disks[index].device.clone()).await;
        cenote_tasks::create_filesystem(&engine, SMALL, Vec::new(), empty_filesystem()).await.unwrap();
        let (big, small) = (with_file(&engine, POOL).await, with_file(&engine, SMALL).await);
        let stage = Stage { engine, big, small };
        stage.write(&stage.small, b"first").await;
        stage.small.0.commit(Some(stage.small.1)).await.unwrap();
        stage.engine.sync_all().await.unwrap();
        stage
    }

    async fn write(&self, (fs, file): &(FsWriter, ObjectId), data: &[u8]) {
        let _hold = self.engine.hold().await.unwrap();
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(2) };
        fs.write(change, *file, 0, Bytes::copy_from_slice(data)).await.unwrap();
    }
}

async fn with_file(engine: &Engine, name: &str) -> (FsWriter, ObjectId) {
    let fs = FsWriter::open(engine.dataset(name).await.unwrap(), FsOptions::default()).await.unwrap();
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    let change = Change { edit: &edit, now: at(1) };
    let made = fs.create(change, fs.root(), b"file", &file(0o644)).await.unwrap();
    drop(edit);
    (fs, made)
}

async fn import_from(rt: &Runtime, device: Arc<dyn Device>) -> Mos {
    let found = discover_devices(vec![device]).await;
    import(rt, &found.pools[0], &ImportOptions::default()).await.unwrap()
}

/// The file of a dataset as of the last txg and the log.
async fn content(mos: &Mos, dataset: &str) -> Vec<u8> {
    let objset = mos.dataset(dataset).await.unwrap().objset().await.unwrap();
    let log = objset.intent_log().await;
    let (fs, _) = Filesystem::open(objset).await.unwrap().replay(&log.records, NOW).await;
    let entry = fs.lookup(fs.root(), b"file").await.unwrap().unwrap();
    let open = fs.open_file(entry.object).await.unwrap();
    let read = open.read(0, open.attr().size).await;
    read.map(|bytes| bytes.to_vec()).unwrap_or_else(|error| error.to_string().into_bytes())
}

/// Commits a log while a txg is written, with a disk that fails the next flush after a while. Returns the
/// acknowledged contents of both files, and whether all later requests succeeded.
async fn commit_beside_txg(rt: &Runtime, stage: &Stage, fail: impl FnOnce(), after_ms: u64) -> Acknowledged {
    let data = noise(5, 4 << 20);
    stage.write(&stage.big, &data).await;
    let engine = stage.engine.clone();
    let syncing = rt.spawn(async move { engine.sync_all().await });
    rt.sleep(Duration::from_millis(after_ms)).await;
    stage.write(&stage.small, b"again").await;
    fail();
    let committed = stage.small.0.commit(Some(stage.small.1)).await;
    let synced = syncing.await.unwrap();
    let mut acknowledged = Acknowledged::from([(SMALL, b"first".to_vec())]);
    if committed.is_ok() {
        acknowledged.insert(SMALL, b"again".to_vec());
    }
    if synced.is_ok() {
        acknowledged.insert(POOL, data);
    }
    acknowledged
}

type Acknowledged = BTreeMap<&'static str, Vec<u8>>;

async fn assert_has(mos: &Mos, acknowledged: &Acknowledged, place: &str) {
    for (dataset, data) in acknowledged {
        let found = content(mos, dataset).await;
        // Unacknowledged data may be there, too.
        let is_newer = *dataset == SMALL && found == b"again";
        assert!(found == *data || is_newer, "{place}: {dataset} is lost");
    }
}

#[test]
fn a_flush_error_that_a_log_is_told_of_is_the_txgs_as_well() {
    let mut stopped = 0;
    for after_ms in (5..100).step_by(15) {
        stopped += Runtime::simulate(SimConfig::default(), move |rt| async move {
            let disk = [Disk::new(&rt)];
            let stage = Stage::new(&rt, DISK, &disk).await;
            let acknowledged = commit_beside_txg(&rt, &stage, || disk[0].fail_flush(0), after_ms).await;
            let is_stopped = stage.engine.sync_all().await.is_err();
            drop(stage);
            let mos = import_from(&rt, disk[0].after_power_cut()).await;
            assert_has(&mos, &acknowledged, &format!("after {after_ms} ms")).await;
            u32::from(is_stopped)
        })
        .0;
    }
    assert!(stopped > 0, "the txg had lost blocks");
}

#[test]
fn a_txg_is_not_acknowledged_if_its_uberblock_is_lost() {
    let mut failed = 0;
    for nth in 0..4 {
        failed += Runtime::simulate(SimConfig::default(), move |rt| async move {
            let disk = [Disk::new(&rt)];
            let stage = Stage::new(&rt, DISK, &disk).await;
            let data = noise(7, 100_000);
            stage.write(&stage.big, &data).await;
            disk[0].fail_flush(nth);
            let synced = stage.engine.sync_all().await;
            drop(stage);
            let mos = import_from(&rt, disk[0].after_power_cut()).await;
            let found = content(&mos, POOL).await;
            assert!(synced.is_err() || found == data, "flush {nth}: acknowledged, and lost");
            u32::from(synced.is_err())
        })
        .0;
    }
    assert_eq!(failed, 2, "a txg has two flushes: of its blocks, and of its uberblock");
}

#[test]
fn a_mirror_side_that_lost_a_flush_is_whole_after_a_resilver() {
    for after_ms in (5..100).step_by(15) {
        Runtime::simulate(SimConfig::default(), move |rt| async move {
            let disks = [Disk::new(&rt), Disk::new(&rt)];
            let stage = Stage::new(&rt, MIRROR, &disks).await;
            let fail = || disks[0].fail_flush(0);
            let acknowledged = commit_beside_txg(&rt, &stage, fail, after_ms).await;
            assert_eq!(acknowledged.len(), 2, "the other side has all");
            assert!(!stage.engine.pool().lacking().all().is_empty());
            stage.engine.sync_all().await.unwrap();
            let scanned = cenote_tasks::run_scan(&stage.engine, &|_| {}).await.unwrap();
            assert_eq!((scanned.complete.len(), scanned.errors), (1, 0), "{scanned:?}");
            stage.engine.sync_all().await.unwrap();
            drop(stage);
            // The power fails, and the other disk breaks.
            let mos = import_from(&rt, disks[0].after_power_cut()).await;
            assert_has(&mos, &acknowledged, &format!("after {after_ms} ms")).await;
        });
    }
}

/// Fails any flush of a run, including a resilver's, and cuts the power at its end.
#[test]
fn whichever_flush_fails_nothing_acknowledged_is_lost() {
    for (layout, disks) in [(DISK, 1), (MIRROR, 2)] {
        for nth in 0..16 {
            let layout = layout.clone();
            Runtime::simulate(SimConfig::default(), move |rt| async move {
                let place = format!("{layout:?} flush {nth}");
                let disks: Vec<Disk> = (0..disks).map(|_| Disk::new(&rt)).collect();
                let stage = Stage::new(&rt, layout, &disks).await;
                disks[0].fail_flush(nth);
                let mut acknowledged = Acknowledged::new();
                for round in 0..4_u64 {
                    let (data, text) = (noise(round, 300_000), format!("round {round}").into_bytes());
                    if stage.engine.hold().await.is_err() {
                        break;
                    }
                    stage.write(&stage.big, &data).await;
                    stage.write(&stage.small, &text).await;
                    if stage.small.0.commit(Some(stage.small.1)).await.is_ok() {
                        acknowledged.insert(SMALL, text);
                    }
                    if stage.engine.sync_all().await.is_ok() {
                        acknowledged.insert(POOL, data);
                    }
                }
                let is_mirror = disks.len() > 1;
                if is_mirror {
                    drop(cenote_tasks::run_scan(&stage.engine, &|_| {}).await.unwrap());
                    stage.engine.sync_all().await.unwrap();
                    if !stage.engine.pool().lacking().behind().is_empty() {
                        // After a failed flush the next resilver completes it.
                        drop(cenote_tasks::run_scan(&stage.engine, &|_| {}).await.unwrap());
                        stage.engine.sync_all().await.unwrap();
                    }
                    assert!(stage.engine.pool().lacking().behind().is_empty(), "flush {nth}");
                }
                drop(stage);
                let mos = import_from(&rt, disks[0].after_power_cut()).await;
                for (dataset, data) in &acknowledged {
                    let found = content(&mos, dataset).await;
                    let is_later = *dataset == SMALL && found > *data;
                    assert!(found == *data || is_later, "{place}: {dataset} is lost");
                }
            });
        }
    }
}
