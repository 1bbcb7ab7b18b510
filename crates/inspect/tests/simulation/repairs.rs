//! Power cuts while known errors are scrubbed (`zpool scrub -e`), and while a RAID-Z repairs damage from
//! before its expansion. Afterwards all data is intact, and the error log is empty.

use std::collections::BTreeSet;
use std::sync::Arc;

use cenote_dataset::Mos;
use cenote_device::Device;
use cenote_engine::Engine;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::{BlockId, ObjectId, Txg, VdevId};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::{Mirror, Raidz};
use cenote_pool::create::NewDevice;
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::{Expanded, attach_to_raidz, run_expansion, run_scan, start_error_scrub, start_scrub};

use crate::cuts::{self, Cut, simulate, survives_cuts};
use crate::model::{Content, World};
use crate::pools::{Disks, Layout, Vdev, open};
use crate::scans::spoil;
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run.
const CUTS: usize = 4;
/// Blocks damaged on all disks.
const SPOILT: usize = 12;
const SECTOR_BYTES: usize = 512;

/// Offsets of the first sectors of some files' blocks, on disks with equal content.
async fn places(mos: &Mos, world: &World, rng: &mut Rng) -> BTreeSet<u64> {
    let mut places = BTreeSet::new();
    for (head, content) in &world.heads {
        let Content::Files(files) = content else { continue };
        let objset = mos.dataset(head).await.unwrap().objset().await.unwrap();
        for (id, node) in files.iter().filter(|(_, node)| !node.content.is_empty()) {
            let Ok(held) = objset.object(ObjectId(id.0)).await else { continue };
            let last = (node.content.len() as u64 - 1) / held.block_bytes();
            let bp = held.blkptr(0, BlockId(rng.below(last + 1))).await.unwrap();
            if let (Some(dva), false) = (bp.dvas().next(), bp.is_embedded()) {
                places.insert(dva.offset_bytes + VDEV_LABEL_START_SIZE);
            }
        }
    }
    while places.len() > SPOILT {
        let gone = *places.iter().nth(rng.below(places.len() as u64) as usize).unwrap();
        places.remove(&gone);
    }
    places
}

async fn noted(engine: &Engine) -> usize {
    engine.mos().await.unwrap().error_log().await.unwrap().len()
}

/// A pool with noted errors, all of which one disk can repair.
async fn with_known_errors(rt: &Runtime, layout: &Layout) -> (Engine, Worker) {
    let (disks, engine, mut worker) = Worker::on_new_pool(rt, layout, 0, STEPS).await;
    worker.sync().await;
    let world = worker.world().clone();
    let places = places(&engine.mos().await.unwrap(), &world, &mut rt.rng()).await;
    drop((worker, engine));
    let good = disks.images();
    let mut images = good.clone();
    for image in &mut images {
        places.iter().for_each(|at| image.write(*at, &[0xb5; SECTOR_BYTES]));
    }
    let disks = Disks::new(rt, layout.shape(), images);
    let engine = Engine::start(&open(rt, disks.devices()).await.unwrap()).await.unwrap();
    start_scrub(&engine, Txg(0)).await.unwrap();
    run_scan(&engine, &|_| {}).await.unwrap();
    assert!(places.is_empty() || noted(&engine).await > 0);
    for at in places {
        disks.disks[0].write_at(at, good[0].read(at, SECTOR_BYTES)).await.unwrap();
    }
    (engine.clone(), Worker::begin(rt, engine, &disks, world).await)
}

async fn survive_error_scrub(cut: Cut<'_>) -> Result<(), String> {
    let text = |error: cenote_object::DatasetError| error.to_string();
    let left = cut.open_damaged().await?;
    let engine = left.engine();
    let status = engine.mos().await.map_err(text)?.error_scrub_status().await.map_err(text)?;
    if !status.is_some_and(|scrub| scrub.is_running()) {
        start_error_scrub(engine).await.map_err(text)?;
    }
    run_scan(engine, &|_| {}).await.map_err(text)?;
    match noted(engine).await {
        0 => left.end(&[], &[]).await,
        noted => Err(format!("{noted} errors are noted still")),
    }
}

