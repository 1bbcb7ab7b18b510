//! Read-ahead: on slow disks, sequential reads are faster than block-by-block reads, random reads fetch
//! nothing extra, and a reader that stops early leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use cenote_cache::PrefetchStats;
use cenote_device::{Delayed, Device, Latency};
use cenote_engine::Engine;
use cenote_format::label::PoolState;
use cenote_format::units::ObjectId;
use cenote_fs::write::{NewFile, NewKind};
use cenote_fs::{Change, FsOptions, FsWriter};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::Mirror;
use cenote_runtime::{Rng, Runtime};

use crate::cuts::simulate;
use crate::pools::{Disks, Layout, POOL, create, now, open};

const RECORD_BYTES: u64 = 16 << 10;
const RECORDS: u64 = 1024;
const SLOW: Latency =
    Latency { fixed: Duration::from_millis(5), jitter: Duration::from_millis(1), bytes_per_s: None };

/// A pool with one file of random bytes on slow disks, with a cold cache.
async fn begin(rt: &Runtime) -> (Engine, FsWriter, ObjectId, Vec<u8>) {
    let layout = Layout { vdevs: vec![(Mirror, 0, 2, Normal)], sector_bytes: 512, spares: 0 };
    let disks = Disks::new(rt, layout.shape(), layout.blank());
    let engine = create(rt, &layout, &disks.devices()).await;
    let dataset = engine.dataset(POOL).await.unwrap();
    let options = FsOptions { record_bytes: RECORD_BYTES as u32, ..FsOptions::default() };
    let fs = FsWriter::open(dataset, options).await.unwrap();
    let mut content = vec![0; (RECORDS * RECORD_BYTES) as usize];
    let mut rng = Rng::stream(rt.random_u64(), 3);
    content.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&rng.below(u64::MAX).to_ne_bytes()));
    let id = {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: now(rt) };
        let new = NewFile { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
        let id = fs.create(change, fs.root(), b"f", &new).await.unwrap();
        fs.write(change, id, 0, content.clone().into()).await.unwrap();
        id
    };
    engine.sync_all().await.unwrap();
    drop((fs, engine));
    let slow =
        disks.devices().into_iter().map(|disk| Arc::new(Delayed::new(disk, SLOW, rt)) as Arc<dyn Device>);
    let mos = open(rt, slow.collect()).await.unwrap();
    mos.objset().cache().set_budget(256 << 20);
    let engine = Engine::start(&mos).await.unwrap();
    let fs = FsWriter::open(engine.dataset(POOL).await.unwrap(), FsOptions::default()).await.unwrap();
    (engine, fs, id, content)
}

/// Reads the file in this order. Returns the time taken and the statistics of read-ahead.
async fn read(
    rt: &Runtime,
    (engine, fs, id, content): &(Engine, FsWriter, ObjectId, Vec<u8>),
    order: impl Iterator<Item = u64>,
) -> (Duration, PrefetchStats) {
    let begun = rt.now();
    for record in order {
        let at = record * RECORD_BYTES;
        // As a mounted file system reads: the file is opened for each request.
        let file = fs.view().open_file(*id).await.unwrap();
        let bytes = file.read(at, RECORD_BYTES).await.unwrap();
        assert_eq!(bytes, content[at as usize..(at + RECORD_BYTES) as usize], "record {record}");
    }
    (rt.now() - begun, engine.cache().stats().prefetch)
}

#[test]
fn files_read_in_order_come_at_several_times_the_speed() {
    let run = |is_disabled: u64| {
        simulate(7, |rt| async move {
            let pool = begin(&rt).await;
            pool.0.cache().prefetch().settings().set("zfs_prefetch_disable", is_disabled).unwrap();
            read(&rt, &pool, 0..RECORDS).await
        })
    };
    let ((slow, none), (fast, stats)) = (run(1), run(0));
    assert_eq!(none, PrefetchStats::default());
    assert!(slow > Duration::from_millis(5) * RECORDS as u32, "{slow:?}");
    assert!(fast * 8 < slow, "{fast:?} against {slow:?}");
    // Hardly anything was read in vain.
    assert!(stats.hits >= RECORDS - 2 && stats.used + stats.iohits >= stats.io_issued - 2, "{stats:?}");
    assert!(stats.io_issued >= RECORDS - 8 && stats.wasted == 0, "{stats:?}");
}

#[test]
fn random_reads_bring_little_more_than_is_asked_for() {
    let (_, stats) = simulate(8, |rt| async move {
        let pool = begin(&rt).await;
        let mut rng = Rng::stream(rt.random_u64(), 4);
        read(&rt, &pool, (0..200).map(move |_| rng.below(RECORDS))).await
    });
    assert!(stats.io_issued <= 40, "{stats:?}");
}

#[test]
fn a_pool_can_be_closed_while_it_is_read_ahead() {
    simulate(9, |rt| async move {
        let pool = begin(&rt).await;
        let (_, stats) = read(&rt, &pool, 0..20).await;
        assert!(stats.active_bytes > 0, "{stats:?}");
        pool.0.close(PoolState::Exported).await.unwrap();
        assert_eq!(pool.0.cache().stats().prefetch.active_bytes, 0);
    });
}

#[test]
fn what_is_read_ahead_ends_with_those_who_read() {
    simulate(10, |rt| async move {
        let (engine, _fs, id, content) = begin(&rt).await;
        let cache = engine.cache().prefetch();
        // A separate object set, as for a mounted snapshot.
        let dataset = engine.mos().await.unwrap().dataset(POOL).await.unwrap();
        let apart = cenote_fs::Filesystem::open(dataset.objset().await.unwrap()).await.unwrap();
        for record in 0..20 {
            let at = record * RECORD_BYTES;
            let bytes = apart.open_file(id).await.unwrap().read(at, RECORD_BYTES).await.unwrap();
            assert_eq!(bytes, content[at as usize..(at + RECORD_BYTES) as usize]);
        }
        assert!(cache.active_bytes() > 0);
        drop(apart);
        rt.yield_now().await;
        rt.yield_now().await;
        assert_eq!(cache.active_bytes(), 0, "tasks went with the set");
    });
}
