//! Disks that fail, hang and disappear. Within a pool's redundancy nothing is lost and work continues; beyond
//! it the engine stops and acknowledged data survives. The same holds if the power is cut meanwhile.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cenote_dataset::Mos;
use cenote_device::{Device, Fault, Faulty, Op};
use cenote_engine::Engine;
use cenote_format::blkptr::Blkptr;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::{Guid, Txg};
use cenote_fs::replay_logs;
use cenote_object::DatasetError;
use cenote_pool::VdevClass::{Log, Normal, Special};
use cenote_pool::VdevKind::{Disk, Mirror, Raidz};
use cenote_pool::{FailMode, Pool, VdevState};
use cenote_runtime::Runtime;
use cenote_testkit::image::Image;

use crate::check::{Unsure, check_sound, compare};
use crate::cuts::{Replay, moments, number, simulate};
use crate::model::World;
use crate::pools::{Disks, Layout, POOL, Vdev, create, now, open};
use crate::power_cut::Cutter;
use crate::run::{Recovered, recover, recover_with_faults};
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts during a run with failing disks.
pub const CUTS: usize = 4;

/// Pools, and disks of each that may fail together.
pub fn pools() -> Vec<(Layout, Vec<usize>)> {
    let layout = |vdevs: &[Vdev]| Layout { vdevs: vdevs.to_vec(), sector_bytes: 512, spares: 0 };
    vec![
        (layout(&[(Mirror, 0, 2, Normal)]), vec![1]),
        (layout(&[(Raidz, 1, 3, Normal)]), vec![0]),
        (layout(&[(Raidz, 2, 5, Normal)]), vec![1, 3]),
        (layout(&[(Raidz, 3, 5, Normal)]), vec![0, 2, 4]),
        (layout(&[(Raidz, 1, 4, Normal), (Mirror, 0, 2, Special)]), vec![2, 5]),
        (layout(&[(Mirror, 0, 2, Normal), (Mirror, 0, 2, Log)]), vec![0, 3]),
    ]
}

/// Runs a test for each pool in the simulator, `CENOTE_RUNS` times (1), each time with another seed.
fn on_pools(test: &str, run: impl AsyncFn(Runtime, &Layout, &[usize])) {
    let runs = number("CENOTE_RUNS").unwrap_or(1);
    for (layout, victims) in pools().into_iter().flat_map(|pool| std::iter::repeat_n(pool, runs as usize)) {
        let seed = number("CENOTE_SEED").unwrap_or_else(|| Runtime::real(Some(1)).random_u64());
        let _replay = Replay { test, seed };
        println!("{layout:?}, disks {victims:?}");
        simulate(seed, |rt| async { run(rt, &layout, &victims).await });
    }
}

/// A new pool on disks that can be made to fail, and a worker that has used it.
struct Lab {
    disks: Disks,
    faulty: Vec<Arc<Faulty>>,
    engine: Engine,
    worker: Worker,
}

impl Lab {
    async fn new(rt: &Runtime, layout: &Layout) -> Lab {
        let disks = Disks::new(rt, layout.shape(), layout.blank());
        let faulty = disks.devices().into_iter().map(|device| Arc::new(Faulty::new(device, rt.random_u64())));
        let faulty: Vec<Arc<Faulty>> = faulty.collect();
        let devices: Vec<Arc<dyn Device>> = faulty.iter().map(|disk| disk.clone() as _).collect();
        let engine = create(rt, layout, &devices).await;
        let world = Worker::new_world(&engine).await;
        let mut worker = Worker::begin(rt, engine.clone(), &disks, world).await;
        worker.run(STEPS).await;
        Lab { disks, faulty, engine, worker }
    }

    fn strike(&self, victims: &[usize], faults: impl Fn() -> Vec<Fault>) {
        for &victim in victims {
            for fault in faults() {
                self.faulty[victim].add(fault);
            }
        }
    }

