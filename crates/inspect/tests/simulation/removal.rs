//! Vdevs that hold data leave a pool under load: afterwards all data is on the others. The same holds if the
//! power is cut on the way, and the removal continues or is canceled.

use std::time::Duration;

use cenote_engine::Engine;
use cenote_format::units::{Txg, VdevId};
use cenote_pool::VdevClass::{Normal, Special};
use cenote_pool::VdevKind::{Disk, Indirect, Mirror};
use cenote_runtime::Runtime;
use cenote_tasks::{
    Removed, cancel_removal, removing_vdev, run_removal, run_scan, start_removal, start_scrub,
};

use crate::check::{Unsure, check_sound, compare};
use crate::cuts::{self, Cut, simulate, survives_cuts};
use crate::pools::{Disks, Layout, Vdev, open};
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run.
const CUTS: usize = 4;
/// A removal beside scrubs takes a few seconds.
const MOST_TIME: Duration = Duration::from_secs(120);

fn on_pools(test: &str, run: impl Fn(u64, &Layout)) {
    let pools: [&[Vdev]; 3] = [
        &[(Disk, 0, 1, Normal), (Disk, 0, 1, Normal), (Disk, 0, 1, Normal)],
        &[(Mirror, 0, 2, Normal), (Disk, 0, 1, Normal), (Mirror, 0, 2, Normal)],
        &[(Disk, 0, 1, Special), (Disk, 0, 1, Normal), (Mirror, 0, 2, Normal)],
    ];
    cuts::on_pools(test, &pools, run);
}

async fn begin(rt: &Runtime, layout: &Layout) -> (Disks, Engine, Worker) {
    Worker::on_new_pool(rt, layout, 0, STEPS).await
}

/// Removes the first vdev while the work goes on, a little in each txg.
async fn remove_first(rt: &Runtime, engine: &Engine, worker: &mut Worker) {
    engine.background().settings().set("zfs_remove_max_segment", 16 << 10).unwrap();
    let engine = engine.clone();
    let removing = rt.spawn(async move {
        start_removal(&engine, VdevId(0)).await?;
        run_removal(&engine, &|_| {}).await
    });
    worker.run(STEPS).await;
    assert_eq!(removing.await.unwrap().unwrap(), Removed::Done);
}

/// Condenses obsolete ranges out of the mapping at once.
fn condense_always(engine: &Engine) {
    for name in ["zfs_condense_indirect_obsolete_pct", "zfs_condense_min_mapping_bytes"] {
        engine.background().settings().set(name, 0).unwrap();
    }
}

fn mapped_ranges(engine: &Engine) -> usize {
    engine.allocator().mapping(VdevId(0)).unwrap().entries().len()
}

fn is_removed(engine: &Engine) -> bool {
    engine.pool().tree().vdevs().top(VdevId(0)).unwrap().kind == Indirect
}

/// The disks of the first vdev.
fn leaving(layout: &Layout) -> Vec<usize> {
    (0..layout.vdevs[0].2).collect()
}

#[test]
fn what_lay_on_a_vdev_that_leaves_under_work_is_on_the_others() {
    on_pools("what_lay_on_a_vdev_that_leaves_under_work_is_on_the_others", |seed, layout| {
        simulate(seed, |rt| async move {
            let (disks, engine, mut worker) = begin(&rt, layout).await;
            remove_first(&rt, &engine, &mut worker).await;
            assert!(is_removed(&engine));
            let before = mapped_ranges(&engine);
            condense_always(&engine);
            for _ in 0..4 {
                worker.run(STEPS / 2).await;
                worker.sync().await;
                run_removal(&engine, &|_| {}).await.unwrap();
            }
            let left = mapped_ranges(&engine);
            assert!(left <= before, "{left} ranges of {before} are left");
            worker.sync().await;
            let world = worker.world().clone();
            let disks = Disks::new(&rt, layout.shape(), disks.images());
            let mos = open(&rt, disks.devices_but(&leaving(layout))).await.unwrap();
            check_sound(&mos).await.unwrap();
            compare(&mos, &world, &Unsure::new()).await.unwrap();
        });
    });
}

#[test]
fn a_removal_ends_although_one_scrub_follows_another() {
    on_pools("a_removal_ends_although_one_scrub_follows_another", |seed, layout| {
        simulate(seed, |rt| async move {
            let (_disks, engine, mut worker) = begin(&rt, layout).await;
            engine.background().settings().set("zfs_scrub_min_time_ms", 1).unwrap();
            let scanned = engine.clone();
            let scrubbing = rt.spawn(async move {
                loop {
                    start_scrub(&scanned, Txg(0)).await.unwrap();
                    run_scan(&scanned, &|_| {}).await.unwrap();
                }
            });
            let scrubbing = scrubbing.abort_on_drop();
            let removed = rt.timeout(MOST_TIME, remove_first(&rt, &engine, &mut worker)).await;
            assert!(removed.is_ok() && is_removed(&engine), "it has not ended");
            drop(scrubbing);
        });
    });
}

/// After a cut, all surviving data is present; a removal that had begun is finished, or canceled.
async fn survive(cut: Cut<'_>) -> Result<(), String> {
    let text = |error: cenote_object::DatasetError| error.to_string();
    let (at, left) = (cut.at, cut.open().await?);
    let engine = left.engine();
    let removing = removing_vdev(&engine.mos().await.map_err(text)?).await.map_err(text)?;
    match removing {
        Some(_) if at.is_multiple_of(2) => cancel_removal(engine).await.map_err(text)?,
        _ => drop(run_removal(engine, &|_| {}).await.map_err(text)?),
    }
    let is_gone = is_removed(engine);
    let gone = if is_gone { leaving(left.layout) } else { Vec::new() };
    left.end(&gone, &[]).await.map_err(|why| format!("removed: {is_gone}: {why}"))
}

#[test]
fn power_cuts_while_a_vdev_is_removed() {
    on_pools("power_cuts_while_a_vdev_is_removed", |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (_, engine, worker) = begin(&rt, layout).await;
            let (mut worker, before) = worker.cut_from_here().await;
            condense_always(&engine);
            remove_first(&rt, &engine, &mut worker).await;
            worker.run(STEPS / 4).await;
            run_removal(&engine, &|_| {}).await.unwrap();
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, CUTS, survive);
    });
}
