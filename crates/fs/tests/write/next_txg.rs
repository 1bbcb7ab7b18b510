//! A task of a txg while clients already work in the next one: acknowledged writes must survive it.
//!
//! Each test has a slow disk, so that the txg of a task takes long to write, and does something in the next
//! txg meanwhile. Then the power is cut: the pool must open, with intact space maps and all acknowledged
//! data.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::{ImportOptions, Mos, import};
use cenote_device::{Delayed, Device, Latency, MemoryDevice};
use cenote_engine::{Engine, SnapshotHold};
use cenote_format::units::{ObjectId, Txg, VdevId};
use cenote_fs::write::CloneSource;
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter};
use cenote_object::DatasetError;
use cenote_pool::discover_devices;
use cenote_runtime::{JoinHandle, Runtime, SimConfig};
use cenote_tasks::InUse;
use futures::future::BoxFuture;

use crate::intent_log::{DISK, create_on, empty_filesystem};
use crate::on_disk::POOL;
use crate::scratch::{at, file, noise};

const CHILD: &str = "made/a";
const RECORD: u64 = 128 << 10;
const DISK_BYTES: usize = 192 << 20;
/// Latency of each disk access.
const ACCESS: Duration = Duration::from_millis(10);

/// A pool on one slow disk; changes in its root make each txg long to write.
struct Bench {
    rt: Runtime,
    memory: Arc<MemoryDevice>,
    engine: Engine,
    root: FsWriter,
    big: ObjectId,
}

impl Bench {
    async fn new(rt: Runtime) -> Bench {
        let memory = Arc::new(MemoryDevice::new("disk", DISK_BYTES));
        let latency = Latency { fixed: ACCESS, ..Latency::default() };
        let slow: Arc<dyn Device> = Arc::new(Delayed::new(memory.clone(), latency, &rt));
        let engine = create_on(&rt, &[DISK], |_, _| slow.clone()).await;
        cenote_tasks::create_filesystem(&engine, CHILD, Vec::new(), empty_filesystem()).await.unwrap();
        let root = open(&engine, POOL).await;
        let big = make(&engine, &root, b"big").await;
        Bench { rt, memory, engine, root, big }
    }

    /// Work for the open txg, in many blocks of pointers.
    async fn dirty(&self, seed: u64) {
        for i in 0..64 {
            write(&self.engine, &self.root, self.big, i << 27, &noise(seed + i, 4096)).await;
        }
    }

    fn begin<T: Send + 'static, F>(&self, task: impl FnOnce(Engine) -> F) -> JoinHandle<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.rt.spawn(task(self.engine.clone()))
    }

    /// The pool after a power cut now; its space maps are consistent.
    async fn after_power_cut(&self) -> Mos {
        let found = discover_devices(vec![self.memory.clone() as Arc<dyn Device>]).await;
        let mos = import(&self.rt, &found.pools[0], &ImportOptions::default()).await.unwrap();
        mos.allocator(&mos.log_spacemaps().await.unwrap()).await.unwrap();
        // Claims logs without replaying them.
        Engine::start(&mos).await.unwrap();
        mos
    }
}

async fn open(engine: &Engine, name: &str) -> FsWriter {
    FsWriter::open(engine.dataset(name).await.unwrap(), FsOptions::default()).await.unwrap()
}

async fn make(engine: &Engine, fs: &FsWriter, name: &[u8]) -> ObjectId {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    fs.create(Change { edit: &edit, now: at(1) }, fs.root(), name, &file(0o644)).await.unwrap()
}

/// Returns the txg of the write.
async fn write(engine: &Engine, fs: &FsWriter, file: ObjectId, offset: u64, data: &[u8]) -> Txg {
    let hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    fs.write(Change { edit: &edit, now: at(2) }, file, offset, Bytes::copy_from_slice(data)).await.unwrap();
    hold.txg()
}

async fn content(fs: &Filesystem, name: &[u8]) -> Vec<u8> {
    let entry = fs.lookup(fs.root(), name).await.unwrap().expect("the file is there");
    let open = fs.open_file(entry.object).await.unwrap();
    open.read(0, open.attr().size).await.unwrap().to_vec()
}

