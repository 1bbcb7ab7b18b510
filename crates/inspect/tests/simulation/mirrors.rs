//! Disks join a mirror under load and take over from the old ones: they have all writes. The same holds if
//! the power is cut on the way.

use std::sync::Arc;

use cenote_device::Device;
use cenote_engine::Engine;
use cenote_format::units::{Guid, VdevId};
use cenote_pool::VdevClass::{Log, Normal};
use cenote_pool::VdevKind::{Disk, Mirror};
use cenote_pool::create::NewDevice;
use cenote_runtime::Runtime;
use cenote_tasks::{Resilver, attach, detach, run_scan};

use crate::check::{Unsure, check_sound, compare};
use crate::cuts::{self, Cut, simulate, survives_cuts};
use crate::pools::{Disks, Layout, Vdev, open};
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run.
const CUTS: usize = 6;

/// The pool, and one more disk not part of it.
async fn begin(rt: &Runtime, layout: &Layout) -> (Disks, Engine, Worker) {
    Worker::on_new_pool(rt, layout, 1, STEPS).await
}

/// The leaves of the first vdev.
fn leaves(engine: &Engine) -> Vec<Guid> {
    let top = engine.pool().tree().vdevs().top(VdevId(0)).cloned().unwrap();
    top.leaves().map(|leaf| leaf.guid).collect()
}

/// The last disk joins the first vdev while the work goes on.
async fn join(rt: &Runtime, disks: &Disks, engine: &Engine, worker: &mut Worker) {
    let device = disks.disks.last().unwrap().clone() as Arc<dyn Device>;
    let new = NewDevice { path: device.describe().to_owned(), device, is_file: false };
    let (engine, first) = (engine.clone(), leaves(engine)[0]);
    let joining = rt.spawn(async move {
        attach(&engine, first, new, Resilver::Healing).await?;
        run_scan(&engine, &|_| {}).await
    });
    worker.run(STEPS).await;
    assert!(joining.await.unwrap().unwrap().incomplete.is_empty());
}

/// All disks of the first vdev but the last one leave.
async fn take_over(engine: &Engine) {
    while let [first, _, ..] = leaves(engine)[..] {
        detach(engine, first).await.unwrap();
    }
}

fn on_pools(test: &str, run: impl Fn(u64, &Layout)) {
    let pools: [&[Vdev]; 3] =
        [&[(Disk, 0, 1, Normal)], &[(Mirror, 0, 2, Normal)], &[(Disk, 0, 1, Normal), (Disk, 0, 1, Log)]];
    cuts::on_pools(test, &pools, run);
}

#[test]
fn a_disk_that_joins_under_work_has_everything() {
    on_pools("a_disk_that_joins_under_work_has_everything", |seed, layout| {
        simulate(seed, |rt| async move {
            let (disks, engine, mut worker) = begin(&rt, layout).await;
            join(&rt, &disks, &engine, &mut worker).await;
            worker.run(STEPS / 4).await;
            take_over(&engine).await;
            worker.run(STEPS / 4).await;
            worker.sync().await;
            let first = layout.vdevs[0].2;
            let world = worker.world().clone();
            let disks = Disks::new(&rt, layout.shape(), disks.images());
            let gone: Vec<usize> = (0..first).collect();
            let mos = open(&rt, disks.devices_but(&gone)).await.unwrap();
            compare(&mos, &world, &Unsure::new()).await.unwrap();
            check_sound(&mos).await.unwrap();
        });
    });
}

/// After a cut, all surviving data is present; a resilver copies it to the disk that joined, if it did. Then
/// one disk of the first vdev suffices.
async fn survive(cut: Cut<'_>) -> Result<(), String> {
    let left = cut.open().await?;
    run_scan(left.engine(), &|_| {}).await.map_err(|error| error.to_string())?;
    let before = left.layout.vdevs[0].2;
    let has_joined = leaves(left.engine()).len() > before;
    take_over(left.engine()).await;
    let (stays, last) = (if has_joined { None } else { Some(before - 1) }, left.layout.disk_count());
    let gone = (0..before).chain([last]).filter(|disk| stays.map_or(*disk != last, |stays| *disk != stays));
    let gone: Vec<usize> = gone.collect();
    left.end(&gone, &[]).await.map_err(|why| format!("joined: {has_joined}: {why}"))
}

#[test]
fn power_cuts_while_a_disk_joins() {
    on_pools("power_cuts_while_a_disk_joins", |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (disks, engine, worker) = begin(&rt, layout).await;
            let (mut worker, before) = worker.cut_from_here().await;
            join(&rt, &disks, &engine, &mut worker).await;
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, CUTS, survive);
    });
}
