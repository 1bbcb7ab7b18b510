//! Disks are replaced under load: afterwards the new disk has all data of the old one, which has left the
//! pool. The same holds if the old disk does not work, and if the power is cut on the way. A cancelled
//! replacement leaves the pool as it was.

use std::sync::Arc;

use cenote_device::Device;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::VdevClass::{Log, Normal};
use cenote_pool::VdevConfig;
use cenote_pool::VdevKind::{Disk, Draid, Mirror, Raidz, Replacing};
use cenote_pool::create::NewDevice;
use cenote_runtime::Runtime;
use cenote_tasks::{Away, Resilver, detach, rebuilding, replace, run_rebuild, run_scan, take_out};

use crate::check::{Unsure, check_sound, compare};
use crate::cuts::{self, Cut, Replay, number, simulate, survives_cuts};
use crate::pools::{Disks, Layout, Vdev, open};
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run.
const CUTS: usize = 4;
/// Slices of scans, so that there are several.
const SLICE_MS: u64 = 20;

fn on_pools(test: &str, run: impl Fn(u64, &Layout)) {
    let pools: [&[Vdev]; 5] = [
        &[(Disk, 0, 1, Normal)],
        &[(Mirror, 0, 2, Normal)],
        &[(Raidz, 1, 3, Normal)],
        &[(Raidz, 2, 5, Normal)],
        &[(Mirror, 0, 2, Normal), (Disk, 0, 1, Log)],
    ];
    cuts::on_pools(test, &pools, run);
}

/// Pools whose first vdev supports sequential rebuilds.
fn on_pools_to_rebuild(test: &str, run: impl Fn(u64, &Layout)) {
    let pools: [&[Vdev]; 4] = [
        &[(Disk, 0, 1, Normal)],
        &[(Mirror, 0, 3, Normal), (Raidz, 1, 3, Normal)],
        &[(Draid, 1, 4, Normal)],
        &[(Draid, 2, 6, Normal)],
    ];
    cuts::on_pools(test, &pools, run);
}

/// The pool, and one more disk not part of it.
async fn begin(rt: &Runtime, layout: &Layout) -> (Disks, Engine, Worker) {
    Worker::on_new_pool(rt, layout, 1, STEPS).await
}

fn leaf_at(engine: &Engine, path: &str) -> Option<Guid> {
    let config = engine.pool().tree().config();
    let mut leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
    leaves.find(|leaf| leaf.path.as_deref() == Some(path)).map(|leaf| leaf.guid)
}

fn is_being_replaced(engine: &Engine) -> bool {
    let config = engine.pool().tree().config();
    config.vdevs.iter().flat_map(VdevConfig::walk).any(|vdev| vdev.kind == Replacing)
}

/// Replaces the first disk by the last while the work goes on; the first one works, or not.
async fn replace_first(
    rt: &Runtime,
    layout: &Layout,
    disks: &Disks,
    engine: &Engine,
    worker: &mut Worker,
    resilver: Resilver,
) {
    let device = disks.disks.last().unwrap().clone() as Arc<dyn Device>;
    let new = NewDevice { path: device.describe().to_owned(), device, is_file: false };
    let old = leaf_at(engine, disks.disks[0].describe()).unwrap();
    if layout.vdevs[0].2 > 1 && rt.random_u64().is_multiple_of(2) {
        take_out(engine, old, Away::Offline).await.unwrap();
        worker.run(STEPS / 4).await;
    }
    let engine = engine.clone();
    let replacing = rt.spawn(async move {
        replace(&engine, old, new, resilver).await?;
        run_rebuild(&engine, &|_| {}).await?;
        run_scan(&engine, &|_| {}).await
    });
    worker.run(STEPS).await;
    assert!(replacing.await.unwrap().unwrap().incomplete.is_empty());
}

/// Disks of the first vdev dispensable after its first disk was replaced.
fn can_go(layout: &Layout) -> Vec<usize> {
    let (_, parity, count, _) = layout.vdevs[0];
    let others = if parity == 0 { count - 1 } else { parity };
    (0..=others).collect()
}

