//! Distributed spares of a dRAID stand in under load for a disk lost or full of rubbish, by a resilver or a
//! sequential rebuild. Then as many other disks may go as before; a disk that comes back gets the txgs it
//! missed, and the spare is free again. The same holds if the power is cut on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_device::Device;
use cenote_engine::Engine;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::{Guid, Txg};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::{DistributedSpare, Draid, Spare};
use cenote_pool::{VdevConfig, discover_devices};
use cenote_runtime::Runtime;
use cenote_tasks::{
    Away, Back, Resilver, bring_back, detach, rebuilding, run_rebuild, run_scan, spare_in, start_scrub,
    take_out,
};
use cenote_testkit::image::Image;

use crate::check::{Unsure, check_sound, compare};
use crate::cuts::{self, Cut, Opened, simulate, survives_cuts};
use crate::model::World;
use crate::pools::{Disks, Layout, open};
use crate::run::recover_damaged;
use crate::scans::spoil;
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run.
const CUTS: usize = 3;
/// Slices of scans, so that there are several.
const SLICE_MS: u64 = 20;
const BLOCK_BYTES: usize = 4096;
/// The part of a disk searched for content: without the labels at its end.
const SEARCHED_BYTES: u64 = 63 << 20;
const WAYS: [Resilver; 2] = [Resilver::Healing, Resilver::Sequential];

fn on_pools(test: &str, run: impl Fn(u64, &Layout)) {
    let layout = |parity, disks, spares| Layout {
        vdevs: vec![(Draid, parity, disks, Normal)],
        sector_bytes: 512,
        spares,
    };
    cuts::on_layouts(test, &[layout(1, 5, 1), layout(1, 6, 2), layout(2, 7, 1)], run);
}

/// The disks, fullest first: a dRAID puts little data on some of its disks.
fn by_content(images: &[Image]) -> Vec<usize> {
    let held = |image: &Image| {
        let blocks = (VDEV_LABEL_START_SIZE..SEARCHED_BYTES).step_by(BLOCK_BYTES);
        blocks.filter(|at| image.read(*at, BLOCK_BYTES).iter().any(|byte| *byte != 0)).count()
    };
    let mut disks: Vec<usize> = (0..images.len()).collect();
    disks.sort_by_cached_key(|disk| std::cmp::Reverse(held(&images[*disk])));
    disks
}

/// Number of disks that may be missing.
fn parity(layout: &Layout) -> usize {
    layout.vdevs[0].1
}

fn leaf_at(engine: &Engine, path: &str) -> Guid {
    let config = engine.pool().tree().config();
    let mut leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
    leaves.find(|leaf| leaf.path.as_deref() == Some(path)).map(|leaf| leaf.guid).unwrap()
}

/// Spares that stand in for a disk.
fn standing_in(engine: &Engine) -> Vec<Guid> {
    let config = engine.pool().tree().config();
    let leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
    leaves.filter(|leaf| leaf.kind == DistributedSpare).map(|leaf| leaf.guid).collect()
}

/// Activates a free spare.
async fn spare_for(engine: &Engine, disk: Guid, way: Resilver) {
    let (config, used) = (engine.pool().tree().config(), standing_in(engine));
    let free = config.spares.iter().find(|spare| !used.contains(&spare.guid)).unwrap().guid;
    spare_in(engine, disk, free, None, way).await.unwrap();
}

/// Runs all unfinished events to their end.
async fn bring_all(engine: &Engine) -> Result<(), String> {
    let text = |error: cenote_object::DatasetError| error.to_string();
    run_rebuild(engine, &|_| {}).await.map_err(text)?;
    let done = run_scan(engine, &|_| {}).await.map_err(text)?;
    if done.errors > 0 || !done.incomplete.is_empty() {
        return Err(format!("{done:?}"));
    }
    match rebuilding(&engine.mos().await.map_err(text)?).await.map_err(text)?.is_empty() {
        true => Ok(()),
        false => Err("a rebuild is not done".into()),
    }
}

