//! Abandoned device operations: the space they touch is not reused before they end.
//!
//! The device behaves like the kernel: a started operation continues, in no guaranteed order. Only leases on
//! space keep new data from being overwritten by old operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::{ImportOptions, import};
use cenote_device::{Device, DeviceInfo, Io, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::units::{ObjectId, Txg, VdevId};
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter};
use cenote_pool::create::NewDevice;
use cenote_pool::{Pass, discover_devices};
use cenote_runtime::{AbortOnDrop, Runtime, SimConfig};
use cenote_tasks::{PassOrder, Resilver, attach, order_pass, run_passes, run_rebuild, run_scan};

use crate::intent_log::{DISK, create_on, export};
use crate::on_disk::POOL;
use crate::scratch::{at, file, noise};

const MS: Duration = Duration::from_millis(1);
const BYTES: usize = 192 << 20;
const MIB: u64 = 1 << 20;
/// The pattern of `initialize`, in this machine's byte order.
const PATTERN: u64 = 0xdead_beef_dead_beee;

/// The slow operations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slow {
    Discards,
    /// Writes of the pattern.
    Patterns,
    Writes,
}

/// A slow device over a fast one.
#[derive(Clone)]
struct Straggler {
    inner: Arc<MemoryDevice>,
    rt: Runtime,
    slow: Slow,
    takes: Duration,
    /// Slow operations in flight.
    under_way: Arc<AtomicU64>,
}

impl Straggler {
    fn new(rt: &Runtime, name: &str, slow: Slow, takes: Duration) -> Straggler {
        let inner = Arc::new(MemoryDevice::new(name, BYTES));
        Straggler { inner, rt: rt.clone(), slow, takes, under_way: Arc::default() }
    }

    fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    async fn until_it_is_at_work(&self) {
        for _ in 0..2000 {
            if self.under_way() > 0 {
                return;
            }
            self.rt.sleep(MS).await;
        }
        panic!("the device was not asked for anything slow");
    }

    fn slowly(&self, work: impl FnOnce(&MemoryDevice) -> Io<()> + Send + 'static) -> Io<()> {
        let of = self.clone();
        of.under_way.fetch_add(1, Ordering::Relaxed);
        Io::pending(&self.rt, async move {
            of.rt.sleep(of.takes).await;
            let done = work(&of.inner).await;
            of.under_way.fetch_sub(1, Ordering::Relaxed);
            done
        })
    }
}

impl Device for Straggler {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.inner.read_at(offset, len)
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        let is_pattern = data.starts_with(&PATTERN.to_ne_bytes());
        // Smaller writes are metadata, which txgs write freely.
        let is_content = data.len() >= 128 << 10;
        match self.slow == Slow::Writes && is_content || self.slow == Slow::Patterns && is_pattern {
            true => self.slowly(move |inner| inner.write_at(offset, data)),
            false => self.inner.write_at(offset, data),
        }
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.inner.write_through(offset, data)
    }

    fn flush(&self) -> Io<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        match self.slow {
            Slow::Discards => self.slowly(move |inner| inner.discard(offset, len)),
            Slow::Patterns | Slow::Writes => self.inner.discard(offset, len),
        }
    }
}

async fn opened(engine: &Engine) -> FsWriter {
    FsWriter::open(engine.dataset(POOL).await.unwrap(), FsOptions::default()).await.unwrap()
}

async fn make(engine: &Engine, fs: &FsWriter, name: &[u8]) -> ObjectId {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    fs.create(Change { edit: &edit, now: at(1) }, fs.root(), name, &file(0o644)).await.unwrap()
}

async fn write(engine: &Engine, fs: &FsWriter, file: ObjectId, data: &[u8]) {
    for (offset, part) in (0..).step_by(MIB as usize).zip(data.chunks(MIB as usize)) {
        let _hold = engine.hold().await.unwrap();
        let edit = fs.live().edit();
        let part = Bytes::copy_from_slice(part);
        fs.write(Change { edit: &edit, now: at(2) }, file, offset, part).await.unwrap();
    }
}

async fn reopened(rt: &Runtime, device: &Straggler) -> Engine {
    let found = discover_devices(vec![Arc::new(device.clone())]).await;
    let mos = import(rt, &found.pools[0], &ImportOptions::default()).await.unwrap();
    Engine::start(&mos).await.unwrap()
}