/// A file system after the replay of its log.
async fn replayed(mos: &Mos, dataset: &str) -> Filesystem {
    let objset = mos.dataset(dataset).await.unwrap().objset().await.unwrap();
    let log = objset.intent_log().await;
    let (fs, report) = Filesystem::open(objset).await.unwrap().replay(&log.records, at(9)).await;
    assert!(report.set_aside == 0, "{report:?}");
    fs
}

type Verb = fn(Engine) -> BoxFuture<'static, Result<(), DatasetError>>;

#[test]
fn a_log_of_the_next_txg_keeps_its_dataset() {
    let verbs: [(&str, Verb); 2] = [
        ("destroy", |e| Box::pin(async move { cenote_tasks::destroy_dataset(&e, CHILD).await })),
        ("rollback", |e| Box::pin(async move { cenote_tasks::rollback(&e, "made/a@s").await })),
    ];
    for (verb, run) in verbs {
        Runtime::simulate(SimConfig::default(), move |rt| async move {
            let bench = Bench::new(rt).await;
            let engine = &bench.engine;
            let fs = open(engine, CHILD).await;
            let small = make(engine, &fs, b"small").await;
            engine.sync_all().await.unwrap();
            if verb == "rollback" {
                cenote_tasks::snapshot(engine, &["made/a@s".into()]).await.unwrap();
            }
            for text in ["first", "second"] {
                write(engine, &fs, small, 0, text.as_bytes()).await;
                fs.commit(Some(small)).await.unwrap();
                engine.sync_all().await.unwrap();
            }
            bench.dirty(0).await;
            let begun = engine.hold().await.unwrap().txg();
            let task = bench.begin(run);
            bench.rt.sleep(Duration::from_millis(1)).await;
            // Into the next txg, and durable; then the client leaves.
            let written = write(engine, &fs, small, 0, b"third").await;
            fs.commit(Some(small)).await.unwrap();
            assert_eq!(written, Txg(begun.0 + 1), "the write was meant for the next txg");
            drop(fs);
            // The command may succeed and remove the write as ordered, but must not corrupt it.
            task.await.unwrap().unwrap_or_else(|error| panic!("{verb}: {error}"));
            bench.after_power_cut().await;
            for seed in 1..5 {
                bench.dirty(seed * 100).await;
                engine.sync_all().await.unwrap();
                bench.after_power_cut().await;
            }
        });
    }
}

#[test]
fn a_dataset_that_was_changed_in_the_next_txg_is_not_closed() {
    Runtime::simulate(SimConfig::default(), move |rt| async move {
        let bench = Bench::new(rt).await;
        let engine = &bench.engine;
        let fs = open(engine, CHILD).await;
        let (small, id) = (make(engine, &fs, b"small").await, fs.live().dataset_id());
        write(engine, &fs, small, 0, b"first").await;
        drop(fs);
        engine.sync_all().await.unwrap();
        bench.dirty(0).await;
        let closing = bench.begin(move |e| async move { e.close_datasets(vec![id]).await });
        bench.rt.sleep(Duration::from_millis(1)).await;
        // Opened before the task is requested, and written to after the task's txg is closed.
        let fs = open(engine, CHILD).await;
        let first = engine.hold().await.unwrap().txg();
        bench.dirty(100).await;
        while engine.hold().await.unwrap().txg() == first {
            bench.rt.sleep(Duration::from_millis(1)).await;
        }
        write(engine, &fs, small, 0, b"third").await;
        drop(fs);
        assert_eq!(closing.await.unwrap().unwrap(), None, "nobody has it open any more");
        assert_eq!(content(&open(engine, CHILD).await.view(), b"small").await, b"third");
        engine.sync_all().await.unwrap();
        let mos = bench.after_power_cut().await;
        assert_eq!(content(&replayed(&mos, CHILD).await, b"small").await, b"third");
    });
}