/// The disk is gone, or taken offline, and a spare steps in, under load.
async fn lose(rt: &Runtime, engine: &Engine, worker: &mut Worker, disk: Guid, way: Resilver) {
    let how = if rt.random_u64().is_multiple_of(2) { Away::Removed } else { Away::Offline };
    take_out(engine, disk, how).await.unwrap();
    worker.run(STEPS / 4).await;
    spare_for(engine, disk, way).await;
    let runner = engine.clone();
    let bringing = rt.spawn(async move { bring_all(&runner).await });
    worker.run(STEPS / 2).await;
    bringing.await.unwrap().unwrap();
}

/// Resilvers the disk. A missing one frees the spare by itself; otherwise it is detached.
async fn come_back(disks: &Disks, engine: &Engine, number: usize) -> Result<(), String> {
    let disk = disks.disks[number].clone();
    let leaf = leaf_at(engine, disk.describe());
    // The disk is found by its labels, which stay until those of the next txg replace them.
    let discovery = discover_devices(vec![disk as Arc<dyn Device>]).await;
    let found = discovery.pools.first().and_then(|pool| pool.devices.get(&leaf));
    let found = found.ok_or_else(|| format!("not found: {:?}", discovery.problems))?;
    let devices = BTreeMap::from([(leaf, found.clone())]);
    let config = engine.pool().tree().config();
    let is_offline =
        config.vdevs.iter().flat_map(VdevConfig::leaves).any(|one| one.guid == leaf && one.offline);
    let how = if is_offline { Back::Online } else { Back::Reopened };
    let before = standing_in(engine).len();
    bring_back(engine, Some(leaf), how, devices).await.map_err(|error| error.to_string())?;
    bring_all(engine).await?;
    match standing_in(engine).len() < before {
        true => Ok(()),
        false if is_offline => release(engine, leaf).await,
        false => Err("the spare stays".into()),
    }
}

/// The spare that stands in for a disk is available again.
async fn release(engine: &Engine, disk: Guid) -> Result<(), String> {
    let config = engine.pool().tree().config();
    let spares = config.vdevs.iter().flat_map(VdevConfig::walk);
    let mut spares = spares.filter(|vdev| vdev.kind == Spare && vdev.children[0].guid == disk);
    let Some(spare) = spares.next() else { return Ok(()) };
    detach(engine, spare.children[1].guid).await.map_err(|error| error.to_string())
}

/// All data is readable without these disks and any others that a dRAID can spare.
async fn complete_without(
    rt: &Runtime,
    layout: &Layout,
    images: &[Image],
    gone: &[usize],
    world: &World,
    unsure: &Unsure,
) -> Result<(), String> {
    let others: Vec<usize> = (0..layout.disk_count()).filter(|disk| !gone.contains(disk)).collect();
    for first in 0..others.len() {
        let more = (0..parity(layout)).map(|next| others[(first + next) % others.len()]);
        let lost: Vec<usize> = gone.iter().copied().chain(more).collect();
        let disks = Disks::new(rt, layout.shape(), images.to_vec());
        let mos = open(rt, disks.devices_but(&lost)).await.map_err(|why| format!("no {lost:?}: {why}"))?;
        compare(&mos, world, unsure).await.map_err(|why| format!("no {lost:?}: {why}"))?;
    }
    Ok(())
}

fn steps_in_under_work(test: &str, way: Resilver) {
    on_pools(test, |seed, layout| {
        simulate(seed, |rt| async move {
            let (disks, engine, mut worker) = Worker::on_new_pool(&rt, layout, 0, STEPS).await;
            // Errors left by a rebuild must be seen, not repaired.
            engine.background().settings().set("zfs_rebuild_scrub_enabled", 0).unwrap();
            let mut gone = Vec::new();
            worker.sync().await;
            let fullest = by_content(&disks.images());
            for &number in &fullest[..layout.spares] {
                lose(&rt, &engine, &mut worker, leaf_at(&engine, disks.disks[number].describe()), way).await;
                gone.push(number);
                worker.sync().await;
                let (world, images) = (worker.world().clone(), disks.images());
                complete_without(&rt, layout, &images, &gone, &world, &Unsure::new()).await.unwrap();
            }
            assert_eq!(standing_in(&engine).len(), layout.spares);
            worker.run(STEPS / 4).await;
            for number in gone {
                come_back(&disks, &engine, number).await.unwrap();
            }
            assert!(standing_in(&engine).is_empty(), "spares are free again");
            worker.run(STEPS / 4).await;
            worker.sync().await;
            let (world, images) = (worker.world().clone(), disks.images());
            complete_without(&rt, layout, &images, &[], &world, &Unsure::new()).await.unwrap();
            let disks = Disks::new(&rt, layout.shape(), images);
            check_sound(&open(&rt, disks.devices()).await.unwrap()).await.unwrap();
        });
    });
}

