//! From devices with labels to pools: grouping, choosing what to believe, noting what to doubt.

use super::scan::Scanned;
use super::{Discovery, FoundDevice, FoundPool, Problem, problem};
use crate::config::{PoolConfig, VdevConfig, VdevKind};
use cenote_format::label::{LabelConfig, PoolConfig as LabelPool, VDEV_LABELS};
use cenote_format::nvlist::Nvlist;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg, VdevId};
use std::collections::BTreeMap;

/// A member of a pool: what its best label says of the pool.
struct Member {
    guid: Guid,
    config: LabelPool,
    found: FoundDevice,
    uberblocks: Vec<Uberblock>,
}

type Members = BTreeMap<Guid, Member>;

pub(super) fn group(scanned: Vec<Scanned>, mut problems: Vec<Problem>) -> Discovery {
    let mut pools: BTreeMap<Guid, (Members, Vec<Problem>)> = BTreeMap::new();
    let mut auxiliary = BTreeMap::new();
    let synced = synced_txgs(&scanned);
    for device in scanned {
        let path = device.device.describe().to_owned();
        match role(device, &synced) {
            Ok(Role::Auxiliary(guid, found)) => _ = auxiliary.insert(guid, found),
            Ok(Role::Member(member, notes)) => {
                let (members, pool_notes) = pools.entry(member.config.pool_guid).or_default();
                pool_notes.extend(notes);
                pool_notes.extend(admit(members, *member));
            }
            Err(why) => problems.push(problem(path, why)),
        }
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

/// What a device is, by the newest of its labels.
enum Role {
    /// Part of a pool, and what is wrong with its other labels.
    Member(Box<Member>, Vec<Problem>),
    /// A spare or a cache device.
    Auxiliary(Guid, FoundDevice),
}

/// By pool, the newest group that any uberblock closes.
fn synced_txgs(scanned: &[Scanned]) -> BTreeMap<Guid, Txg> {
    let mut synced = BTreeMap::new();
    for labels in scanned.iter().map(|device| &device.labels) {
        let pool = labels.iter().find_map(|label| label.config.as_ref()?.get_u64("pool_guid"));
        let newest = labels.iter().flat_map(|label| &label.uberblocks).map(|uberblock| uberblock.txg).max();
        if let (Some(pool), Some(newest)) = (pool, newest) {
            let known: &mut Txg = synced.entry(Guid(pool)).or_default();
            *known = newest.max(*known);
        }
    }
    synced
}

/// Of its labels the newest counts, but for those of a group that never came to its end: there the power failed between labels and
/// uberblock.
fn role(scanned: Scanned, synced: &BTreeMap<Guid, Txg>) -> Result<Role, String> {
    let txg = |list: &Nvlist| list.get_u64("txg").unwrap_or(0);
    let is_whole = |list: &Nvlist| {
        let pool = list.get_u64("pool_guid").map(Guid);
        pool.and_then(|pool| synced.get(&pool)).is_none_or(|synced| txg(list) <= synced.0)
    };
    let lists: Vec<&Nvlist> = scanned.labels.iter().filter_map(|label| label.config.as_ref()).collect();
    let best = *lists
        .iter()
        .max_by_key(|list| (is_whole(list), txg(list)))
        .ok_or("has uberblocks of a pool but no readable configuration in any label")?;
    let config = LabelConfig::decode(best).map_err(|error| format!("its label is not usable: {error}"))?;
    let notes = label_notes(scanned.device.describe(), &lists, best);
    let found = FoundDevice {
        path: scanned.device.describe().to_owned(),
        label_txg: Txg(txg(best)),
        good_labels: lists.len() as u32,
        stale: false,
        device: scanned.device,
        base: scanned.base,
    };
    let config = match config {
        LabelConfig::Spare(aux) | LabelConfig::L2cache(aux) => return Ok(Role::Auxiliary(aux.guid, found)),
        LabelConfig::Member(config) => config,
    };
    let guid = config.guid.filter(|_| config.txg != Txg(0));
    let guid = guid.ok_or("its label names no pool: it was being added or removed when written")?;
    let uberblocks = scanned.labels.into_iter().flat_map(|label| label.uberblocks).collect();
    Ok(Role::Member(Box::new(Member { guid, config, found, uberblocks }), notes))
}

/// What is wrong with labels other than the one that is believed.
fn label_notes(path: &str, lists: &[&Nvlist], best: &Nvlist) -> Vec<Problem> {
    let mut notes = Vec::new();
    let bad = (VDEV_LABELS as usize).saturating_sub(lists.len());
    if bad > 0 {
        notes.push(problem(path, format!("{bad} of 4 labels are damaged; the others are used")));
    }
    let differ = |name: &str| lists.iter().any(|list| list.get_u64(name) != best.get_u64(name));
    if differ("guid") {
        notes.push(problem(path, "its labels belong to different vdevs; the newest is believed"));
    } else if differ("txg") {
        let why =
            "its labels are of different txgs: a write was cut short; the newest of a whole group is used";
        notes.push(problem(path, why));
    }
    notes
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
    let tops = top_level_vdevs(&members);
    // Pools older than version 19 do not say how many there are: then the labels' ids must do, and the sum of all guids that
    // the uberblock has tells whether there are more.
    let known = tops.keys().next_back().map_or(0, |&id| id + 1);
    let count = newest.config.vdev_children.filter(|&named| named > 0).unwrap_or(known);
    let vdev = |id: u64| match tops.get(&id) {
        _ if newest.config.hole_array.contains(&VdevId(id)) => VdevConfig::new(VdevKind::Hole, id, Guid(0)),
        Some(member) => member.config.vdev_tree.clone(),
        None => VdevConfig::new(VdevKind::Missing, id, Guid(0)),
    };
    let mut config = PoolConfig::new(&newest.config, (0..count).map(vdev).collect());
    let (says_count, label_txg) = (newest.config.vdev_children.is_some(), newest.found.label_txg);
    let uberblocks = newest_first(members.values_mut().flat_map(|m| std::mem::take(&mut m.uberblocks)));
    let in_effect = uberblocks.first().filter(|newest| newest.txg >= label_txg);
    if !says_count && in_effect.is_some_and(|uberblock| uberblock.guid_sum != guid_sum(&config)) {
        config.vdevs.push(VdevConfig::new(VdevKind::Missing, count, Guid(0)));
    }
    let devices = keep_named(members, &config.vdevs, &mut notes);
    Ok(FoundPool { config, uberblocks, devices, auxiliary: BTreeMap::new(), notes })
}

/// What `ub_guid_sum` is if these are all vdevs that there are: the sum of their guids and the pool's.
fn guid_sum(config: &PoolConfig) -> u64 {
    let vdevs = config.vdevs.iter().flat_map(VdevConfig::walk);
    vdevs.fold(config.guid.0, |sum, vdev| sum.wrapping_add(vdev.guid.0))
}

/// For each id the member that describes the top-level vdev as of the newest group.
fn top_level_vdevs(members: &Members) -> BTreeMap<u64, &Member> {
    let mut tops: BTreeMap<u64, &Member> = BTreeMap::new();
    for member in members.values() {
        let known = tops.entry(member.config.vdev_tree.id).or_insert(member);
        if known.found.label_txg < member.found.label_txg {
            *known = member;
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
        let leaves: Vec<Guid> = top.leaves().map(|leaf| leaf.guid).collect();
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