/// Clones a file of a snapshot or another file system while the txg that destroys it is written.
#[test]
fn blocks_that_were_lent_in_the_next_txg_stay() {
    for from_snapshot in [true, false] {
        Runtime::simulate(SimConfig::default(), move |rt| async move {
            let bench = Bench::new(rt).await;
            let engine = &bench.engine;
            let source = open(engine, CHILD).await;
            let a = make(engine, &source, b"a").await;
            let b = make(engine, &bench.root, b"b").await;
            let old = noise(11, 4 * RECORD as usize);
            write(engine, &source, a, 0, &old).await;
            if from_snapshot {
                cenote_tasks::snapshot(engine, &["made/a@s".into()]).await.unwrap();
                write(engine, &source, a, 0, &noise(12, 4 * RECORD as usize)).await;
            }
            engine.sync_all().await.unwrap();
            engine.force_sync().await.unwrap();
            bench.dirty(0).await;
            let (source, held) = match from_snapshot {
                true => (None, Some(look_into(engine, "made/a@s").await)),
                false => (Some(source), None),
            };
            let begun = engine.hold().await.unwrap().txg();
            let destroying = bench.begin(move |e| async move {
                match from_snapshot {
                    true => cenote_tasks::destroy_snapshots(&e, &["made/a@s".into()], InUse::Refuse).await,
                    false => cenote_tasks::destroy_dataset(&e, CHILD).await,
                }
            });
            bench.rt.sleep(Duration::from_millis(2)).await;
            {
                let hold = engine.hold().await.unwrap();
                assert_eq!(hold.txg(), Txg(begun.0 + 1), "the clone was meant for the next txg");
                let edit = bench.root.live().edit();
                let change = Change { edit: &edit, now: at(3) };
                let from = match (&source, &held) {
                    (_, Some((snapshot, hold))) => CloneSource::Snapshot(snapshot, hold),
                    (Some(source), _) => CloneSource::Live(source),
                    _ => unreachable!("there is a source"),
                };
                let cloned = bench.root.clone_range(change, from, (a, 0), (b, 0), 4 * RECORD).await;
                assert_eq!(cloned.unwrap(), 4 * RECORD);
            }
            // The task sees the source unused.
            drop((source, held));
            destroying.await.unwrap().unwrap();
            engine.sync_all().await.unwrap();
            all_allocated(engine, &bench.root, b).await;
            // Other writers would get freed space.
            for round in 0..30 {
                bench.dirty(1000 + round * 100).await;
                write(engine, &bench.root, bench.big, 0, &noise(5000 + round, 4 << 20)).await;
                engine.sync_all().await.unwrap();
            }
            let mos = bench.after_power_cut().await;
            assert!(content(&replayed(&mos, POOL).await, b"b").await == old, "the clone has other content");
        });
    }
}

async fn look_into(engine: &Engine, name: &str) -> (Filesystem, SnapshotHold) {
    let (dataset, snapshot) = engine.snapshot(name).await.unwrap();
    let fs = Filesystem::open(dataset.objset().await.unwrap()).await.unwrap();
    (fs, snapshot.hold().unwrap())
}

async fn all_allocated(engine: &Engine, fs: &FsWriter, object: ObjectId) {
    let object = fs.live().on_disk().object(object).await.unwrap();
    for bp in object.stored_blocks(0..4).await.unwrap().unwrap() {
        let dva = bp.dvas().next().unwrap();
        let end = dva.offset_bytes + dva.asize.0;
        let used = engine.allocator().in_use(VdevId(0), dva.offset_bytes, end);
        assert_eq!(used.total_bytes(), dva.asize.0, "a block of the clone is free");
    }
}

