//! An administrator's verbs on devices and on the pool as a whole.
//!
//! Idea: the budget of guilty disks ([`crate::machine::faults`]) binds administrators, too. A disk taken out
//! of use lacks data from then on, so it becomes guilty first, if its vdev can do without it. No honest disk
//! is detached that guilty ones depend on. Copies without checksums (rebuilds, expansions, removals) would
//! spread a lie, so they are made only where disks do not lie.
//!
//! The pool's content stays the same, so each verb may be refused. If done, it shows in redundancy: the pool
//! must get well again ([`super::trouble`]), and its content survives without other disks.
//!
//! Locking: `Bay::turn` is held for each verb, and for a repair.

use std::collections::BTreeSet;

use cenote_control::zpool;
use cenote_control::zpool::activity::scrub::Order;
use cenote_pool::{PoolConfig, VdevConfig, VdevKind};
use cenote_runtime::Rng;

use super::admin::{Work, run};
use super::trouble::lagging;
use super::{Stage, pick};
use crate::layout::{DISKS, vdevs};
use crate::machine::faults::{Budget, budgets, disk_at};
use crate::machine::{POOL, path_of};
use crate::model::call::DeviceVerb;

/// Chooses a verb; `None`: this kind is not possible now.
pub fn choose(stage: &Stage, rng: &mut Rng) -> Option<DeviceVerb> {
    let pool = stage.daemon.pools.get(POOL)?;
    let config = pool.engine.pool().tree().config();
    let (lies, guilty) = (stage.swarm.has_lies(), stage.bay.ledger().guilty);
    let is_free = |disk: &usize| !is_used(&config, *disk) && !guilty.contains(disk);
    let free: Vec<usize> = (0..DISKS).filter(is_free).collect();
    let tops: Vec<&VdevConfig> = config.vdevs.iter().filter(|top| top.leaves().count() > 0).collect();
    let top = *pick(rng, &tops)?;
    let disks: Vec<usize> = disks_of(top).into_iter().collect();
    let disk = *pick(rng, &disks)?;
    let sequential = !lies && rng.chance(0.3);
    Some(match rng.below(20) {
        0 | 1 => DeviceVerb::Offline { disk, temporarily: rng.chance(0.3) },
        2 | 3 => DeviceVerb::Online(disk),
        4 => DeviceVerb::Clear,
        5 => DeviceVerb::Reopen,
        6 => [DeviceVerb::Resilver, DeviceVerb::StopScrub, DeviceVerb::PauseScrub][rng.below(3) as usize]
            .clone(),
        7..=9 => DeviceVerb::Replace { disk, by: *pick(rng, &free)?, sequential },
        10 | 11 if top.kind == VdevKind::Raidz => {
            let (raidz, new) = (format!("raidz{}-{}", top.parity, top.id), *pick(rng, &free)?);
            (!lies).then_some(DeviceVerb::Expand { raidz, new })?
        }
        10 | 11 => DeviceVerb::Attach { disk, new: *pick(rng, &free)?, sequential },
        12 | 13 => DeviceVerb::Detach(disk),
        14 | 15 => DeviceVerb::Add(addition(&free, rng)?),
        16 | 17 => removable(&config, lies, rng)?,
        18 => DeviceVerb::StopRemoval,
        _ => DeviceVerb::Checkpoint { discard: rng.chance(0.6) },
    })
}

fn is_used(config: &PoolConfig, disk: usize) -> bool {
    let all = config.vdevs.iter().chain(&config.spares).chain(&config.l2cache);
    all.into_iter().any(|vdev| disks_of(vdev).contains(&disk))
}

fn disks_of(vdev: &VdevConfig) -> BTreeSet<usize> {
    vdev.leaves().filter_map(|leaf| disk_at(leaf.path.as_deref()?)).collect()
}

fn addition(free: &[usize], rng: &mut Rng) -> Option<String> {
    let one = *pick(rng, free)?;
    let other = free.iter().find(|other| **other != one);
    Some(match rng.below(6) {
        0 => format!("{one}"),
        1 => format!("mirror {one} {}", other?),
        2 => format!("log {one}"),
        3 => format!("log mirror {one} {}", other?),
        4 => format!("cache {one}"),
        _ => format!("spare {one}"),
    })
}

/// A vdev, log, spare or cache device to remove.
fn removable(config: &PoolConfig, lies: bool, rng: &mut Rng) -> Option<DeviceVerb> {
    use cenote_pool::VdevClass::Log;
    let beside = config.spares.iter().chain(&config.l2cache).filter_map(|vdev| vdev.path.clone());
    let may_go = |top: &&VdevConfig| top.class == Log || !lies;
    let tops = config.vdevs.iter().filter(may_go).filter_map(|top| match top.kind {
        VdevKind::Disk | VdevKind::File => top.path.clone(),
        VdevKind::Mirror => Some(format!("mirror-{}", top.id)),
        _ => None,
    });
    let all: Vec<String> = beside.chain(tops).collect();
    pick(rng, &all).cloned().map(DeviceVerb::Remove)
}

