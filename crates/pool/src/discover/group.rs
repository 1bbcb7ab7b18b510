//! From devices with labels to pools: grouping, choosing what to believe, noting what to doubt.

use super::scan::Scanned;
use super::{Discovery, FoundDevice, FoundPool, Problem, problem};
use crate::config::decode::{pool_fields, vdev, vdev_children};
use crate::config::{PoolState, VdevConfig, VdevKind};
use crate::label::VDEV_LABELS;
use cenote_format::nvlist::Nvlist;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use std::collections::{BTreeMap, BTreeSet};

/// A device's own view: its best label.
struct Member {
    guid: Guid,
    config: Nvlist,
    found: FoundDevice,
    uberblocks: Vec<Uberblock>,
}

type Members = BTreeMap<Guid, Member>;

pub(super) fn group(scanned: Vec<Scanned>, mut problems: Vec<Problem>) -> Discovery {
    let mut pools: BTreeMap<Guid, (Members, Vec<Problem>)> = BTreeMap::new();
    let mut auxiliary = BTreeMap::new();
    for device in scanned {
        let path = device.device.describe().to_owned();
        let Some((member, notes)) = member(device) else {
            let why = "has uberblocks of a pool but no readable configuration in any label";
            problems.push(problem(path, why));
            continue;
        };
        let state = PoolState::from(member.config.get_u64("state").unwrap_or(0));
        if matches!(state, PoolState::Spare | PoolState::L2cache) {
            auxiliary.insert(member.guid, member.found);
            continue;
        }
        let Some(pool) = member.config.get_u64("pool_guid").filter(|_| member.found.label_txg.0 != 0) else {
            problems
                .push(problem(path, "its label names no pool: it was being added or removed when written"));
            continue;
        };
        let (members, pool_notes) = pools.entry(Guid(pool)).or_default();
        pool_notes.extend(notes);
        pool_notes.extend(admit(members, member));
    }
    let mut found = Vec::new();
    for (guid, (members, notes)) in pools {
        match assemble(members, notes) {
            Ok(pool) => found.push(FoundPool { auxiliary: auxiliary.clone(), ..pool }),
            Err(why) => problems.push(problem(format!("pool {guid}"), why)),
        }
    }
    found.sort_by(|a, b| (a.name(), a.guid()).cmp(&(b.name(), b.guid())));
    Discovery { pools: found, problems }
}

/// The newest of a device's labels, its uberblocks, and what is wrong with the others.
fn member(scanned: Scanned) -> Option<(Member, Vec<Problem>)> {
    let txg = |config: &Nvlist| config.get_u64("txg").unwrap_or(0);
    let path = scanned.device.describe().to_owned();
    let configs: Vec<&Nvlist> = scanned.labels.iter().filter_map(|label| label.config.as_ref()).collect();
    let best = *configs.iter().max_by_key(|config| txg(config))?;
    let mut notes = Vec::new();
    if configs.len() < VDEV_LABELS {
        let bad = VDEV_LABELS - configs.len();
        notes.push(problem(&path, format!("{bad} of 4 labels are damaged; the others are used")));
    }
    if configs.iter().any(|config| config.get_u64("guid") != best.get_u64("guid")) {
        notes.push(problem(&path, "its labels belong to different vdevs; the newest is believed"));
    } else if configs.iter().any(|config| txg(config) != txg(best)) {
        notes.push(problem(
            &path,
            "its labels are of different txgs: a write was cut short; the newest is used",
        ));
    }
    let found = FoundDevice {
        path,
        label_txg: Txg(txg(best)),
        good_labels: configs.len() as u32,
        stale: false,
        device: scanned.device,
    };
    let config = best.clone();
    let guid = Guid(config.get_u64("guid")?);
    let uberblocks = scanned.labels.into_iter().flat_map(|label| label.uberblocks).collect();
    Some((Member { guid, config, found, uberblocks }, notes))
}

/// Adds a device to its pool. Of two with the same guid the newer stays, the other gets a note.
fn admit(members: &mut Members, member: Member) -> Option<Problem> {
    let Some(present) = members.get_mut(&member.guid) else {
        members.insert(member.guid, member);
        return None;
    };
    let rank = |m: &Member| (m.found.label_txg, m.found.good_labels);
    let dropped = if rank(&member) > rank(present) { std::mem::replace(present, member) } else { member };
    let kept = &present.found.path;
    let why = format!("is a copy of the same vdev as {kept} and is left out; take one of them away");
    Some(problem(dropped.found.path, why))
}

