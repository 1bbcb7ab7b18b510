//! A txg interrupted by a panic at any disk operation. No further txg may be written, and the pool on disk is
//! that of an earlier txg, intact.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use cenote_dataset::{ImportOptions, import};
use cenote_device::{Device, DeviceInfo, Io, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::units::Txg;
use cenote_fs::{Change, FsOptions, FsWriter};
use cenote_object::DatasetError;
use cenote_pool::discover_devices;
use cenote_runtime::{Runtime, SimConfig};

use crate::intent_log::{DISK, create_on};
use crate::on_disk::POOL;
use crate::scratch::{at, file, noise};

/// A disk that panics at the n-th operation from now.
struct Trap {
    inner: MemoryDevice,
    left: AtomicI64,
}

impl Trap {
    fn step(&self) {
        assert!(self.left.fetch_sub(1, Ordering::SeqCst) != 1, "the trap");
    }
}

impl Device for Trap {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.step();
        self.inner.read_at(offset, len)
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.step();
        self.inner.write_at(offset, data)
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.step();
        self.inner.write_through(offset, data)
    }

    fn flush(&self) -> Io<()> {
        self.step();
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.inner.discard(offset, len)
    }
}

async fn write(engine: &Engine, fs: &FsWriter, name: &[u8], seed: u64) {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    let change = Change { edit: &edit, now: at(1) };
    let found = fs.lookup(fs.root(), name).await.unwrap();
    let object = match found {
        Some(entry) => entry.object,
        None => fs.create(change, fs.root(), name, &file(0o644)).await.unwrap(),
    };
    fs.write(change, object, 0, noise(seed, 200_000).into()).await.unwrap();
}

/// Returns whether the panic happened.
async fn break_off(rt: Runtime, nth: i64) -> bool {
    let disk = Arc::new(Trap { inner: MemoryDevice::new("disk", 128 << 20), left: AtomicI64::new(0) });
    let engine = create_on(&rt, &[DISK], |_, _| disk.clone() as Arc<dyn Device>).await;
    let fs = FsWriter::open(engine.dataset(POOL).await.unwrap(), FsOptions::default()).await.unwrap();
    for seed in 0..4 {
        write(&engine, &fs, format!("f{seed}").as_bytes(), seed).await;
    }
    engine.sync_all().await.unwrap();
    write(&engine, &fs, b"f0", 10).await;
    let before = engine.pool().uberblock().txg;

    disk.left.store(nth, Ordering::SeqCst);
    // Several tasks wait for the same turn; the second would write the next txg.
    let sync = |engine: &Engine| {
        let engine = engine.clone();
        rt.spawn(async move { engine.sync_all().await })
    };
    let (first, second) = (sync(&engine), sync(&engine));
    let forced = {
        let engine = engine.clone();
        rt.spawn(async move { engine.force_sync().await })
    };
    let outcomes = [first.await.unwrap(), second.await.unwrap(), forced.await.unwrap()];
    let struck = disk.left.load(Ordering::SeqCst) < 1;
    disk.left.store(0, Ordering::SeqCst);
    if struck {
        let is_stopped = |outcome: &Result<(), DatasetError>| {
            matches!(outcome, Ok(()) | Err(DatasetError::Stopped { .. }))
        };
        assert!(outcomes.iter().all(is_stopped), "operation {nth}: {outcomes:?}");
        assert!(engine.hold().await.is_err(), "operation {nth}: the engine goes on");
    }
    drop((fs, engine));

    let found = discover_devices(vec![disk.clone() as Arc<dyn Device>]).await;
    let mos = import(&rt, &found.pools[0], &ImportOptions::default()).await.unwrap();
    let txg = mos.uberblock().txg;
    assert!((before..=Txg(before.0 + 3)).contains(&txg), "operation {nth}: opened at {txg}, after {before}");
    let log = mos.log_spacemaps().await.unwrap();
    mos.allocator(&log).await.unwrap_or_else(|error| panic!("operation {nth}: {error}"));
    // It takes changes again.
    let engine = Engine::start(&mos).await.unwrap();
    let fs = FsWriter::open(engine.dataset(POOL).await.unwrap(), FsOptions::default()).await.unwrap();
    write(&engine, &fs, b"f1", 20).await;
    engine.sync_all().await.unwrap();
    struck
}

#[test]
fn after_a_panic_in_a_txg_no_other_is_written() {
    let mut nth = 1;
    while Runtime::simulate(SimConfig::default(), move |rt| break_off(rt, nth)).0 {
        nth += 1;
    }
    assert!(nth > 20, "a txg has more operations than {nth}");
}