    /// Syncs everything; returns the disks and their expected content.
    async fn finish(mut self) -> (Vec<Image>, World) {
        self.worker.sync().await;
        (self.disks.images(), self.worker.world().clone())
    }
}

fn dead() -> Vec<Fault> {
    [Op::Read, Op::Write, Op::Flush].map(Fault::error).to_vec()
}

fn hung() -> Vec<Fault> {
    [Op::Write, Op::Flush].map(Fault::hang).to_vec()
}

/// Opens a pool from images, without some of the disks.
async fn reopen(
    rt: &Runtime,
    layout: &Layout,
    images: &[Image],
    without: &[usize],
    world: &World,
) -> (Disks, Mos) {
    let disks = Disks::new(rt, layout.shape(), images.to_vec());
    let mos = open(rt, disks.devices_but(without)).await.unwrap();
    compare(&mos, world, &Unsure::new()).await.unwrap();
    check_sound(&mos).await.unwrap();
    (disks, mos)
}

/// Txgs that any device has missed, according to the DTLs on disk.
fn missed(mos: &Mos) -> BTreeSet<u64> {
    let config = mos.pool().tree().config();
    let leaves = config.vdevs.iter().flat_map(|vdev| vdev.leaves());
    let runs = leaves.flat_map(|leaf| mos.pool().lacking().of_leaf(leaf.guid));
    runs.flat_map(|(Txg(first), Txg(last))| first..=last).collect()
}

/// After disks fail, all data is readable with and without them, and work continues; once back, their DTLs
/// list the missed txgs.
async fn survives(rt: Runtime, layout: &Layout, victims: &[usize], faults: impl Fn() -> Vec<Fault>) {
    let mut lab = Lab::new(&rt, layout).await;
    let sound_until = lab.engine.mos().await.unwrap().uberblock().txg.0;
    let logs = lab.worker.world().heads.len();
    lab.strike(victims, faults);
    lab.worker.run(STEPS).await;
    let (images, world) = lab.finish().await;

    let (_, back) = reopen(&rt, layout, &images, &[], &world).await;
    let gone_since = missed(&back);
    // Each dataset's log had preallocated its next block, in the txg in which it was found. The dataset may
    // be gone since.
    let before = gone_since.range(..=sound_until).count();
    // Log vdevs get few uberblocks, so the absence of one of their leaves is known less exactly.
    let has_log_vdev = layout.vdevs.iter().any(|(.., class)| *class == Log);
    assert!(has_log_vdev || before <= logs, "it missed {gone_since:?}, {sound_until}");
    assert!(!gone_since.is_empty());

    let (disks, mos) = reopen(&rt, layout, &images, victims, &world).await;
    assert_eq!(mos.pool().status().state(), VdevState::Degraded);
    let engine = Engine::start(&mos).await.unwrap();
    let mut worker = Worker::begin(&rt, engine, &disks, world).await;
    worker.run(STEPS).await;
    worker.sync().await;
    let (_, mos) = reopen(&rt, layout, &disks.images(), &[], worker.world()).await;
    let last = mos.uberblock().txg.0;
    assert!(missed(&mos).contains(&last), "txg {last} is not among {:?}", missed(&mos));
    assert!(missed(&mos).is_superset(&gone_since));
}

#[test]
fn disks_that_die_within_redundancy_cost_nothing() {
    on_pools("disks_that_die_within_redundancy_cost_nothing", async |rt, layout, victims| {
        survives(rt, layout, victims, dead).await;
    });
}

#[test]
fn writes_that_fail_now_and_then_are_noted() {
    on_pools("writes_that_fail_now_and_then_are_noted", async |rt, layout, victims| {
        survives(rt, layout, victims, || vec![Fault::error(Op::Write).chance(0.3)]).await;
    });
}

