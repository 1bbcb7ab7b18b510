//! Scrubs, under load, of pools with rubbish on one disk: afterwards the disk has all data. The same holds if
//! the scrub is paused or cancelled on the way, and if the power is cut.

use std::sync::Arc;
use std::time::Duration;

use cenote_device::{Delayed, Device, Latency};
use cenote_engine::Engine;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::scan::{ScanPhys, ScanState};
use cenote_format::units::Txg;
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::{Mirror, Raidz};
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::{
    InUse, cancel_scrub, destroy_dataset, destroy_snapshots, pause_scrub, run_scan, snapshot, start_scrub,
};
use cenote_testkit::image::Image;

use crate::check::{Unsure, check_sound, compare};
use crate::cuts::{self, Cut, number, simulate, survives_cuts};
use crate::full::{Files, make_child};
use crate::model::World;
use crate::pools::{Disks, Layout, POOL, Vdev, create, open};
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run.
const CUTS: usize = 4;
/// So slow that a scrub takes many slices.
const SLOW: Latency =
    Latency { fixed: Duration::from_millis(500), jitter: Duration::from_millis(500), bytes_per_s: None };
const BLOCK_BYTES: usize = 4096;

fn on_pools(test: &str, run: impl Fn(u64, &Layout)) {
    let pools: [&[Vdev]; 3] = [&[(Mirror, 0, 2, Normal)], &[(Raidz, 1, 3, Normal)], &[(Raidz, 2, 5, Normal)]];
    cuts::on_pools(test, &pools, run);
}

/// A pool on disks whose first one was partly overwritten.
async fn begin(rt: &Runtime, layout: &Layout) -> (Disks, Worker) {
    let (disks, engine, mut worker) = Worker::on_new_pool(rt, layout, 0, STEPS).await;
    worker.sync().await;
    let world = worker.world().clone();
    drop((worker, engine));
    let mut images = disks.images();
    spoil(&mut images[0], layout, rt);
    let disks = Disks::new(rt, layout.shape(), images);
    let slow =
        disks.devices().into_iter().map(|disk| Arc::new(Delayed::new(disk, SLOW, rt)) as Arc<dyn Device>);
    let mos = open(rt, slow.collect()).await.unwrap();
    let engine = Engine::start(&mos).await.unwrap();
    let worker = Worker::begin(rt, engine, &disks, world).await;
    (disks, worker)
}

/// Overwrites half of the blocks in use, labels excluded.
pub fn spoil(image: &mut Image, layout: &Layout, rt: &Runtime) {
    let mut rng = Rng::stream(rt.random_u64(), 2);
    let end = layout.shape().size_bytes - VDEV_LABEL_START_SIZE;
    for at in (VDEV_LABEL_START_SIZE..end).step_by(BLOCK_BYTES) {
        let is_empty = image.read(at, BLOCK_BYTES).iter().all(|byte| *byte == 0);
        if !is_empty && rng.below(2) == 0 {
            image.write(at, &[0xb5; BLOCK_BYTES]);
        }
    }
}

pub async fn scan_of(engine: &Engine) -> ScanPhys {
    engine.mos().await.unwrap().scan_status().await.unwrap().unwrap()
}

/// Scrubs while others work; returns the number of slices.
async fn scrub(rt: &Runtime, worker: &mut Worker, engine: &Engine) -> usize {
    start_scrub(engine, Txg(0)).await.unwrap();
    let slices = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (scanner, seen) = (engine.clone(), slices.clone());
    let count = move |_| _ = seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let scrubbing = rt.spawn(async move { run_scan(&scanner, &count).await });
    worker.run(STEPS).await;
    let done = scrubbing.await.unwrap().unwrap();
    assert_eq!(done.errors, 0);
    slices.load(std::sync::atomic::Ordering::Relaxed)
}

/// No disk holds wrong data, and all data is readable without as many of the other disks as the layout can
/// spare.
async fn check_first_disk(rt: &Runtime, layout: &Layout, disks: &Disks, world: &World) {
    let again = Disks::new(rt, layout.shape(), disks.images());
    check_sound(&open(rt, again.devices()).await.unwrap()).await.unwrap();
    let (_, parity, count, _) = layout.vdevs[0];
    let can_go = if parity == 0 { count - 1 } else { parity };
    let gone: Vec<usize> = (1..=can_go).collect();
    let again = Disks::new(rt, layout.shape(), disks.images());
    compare(&open(rt, again.devices_but(&gone)).await.unwrap(), world, &Unsure::new()).await.unwrap();
}

#[test]
fn a_scrub_repairs_a_disk_while_others_work() {
    on_pools("a_scrub_repairs_a_disk_while_others_work", |seed, layout| {
        simulate(seed, |rt| async move {
            let (disks, mut worker) = begin(&rt, layout).await;
            let engine = worker.engine().clone();
            let slices = scrub(&rt, &mut worker, &engine).await;
            assert!(slices > 0);
            worker.sync().await;
            let scan = scan_of(&engine).await;
            assert_eq!(ScanState::from(scan.state), ScanState::Finished);
            assert!(scan.processed_bytes > 0 && scan.errors == 0, "{scan:?}");
            check_first_disk(&rt, layout, &disks, &worker.world().clone()).await;
        });
    });
}

