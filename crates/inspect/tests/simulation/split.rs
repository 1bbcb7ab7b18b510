//! The power fails at any moment of a split: the pool opens afterwards, with all its data, with or without
//! the devices that leave; once those are a pool, it is whole, too.

use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_device::Device;
use cenote_engine::{Engine, Host};
use cenote_format::units::Guid;
use cenote_pool::VdevClass::{Log, Normal};
use cenote_pool::VdevKind::{Disk, Mirror};
use cenote_pool::{FoundPool, VdevConfig, discover_devices};
use cenote_tasks::{SplitOff, split};

use crate::check::check_sound;
use crate::cuts::{self, Cut, simulate, survives_cuts};
use crate::pools::{Layout, POOL, Vdev, open};
use crate::run::recover;
use crate::work::Worker;

const STEPS: usize = 60;
/// Power cuts of a run.
const CUTS: usize = 8;
const HALF: &str = "half";

/// The last device of each mirror.
fn leaving(engine: &Engine) -> Vec<Guid> {
    let config = engine.pool().tree().config();
    let mirrors = config.vdevs.iter().filter(|top| top.class != Log);
    mirrors.filter_map(|top| top.leaves().last()).map(|leaf: &VdevConfig| leaf.guid).collect()
}

async fn halve(engine: &Engine) -> Result<Guid, cenote_object::DatasetError> {
    let new = SplitOff {
        name: HALF.into(),
        leaves: leaving(engine),
        settings: Vec::new(),
        host: Host { id: 1, name: "here".into() },
        cache: CacheOptions::metadata(4 << 20),
    };
    split(engine, new).await
}

fn devices(found: &FoundPool) -> Vec<Arc<dyn Device>> {
    found.devices.values().map(|found| found.device.clone()).collect()
}

/// After a cut, the pool is there, and the other half if it is a pool.
async fn survive(cut: Cut<'_>) -> Result<(), String> {
    let (disks, Cut { rt, layout, run, at, .. }) = (cut.disks(), cut);
    let discovery = discover_devices(disks.devices()).await;
    let called = |name: &str| discovery.pools.iter().find(|pool| pool.name() == name);
    let old = called(POOL).ok_or_else(|| format!("no pool: {:?}", discovery.problems))?;
    let pool = recover(rt, devices(old)).await?;
    let expected = run.expect(&pool, at).await?;
    expected.compare(&pool.engine).await.map_err(|why| format!("the old half: {why}"))?;
    let mos = pool.engine.mos().await.map_err(|error| error.to_string())?;
    check_sound(&mos).await.map_err(|why| format!("the old half: {why}"))?;
    if let Some(new) = called(HALF).filter(|new| is_there(layout, old, new)) {
        let mos = open(rt, devices(new)).await.map_err(|why| format!("the new half: {why}"))?;
        check_sound(&mos).await.map_err(|why| format!("the new half: {why}"))?;
    }
    Ok(())
}

/// Whether the new half exists. While the split's txg writes its first labels, some devices may lack theirs:
/// that is no pool yet, and the split is not acknowledged. From its uberblock on, or once all devices have
/// their labels, all of it must be there.
fn is_there(layout: &Layout, old: &FoundPool, new: &FoundPool) -> bool {
    let all = layout.vdevs.iter().filter(|(.., class)| *class != Log).count();
    new.devices.len() == all || new.uberblocks[0].txg >= old.uberblocks[0].txg
}

#[test]
fn power_cuts_while_a_pool_is_split() {
    let pools: [&[Vdev]; 3] = [
        &[(Mirror, 0, 2, Normal)],
        &[(Mirror, 0, 3, Normal), (Mirror, 0, 2, Normal)],
        &[(Mirror, 0, 2, Normal), (Disk, 0, 1, Log), (Mirror, 0, 2, Normal)],
    ];
    cuts::on_pools("power_cuts_while_a_pool_is_split", &pools, |seed, layout| {
        let run = simulate(seed, |rt| async move {
            let (disks, engine, mut worker) = Worker::on_new_pool(&rt, layout, 0, STEPS).await;
            worker.sync().await;
            let (world, before) = (worker.world().clone(), disks.images());
            disks.take_journal();
            drop(worker);
            let worker = Worker::begin(&rt, engine.clone(), &disks, world).await;
            halve(&engine).await.unwrap();
            worker.into_run(before)
        });
        survives_cuts(seed, layout, &run, CUTS, survive);
    });
}
