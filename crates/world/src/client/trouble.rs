//! Trouble with disks, and the technician that ends it.
//!
//! ```text
//!   accuse: disks that the pool can do without --> trouble, none, trouble ... --> repair --> accuse others
//! ```
//!
//! Source: `inspect/tests/simulation/accused`, which does the same to a pool alone.

use std::collections::BTreeSet;
use std::time::Duration;

use cenote_control::zfs::properties::settings::Setting;
use cenote_control::{Outcome, Verb, zpool};
use cenote_engine::Engine;
use cenote_pool::{Pool, VdevKind, VdevState};
use cenote_runtime::Rng;

use super::{Stage, Swarm, choose};
use crate::less::TROUBLE;
use crate::machine::POOL;
use crate::machine::faults::{Bay, Ledger, Trouble, disk_at, draw};
use crate::oracle::{Violation, accused, space};

/// Between two looks at a pool that gets well.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Looks until a resilver must have ended.
const MOST_LOOKS: usize = 200;
/// Resilvers until all data is where it belongs: each may meet a disk that comes back just then.
const MOST_ROUNDS: usize = 6;

/// Gives disks trouble until clients stop.
///
/// # Errors
/// An honest disk is accused, or the pool does not get well.
pub async fn run(stage: &Stage) -> Result<(), Violation> {
    let mut rng = stage.runtime.rng();
    while stage.swarm.has_faults() && !stage.is_over() {
        stage.think(&mut rng, stage.swarm.fault_pause).await;
        accused::check(&stage.daemon, POOL, &stage.bay)?;
        let guilty = guilty(stage, &mut rng);
        if guilty.is_empty() {
            // There is no redundancy yet, or a verb may just change it.
            continue;
        }
        let (disk, what) = (guilty[rng.below(guilty.len() as u64) as usize], rng.below(20));
        if !stage.scene.takes(TROUBLE) {
            continue;
        }
        match what {
            0 | 1 => {
                repair(stage, Pace::OfClients).await?;
            }
            2..=6 => heal(stage, disk),
            _ => strike(stage, disk, &mut rng),
        }
    }
    Ok(())
}

/// A guilty disk's trouble while the daemon starts, if any.
pub fn at_start(bay: &Bay, disk: usize, swarm: &Swarm, rng: &mut Rng) -> Option<Trouble> {
    match rng.below(4) {
        0 | 1 => {
            let trouble = Trouble::ALL[choose(rng, &swarm.faults)];
            bay.strike(disk, trouble, rng);
            return Some(trouble);
        }
        2 => bay.heal(disk),
        _ => {}
    }
    None
}

/// The guilty disks, chosen anew if none.
fn guilty(stage: &Stage, rng: &mut Rng) -> Vec<usize> {
    let ledger = stage.bay.ledger();
    if ledger.guilty.is_empty()
        && let Some(pool) = stage.daemon.pools.get(POOL)
    {
        let Ok(_turn) = stage.bay.turn.try_lock() else { return Vec::new() };
        let drawn = draw_from(&pool.engine, &BTreeSet::new(), rng);
        if !drawn.is_empty() {
            stage.note(&format!("may fail from now on: {drawn:?}"));
        }
        stage.bay.note(|ledger| ledger.accuse(drawn));
    }
    stage.bay.ledger().guilty.into_iter().collect()
}

/// Disks that the pool can do without now.
pub fn draw_from(engine: &Engine, but: &BTreeSet<usize>, rng: &mut Rng) -> BTreeSet<usize> {
    let view = engine.pool();
    draw(&view.tree().config(), but, &lagging(&view), rng)
}

/// Disks that lack data, or are out of use.
pub fn lagging(pool: &Pool) -> BTreeSet<usize> {
    let (config, lagging) = (pool.tree().config(), pool.lacking().lagging());
    let leaves = config.vdevs.iter().flat_map(|top| top.leaves());
    let leaves = leaves.filter(|leaf| {
        let is_there = pool.tree().device(leaf.guid).is_some();
        lagging.contains(&leaf.guid) || leaf.is_taken_out() || !is_there
    });
    leaves.filter_map(|leaf| disk_at(leaf.path.as_deref()?)).collect()
}

fn heal(stage: &Stage, disk: usize) {
    stage.note(&format!("disk {disk} is well"));
    stage.bay.heal(disk);
}

