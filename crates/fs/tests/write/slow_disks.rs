//! A txg waits for slow disks in proportion to its tree's height, not to blocks, datasets or table entries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::Value;
use cenote_device::{Delayed, Device, Latency, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::{Change, FsOptions, FsWriter};
use cenote_runtime::{Runtime, SimConfig};

use crate::intent_log::{DISK, create_on, empty_filesystem};
use crate::on_disk::POOL;
use crate::scratch::{at, file, noise};

/// Latency of each read, write and flush.
const WAIT: Duration = Duration::from_millis(10);
/// `ZIO_CHECKSUM_SHA256`.
const SHA256: u64 = 8;
/// Data below a level-1 indirect block, with records of 128 KiB.
const REACH_BYTES: u64 = 128 << 20;

/// An engine on such a disk.
async fn on_slow_disk(rt: &Runtime) -> Engine {
    let latency = Latency { fixed: WAIT, ..Latency::default() };
    let memory = Arc::new(MemoryDevice::new("disk", 256 << 20));
    let disk: Arc<dyn Device> = Arc::new(Delayed::new(memory, latency, rt));
    create_on(rt, &[DISK], |_, _| disk.clone()).await
}

async fn opened(engine: &Engine, name: &str) -> FsWriter {
    FsWriter::open(engine.dataset(name).await.unwrap(), FsOptions::default()).await.unwrap()
}

async fn make(engine: &Engine, fs: &FsWriter) -> ObjectId {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    fs.create(Change { edit: &edit, now: at(1) }, fs.root(), b"file", &file(0o644)).await.unwrap()
}

/// Writes at offsets; no two writes of a test have the same content.
async fn write(
    engine: &Engine,
    fs: &FsWriter,
    file: ObjectId,
    seed: u64,
    offsets: impl Iterator<Item = u64>,
) {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    for offset in offsets {
        let data = Bytes::from(noise(seed + offset, 4096));
        fs.write(Change { edit: &edit, now: at(2) }, file, offset, data).await.unwrap();
    }
}

/// Number of sequential disk waits of a txg.
async fn waits(rt: &Runtime, engine: &Engine) -> u128 {
    let begun = rt.now();
    engine.sync_all().await.unwrap();
    rt.now().since(begun).as_nanos().div_ceil(WAIT.as_nanos())
}

#[test]
fn indirect_blocks_of_a_level_are_written_at_once() {
    let main = |rt: Runtime| async move {
        let engine = on_slow_disk(&rt).await;
        let fs = opened(&engine, POOL).await;
        let file = make(&engine, &fs).await;
        let scattered = || (0..64).map(|i| i * REACH_BYTES);
        for round in 0..2 {
            write(&engine, &fs, file, round << 50, scattered()).await;
            let waits = waits(&rt, &engine).await;
            assert!(waits < 64, "round {round}: {waits} waits for 64 indirect blocks");
        }
    };
    Runtime::simulate(SimConfig::default(), main);
}

#[test]
fn datasets_are_written_at_once() {
    let main = |rt: Runtime| async move {
        let engine = on_slow_disk(&rt).await;
        let mut files = Vec::new();
        for i in 0..16 {
            let name = format!("{POOL}/{i}");
            cenote_tasks::create_filesystem(&engine, &name, Vec::new(), empty_filesystem()).await.unwrap();
            let fs = opened(&engine, &name).await;
            let file = make(&engine, &fs).await;
            files.push((fs, file));
        }
        engine.sync_all().await.unwrap();
        let mut waited = Vec::new();
        for datasets in [1, files.len()] {
            for (i, (fs, file)) in files[..datasets].iter().enumerate() {
                write(&engine, fs, *file, i as u64, std::iter::once(0)).await;
            }
            waited.push(waits(&rt, &engine).await);
        }
        assert!(waited[1] < waited[0] + 16, "waits for one dataset, and for 16: {waited:?}");
    };
    Runtime::simulate(SimConfig::default(), main);
}

#[test]
fn deduplicated_blocks_are_written_and_freed_at_once() {
    let main = |rt: Runtime| async move {
        let engine = on_slow_disk(&rt).await;
        cenote_tasks::set_property(&engine, POOL, "dedup", Value::Number(SHA256)).await.unwrap();
        let fs = opened(&engine, POOL).await;
        let file = make(&engine, &fs).await;
        engine.sync_all().await.unwrap();
        for round in 0..3 {
            write(&engine, &fs, file, round << 50, (0..64).map(|i| i << 17)).await;
            let waits = waits(&rt, &engine).await;
            assert!(waits < 64, "round {round}: {waits} waits for 64 blocks");
        }
    };
    Runtime::simulate(SimConfig::default(), main);
}