async fn content(rt: &Runtime, device: &MemoryDevice, name: &[u8]) -> Result<Vec<u8>, String> {
    let copy: Arc<dyn Device> = Arc::new(MemoryDevice::with_content("disk", device.live_image()));
    let found = discover_devices(vec![copy]).await;
    let mos = import(rt, &found.pools[0], &ImportOptions::default()).await.unwrap();
    let fs = Filesystem::open(mos.dataset(POOL).await.unwrap().objset().await.unwrap()).await.unwrap();
    let entry = fs.lookup(fs.root(), name).await.unwrap().unwrap();
    let open = fs.open_file(entry.object).await.unwrap();
    let read = open.read(0, open.attr().size).await;
    read.map(|bytes| bytes.to_vec()).map_err(|error| error.to_string())
}

/// Aborts a pass, as an export does, while the device is busy; then writes to all free space.
fn abort_a_pass(pass: Pass, slow: Slow) {
    let main = |rt: Runtime| async move {
        let device = Straggler::new(&rt, "disk", slow, 200 * MS);
        let engine = create_on(&rt, &[DISK], |_, _| Arc::new(device.clone())).await;
        export(&engine).await;
        drop(engine);
        rt.sleep(100 * MS).await;
        let engine = reopened(&rt, &device).await;
        let fs = opened(&engine).await;
        let leaf = engine.pool().tree().vdevs().top(VdevId(0)).unwrap().guid;
        order_pass(&engine, leaf, pass, PassOrder::Start { rate: 0, fill: None }).await.unwrap();
        let passing: AbortOnDrop<_> = {
            let engine = engine.clone();
            rt.spawn(async move { run_passes(&engine, &|_| {}).await.is_ok() }).abort_on_drop()
        };
        device.until_it_is_at_work().await;
        drop(passing);
        let data = noise(77, 100 << 20);
        let a = make(&engine, &fs, b"a").await;
        write(&engine, &fs, a, &data).await;
        engine.sync_all().await.unwrap();
        assert!(device.under_way() > 0, "it is still at work");
        // An export waits for the device.
        engine.pool().devices().idle().await;
        assert_eq!(device.under_way(), 0);
        assert!(content(&rt, &device.inner, b"a").await.unwrap() == data);
    };
    Runtime::simulate(SimConfig::default(), main);
}

#[test]
fn what_is_written_after_a_trim_was_aborted_stays() {
    abort_a_pass(Pass::Trim, Slow::Discards);
}

#[test]
fn what_is_written_after_an_initialization_was_aborted_stays() {
    abort_a_pass(Pass::Initialize, Slow::Patterns);
}

/// Aborts a resilver: its late writes only affect blocks that must not be replaced yet.
fn abort_a_resilver(how: Resilver) {
    let main = |rt: Runtime| async move {
        let engine =
            create_on(&rt, &[DISK], |_, _| Arc::new(MemoryDevice::new("old", BYTES)) as Arc<dyn Device>)
                .await;
        let fs = opened(&engine).await;
        let a = make(&engine, &fs, b"a").await;
        write(&engine, &fs, a, &noise(11, 8 << 20)).await;
        engine.sync_all().await.unwrap();
        let new = Straggler::new(&rt, "new", Slow::Writes, 3 * MS);
        let device = NewDevice { path: "new".into(), device: Arc::new(new.clone()), is_file: false };
        let disk = engine.pool().tree().vdevs().top(VdevId(0)).unwrap().guid;
        attach(&engine, disk, device, how).await.unwrap();
        engine.pool().devices().idle().await;
        let filling: AbortOnDrop<()> = {
            let engine = engine.clone();
            rt.spawn(async move {
                match how {
                    Resilver::Sequential => drop(run_rebuild(&engine, &|_| {}).await),
                    Resilver::Healing => drop(run_scan(&engine, &|_| {}).await),
                }
            })
            .abort_on_drop()
        };
        while !(engine.allocator().is_kept_before(Txg(u64::MAX)) && new.under_way() > 0) {
            rt.sleep(MS).await;
        }
        drop(filling);
        let mut rounds = 0;
        while new.under_way() > 0 {
            assert!(
                engine.allocator().is_kept_before(Txg(u64::MAX)),
                "round {rounds}: it is still written to"
            );
            rounds += 1;
            rt.sleep(MS / 10).await;
        }
        engine.pool().devices().idle().await;
        rt.sleep(MS).await;
        assert!(rounds > 0, "nothing was under way");
        // Later txgs release their predecessors.
        engine.force_sync().await.unwrap();
        let newest = engine.pool().uberblock().txg;
        assert!(!engine.allocator().is_kept_before(newest), "somebody still holds an older state");
    };
    Runtime::simulate(SimConfig::default(), main);
}

#[test]
fn a_resilver_that_is_aborted_keeps_the_space_that_it_still_writes_to() {
    abort_a_resilver(Resilver::Healing);
}

#[test]
fn a_rebuild_that_is_aborted_keeps_the_space_that_it_still_writes_to() {
    abort_a_resilver(Resilver::Sequential);
}
