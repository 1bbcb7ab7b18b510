//! Healthy disks are never blamed: not for unwritten ends of intent logs, blocks freed and reused during a
//! read of an older state of the pool, or after changes of the vdev tree. Real damage is found nevertheless.

use std::sync::Arc;

use cenote_dataset::traverse::{Met, Part, Position, Tree};
use cenote_device::Device;
use cenote_engine::Engine;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_object::Objset;
use cenote_pool::VdevClass::{Log, Normal, Special};
use cenote_pool::VdevKind::{Disk, Mirror, Raidz};
use cenote_pool::create::{NewDevice, NewVdev};
use cenote_pool::{ReadContext, VdevClass, VdevConfig};
use cenote_runtime::Runtime;
use cenote_tasks::{
    Resilver, add_vdevs, attach, attach_to_raidz, detach, mend, remove_log, replace, run_expansion,
    run_removal, run_scan, snapshot, start_removal, start_scrub,
};

use crate::check::{ask_zdb, check_blameless, check_sound};
use crate::cuts::{self, Cut, number, simulate, survives_cuts};
use crate::pools::{Disks, Layout, POOL, Vdev};
use crate::scans::spoil;
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run.
const CUTS: usize = 4;
/// More txgs than a freed block waits for.
const TXGS: usize = 6;

fn on_pools(test: &str, run: impl Fn(u64, &Layout)) {
    let pools: [&[Vdev]; 4] = [
        &[(Disk, 0, 1, Normal)],
        &[(Mirror, 0, 2, Normal)],
        &[(Raidz, 1, 3, Normal)],
        &[(Disk, 0, 1, Normal), (Mirror, 0, 2, Log)],
    ];
    cuts::on_pools(test, &pools, run);
}

fn errors(engine: &Engine) -> u64 {
    engine.pool().counters().errors().iter().map(|(_, errors)| errors.checksum).sum()
}

/// Overwrites all data, twice.
async fn go_on(worker: &mut Worker) {
    for _ in 0..TXGS {
        worker.run(STEPS / 4).await;
        worker.sync().await;
    }
}

/// After a cut the logs are claimed, replayed, verified and scrubbed: no disk is blamed where they end.
async fn survive(cut: Cut<'_>) -> Result<(), String> {
    let text = |error: cenote_object::DatasetError| error.to_string();
    let left = cut.open().await?;
    let engine = left.engine();
    start_scrub(engine, Txg(0)).await.map_err(text)?;
    run_scan(engine, &|_| {}).await.map_err(text)?;
    check_sound(&engine.mos().await.map_err(text)?).await?;
    check_blameless(&engine.pool())?;
    mend(engine).await.map_err(text)?;
    check_blameless(&engine.pool())?;
    left.end(&[], &[]).await
}

#[test]
fn the_unwritten_end_of_a_log_is_no_error_of_a_disk() {
    on_pools("the_unwritten_end_of_a_log_is_no_error_of_a_disk", |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (_, _, worker) = Worker::on_new_pool(&rt, layout, 0, STEPS).await;
            let (mut worker, before) = worker.cut_from_here().await;
            worker.run(STEPS).await;
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, CUTS, survive);
    });
}

#[test]
fn a_pool_in_use_is_verified_as_it_was_when_that_began() {
    on_pools("a_pool_in_use_is_verified_as_it_was_when_that_began", |seed, layout| {
        simulate(seed, |rt| async move {
            let (_disks, engine, mut worker) = Worker::on_new_pool(&rt, layout, 0, STEPS).await;
            worker.sync().await;
            let mos = engine.mos().await.unwrap();
            go_on(&mut worker).await;
            check_sound(&mos).await.unwrap();
            check_blameless(&engine.pool()).unwrap();
        });
    });
}

#[test]
fn what_a_slow_reader_finds_damaged_is_held_against_the_disk_once_it_is_certain() {
    let layout = Layout { vdevs: vec![(Raidz, 1, 3, Normal)], sector_bytes: 512, spares: 0 };
    simulate(number("CENOTE_SEED").unwrap_or(11), |rt| async move {
        let (disks, engine, mut worker) = Worker::on_new_pool(&rt, &layout, 0, STEPS).await;
        worker.sync().await;
        snapshot(&engine, &[format!("{POOL}@kept")]).await.unwrap();
        // Held like a mounted snapshot: for long, without keeping freed blocks.
        let mos = engine.mos().await.unwrap();
        let objset =
            mos.dataset(&format!("{POOL}@kept")).await.unwrap().objset().await.unwrap().not_keeping();
        drop(mos);
        go_on(&mut worker).await;
        let good = disks.disks[0].image();
        let mut image = good.clone();
        spoil(&mut image, &layout, &rt);
        let end = layout.shape().size_bytes - VDEV_LABEL_START_SIZE;
        for at in (VDEV_LABEL_START_SIZE..end).step_by(4096) {
            let bytes = image.read(at, 4096);
            if bytes != good.read(at, 4096) {
                disks.disks[0].write_at(at, bytes).await.unwrap();
            }
        }
        read_all(&objset).await;
        assert_eq!(errors(&engine), 0, "the disk was blamed before anything was certain");
        assert!(engine.pool().read_errors().has_found_wrong(), "nothing was read from the first disk");
        mend(&engine).await.unwrap();
        assert!(errors(&engine) > 0, "it is damage: the snapshot is there still");
        engine.pool().counters().clear(None);
        // The scan met other damaged blocks on its way, which are repaired next.
        for _ in 0..10 {
            mend(&engine).await.unwrap();
        }
        read_all(&objset).await;
        assert!(!engine.pool().read_errors().has_found_wrong(), "it has been mended");
        drop(worker);
    });
}