#[test]
fn a_spare_that_steps_in_under_work_has_everything_and_goes_when_the_disk_is_back() {
    let test = "a_spare_that_steps_in_under_work_has_everything_and_goes_when_the_disk_is_back";
    steps_in_under_work(test, Resilver::Healing);
}

#[test]
fn a_spare_that_is_rebuilt_under_work_has_everything_and_goes_when_the_disk_is_back() {
    let test = "a_spare_that_is_rebuilt_under_work_has_everything_and_goes_when_the_disk_is_back";
    steps_in_under_work(test, Resilver::Sequential);
}

#[test]
fn a_spare_stays_for_good_for_a_disk_that_holds_rubbish() {
    on_pools("a_spare_stays_for_good_for_a_disk_that_holds_rubbish", |seed, layout| {
        simulate(seed, |rt| async move {
            let (disks, engine, mut worker) = Worker::on_new_pool(&rt, layout, 0, STEPS).await;
            worker.sync().await;
            let world = worker.world().clone();
            drop((worker, engine));
            let mut images = disks.images();
            let victim = by_content(&images)[0];
            spoil(&mut images[victim], layout, &rt);
            let disks = Disks::new(&rt, layout.shape(), images);
            let engine = Engine::start(&open(&rt, disks.devices()).await.unwrap()).await.unwrap();
            let mut worker = Worker::begin(&rt, engine.clone(), &disks, world).await;
            let wrong = leaf_at(&engine, disks.disks[victim].describe());
            // It stays in use: its data is verified as it is read.
            spare_for(&engine, wrong, Resilver::Healing).await;
            let runner = engine.clone();
            let bringing = rt.spawn(async move { bring_all(&runner).await });
            worker.run(STEPS / 2).await;
            bringing.await.unwrap().unwrap();
            assert_eq!(standing_in(&engine).len(), 1);
            detach(&engine, wrong).await.unwrap();
            worker.run(STEPS / 4).await;
            // Nothing came from the wrong disk.
            start_scrub(&engine, Txg(0)).await.unwrap();
            let scanned = run_scan(&engine, &|_| {}).await.unwrap();
            assert_eq!((scanned.errors, scanned.written_bytes), (0, 0), "{scanned:?}");
            worker.sync().await;
            let (world, images) = (worker.world().clone(), disks.images());
            complete_without(&rt, layout, &images, &[victim], &world, &Unsure::new()).await.unwrap();
        });
    });
}

#[test]
fn a_scrub_repairs_a_draid_with_a_spare_standing_in() {
    on_pools("a_scrub_repairs_a_draid_with_a_spare_standing_in", |seed, layout| {
        simulate(seed, |rt| async move {
            let (disks, engine, mut worker) = Worker::on_new_pool(&rt, layout, 0, STEPS).await;
            worker.sync().await;
            let victims = by_content(&disks.images());
            let gone = leaf_at(&engine, disks.disks[victims[0]].describe());
            lose(&rt, &engine, &mut worker, gone, Resilver::Healing).await;
            worker.sync().await;
            let world = worker.world().clone();
            drop((worker, engine));
            // Another disk holds rubbish, also in its part of the spare.
            let mut images = disks.images();
            spoil(&mut images[victims[1]], layout, &rt);
            let disks = Disks::new(&rt, layout.shape(), images);
            let engine =
                Engine::start(&open(&rt, disks.devices_but(&victims[..1])).await.unwrap()).await.unwrap();
            let mut worker = Worker::begin(&rt, engine.clone(), &disks, world).await;
            start_scrub(&engine, Txg(0)).await.unwrap();
            let runner = engine.clone();
            let scrubbing = rt.spawn(async move { run_scan(&runner, &|_| {}).await });
            worker.run(STEPS / 2).await;
            let scanned = scrubbing.await.unwrap().unwrap();
            assert!(scanned.errors == 0 && scanned.written_bytes > 0, "{scanned:?}");
            worker.sync().await;
            let (world, images) = (worker.world().clone(), disks.images());
            complete_without(&rt, layout, &images, &victims[..1], &world, &Unsure::new()).await.unwrap();
        });
    });
}

