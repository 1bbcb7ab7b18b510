//! Concurrent commits share log blocks and flushes, and only the log's devices are flushed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Delayed, Device, Latency, MemoryDevice, Op, Traced};
use cenote_fs::write::{NewFile, NewKind};
use cenote_fs::{Change, FsOptions, FsWriter};
use cenote_pool::{VdevClass, VdevKind};
use cenote_runtime::{Runtime, SimConfig};

use super::{DISK, create_on};
use crate::on_disk::POOL;
use crate::scratch::at;

const WRITERS: u64 = 64;

#[test]
fn commits_at_the_same_time_share_a_flush() {
    let main = |rt: Runtime| async move {
        let latency = Latency { fixed: Duration::from_millis(1), ..Latency::default() };
        let slow = |name: &str| {
            let memory = Arc::new(MemoryDevice::new(name, 96 << 20));
            Arc::new(Traced::new(Arc::new(Delayed::new(memory, latency, &rt)), 0, &rt))
        };
        let (disk, slog) = (slow("disk"), slow("slog"));
        let layout = [DISK, (VdevClass::Log, VdevKind::Disk, 0, 1)];
        let devices: [Arc<dyn Device>; 2] = [disk.clone(), slog.clone()];
        let engine = create_on(&rt, &layout, |vdev, _| devices[vdev].clone()).await;
        let dataset = engine.dataset(POOL).await.unwrap();
        let fs = FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap();
        // The first commit starts the log, with a txg.
        append(&engine, &fs, 0).await;
        let flushes = || (disk.count(Op::Flush).ended, slog.count(Op::Flush).ended);
        let before = flushes();
        let writers = (1..=WRITERS).map(|writer| {
            let (engine, fs) = (engine.clone(), fs.clone());
            rt.spawn(async move { append(&engine, &fs, writer).await })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let (on_disk, on_slog) = (flushes().0 - before.0, flushes().1 - before.1);
        assert_eq!(on_disk, 0, "the log is on its own device");
        assert!((1..=3).contains(&on_slog), "{on_slog} flushes for {WRITERS} commits");

        let alone = flushes();
        append(&engine, &fs, WRITERS + 1).await;
        assert_eq!(flushes(), (alone.0, alone.1 + 1));
    };
    Runtime::simulate(SimConfig::default(), main);
}

/// Creates a file, writes to it, and commits it.
async fn append(engine: &cenote_engine::Engine, fs: &FsWriter, writer: u64) {
    let hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    let change = Change { edit: &edit, now: at(5) };
    let new = NewFile { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 1, gid: 1 };
    let file = fs.create(change, fs.root(), format!("{writer}").as_bytes(), &new).await.unwrap();
    fs.write(change, file, 0, Bytes::from(vec![writer as u8; 4000])).await.unwrap();
    drop(hold);
    fs.commit(Some(file)).await.unwrap();
}
