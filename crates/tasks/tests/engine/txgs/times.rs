//! Times of txgs in the pool, and scrubs of a range of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::pool as names;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::txg_log::{RING_WORDS, TxgLog};
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_object::NewObject;
use cenote_pool::VdevKind;
use cenote_pool::create::NewDevice;
use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_tasks::{ScrubDepth, run_scan, start_scrub, start_scrub_between};

use crate::common::{POOL, assert_zdb_is_content, create, create_on, reopen, reopen_to_write};

/// A simulated pool on one disk.
async fn pool(rt: &Runtime) -> (Engine, Arc<MemoryDevice>) {
    let disk = Arc::new(MemoryDevice::new("a", 96 << 20));
    let device = disk.clone() as Arc<dyn Device>;
    let new = NewDevice { path: "a".into(), device, is_file: false };
    (create_on(rt, vec![new]).await, disk)
}

/// Writes an object of one block in its own txg.
async fn write(engine: &Engine, rng: &mut Rng) -> ObjectId {
    let dataset = engine.dataset(POOL).await.unwrap();
    let hold = engine.hold().await.unwrap();
    let edit = dataset.edit(&hold);
    let object = edit.create(&NewObject::of(ObjectType::UINT64_OTHER).block_bytes(4096)).await.unwrap();
    let data: Vec<u8> = (0..4096).map(|_| rng.below(256) as u8).collect();
    edit.write(object, 0, Bytes::from(data)).await.unwrap();
    drop(hold);
    engine.sync_all().await.unwrap();
    object
}

fn counts(log: &TxgLog) -> [usize; 3] {
    [&log.minutes, &log.days, &log.months].map(|ring| ring.times().count())
}

#[test]
fn a_txg_is_noted_every_ten_minutes_if_one_is_written() {
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let (engine, _) = pool(&rt).await;
        let mut rng = Rng::new(1);
        let on_disk = async || engine.mos().await.unwrap().txg_log().await.unwrap();
        assert_eq!(counts(&on_disk().await), [0, 0, 1], "the pool's first txg");
        for (seconds, wanted) in [(599, [0, 0, 1]), (1, [0, 1, 1]), (5000, [1, 1, 1]), (600, [2, 1, 1])] {
            rt.sleep(Duration::from_secs(seconds)).await;
            write(&engine, &mut rng).await;
            assert_eq!(counts(&on_disk().await), wanted, "after {seconds} seconds");
            assert_eq!(engine.txg_log().await.unwrap(), on_disk().await);
        }
        let newest = on_disk().await.minutes.newest().unwrap();
        assert_eq!(newest.txg, engine.pool().uberblock().txg);
        assert_eq!(newest.time_s, rt.unix_time_ns() / 1_000_000_000);
        // A day on, and a month on.
        for (days, wanted) in [(1, [2, 2, 1]), (29, [2, 2, 2])] {
            rt.sleep(Duration::from_secs(days * 86_400)).await;
            write(&engine, &mut rng).await;
            assert_eq!(counts(&on_disk().await), wanted, "after {days} days");
        }
        // The log is written less often than it grows.
        engine.background().settings().set("spa_note_txg_time", 60).unwrap();
        engine.background().settings().set("spa_flush_txg_time", 3600).unwrap();
        rt.sleep(Duration::from_secs(60)).await;
        write(&engine, &mut rng).await;
        assert_eq!(counts(&on_disk().await), [2, 2, 2]);
        // The last time of the ring of days is long ago.
        assert_eq!(counts(&engine.txg_log().await.unwrap()), [2, 3, 2]);
    });
}