#[test]
fn power_cuts_while_known_errors_are_scrubbed() {
    let pools: [&[Vdev]; 2] = [&[(Mirror, 0, 2, Normal)], &[(Mirror, 0, 3, Normal)]];
    cuts::on_pools("power_cuts_while_known_errors_are_scrubbed", &pools, |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (engine, worker) = with_known_errors(&rt, layout).await;
            engine.background().settings().set("zfs_scrub_error_blocks_per_txg", 2).unwrap();
            let (mut worker, before) = worker.cut_from_here().await;
            let scrubbing = rt.spawn(async move {
                start_error_scrub(&engine).await?;
                run_scan(&engine, &|_| {}).await
            });
            worker.run(STEPS / 4).await;
            scrubbing.await.unwrap().unwrap();
            worker.run(STEPS / 4).await;
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, CUTS, survive_error_scrub);
    });
}

/// A RAID-Z with rubbish on its first disk, and a disk to expand it by.
async fn spoilt_raidz(rt: &Runtime, layout: &Layout) -> (Disks, Engine, Worker) {
    let (disks, engine, mut worker) = Worker::on_new_pool(rt, layout, 1, STEPS).await;
    worker.sync().await;
    let world = worker.world().clone();
    drop((worker, engine));
    let mut images = disks.images();
    spoil(&mut images[0], layout, rt);
    let disks = Disks::new(rt, layout.shape(), images);
    let apart = [layout.disk_count()];
    let engine = Engine::start(&open(rt, disks.devices_but(&apart)).await.unwrap()).await.unwrap();
    let worker = Worker::begin(rt, engine.clone(), &disks, world).await;
    (disks, engine, worker)
}

async fn attach_last(disks: &Disks, engine: &Engine) {
    let device = disks.disks.last().unwrap().clone() as Arc<dyn Device>;
    let new = NewDevice { path: device.describe().to_owned(), device, is_file: false };
    attach_to_raidz(engine, VdevId(0), new).await.unwrap();
}

/// Runs the expansion to its end; a scrub then repairs the older damage.
async fn expand_and_repair(engine: &Engine) -> Result<(), String> {
    let text = |error: cenote_object::DatasetError| error.to_string();
    let done = run_expansion(engine, &|_| {}).await.map_err(text)?;
    if done != Expanded::Done {
        return Err(format!("the expansion: {done:?}"));
    }
    // A scrub follows by itself, or continues; one that began before the disk joined need not have seen all
    // of it.
    run_scan(engine, &|_| {}).await.map_err(text)?;
    start_scrub(engine, Txg(0)).await.map_err(text)?;
    let scanned = run_scan(engine, &|_| {}).await.map_err(text)?;
    if scanned.errors > 0 { Err(format!("the scrub: {scanned:?}")) } else { Ok(()) }
}

async fn survive_repair(cut: Cut<'_>) -> Result<(), String> {
    let left = cut.open_damaged().await?;
    expand_and_repair(left.engine()).await?;
    let width = left.engine().pool().tree().vdevs().top(VdevId(0)).map_or(0, |top| top.children.len());
    let (_, parity, before, _) = left.layout.vdevs[0];
    let apart: Vec<usize> = if width == before { vec![left.layout.disk_count()] } else { Vec::new() };
    // The damaged disk is whole again: others may go.
    left.end(&apart, &(1..=parity).collect::<Vec<_>>()).await
}

fn on_raidz(test: &str, run: impl Fn(u64, &Layout)) {
    let pools: [&[Vdev]; 2] = [&[(Raidz, 1, 3, Normal)], &[(Raidz, 2, 4, Normal)]];
    cuts::on_pools(test, &pools, run);
}

#[test]
fn power_cuts_while_a_spoilt_raidz_is_expanded() {
    on_raidz("power_cuts_while_a_spoilt_raidz_is_expanded", |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (disks, engine, worker) = spoilt_raidz(&rt, layout).await;
            let (mut worker, before) = worker.cut_from_here().await;
            attach_last(&disks, &engine).await;
            let expanding = rt.spawn(async move { expand_and_repair(&engine).await });
            worker.run(STEPS).await;
            expanding.await.unwrap().unwrap();
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, CUTS, survive_repair);
    });
}

#[test]
fn power_cuts_while_damage_older_than_an_expansion_is_repaired() {
    on_raidz("power_cuts_while_damage_older_than_an_expansion_is_repaired", |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (disks, engine, worker) = spoilt_raidz(&rt, layout).await;
            engine.background().settings().set("zfs_scrub_after_expand", 0).unwrap();
            attach_last(&disks, &engine).await;
            assert_eq!(run_expansion(&engine, &|_| {}).await.unwrap(), Expanded::Done);
            let (mut worker, before) = worker.cut_from_here().await;
            let repairing = rt.spawn(async move { expand_and_repair(&engine).await });
            worker.run(STEPS / 2).await;
            repairing.await.unwrap().unwrap();
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, CUTS, survive_repair);
    });
}