/// The first disk is replaced under load; afterwards the pool is sound without it, and the new disk has the
/// same data as the others.
async fn replaced_under_work(rt: &Runtime, layout: &Layout, resilver: Resilver) {
    let (disks, engine, mut worker) = begin(rt, layout).await;
    // Errors left by a rebuild must be seen, not repaired.
    engine.background().settings().set("zfs_rebuild_scrub_enabled", 0).unwrap();
    replace_first(rt, layout, &disks, &engine, &mut worker, resilver).await;
    assert!(!is_being_replaced(&engine) && leaf_at(&engine, disks.disks[0].describe()).is_none());
    assert!(rebuilding(&engine.mos().await.unwrap()).await.unwrap().is_empty());
    worker.run(STEPS / 4).await;
    worker.sync().await;
    let world = worker.world().clone();
    let disks = Disks::new(rt, layout.shape(), disks.images());
    check_sound(&open(rt, disks.devices_but(&[0])).await.unwrap()).await.unwrap();
    let disks = Disks::new(rt, layout.shape(), disks.images());
    let mos = open(rt, disks.devices_but(&can_go(layout))).await.unwrap();
    compare(&mos, &world, &Unsure::new()).await.unwrap();
}

#[test]
fn a_disk_that_replaces_another_under_work_has_everything() {
    on_pools("a_disk_that_replaces_another_under_work_has_everything", |seed, layout| {
        simulate(seed, |rt| async move { replaced_under_work(&rt, layout, Resilver::Healing).await });
    });
}

#[test]
fn a_disk_that_is_rebuilt_under_work_has_everything() {
    on_pools_to_rebuild("a_disk_that_is_rebuilt_under_work_has_everything", |seed, layout| {
        simulate(seed, |rt| async move { replaced_under_work(&rt, layout, Resilver::Sequential).await });
    });
}

#[test]
fn what_joins_while_a_resilver_is_on_its_way_waits_for_the_next_one() {
    let layout =
        Layout { vdevs: vec![(Mirror, 0, 2, Normal), (Raidz, 1, 3, Normal)], sector_bytes: 512, spares: 0 };
    let seed = number("CENOTE_SEED").unwrap_or(1);
    let _replay = Replay { test: "what_joins_while_a_resilver_is_on_its_way_waits_for_the_next_one", seed };
    simulate(seed, |rt| async move {
        let (disks, engine, mut worker) = Worker::on_new_pool(&rt, &layout, 2, STEPS * 10).await;
        worker.sync().await;
        engine.background().settings().set("zfs_resilver_min_time_ms", 1).unwrap();
        let join = async |disk: usize, old: usize| {
            let device = disks.disks[disk].clone() as Arc<dyn Device>;
            let new = NewDevice { path: device.describe().to_owned(), device, is_file: false };
            let old = leaf_at(&engine, disks.disks[old].describe()).unwrap();
            replace(&engine, old, new, Resilver::Healing).await.unwrap();
        };
        let waits = || {
            engine
                .pool()
                .tree()
                .config()
                .vdevs
                .iter()
                .flat_map(VdevConfig::leaves)
                .any(|leaf| leaf.resilver_defer)
        };
        join(5, 0).await;
        let stop_on_the_way = |now: cenote_tasks::ScanProgress| {
            if now.done_bytes * 10 > now.total_bytes {
                engine.background().settings().set("zfs_scan_suspend_progress", 1).unwrap();
            }
        };
        run_scan(&engine, &stop_on_the_way).await.unwrap();
        let before = engine.mos().await.unwrap().scan_status().await.unwrap().unwrap();
        assert!(before.is_running() && before.is_resilver());
        join(6, 2).await;
        let after = engine.mos().await.unwrap().scan_status().await.unwrap().unwrap();
        assert_eq!(
            (after.start_time_s, after.bookmark),
            (before.start_time_s, before.bookmark),
            "it goes on"
        );
        assert!(waits());
        engine.background().settings().set("zfs_scan_suspend_progress", 0).unwrap();
        assert!(run_scan(&engine, &|_| {}).await.unwrap().incomplete.is_empty());
        assert!(!waits() && !is_being_replaced(&engine));
        worker.sync().await;
        let world = worker.world().clone();
        let disks = Disks::new(&rt, layout.shape(), disks.images());
        let mos = open(&rt, disks.devices_but(&[0, 2, 1, 3])).await.unwrap();
        compare(&mos, &world, &Unsure::new()).await.unwrap();
    });
}