fn strike(stage: &Stage, disk: usize, rng: &mut Rng) {
    let trouble = Trouble::ALL[choose(rng, &stage.swarm.faults)];
    stage.note(&format!("disk {disk}: {trouble:?}"));
    stage.bay.strike(disk, trouble, rng);
}

/// How long a repair goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Until clients stop.
    OfClients,
    /// To its end.
    ToTheEnd,
}

/// Makes all disks well, and the pool too. Returns whether it is.
///
/// # Errors
/// An honest disk is accused; the pool does not get well, or a scrub finds what it can't repair.
pub async fn repair(stage: &Stage, pace: Pace) -> Result<bool, Violation> {
    let Some(pool) = stage.daemon.pools.get(POOL) else { return Ok(false) };
    let engine = &pool.engine;
    stage.note("repair");
    let heal_all = || stage.bay.ledger().guilty.into_iter().for_each(|disk| stage.bay.heal(disk));
    let _repair = stage.bay.repair.lock().await;
    // A verb may wait for them.
    heal_all();
    let _turn = stage.bay.turn.lock().await;
    for round in 0..MOST_ROUNDS {
        heal_all();
        if round > 0 {
            replace_unusable(stage, engine).await;
        }
        accused::check(&stage.daemon, POOL, &stage.bay)?;
        let config = engine.pool().tree().config();
        let leaves = config.vdevs.iter().flat_map(|top| top.leaves());
        let devices = leaves.filter_map(|leaf| leaf.path.clone()).collect();
        let (pool, expand) = (POOL.into(), false);
        run_verb(stage, zpool::leaves::online::Online { pool, devices, expand }).await;
        run_verb(stage, zpool::leaves::clear::Clear { pool: POOL.into(), device: None }).await;
        if !is_well_soon(stage, engine, pace).await? {
            if pace == Pace::OfClients && stage.is_over() {
                return Ok(false);
            }
            continue;
        }
        if pace == Pace::ToTheEnd && round == 0 && !stage.bay.ledger().liars.is_empty() {
            scrub_while_flushes_fail(stage, engine).await?;
            continue;
        }
        if stage.bay.ledger().liars.is_empty() {
            // A resilver brings all that was missed. A scrub would hide if it did not.
            space::check(&stage.daemon, POOL, Ledger::default).await?;
        }
        if !run_verb(stage, scrub()).await || !is_well_soon(stage, engine, pace).await? {
            if pace == Pace::OfClients && stage.is_over() {
                return Ok(false);
            }
            continue;
        }
        // All labels, too.
        let setting = Setting { property: "comment".into(), value: format!("{}", stage.scene.next()) };
        run_verb(stage, zpool::properties::set::Set { setting, pools: vec![POOL.into()] }).await;
        run_verb(stage, zpool::whole::sync::Sync { pools: vec![POOL.into()] }).await;
        accused::check(&stage.daemon, POOL, &stage.bay)?;
        let mut errors = engine.pool().counters().errors();
        errors.retain(|(_, errors)| *errors != Default::default());
        if !errors.is_empty() {
            // Just repaired, or not yet known to be gone.
            stage.note(&format!("repaired just now: {errors:?}"));
            continue;
        }
        stage.bay.note(|ledger| ledger.absolve());
        stage.note("all disks are well");
        return Ok(true);
    }
    Err(Violation(format!("the pool does not get well: {}", state(engine).await)))
}

fn scrub() -> zpool::activity::scrub::Scrub {
    let (order, dates) = (zpool::activity::scrub::Order::Start, Default::default());
    zpool::activity::scrub::Scrub { pools: vec![POOL.into()], order, dates, wait: false, thorough: false }
}

/// Scrubs while disks that lied fail flushes. If they stay in use, all they have wrong is repaired, or known
/// to be missing: they are no longer liars.
async fn scrub_while_flushes_fail(stage: &Stage, engine: &Engine) -> Result<(), Violation> {
    let liars = stage.bay.ledger().liars;
    stage.note(&format!("scrub, while flushes of {liars:?} fail"));
    let mut rng = stage.runtime.rng();
    liars.iter().for_each(|disk| stage.bay.strike(*disk, Trouble::FlushesFail, &mut rng));
    if !run_verb(stage, scrub()).await {
        return Ok(());
    }
    is_well_soon(stage, engine, Pace::ToTheEnd).await?;
    let scan = engine.mos().await.map_err(failed)?.scan_status().await.map_err(failed)?;
    let pool = engine.pool();
    let tree = pool.tree();
    let is_in_use = |disk: &usize| {
        let config = tree.config();
        let mut leaves = config.vdevs.iter().flat_map(|top| top.leaves());
        let leaf = leaves.find(|leaf| leaf.path.as_deref().and_then(disk_at) == Some(*disk));
        leaf.is_some_and(|leaf| !leaf.is_taken_out() && tree.device(leaf.guid).is_some())
    };
    if scan.is_some_and(|scan| scan.is_scrub()) && liars.iter().all(is_in_use) {
        stage.bay.note(|ledger| ledger.liars.clear());
    }
    Ok(())
}