#[test]
fn a_snapshot_that_somebody_looks_into_is_busy_and_one_that_is_gone_lends_nothing() {
    Runtime::simulate(SimConfig::default(), move |rt| async move {
        let bench = Bench::new(rt).await;
        let engine = &bench.engine;
        let name = ["made/a@s".to_owned()];
        cenote_tasks::snapshot(engine, &name).await.unwrap();
        let (_, snapshot) = engine.snapshot(&name[0]).await.unwrap();
        let hold = snapshot.hold().unwrap();
        for in_use in [InUse::Refuse, InUse::Defer] {
            let refused = cenote_tasks::destroy_snapshots(engine, &name, in_use).await;
            assert!(matches!(refused, Err(DatasetError::Busy { .. })), "{refused:?}");
        }
        drop(hold);
        // A refused task leaves it as it was.
        cenote_tasks::hold_snapshots(engine, &name, "keep").await.unwrap();
        cenote_tasks::destroy_snapshots(engine, &name, InUse::Refuse).await.unwrap_err();
        let hold = snapshot.hold().expect("it is still there");
        cenote_tasks::destroy_snapshots(engine, &name, InUse::Defer).await.unwrap_err();
        drop(hold);
        cenote_tasks::destroy_snapshots(engine, &name, InUse::Defer).await.unwrap();
        // It goes with its last hold, but not while open.
        let hold = snapshot.hold().unwrap();
        let refused = cenote_tasks::release_snapshots(engine, &name, "keep").await;
        assert!(matches!(refused, Err(DatasetError::Busy { .. })), "{refused:?}");
        drop(hold);
        cenote_tasks::release_snapshots(engine, &name, "keep").await.unwrap();
        assert!(snapshot.hold().is_none(), "it is gone");
        engine.snapshot(&name[0]).await.unwrap_err();
    });
}

#[test]
fn a_deferred_origin_stays_with_its_last_clone_while_somebody_looks_into_it() {
    Runtime::simulate(SimConfig::default(), move |rt| async move {
        let bench = Bench::new(rt).await;
        let engine = &bench.engine;
        let name = ["made/a@s".to_owned()];
        cenote_tasks::snapshot(engine, &name).await.unwrap();
        cenote_tasks::clone_snapshot(engine, &name[0], "made/c", Default::default()).await.unwrap();
        cenote_tasks::destroy_snapshots(engine, &name, InUse::Defer).await.unwrap();
        let (_, snapshot) = engine.snapshot(&name[0]).await.unwrap();
        let hold = snapshot.hold().unwrap();
        let refused = cenote_tasks::destroy_dataset(engine, "made/c").await;
        assert!(matches!(refused, Err(DatasetError::Busy { .. })), "{refused:?}");
        drop(hold);
        cenote_tasks::destroy_dataset(engine, "made/c").await.unwrap();
        assert!(snapshot.hold().is_none(), "it went with the clone");
    });
}

/// Blocks that a head writes right after must not be born in the snapshot's own txg.
#[test]
fn a_snapshot_of_this_very_txg_is_left_alone() {
    Runtime::simulate(SimConfig::default(), move |rt| async move {
        let bench = Bench::new(rt).await;
        let engine = &bench.engine;
        let fs = open(engine, CHILD).await;
        let small = make(engine, &fs, b"small").await;
        write(engine, &fs, small, 0, b"first").await;
        fs.commit(Some(small)).await.unwrap();
        // The head has a log, so a rollback or clone has to write its own head.
        write(engine, &fs, small, 0, b"other").await;
        fs.commit(Some(small)).await.unwrap();
        drop(fs);
        let (names, mine) = (["made/a@s".to_owned()], Default::default());
        let taken = cenote_tasks::snapshot(engine, &names);
        let back = cenote_tasks::rollback(engine, "made/a@s");
        let cloned = cenote_tasks::clone_snapshot(engine, "made/a@s", "made/c", mine);
        let (taken, back, cloned) = futures::join!(taken, back, cloned);
        taken.unwrap();
        back.unwrap();
        cloned.unwrap();
        let mos = bench.after_power_cut().await;
        let snapshot = mos.dataset("made/a@s").await.unwrap();
        for head in [CHILD, "made/c"] {
            let head = mos.dataset(head).await.unwrap();
            let born = head.phys().bp.logical_birth();
            let is_shared = head.phys().bp == snapshot.phys().bp;
            assert!(is_shared || born > snapshot.creation_txg(), "{}: born in {born}", head.name());
        }
    });
}
