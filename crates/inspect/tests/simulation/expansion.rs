//! A RAID-Z gets one more disk during other work: afterwards all data is readable without any disk that the
//! vdev can spare. The same holds if a disk is away for a while, and after a power cut, whichever disk is
//! then missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_device::Device;
use cenote_engine::Engine;
use cenote_format::units::{Guid, VdevId};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::{Mirror, Raidz};
use cenote_pool::create::NewDevice;
use cenote_pool::{FoundDevice, VdevConfig};
use cenote_runtime::Runtime;
use cenote_tasks::{Away, Back, Expanded, attach_to_raidz, bring_back, run_expansion, run_scan, take_out};

use crate::check::{Unsure, check_blameless, check_sound, compare};
use crate::cuts::{self, Cut, Opened, number, simulate, survives_cuts};
use crate::pools::{Disks, Layout, Vdev, open};
use crate::run::recover;
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run; `CENOTE_CUTS` sets another number.
const CUTS: usize = 4;
const RAIDZ: VdevId = VdevId(0);

fn on_pools(test: &str, run: impl Fn(u64, &Layout)) {
    let pools: [&[Vdev]; 4] = [
        &[(Raidz, 1, 3, Normal)],
        &[(Raidz, 2, 4, Normal)],
        &[(Raidz, 1, 2, Normal)],
        &[(Raidz, 1, 4, Normal), (Mirror, 0, 2, Normal)],
    ];
    cuts::on_pools(test, &pools, run);
}

/// The pool, and one more disk not part of it.
async fn begin(rt: &Runtime, layout: &Layout) -> (Disks, Engine, Worker) {
    Worker::on_new_pool(rt, layout, 1, STEPS).await
}

async fn attach_last(disks: &Disks, engine: &Engine) {
    let device = disks.disks.last().unwrap().clone() as Arc<dyn Device>;
    let new = NewDevice { path: device.describe().to_owned(), device, is_file: false };
    attach_to_raidz(engine, RAIDZ, new).await.unwrap();
}

async fn expand(engine: &Engine) -> Expanded {
    run_expansion(engine, &|_| {}).await.unwrap()
}

/// Adds the last disk to the first vdev while the work goes on.
async fn expand_under_work(rt: &Runtime, disks: &Disks, engine: &Engine, worker: &mut Worker) {
    attach_last(disks, engine).await;
    let runner = engine.clone();
    let expanding = rt.spawn(async move { expand(&runner).await });
    worker.run(STEPS).await;
    assert_eq!(expanding.await.unwrap(), Expanded::Done);
}

/// The width of the first vdev, and whether it is expanding.
fn shape(engine: &Engine) -> (usize, bool) {
    let top = engine.pool().tree().vdevs().top(RAIDZ).unwrap().clone();
    (top.children.len(), top.raidz_expanding)
}

fn leaf(engine: &Engine, child: usize) -> Guid {
    let config = engine.pool().tree().config();
    let leaf = config.vdevs[0].leaves().nth(child).map(|leaf: &VdevConfig| leaf.guid);
    leaf.unwrap()
}

async fn come_back(disks: &Disks, engine: &Engine, away: Guid) {
    let config = engine.pool().tree().config();
    let path = config.vdevs[0].leaves().find(|leaf| leaf.guid == away).unwrap().path.clone().unwrap();
    let disk = disks.disks.iter().find(|disk| disk.describe() == path).unwrap().clone();
    let devices = BTreeMap::from([(away, FoundDevice::new(disk as Arc<dyn Device>))]);
    bring_back(engine, Some(away), Back::Online, devices).await.unwrap();
}

/// All data is readable without any disks that the first vdev can spare.
async fn assert_complete(rt: &Runtime, layout: &Layout, disks: &Disks, world: &crate::model::World) {
    let (_, parity, width, _) = layout.vdevs[0];
    let mut children: Vec<usize> = (0..width).collect();
    children.push(layout.disk_count());
    for first in 0..children.len() {
        let lost: Vec<usize> = (0..parity).map(|more| children[(first + more) % children.len()]).collect();
        let disks = Disks::new(rt, layout.shape(), disks.images());
        let mos = open(rt, disks.devices_but(&lost)).await.unwrap();
        compare(&mos, world, &Unsure::new()).await.unwrap_or_else(|why| panic!("without {lost:?}: {why}"));
    }
    let disks = Disks::new(rt, layout.shape(), disks.images());
    check_sound(&open(rt, disks.devices()).await.unwrap()).await.unwrap();
}

#[test]
fn a_raidz_that_gets_a_disk_under_work_has_everything() {
    on_pools("a_raidz_that_gets_a_disk_under_work_has_everything", |seed, layout| {
        simulate(seed, |rt| async move {
            let (disks, engine, mut worker) = begin(&rt, layout).await;
            expand_under_work(&rt, &disks, &engine, &mut worker).await;
            assert_eq!(shape(&engine), (layout.vdevs[0].2 + 1, false));
            assert_eq!(run_scan(&engine, &|_| {}).await.unwrap().errors, 0, "the scrub that follows");
            worker.run(STEPS).await;
            worker.sync().await;
            check_blameless(&engine.pool()).unwrap();
            assert_complete(&rt, layout, &disks, worker.world()).await;
        });
    });
}

