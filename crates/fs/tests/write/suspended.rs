//! Devices that fail beyond redundancy for a while: the pool waits, then continues.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::{ImportOptions, Mos, import};
use cenote_device::{Device, Fault, Faulty, MemoryDevice, Op};
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter};
use cenote_object::DatasetError;
use cenote_pool::VdevClass::{Log, Normal};
use cenote_pool::VdevKind::{Disk, Mirror, Raidz};
use cenote_pool::{FailMode, discover_devices};
use cenote_runtime::{JoinHandle, Runtime, SimConfig};

use crate::intent_log::{Layout, create_on};
use crate::on_disk::{POOL, assert_zdb_is_content};
use crate::scratch::{at, file, noise};

const DISK_BYTES: usize = 80 << 20;
const SECOND: Duration = Duration::from_secs(1);

struct Disks(Vec<(Arc<MemoryDevice>, Faulty)>);

impl Disks {
    fn new(count: usize) -> Disks {
        let disk = |index| {
            let memory = Arc::new(MemoryDevice::new(&format!("disk{index}"), DISK_BYTES));
            (memory.clone(), Faulty::new(memory, 1))
        };
        Disks((0..count).map(disk).collect())
    }

    fn fail(&self, ops: &[Op]) {
        for (_, faulty) in &self.0 {
            ops.iter().for_each(|op| _ = faulty.add(Fault::error(*op)));
        }
    }

    fn heal(&self) {
        self.0.iter().for_each(|(_, faulty)| faulty.heal());
    }

    /// `zdb` accepts their contents.
    fn ask_zdb(&self) {
        let folder = tempfile::tempdir().unwrap();
        for (memory, _) in &self.0 {
            std::fs::write(folder.path().join(memory.describe()), memory.durable_image()).unwrap();
        }
        assert_zdb_is_content(folder.path());
    }

    /// The pool after a power cut.
    async fn cut(&self, rt: &Runtime) -> Mos {
        let cut = |(memory, _): &(Arc<MemoryDevice>, Faulty)| {
            Arc::new(MemoryDevice::with_content(memory.describe(), memory.durable_image())) as Arc<dyn Device>
        };
        let found = discover_devices(self.0.iter().map(cut).collect()).await;
        import(rt, &found.pools[0], &ImportOptions::default()).await.unwrap()
    }
}

/// A pool with a file, all on disk.
struct Stage {
    engine: Engine,
    fs: FsWriter,
    object: ObjectId,
}

impl Stage {
    async fn new(rt: &Runtime, layout: &[Layout], disks: &Disks, mode: Option<FailMode>) -> Stage {
        let mut first = Vec::new();
        let mut count = 0;
        for (.., of_vdev) in layout {
            first.push(count);
            count += of_vdev;
        }
        let device =
            |vdev: usize, index: usize| Arc::new(disks.0[first[vdev] + index].1.clone()) as Arc<dyn Device>;
        let engine = create_on(rt, layout, device).await;
        engine.pool().suspension().set_failmode(mode);
        let fs = FsWriter::open(engine.dataset(POOL).await.unwrap(), FsOptions::default()).await.unwrap();
        let object = {
            let _hold = engine.hold().await.unwrap();
            let edit = fs.live().edit();
            let change = Change { edit: &edit, now: at(1) };
            fs.create(change, fs.root(), b"file", &file(0o644)).await.unwrap()
        };
        let stage = Stage { engine, fs, object };
        stage.write(0, 1).await;
        stage.engine.sync_all().await.unwrap();
        stage
    }

    /// Writes the txg in the background.
    fn sync_aside(&self, rt: &Runtime) -> JoinHandle<Result<(), DatasetError>> {
        let engine = self.engine.clone();
        rt.spawn(async move { engine.sync_all().await })
    }

    async fn write(&self, at_mib: u64, seed: u64) {
        let _hold = self.engine.hold().await.unwrap();
        let edit = self.fs.live().edit();
        let change = Change { edit: &edit, now: at(2) };
        let data = Bytes::from(noise(seed, 1 << 20));
        self.fs.write(change, self.object, at_mib << 20, data).await.unwrap();
    }
}

async fn assert_has(mos: &Mos, parts: &[(u64, u64)], place: &str) {
    let fs = Filesystem::open(mos.dataset(POOL).await.unwrap().objset().await.unwrap()).await.unwrap();
    let entry = fs.lookup(fs.root(), b"file").await.unwrap().unwrap();
    let open = fs.open_file(entry.object).await.unwrap();
    for (at_mib, seed) in parts {
        let read = open.read(at_mib << 20, 1 << 20).await.unwrap();
        assert!(read[..] == noise(*seed, 1 << 20)[..], "{place}: MiB {at_mib}");
    }
}

fn layouts() -> Vec<Vec<Layout>> {
    vec![
        vec![(Normal, Disk, 0, 1)],
        vec![(Normal, Disk, 0, 1), (Normal, Disk, 0, 1)],
        vec![(Normal, Mirror, 0, 2)],
        vec![(Normal, Raidz, 1, 3)],
        vec![(Normal, Mirror, 0, 2), (Log, Disk, 0, 1)],
    ]
}