/// Reads every block, past the cache.
async fn read_all(objset: &Objset) {
    let (dataset, root) = (objset.dataset_id(), *objset.bp());
    let part = Part { dataset, root, head: false, born_after: Txg(0), from: Position::default() };
    let mut met = Vec::new();
    let mut tree = Tree::of_objset(objset.pool(), &part, &mut met);
    while tree.step(&mut met).await {}
    for met in met {
        if let Met::Block { bp, place } = met {
            objset.pool().as_stored().read(&bp, &ReadContext::new(place)).await.unwrap();
        }
    }
}

async fn check_live(disks: &Disks, engine: &Engine, worker: &mut Worker, what: &str) {
    worker.run(STEPS / 4).await;
    worker.sync().await;
    check_sound(&engine.mos().await.unwrap()).await.unwrap_or_else(|why| panic!("{what}: {why}"));
    check_blameless(&engine.pool()).unwrap_or_else(|why| panic!("{what}: {why}"));
    ask_zdb(&disks.images()).unwrap_or_else(|why| panic!("{what}: {why}"));
}

struct Spares {
    disks: Disks,
    next: usize,
}

impl Spares {
    fn take(&mut self) -> NewDevice {
        let device = self.disks.disks[self.next].clone() as Arc<dyn Device>;
        self.next += 1;
        NewDevice { path: device.describe().to_owned(), device, is_file: false }
    }

    fn disk(&mut self, class: VdevClass) -> NewVdev {
        NewVdev { kind: Disk, parity: 0, draid: None, class, devices: vec![self.take()] }
    }
}

fn leaf(engine: &Engine, top: usize, child: usize) -> Guid {
    engine.pool().tree().config().vdevs[top].leaves().nth(child).map(|leaf: &VdevConfig| leaf.guid).unwrap()
}

async fn begin(rt: &Runtime, vdevs: &[Vdev], spares: usize) -> (Spares, Engine, Worker) {
    let layout = Layout { vdevs: vdevs.to_vec(), sector_bytes: 512, spares: 0 };
    let (disks, engine, mut worker) = Worker::on_new_pool(rt, &layout, spares, STEPS).await;
    worker.sync().await;
    (Spares { disks, next: layout.disk_count() }, engine, worker)
}

#[test]
fn verify_and_zdb_agree_after_every_change_of_the_vdevs_of_a_pool_in_use() {
    let seed = number("CENOTE_SEED").unwrap_or(12);
    simulate(seed, |rt| async move {
        let (mut spares, engine, mut worker) = begin(&rt, &[(Disk, 0, 1, Normal)], 6).await;
        let disks = spares.disks.clone();
        let mut check = async |what: &str| check_live(&disks, &engine, &mut worker, what).await;
        add_vdevs(&engine, vec![spares.disk(Normal)], None).await.unwrap();
        check("add").await;
        add_vdevs(&engine, vec![spares.disk(Log)], None).await.unwrap();
        check("add a log").await;
        attach(&engine, leaf(&engine, 0, 0), spares.take(), Resilver::Healing).await.unwrap();
        check("attach").await;
        run_scan(&engine, &|_| {}).await.unwrap();
        check("resilver").await;
        detach(&engine, leaf(&engine, 0, 0)).await.unwrap();
        check("detach").await;
        replace(&engine, leaf(&engine, 1, 0), spares.take(), Resilver::Healing).await.unwrap();
        run_scan(&engine, &|_| {}).await.unwrap();
        check("replace").await;
        remove_log(&engine, VdevId(2)).await.unwrap();
        check("remove a log").await;
        add_vdevs(&engine, vec![spares.disk(Normal)], None).await.unwrap();
        start_removal(&engine, VdevId(1)).await.unwrap();
        run_removal(&engine, &|_| {}).await.unwrap();
        check("remove").await;
        add_vdevs(&engine, vec![spares.disk(Special)], None).await.unwrap();
        check("add a special vdev").await;
    });
    simulate(seed, |rt| async move {
        let (mut spares, engine, mut worker) = begin(&rt, &[(Raidz, 1, 3, Normal)], 1).await;
        let disks = spares.disks.clone();
        attach_to_raidz(&engine, VdevId(0), spares.take()).await.unwrap();
        run_expansion(&engine, &|_| {}).await.unwrap();
        check_live(&disks, &engine, &mut worker, "expansion").await;
    });
}