#[test]
fn a_scrub_goes_on_after_a_pause_and_ends_when_it_is_cancelled() {
    let layout = Layout { vdevs: vec![(Raidz, 1, 3, Normal)], sector_bytes: 512, spares: 0 };
    simulate(number("CENOTE_SEED").unwrap_or(7), |rt| async move {
        let (disks, mut worker) = begin(&rt, &layout).await;
        let engine = worker.engine().clone();
        // Slices end as early as possible, so that there is one to pause after.
        engine.background().settings().set("zfs_scrub_min_time_ms", 1).unwrap();
        start_scrub(&engine, Txg(0)).await.unwrap();
        let scanner = engine.clone();
        let scrubbing = rt.spawn(async move { run_scan(&scanner, &|_| {}).await });
        while scan_of(&engine).await.examined_bytes == 0 {
            rt.sleep(Duration::from_secs(1)).await;
        }
        pause_scrub(&engine).await.unwrap();
        scrubbing.await.unwrap().unwrap();
        let paused = scan_of(&engine).await;
        assert!(paused.is_paused() && paused.bookmark.dataset.0 + paused.bookmark.object.0 > 0, "{paused:?}");
        assert!(start_scrub(&engine, Txg(0)).await.is_ok(), "it goes on");
        run_scan(&engine, &|_| {}).await.unwrap();
        assert_eq!(ScanState::from(scan_of(&engine).await.state), ScanState::Finished);
        worker.sync().await;
        check_first_disk(&rt, &layout, &disks, &worker.world().clone()).await;

        start_scrub(&engine, Txg(0)).await.unwrap();
        let twice = start_scrub(&engine, Txg(0)).await.unwrap_err().to_string();
        assert!(twice.contains("currently scrubbing"), "{twice}");
        cancel_scrub(&engine).await.unwrap();
        let ended = scan_of(&engine).await;
        assert_eq!(ScanState::from(ended.state), ScanState::Canceled);
        assert!(pause_scrub(&engine).await.is_err() && cancel_scrub(&engine).await.is_err());
    });
}

/// A snapshot that a scrub is reading is destroyed, and its file system after it: nothing is left to read
/// instead.
#[test]
fn a_scrub_ends_though_what_it_reads_is_destroyed_with_its_file_system() {
    const ROUNDS: u64 = 16;
    let layout = Layout { vdevs: vec![(Mirror, 0, 2, Normal)], sector_bytes: 512, spares: 0 };
    simulate(number("CENOTE_SEED").unwrap_or(3), |rt| async move {
        let disks = Disks::new(&rt, layout.shape(), layout.blank());
        let made = create(&rt, &layout, &disks.devices()).await;
        let name = format!("{POOL}/gone");
        for round in 0..ROUNDS {
            make_child(&rt, &made, &format!("{name}{round}"), &[]).await;
        }
        made.sync_all().await.unwrap();
        drop(made);
        let disks = Disks::new(&rt, layout.shape(), disks.images());
        let slow = disks
            .devices()
            .into_iter()
            .map(|disk| Arc::new(Delayed::new(disk, SLOW, &rt)) as Arc<dyn Device>);
        let engine = Engine::start(&open(&rt, slow.collect()).await.unwrap()).await.unwrap();
        for round in 0..ROUNDS {
            let name = format!("{name}{round}");
            let mut files = Files::of(&rt, &engine, &name).await;
            for _ in 0..8 {
                files.make(300_000).await.unwrap();
            }
            drop(files);
            let snapshot_name = [format!("{name}@s")];
            snapshot(&engine, &snapshot_name).await.unwrap();
            start_scrub(&engine, Txg(0)).await.unwrap();
            let scanner = engine.clone();
            let scrubbing = rt.spawn(async move { run_scan(&scanner, &|_| {}).await });
            rt.sleep(Duration::from_secs(round * 2)).await;
            destroy_snapshots(&engine, &snapshot_name, InUse::Refuse).await.unwrap();
            destroy_dataset(&engine, &name).await.unwrap();
            assert_eq!(scrubbing.await.unwrap().unwrap().errors, 0, "round {round}");
            engine.sync_all().await.unwrap();
        }
    });
}

/// After a cut, the scrub continues where it was; then the first disk has all surviving data.
async fn survive(cut: Cut<'_>) -> Result<(), String> {
    let left = cut.open_damaged().await?;
    let scan = left.engine().mos().await.unwrap().scan_status().await.unwrap();
    if !scan.is_some_and(|scan| scan.is_scrub()) {
        return Ok(());
    }
    run_scan(left.engine(), &|_| {}).await.map_err(|error| error.to_string())?;
    let scan = scan_of(left.engine()).await;
    if ScanState::from(scan.state) != ScanState::Finished || scan.errors > 0 {
        return Err(format!("{scan:?}"));
    }
    left.end(&[], &[]).await
}

#[test]
fn a_scrub_goes_on_after_a_power_cut() {
    on_pools("a_scrub_goes_on_after_a_power_cut", |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (disks, worker) = begin(&rt, layout).await;
            let (engine, world) = (worker.engine().clone(), worker.world().clone());
            drop(worker);
            let before = disks.images();
            disks.take_journal();
            let mut worker = Worker::begin(&rt, engine.clone(), &disks, world).await;
            scrub(&rt, &mut worker, &engine).await;
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, CUTS, survive);
    });
}