fn count(layout: &[Layout]) -> usize {
    layout.iter().map(|vdev| vdev.3).sum()
}

#[test]
fn a_pool_whose_devices_fail_waits_and_loses_nothing() {
    let ops: [&[Op]; 4] =
        [&[Op::Write], &[Op::Flush], &[Op::Write, Op::Flush], &[Op::Read, Op::Write, Op::Flush]];
    for layout in layouts() {
        for ops in ops {
            for fail_after_ms in [0, 3] {
                let layout = layout.clone();
                let place = format!("{layout:?} {ops:?} after {fail_after_ms} ms");
                Runtime::simulate(SimConfig::default(), move |rt| async move {
                    let disks = Disks::new(count(&layout));
                    let stage = Stage::new(&rt, &layout, &disks, Some(FailMode::Wait)).await;
                    for mib in 0..4 {
                        stage.write(mib, 10 + mib).await;
                    }
                    let syncing = stage.sync_aside(&rt);
                    rt.sleep(Duration::from_millis(fail_after_ms)).await;
                    disks.fail(ops);
                    rt.sleep(SECOND * 20).await;
                    let pool = stage.engine.pool();
                    let is_done = pool.suspension().suspended().is_none();
                    assert!(fail_after_ms > 0 || !is_done, "{place}: is not suspended");
                    // Meanwhile clients continue in memory.
                    stage.write(5, 15).await;
                    disks.heal();
                    pool.suspension().resume();
                    assert!(syncing.await.unwrap().is_ok(), "{place}");
                    assert_eq!(pool.suspension().suspended(), None, "{place}");
                    let parts = [(0, 10), (1, 11), (2, 12), (3, 13)];
                    assert_has(&disks.cut(&rt).await, &parts, &place).await;
                    stage.engine.sync_all().await.unwrap();
                    assert_has(&disks.cut(&rt).await, &[(5, 15)], &place).await;
                    if ops.len() > 1 {
                        disks.ask_zdb();
                    }
                });
            }
        }
    }
}

#[test]
fn it_goes_on_by_itself_when_devices_work_again() {
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let disks = Disks::new(2);
        let stage = Stage::new(&rt, &[(Normal, Mirror, 0, 2)], &disks, Some(FailMode::Wait)).await;
        stage.write(0, 7).await;
        disks.fail(&[Op::Write]);
        let (disks, began) = (Arc::new(disks), rt.now());
        let (later, of) = (disks.clone(), rt.clone());
        let healing = rt.spawn(async move {
            of.sleep(SECOND).await;
            later.heal();
        });
        stage.engine.sync_all().await.unwrap();
        assert!(rt.now() - began < SECOND * 10);
        healing.await.unwrap();
        assert_has(&disks.cut(&rt).await, &[(0, 7)], "by itself").await;
    });
}

#[test]
fn commands_are_refused_and_clients_too_if_the_pool_is_to_continue() {
    for mode in [FailMode::Wait, FailMode::Continue] {
        Runtime::simulate(SimConfig::default(), move |rt| async move {
            let disks = Disks::new(1);
            let stage = Stage::new(&rt, &[(Normal, Disk, 0, 1)], &disks, Some(mode)).await;
            stage.write(0, 7).await;
            disks.fail(&[Op::Write]);
            let syncing = stage.sync_aside(&rt);
            rt.sleep(SECOND).await;
            let began = rt.now();
            let command = stage.engine.acting_for(0);
            let done = cenote_tasks::snapshot(&command, &["made@now".into()]).await;
            assert!(matches!(done, Err(DatasetError::Suspended { .. })), "{done:?}");
            let client = rt.timeout(SECOND, stage.fs.commit(Some(stage.object))).await;
            match mode {
                FailMode::Continue => assert!(client.unwrap().is_err()),
                _ => assert!(client.is_err(), "it waits"),
            }
            assert!(rt.now() - began < SECOND * 5);
            disks.heal();
            stage.engine.pool().suspension().resume();
            syncing.await.unwrap().unwrap();
            stage.fs.commit(Some(stage.object)).await.unwrap();
            assert_has(&disks.cut(&rt).await, &[(0, 7)], "after that").await;
        });
    }
}

#[test]
fn who_gives_up_waiting_gets_the_error() {
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let disks = Disks::new(1);
        let stage = Stage::new(&rt, &[(Normal, Disk, 0, 1)], &disks, Some(FailMode::Wait)).await;
        stage.write(0, 7).await;
        disks.fail(&[Op::Write]);
        let syncing = stage.sync_aside(&rt);
        rt.sleep(SECOND).await;
        stage.engine.pool().suspension().give_up();
        let done = syncing.await.unwrap();
        assert!(matches!(done, Err(DatasetError::Stopped { .. })), "{done:?}");
        disks.heal();
        assert_has(&disks.cut(&rt).await, &[(0, 1)], "the last txg").await;
    });
}