fn assemble(mut members: Members, mut notes: Vec<Problem>) -> Result<FoundPool, String> {
    let newest = members.values().max_by_key(|m| m.found.label_txg).ok_or("no device")?;
    let mut config = pool_fields(&newest.config).map_err(|error| format!("its newest label: {error}"))?;
    let holes: BTreeSet<u64> =
        newest.config.get_u64_array("hole_array").unwrap_or_default().iter().copied().collect();
    let tops = top_level_vdevs(&members, &mut notes);
    let named = vdev_children(&newest.config).unwrap_or(0);
    // Pools older than version 19 do not say how many there are; then the labels' ids must do.
    let known = tops.keys().next_back().map_or(0, |&id| id + 1);
    let count = if named > 0 { named } else { known };
    for id in 0..count {
        let unknown = |kind| VdevConfig::new(kind, id, Guid(0));
        config.vdevs.push(match tops.get(&id) {
            _ if holes.contains(&id) => unknown(VdevKind::Hole),
            Some((_, top)) => top.clone(),
            None => unknown(VdevKind::Missing),
        });
    }
    let uberblocks = newest_first(members.values_mut().flat_map(|m| std::mem::take(&mut m.uberblocks)));
    let devices = keep_named(members, &config.vdevs, &mut notes);
    Ok(FoundPool { config, uberblocks, devices, auxiliary: BTreeMap::new(), notes })
}

/// For each id the newest description of the top-level vdev, with the group it is of.
fn top_level_vdevs(members: &Members, notes: &mut Vec<Problem>) -> BTreeMap<u64, (Txg, VdevConfig)> {
    let mut tops: BTreeMap<u64, (Txg, VdevConfig)> = BTreeMap::new();
    for member in members.values() {
        let described = member.config.get_nvlist("vdev_tree").map(|tree| vdev(tree, 1));
        let top = match described {
            Some(Ok(top)) => top,
            Some(Err(error)) => {
                notes.push(problem(&member.found.path, format!("its vdev tree is not usable: {error}")));
                continue;
            }
            None => continue,
        };
        let newer = tops.get(&top.id).is_none_or(|(txg, _)| *txg < member.found.label_txg);
        if newer {
            tops.insert(top.id, (member.found.label_txg, top));
        }
    }
    tops
}

/// Keeps the devices that the vdevs name, marks those that lag behind their siblings, notes the rest.
fn keep_named(
    members: Members,
    tops: &[VdevConfig],
    notes: &mut Vec<Problem>,
) -> BTreeMap<Guid, FoundDevice> {
    let mut newest_of_leaf = BTreeMap::new();
    for top in tops {
        let mut leaves = Vec::new();
        top.walk(&mut |vdev| leaves.extend(vdev.is_leaf().then_some(vdev.guid)));
        let txgs = leaves.iter().filter_map(|guid| members.get(guid)).map(|m| m.found.label_txg);
        let newest = txgs.max().unwrap_or_default();
        newest_of_leaf.extend(leaves.into_iter().map(|guid| (guid, newest)));
    }
    let mut devices = BTreeMap::new();
    for (guid, Member { mut found, .. }) in members {
        let Some(&newest) = newest_of_leaf.get(&guid) else {
            notes.push(problem(&found.path, "was once part of this pool and is no longer: left out"));
            continue;
        };
        found.stale = found.label_txg < newest;
        if found.stale {
            let why =
                format!("was away: its labels are of txg {}, its siblings' of {newest}", found.label_txg);
            notes.push(problem(&found.path, why));
        }
        devices.insert(guid, found);
    }
    devices
}

fn newest_first(uberblocks: impl Iterator<Item = Uberblock>) -> Vec<Uberblock> {
    let mut all: Vec<Uberblock> = uberblocks.collect();
    let rank = |u: &Uberblock| (u.txg, u.timestamp_s, u.mmp_seq());
    all.sort_by(|a, b| rank(b).cmp(&rank(a)).then_with(|| a.rootbp.words().cmp(b.rootbp.words())));
    // Heartbeats rewrite the same root with another sequence number.
    all.dedup_by(|later, first| later.txg == first.txg && later.rootbp == first.rootbp);
    all
}