/// Whether a verb keeps the budget; disks that it takes out of use become guilty.
pub fn takes(stage: &Stage, verb: &DeviceVerb) -> bool {
    let Some(pool) = stage.daemon.pools.get(POOL) else { return false };
    let (view, bay) = (pool.engine.pool(), &stage.bay);
    let (config, lagging) = (view.tree().config(), lagging(&view));
    let keeps = |guilty: &BTreeSet<usize>, disk: usize| {
        let without: BTreeSet<usize> = guilty.iter().copied().chain([disk]).collect();
        budgets(&config).iter().all(|budget| is_kept(budget, &without, &lagging))
    };
    match verb {
        DeviceVerb::Offline { disk, .. } => bay.note(|ledger| {
            let keeps = keeps(&ledger.guilty, *disk);
            if keeps {
                ledger.accuse([*disk].into());
            }
            keeps
        }),
        // One more must stay than is needed for the data alone: the other may become guilty.
        DeviceVerb::Detach(disk) => {
            let ledger = bay.ledger();
            ledger.guilty.contains(disk) || keeps(&ledger.guilty, *disk)
        }
        DeviceVerb::Replace { by: new, .. }
        | DeviceVerb::Attach { new, .. }
        | DeviceVerb::Expand { new, .. } => bay.note(|ledger| {
            ledger.joined.insert(*new);
            // A sequential resilver copies without checksums.
            if let DeviceVerb::Replace { sequential: true, .. }
            | DeviceVerb::Attach { sequential: true, .. } = verb
            {
                ledger.rebuilt.insert(*new);
            }
            true
        }),
        _ => true,
    }
}

/// Whether a vdev can do without these disks, and without those that lack data.
fn is_kept((places, most): &Budget, without: &BTreeSet<usize>, lagging: &BTreeSet<usize>) -> bool {
    let is_lost = |place: &&BTreeSet<usize>| {
        !place.is_empty() && (!place.is_disjoint(without) || place.is_subset(lagging))
    };
    let lost = places.iter().filter(is_lost).count();
    lost <= *most || places.iter().all(|place| place.is_disjoint(without))
}

/// Runs a verb.
pub fn carry_out(stage: &Stage, verb: DeviceVerb) -> Work<'_> {
    use DeviceVerb::*;
    let (pool, pools) = (POOL.to_owned(), vec![POOL.to_owned()]);
    let force = true;
    match verb {
        Offline { disk, temporarily } => {
            use zpool::leaves::offline::{How, Offline};
            let how = if temporarily { How::Temporarily } else { How::Offline };
            run(stage, Offline { pool, devices: vec![path(disk)], how })
        }
        Online(disk) => {
            run(stage, zpool::leaves::online::Online { pool, devices: vec![path(disk)], expand: false })
        }
        Clear => run(stage, zpool::leaves::clear::Clear { pool, device: None }),
        Reopen => run(stage, zpool::leaves::reopen::Reopen { pools, no_resilver: false }),
        Resilver => run(stage, zpool::activity::resilver::Resilver { pools }),
        StopScrub => scrub(stage, Order::Stop),
        PauseScrub => scrub(stage, Order::Pause),
        Replace { disk, by, sequential } => {
            let (device, new_device) = (path(disk), Some(path(by)));
            let (wait, ashift) = (false, None);
            let replace = zpool::joining::replace::Replace {
                pool,
                device,
                new_device,
                force,
                sequential,
                wait,
                ashift,
            };
            run(stage, replace)
        }
        Attach { disk, new, sequential } => attach(stage, path(disk), path(new), sequential),
        Expand { raidz, new } => attach(stage, raidz, path(new), false),
        Detach(disk) => run(stage, zpool::leaves::detach::Detach { pool, device: path(disk) }),
        Add(words) => {
            use zpool::joining::add::{Accept, Add};
            let accept = Accept { in_use: true, replication_mismatch: true, ashift_mismatch: true };
            let layout = vdevs(&words).unwrap_or_default();
            run(stage, Add { pool, layout, ashift: None, accept, dry_run: false })
        }
        Remove(device) => remove(stage, vec![device], zpool::leaves::remove::Order::Remove),
        StopRemoval => remove(stage, Vec::new(), zpool::leaves::remove::Order::Stop),
        Checkpoint { discard } => run(stage, zpool::whole::checkpoint::Checkpoint { pool, discard }),
    }
}

fn scrub(stage: &Stage, order: Order) -> Work<'_> {
    run(
        stage,
        zpool::activity::scrub::Scrub {
            pools: vec![POOL.into()],
            order,
            dates: Default::default(),
            wait: false,
            thorough: false,
        },
    )
}

fn attach(stage: &Stage, device: String, new_device: String, sequential: bool) -> Work<'_> {
    let (pool, force, wait) = (POOL.into(), true, false);
    run(stage, zpool::joining::attach::Attach { pool, device, new_device, force, sequential, wait })
}

fn remove(stage: &Stage, devices: Vec<String>, order: zpool::leaves::remove::Order) -> Work<'_> {
    run(stage, zpool::leaves::remove::Remove { pool: POOL.into(), devices, order, wait: false })
}

fn path(disk: usize) -> String {
    path_of(disk).to_string_lossy().into_owned()
}