#[test]
fn an_expansion_waits_for_a_disk_that_is_away_and_goes_on_when_it_has_everything() {
    on_pools(
        "an_expansion_waits_for_a_disk_that_is_away_and_goes_on_when_it_has_everything",
        |seed, layout| {
            simulate(seed, |rt| async move {
                let (disks, engine, mut worker) = begin(&rt, layout).await;
                attach_last(&disks, &engine).await;
                let children = layout.vdevs[0].2 as u64 + 1;
                // Before the first rows, or on the way.
                if rt.random_u64().is_multiple_of(2) {
                    engine.background().settings().set("raidz_expand_max_reflow_bytes", 1).unwrap();
                    assert_eq!(expand(&engine).await, Expanded::Suspended);
                    engine.background().settings().set("raidz_expand_max_reflow_bytes", 0).unwrap();
                }
                let away = leaf(&engine, (rt.random_u64() % children) as usize);
                let taker = engine.clone();
                let runner = engine.clone();
                let expanding = rt.spawn(async move { expand(&runner).await });
                take_out(&taker, away, Away::Offline).await.unwrap();
                worker.run(STEPS).await;
                let waits = expanding.await.unwrap();
                if waits != Expanded::Done {
                    assert!(matches!(expand(&engine).await, Expanded::Waits { .. }), "{waits:?}");
                }
                worker.sync().await;
                assert!(engine.pool().tree().device(away).is_none(), "it is out of use");
                come_back(&disks, &engine, away).await;
                assert!(run_scan(&engine, &|_| {}).await.unwrap().incomplete.is_empty());
                worker.run(STEPS / 4).await;
                assert_eq!(expand(&engine).await, Expanded::Done);
                worker.run(STEPS / 4).await;
                worker.sync().await;
                check_blameless(&engine.pool()).unwrap();
                assert_complete(&rt, layout, &disks, worker.world()).await;
            });
        },
    );
}

/// After a cut all surviving data is readable without any one disk. An expansion that had begun ends once
/// that disk is back.
async fn survive(cut: Cut<'_>) -> Result<(), String> {
    let text = |error: cenote_object::DatasetError| error.to_string();
    let Cut { rt, layout, at, .. } = cut;
    let (_, _, width, _) = layout.vdevs[0];
    let lost = vec![rt.random_u64() as usize % width];
    if at.is_multiple_of(3) {
        let left = cut.open_but(&lost).await.map_err(|why| format!("no {lost:?}: {why}"))?;
        // Records readable only with the returning disk must not be taken for a part of a log.
        return left.end(&[], &[]).await.map_err(|why| format!("{lost:?} is back: {why}"));
    }
    let Opened { disks, pool, expected, .. } = cut.open().await?;
    let before = pool.engine.pool().expansion().progress();
    let said = |what: &str, why: String| format!("{before:?}, {what}: {why}");
    drop(pool);
    if at % 3 == 1 {
        let disks = Disks::new(rt, layout.shape(), disks.images());
        let pool = recover(rt, disks.devices_but(&lost)).await.map_err(|why| said("with one lost", why))?;
        expected.compare(&pool.engine).await.map_err(|why| said(&format!("no {lost:?}"), why))?;
    }
    let disks = Disks::new(rt, layout.shape(), disks.images());
    let pool = recover(rt, disks.devices()).await.map_err(|why| said("again", why))?;
    let again = Opened { rt, layout, disks, pool, expected };
    let engine = again.engine();
    again.expected.compare(engine).await.map_err(|why| said("again", why))?;
    let scanned = run_scan(engine, &|_| {}).await.map_err(text)?;
    if !scanned.incomplete.is_empty() || scanned.errors != 0 {
        return Err(said("resilver", format!("{scanned:?}")));
    }
    let done = run_expansion(engine, &|_| {}).await.map_err(text)?;
    if done != Expanded::Done || shape(engine).1 {
        return Err(said("expansion", format!("{done:?}")));
    }
    again.expected.compare(engine).await.map_err(|why| said("expanded", why))?;
    let scanned = run_scan(engine, &|_| {}).await.map_err(text)?;
    if scanned.errors != 0 || scanned.written_bytes != 0 {
        return Err(said("scrub", format!("{scanned:?}")));
    }
    let apart = if shape(engine).0 == width { vec![layout.disk_count()] } else { Vec::new() };
    let lost = [rt.random_u64() as usize % width];
    again.end(&apart, &lost).await.map_err(|why| said("at its end", why))
}

#[test]
fn power_cuts_while_a_raidz_is_expanded() {
    on_pools("power_cuts_while_a_raidz_is_expanded", |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (disks, engine, worker) = begin(&rt, layout).await;
            let (mut worker, before) = worker.cut_from_here().await;
            expand_under_work(&rt, &disks, &engine, &mut worker).await;
            worker.run(STEPS / 4).await;
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, number("CENOTE_CUTS").map_or(CUTS, |cuts| cuts as usize), survive);
    });
}