#[test]
fn a_replacement_that_is_called_off_leaves_the_pool_as_it_was() {
    on_pools("a_replacement_that_is_called_off_leaves_the_pool_as_it_was", |seed, layout| {
        simulate(seed, |rt| async move {
            let (disks, engine, mut worker) = begin(&rt, layout).await;
            let tree = engine.pool().tree().config().vdevs.clone();
            let device = disks.disks.last().unwrap().clone() as Arc<dyn Device>;
            // The new disk is at the path of the old one.
            let path = disks.disks[0].describe();
            let new = NewDevice { path: path.into(), device, is_file: false };
            replace(&engine, leaf_at(&engine, path).unwrap(), new, Resilver::Healing).await.unwrap();
            worker.run(STEPS / 4).await;
            assert!(leaf_at(&engine, &format!("{path}/old")).is_some());
            detach(&engine, leaf_at(&engine, path).unwrap()).await.unwrap();
            let shape = |vdevs: &[VdevConfig]| -> Vec<_> {
                let all = vdevs.iter().flat_map(VdevConfig::walk);
                all.map(|vdev| (vdev.kind.clone(), vdev.id, vdev.path.clone(), vdev.ashift)).collect()
            };
            assert_eq!(shape(&engine.pool().tree().config().vdevs), shape(&tree));
            worker.run(STEPS / 4).await;
            worker.sync().await;
            let world = worker.world().clone();
            let last = layout.disk_count();
            let disks = Disks::new(&rt, layout.shape(), disks.images());
            let mos = open(&rt, disks.devices_but(&[last])).await.unwrap();
            compare(&mos, &world, &Unsure::new()).await.unwrap();
            check_sound(&mos).await.unwrap();
        });
    });
}

/// After a cut, all surviving data is present; a replacement that had begun is finished.
async fn survive(cut: Cut<'_>) -> Result<(), String> {
    let left = cut.open().await?;
    run_rebuild(left.engine(), &|_| {}).await.map_err(|error| error.to_string())?;
    let scanned = run_scan(left.engine(), &|_| {}).await.map_err(|error| error.to_string())?;
    if is_being_replaced(left.engine()) {
        return Err(format!("the old disk stays: {scanned:?}"));
    }
    match leaf_at(left.engine(), left.disks.disks[0].describe()) {
        None => {
            let lost = can_go(left.layout);
            left.end(&[0], &lost[1..]).await.map_err(|why| format!("replaced: {why}"))
        }
        Some(_) => {
            let new = left.layout.disk_count();
            left.end(&[new], &[]).await.map_err(|why| format!("not replaced: {why}"))
        }
    }
}

fn power_cuts(seed: u64, layout: &Layout, resilver: Resilver) {
    let run = simulate(seed, |rt| async move {
        let (disks, engine, worker) = begin(&rt, layout).await;
        engine.background().settings().set("zfs_resilver_min_time_ms", SLICE_MS).unwrap();
        let (mut worker, before) = worker.cut_from_here().await;
        replace_first(&rt, layout, &disks, &engine, &mut worker, resilver).await;
        worker.into_run(before)
    });
    survives_cuts(seed, layout, &run, CUTS, survive);
}

#[test]
fn power_cuts_while_a_disk_is_replaced() {
    on_pools("power_cuts_while_a_disk_is_replaced", |seed, layout| {
        power_cuts(seed, layout, Resilver::Healing);
    });
}

#[test]
fn power_cuts_while_a_disk_is_rebuilt() {
    on_pools_to_rebuild("power_cuts_while_a_disk_is_rebuilt", |seed, layout| {
        power_cuts(seed, layout, Resilver::Sequential);
    });
}