/// All surviving data is present; unfinished events end, and then the lost disk is back.
async fn survive(cut: Cut<'_>, (victim, is_missing): (usize, bool)) -> Result<(), String> {
    let text = |error: cenote_object::DatasetError| error.to_string();
    let missing: &[usize] = if is_missing { &[victim] } else { &[] };
    let left = cut.open_but(missing).await.map_err(|why| format!("without {missing:?}: {why}"))?;
    bring_all(left.engine()).await?;
    let has_spare = !standing_in(left.engine()).is_empty();
    let Opened { rt, layout, disks, pool, expected } = left;
    expected.compare(&pool.engine).await?;
    drop(pool);
    let images = disks.images();
    let complete = async |images: &[Image], gone: &[usize]| {
        complete_without(rt, layout, images, gone, &expected.world, &expected.unsure).await
    };
    if has_spare {
        complete(&images, &[victim]).await.map_err(|why| format!("the spare: {why}"))?;
    }
    let disks = Disks::new(rt, layout.shape(), images);
    let pool = recover_damaged(rt, disks.devices()).await.map_err(|why| format!("it is back: {why}"))?;
    let leaf = leaf_at(&pool.engine, disks.disks[victim].describe());
    let config = pool.engine.pool().tree().config();
    let is_out = config.vdevs.iter().flat_map(VdevConfig::leaves).any(|one| one.guid == leaf && one.offline);
    // A missing disk is found again when the pool is opened.
    match is_out {
        true => come_back(&disks, &pool.engine, victim).await,
        false => bring_all(&pool.engine).await,
    }
    .map_err(|why| format!("it is back: {why}"))?;
    release(&pool.engine, leaf).await?;
    pool.engine.force_sync().await.map_err(text)?;
    complete(&disks.images(), &[]).await.map_err(|why| {
        format!("in the end, victim {victim}, had spare {has_spare}, was out {is_out}: {why}")
    })?;
    Opened { rt, layout, disks, pool, expected }.end(&[], &[]).await
}

#[test]
fn power_cuts_while_a_spare_steps_in() {
    on_pools("power_cuts_while_a_spare_steps_in", |seed, layout| {
        for way in WAYS {
            let (run, victim) = simulate(seed, |rt| async move {
                let (disks, engine, worker) = Worker::on_new_pool(&rt, layout, 0, STEPS).await;
                engine.background().settings().set("zfs_resilver_min_time_ms", SLICE_MS).unwrap();
                let (mut worker, before) = worker.cut_from_here().await;
                let victim = by_content(&before)[0];
                let leaf = leaf_at(&engine, disks.disks[victim].describe());
                lose(&rt, &engine, &mut worker, leaf, way).await;
                (worker.into_run(before), victim)
            });
            survives_cuts(seed, layout, &run, CUTS, async |cut| survive(cut, (victim, true)).await);
        }
    });
}

#[test]
fn power_cuts_while_a_disk_comes_back_to_its_place_from_a_spare() {
    on_pools("power_cuts_while_a_disk_comes_back_to_its_place_from_a_spare", |seed, layout| {
        let (run, victim) = simulate(seed, |rt| async move {
            let (disks, engine, mut worker) = Worker::on_new_pool(&rt, layout, 0, STEPS).await;
            worker.sync().await;
            let victim = by_content(&disks.images())[0];
            let leaf = leaf_at(&engine, disks.disks[victim].describe());
            lose(&rt, &engine, &mut worker, leaf, Resilver::Healing).await;
            engine.background().settings().set("zfs_resilver_min_time_ms", SLICE_MS).unwrap();
            let (mut worker, before) = worker.cut_from_here().await;
            let (runner, back) = (engine.clone(), disks.clone());
            let returning = rt.spawn(async move { come_back(&back, &runner, victim).await });
            worker.run(STEPS / 2).await;
            returning.await.unwrap().unwrap();
            assert!(standing_in(&engine).is_empty());
            (worker.into_run(before), victim)
        });
        survives_cuts(seed, layout, &run, CUTS, async |cut| survive(cut, (victim, false)).await);
    });
}