/// Mounts file systems that a renaming left unmounted whose caller gave up.
pub async fn mount_all(stage: &Stage) {
    use cenote_control::zfs::mounts::mount::{Mount, MountOptions, Which};
    let (which, options) = (Some(Which::All), MountOptions::default());
    run_verb(stage, Mount { which, load_keys: false, options, remount: false, force: false }).await;
}

/// Replaces disks without labels by themselves.
async fn replace_unusable(stage: &Stage, engine: &Engine) {
    let mut unusable = Vec::new();
    engine.pool().status().root.walk(&mut |vdev| {
        let is_leaf = matches!(vdev.kind, VdevKind::Disk | VdevKind::File);
        let is_lost = matches!(vdev.state, VdevState::Unavailable | VdevState::Removed);
        unusable.extend((is_leaf && is_lost).then_some(vdev.guid));
    });
    for guid in unusable {
        let config = engine.pool().tree().config();
        let mut leaves = config.vdevs.iter().flat_map(|top| top.leaves());
        let Some(path) = leaves.find(|leaf| leaf.guid == guid).and_then(|leaf| leaf.path.clone()) else {
            continue;
        };
        stage.bay.note(|ledger| ledger.joined.extend(disk_at(&path)));
        let replace = zpool::joining::replace::Replace {
            pool: POOL.into(),
            device: path,
            new_device: None,
            force: true,
            sequential: false,
            wait: false,
            ashift: None,
        };
        run_verb(stage, replace).await;
    }
}

/// Waits until scans have ended, and says whether nothing is missing.
async fn is_well_soon(stage: &Stage, engine: &Engine, pace: Pace) -> Result<bool, Violation> {
    for _ in 0..MOST_LOOKS {
        stage.runtime.sleep(LOOK_INTERVAL).await;
        if pace == Pace::OfClients && stage.is_over() {
            return Ok(false);
        }
        let scan = engine.mos().await.map_err(failed)?.scan_status().await.map_err(failed)?;
        if scan.as_ref().is_some_and(|scan| scan.is_running() && !scan.is_paused()) {
            continue;
        }
        if let Some(errors) = scan.map(|scan| scan.errors).filter(|errors| *errors > 0) {
            return Err(Violation(format!("a scan could not repair {errors} blocks")));
        }
        let (pool, health) = (engine.pool(), engine.pool().status());
        let is_well = pool.lacking().behind().is_empty() && health.root.state == VdevState::Online;
        if !is_well {
            stage.note(&format!("not yet well: {}", state(engine).await));
        }
        return Ok(is_well);
    }
    Err(Violation(format!("a scan does not end: {}", state(engine).await)))
}

fn failed(error: impl std::fmt::Display) -> Violation {
    Violation(format!("the pool can't be read: {error}"))
}

async fn state(engine: &Engine) -> String {
    let (pool, mut text) = (engine.pool(), String::new());
    pool.status().root.walk(&mut |vdev| {
        text += &format!("{} {} {:?}, ", vdev.name, vdev.state, vdev.trouble);
    });
    let scan = match engine.mos().await {
        Ok(mos) => mos.scan_status().await.ok().flatten(),
        Err(_) => None,
    };
    let suspended = pool.suspension().suspended();
    format!("{text}behind {:?}, scan {scan:?}, suspended {suspended:?}", pool.lacking().behind())
}

/// Runs a verb of the technician; returns whether it was done.
async fn run_verb<V: Verb>(stage: &Stage, verb: V) -> bool {
    let (done, said) = stage.daemon.run(verb).await;
    match done {
        Ok(answered) if answered.outcome == Outcome::Done => return true,
        Ok(_) => stage.note(&format!("{}: {said}", V::NAME)),
        Err(error) => stage.note(&format!("{}: {error} {said}", V::NAME)),
    }
    false
}