#[test]
fn the_log_lies_on_disk_as_openzfs_has_it_and_outlives_an_export() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &(VdevKind::Disk, 0, 1)).await;
        let mut rng = Rng::new(2);
        engine.background().settings().set("spa_note_txg_time", 0).unwrap();
        engine.background().settings().set("spa_flush_txg_time", 0).unwrap();
        for _ in 0..3 {
            write(&engine, &mut rng).await;
        }
        let before = engine.txg_log().await.unwrap();
        assert!(counts(&before).iter().sum::<usize>() >= 3, "{:?}", counts(&before));
        drop(engine);
        let mos = reopen(&rt, folder.path()).await;
        for name in [names::TXG_LOG_TIME_MINUTES, names::TXG_LOG_TIME_DAYS, names::TXG_LOG_TIME_MONTHS] {
            let value = mos.directory().unwrap().lookup(name.as_bytes()).await.unwrap().unwrap();
            assert_eq!((value.integer_bytes(), value.len()), (8, RING_WORDS), "{name}");
        }
        drop(mos);
        let engine = reopen_to_write(&rt, folder.path()).await;
        // The last time on disk is less than ten minutes ago.
        write(&engine, &mut rng).await;
        assert_eq!(engine.txg_log().await.unwrap(), before);
        drop(engine);
        assert_eq!(reopen(&rt, folder.path()).await.txg_log().await.unwrap(), before);
    });
    assert_zdb_is_content(folder.path(), "times of txgs");
}

#[test]
fn a_scrub_of_a_range_reads_only_blocks_that_were_born_in_it() {
    Runtime::simulate(SimConfig::default(), |rt| async move {
        let (engine, disk) = pool(&rt).await;
        let mut rng = Rng::new(3);
        let mut written = Vec::new();
        for _ in 0..3 {
            // Another txg is noted between two objects.
            rt.sleep(Duration::from_secs(600)).await;
            let object = write(&engine, &mut rng).await;
            written.push((object, rt.unix_time_ns() / 1_000_000_000));
            rt.sleep(Duration::from_secs(600)).await;
            write(&engine, &mut rng).await;
        }
        let objset = engine.mos().await.unwrap().dataset(POOL).await.unwrap().objset().await.unwrap();
        for (object, _) in &written {
            let bp = objset.object(*object).await.unwrap().blkptr(0, BlockId(0)).await.unwrap();
            let at = bp.dvas().next().unwrap().offset_bytes + VDEV_LABEL_START_SIZE;
            disk.write_at(at, vec![0xb5; 512].into()).await.unwrap();
        }
        let scrub = async |from_s: Option<u64>, until_s: Option<u64>| {
            let noted = engine.txg_log().await.unwrap();
            let after = from_s.and_then(|time_s| noted.floor(time_s)).unwrap_or(Txg(0));
            let upto = until_s.and_then(|time_s| noted.ceiling(time_s));
            start_scrub_between(&engine, after, upto, ScrubDepth::Normal).await.unwrap();
            let scanned = run_scan(&engine, &|_| {}).await.unwrap();
            let mos = engine.mos().await.unwrap();
            let scan = mos.scan_status().await.unwrap().unwrap();
            assert_eq!((scan.min_txg, scan.errors), (after, scanned.errors));
            assert!(upto.is_none_or(|upto| scan.max_txg == upto), "{scan:?}");
            let last = mos.directory_u64(names::LAST_SCRUBBED_TXG).await.unwrap();
            assert_eq!(last, Some(scan.max_txg.0));
            let log = mos.error_log().await.unwrap();
            log.iter().map(|error| error.place.object).collect::<BTreeSet<_>>()
        };
        let objects =
            |places: &[usize]| places.iter().map(|place| written[*place].0).collect::<BTreeSet<_>>();
        let (_, second_s) = written[1];
        assert_eq!(scrub(Some(second_s - 60), Some(second_s + 60)).await, objects(&[1]));
        assert_eq!(scrub(Some(second_s + 60), None).await, objects(&[2]));
        assert_eq!(scrub(None, Some(second_s + 60)).await, objects(&[0, 1]));
        assert_eq!(scrub(Some(second_s + 100_000), None).await, objects(&[]), "nothing is that young");
        start_scrub(&engine, Txg(0)).await.unwrap();
        assert_eq!(run_scan(&engine, &|_| {}).await.unwrap().errors, 3);
    });
}