#[test]
fn a_hung_disk_is_waited_for_once() {
    on_pools("a_hung_disk_is_waited_for_once", async |rt, layout, victims| {
        let mut lab = Lab::new(&rt, layout).await;
        lab.strike(victims, hung);
        let before = rt.now();
        lab.worker.run(STEPS).await;
        let waited = rt.now().since(before);
        assert!(waited < Duration::from_secs(400 * victims.len() as u64), "it took {waited:?}");
        let pool = lab.engine.mos().await.unwrap().pool().clone();
        assert_eq!(pool.devices().hung().len(), victims.len());
        assert_eq!(pool.status().state(), VdevState::Degraded);
        let (images, world) = lab.finish().await;
        reopen(&rt, layout, &images, &[], &world).await;
        reopen(&rt, layout, &images, victims, &world).await;
    });
}

/// A disk that failed to write may be blamed for the data it lacks; others may not.
fn check_only_victims_blamed(pool: &Pool, victims: &[usize]) {
    let config = pool.tree().config();
    let leaves = config.vdevs.iter().flat_map(|vdev| vdev.leaves());
    let victims: Vec<Guid> =
        leaves.enumerate().filter(|(at, _)| victims.contains(at)).map(|(_, leaf)| leaf.guid).collect();
    for (leaf, errors) in pool.counters().errors() {
        assert!(errors.checksum == 0 || victims.contains(&leaf), "{leaf:?}: {errors:?}");
    }
}

/// A power cut while disks fail: all acknowledged data is present, with and without these disks.
async fn survives_cuts(rt: Runtime, layout: &Layout, victims: &[usize], faults: impl Fn() -> Vec<Fault>) {
    let cases = [&[] as &[usize], victims];
    cut_while(rt, layout, victims, &cases, faults, recover_with_faults).await;
}

/// Cuts the power while `victims` fail; all acknowledged data is present after each cut, `without` these
/// disks, and `recover` finds the pool well. If all disks are needed, the pool waits for them.
pub async fn cut_while(
    rt: Runtime,
    layout: &Layout,
    victims: &[usize],
    without: &[&[usize]],
    faults: impl Fn() -> Vec<Fault>,
    recover: impl AsyncFn(&Runtime, Vec<Arc<dyn Device>>) -> Result<Recovered, String>,
) {
    let mut lab = Lab::new(&rt, layout).await;
    lab.worker.sync().await;
    lab.disks.take_journal();
    let (before, world) = (lab.disks.images(), lab.worker.world().clone());
    if victims.len() == layout.disk_count() {
        lab.engine.pool().suspension().set_failmode(Some(FailMode::Wait));
    }
    lab.strike(victims, faults);
    drop(lab.worker);
    let mut worker = Worker::begin(&rt, lab.engine, &lab.disks, world).await;
    worker.run(STEPS).await;
    let run = worker.into_run(before);

    let mut rng = rt.rng();
    let mut cutter = Cutter::new(&run.journal, run.before.clone());
    for moment in moments(&run.journal, CUTS, &mut rng) {
        let images = cutter.cut(moment, layout.sector_bytes, &mut rng);
        for &without in without {
            let disks = Disks::new(&rt, layout.shape(), images.clone());
            let pool = recover(&rt, disks.devices_but(without)).await;
            let outcome = match pool {
                Ok(pool) => {
                    check_only_victims_blamed(&pool.engine.pool(), victims);
                    run.expect(&pool, moment).await.map(drop)
                }
                Err(why) => Err(why),
            };
            outcome.unwrap_or_else(|why| panic!("cut at {moment}, without disks {without:?}: {why}"));
        }
    }
}

#[test]
fn power_cuts_while_disks_die() {
    on_pools("power_cuts_while_disks_die", async |rt, layout, victims| {
        survives_cuts(rt, layout, victims, dead).await;
    });
}

#[test]
fn power_cuts_while_disks_hang() {
    on_pools("power_cuts_while_disks_hang", async |rt, layout, victims| {
        survives_cuts(rt, layout, victims, hung).await;
    });
}

#[test]
fn power_cuts_while_writes_fail_now_and_then() {
    on_pools("power_cuts_while_writes_fail_now_and_then", async |rt, layout, victims| {
        survives_cuts(rt, layout, victims, || vec![Fault::error(Op::Write).chance(0.3)]).await;
    });
}

/// The first block of any dataset's log that contains records.
async fn log_block(mos: &Mos) -> Option<Blkptr> {
    for head in mos.all_datasets().await.unwrap() {
        let objset = head.objset().await.unwrap();
        if !objset.intent_log().await.records.is_empty() {
            return Some(objset.phys().zil_header.log);
        }
    }
    None
}

/// An unreadable log block may contain acknowledged records: it is discarded only on request, and nothing
/// else is.
#[test]
fn a_log_that_cant_be_read_is_not_taken_for_one_that_ends() {
    let layout = Layout { vdevs: vec![(Disk, 0, 1, Normal)], sector_bytes: 512, spares: 0 };
    let seed = number("CENOTE_SEED").unwrap_or_else(|| Runtime::real(Some(1)).random_u64());
    let _replay = Replay { test: "a_log_that_cant_be_read", seed };
    simulate(seed, |rt| async move {
        let mut lab = Lab::new(&rt, &layout).await;
        let (disks, block) = loop {
            lab.worker.run(1).await;
            let disks = Disks::new(&rt, layout.shape(), lab.disks.images());
            let mos = open(&rt, disks.devices()).await.unwrap();
            if let Some(block) = log_block(&mos).await {
                break (disks, block.dvas().next().unwrap());
            }
        };
        let start = VDEV_LABEL_START_SIZE + block.offset_bytes;
        let place = start..start + block.asize.0;
        let unreadable = |disks: &Disks| -> Vec<Arc<dyn Device>> {
            let fault = Fault::error(Op::Read).within(place.clone());
            vec![Arc::new(Faulty::new(disks.devices()[0].clone(), seed).with(fault))]
        };
        let mos = open(&rt, unreadable(&disks)).await.unwrap();
        let refused = Engine::start(&mos).await.map(drop);
        assert!(refused.as_ref().is_err_and(DatasetError::is_damage), "{refused:?}");

        let copy = Disks::new(&rt, layout.shape(), lab.disks.images());
        let mos = open(&rt, unreadable(&copy)).await.unwrap();
        let (engine, lost) = Engine::start_without_lost_logs(&mos).await.unwrap();
        assert!(lost.len() == 1 && lost[0].kept == 0, "{lost:?}");
        replay_logs(&engine, now(&rt)).await.unwrap();
        engine.sync_all().await.unwrap();
        drop(engine);
        let mos = open(&rt, unreadable(&copy)).await.unwrap();
        check_sound(&mos).await.unwrap();
        Engine::start(&mos).await.unwrap();

        let run = lab.worker.into_run(Vec::new());
        let pool = recover(&rt, disks.devices()).await.unwrap();
        run.expect(&pool, run.journal.now).await.unwrap();
    });
}

#[test]
fn beyond_redundancy_the_engine_stops_and_nothing_acknowledged_is_lost() {
    on_pools("beyond_redundancy_the_engine_stops", async |rt, layout, _| {
        let lab = Lab::new(&rt, layout).await;
        let all: Vec<usize> = (0..layout.disk_count()).collect();
        lab.strike(&all, || [Op::Write, Op::Flush].map(Fault::error).to_vec());
        let refused = cenote_tasks::snapshot(&lab.engine, &[format!("{POOL}@late")]).await;
        assert!(matches!(refused, Err(DatasetError::Stopped { .. })), "{refused:?}");
        assert!(matches!(lab.engine.hold().await, Err(DatasetError::Stopped { .. })));
        assert!(matches!(lab.engine.sync_all().await, Err(DatasetError::Stopped { .. })));

        let images = lab.disks.images();
        let run = lab.worker.into_run(Vec::new());
        let disks = Disks::new(&rt, layout.shape(), images);
        let recovered = recover(&rt, disks.devices()).await.unwrap();
        run.expect(&recovered, run.journal.now).await.unwrap();
    });
}
