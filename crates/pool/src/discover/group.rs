//! Groups devices by pool, chooses the labels to believe, and notes contradictions.

use super::history::History;
use super::lost::{Signs, lost_states};
use super::scan::Scanned;
use super::{Discovery, FoundDevice, FoundPool, Problem, copies, problem};
use crate::config::{PoolConfig, PoolState, VdevConfig, VdevKind, least_leaf_bytes};
use crate::label::Label;
use cenote_device::Device;
use cenote_format::label::{LabelConfig, PoolConfig as LabelPool, VDEV_LABELS, VDEV_LABELS_BYTES};
use cenote_format::nvlist::Nvlist;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg, VdevId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Member {
    guid: Guid,
    config: LabelPool,
    pub(super) found: FoundDevice,
    pub(super) uberblocks: Vec<Uberblock>,
    signs: Signs,
}

/// One device per leaf, by guid.
pub(super) type Members = BTreeMap<Guid, Member>;
pub(super) type Candidates = BTreeMap<Guid, Vec<Member>>;

pub(super) fn group(scanned: Vec<Scanned>, mut problems: Vec<Problem>) -> Discovery {
    let mut pools: BTreeMap<Guid, (Candidates, Vec<Problem>)> = BTreeMap::new();
    let mut auxiliary = BTreeMap::new();
    let synced = synced_txgs(&scanned);
    for device in scanned {
        let path = device.device.describe().to_owned();
        match role(device, &synced) {
            Ok(Role::Auxiliary(guid, found)) => _ = auxiliary.insert(guid, found),
            Ok(Role::Member(member, notes)) => {
                let (candidates, pool_notes) = pools.entry(member.config.pool_guid).or_default();
                pool_notes.extend(notes);
                candidates.entry(member.guid).or_default().push(*member);
            }
            Err(why) => problems.push(problem(path, why)),
        }
    }
    let mut found = Vec::new();
    for (guid, (candidates, notes)) in pools {
        match assemble(candidates, notes) {
            Ok(pool) => found.push(FoundPool { auxiliary: auxiliary.clone(), ..pool }),
            Err(why) => problems.push(problem(format!("pool {guid}"), why)),
        }
    }
    found.sort_by(|a, b| (a.name(), a.guid()).cmp(&(b.name(), b.guid())));
    Discovery { pools: found, problems }
}

enum Role {
    /// With the problems of its other labels.
    Member(Box<Member>, Vec<Problem>),
    Auxiliary(Guid, FoundDevice),
}

fn synced_txgs(scanned: &[Scanned]) -> BTreeMap<Guid, Txg> {
    let mut synced = BTreeMap::new();
    for labels in scanned.iter().map(|device| &device.labels) {
        let pool = labels.iter().find_map(|label| label.config.as_ref()?.get_u64("pool_guid"));
        if let (Some(pool), Some(newest)) = (pool, newest_txg(labels)) {
            let known: &mut Txg = synced.entry(Guid(pool)).or_default();
            *known = newest.max(*known);
        }
    }
    synced
}

fn newest_txg(labels: &[Label]) -> Option<Txg> {
    labels.iter().flat_map(|label| &label.uberblocks).map(|uberblock| uberblock.txg).max()
}

/// The newest label counts, unless its txg was never completed: the power failed before its uberblock. Among
/// labels of one txg, one that marks the pool as in use counts, because an import marks labels one by one.
fn role(scanned: Scanned, synced: &BTreeMap<Guid, Txg>) -> Result<Role, String> {
    let txg = |list: &Nvlist| list.get_u64("txg").unwrap_or(0);
    let is_whole = |list: &Nvlist| {
        let pool = list.get_u64("pool_guid").map(Guid);
        pool.and_then(|pool| synced.get(&pool)).is_none_or(|synced| txg(list) <= synced.0)
    };
    let lists: Vec<&Nvlist> = scanned.labels.iter().filter_map(|label| label.config.as_ref()).collect();
    let best = *lists
        .iter()
        .max_by_key(|list| (is_whole(list), txg(list), says_active(list.get_u64("state"))))
        .ok_or("has uberblocks of a pool but no readable configuration in any label")?;
    let config = LabelConfig::decode(best).map_err(|error| format!("its label is not usable: {error}"))?;
    let shortfall = match &config {
        LabelConfig::Member(config) => shortfall(&*scanned.device, config),
        LabelConfig::Spare(_) | LabelConfig::L2cache(_) => None,
    };
    let notes = label_notes(scanned.device.describe(), &lists, best, shortfall);
    let found = FoundDevice {
        path: scanned.device.describe().to_owned(),
        label_txg: Txg(txg(best)),
        uberblock_txg: newest_txg(&scanned.labels).unwrap_or_default(),
        good_labels: lists.len() as u32,
        stale: false,
        history: History::Shared,
        device: scanned.device,
        base: scanned.base,
    };
    let config = match config {
        LabelConfig::Spare(aux) | LabelConfig::L2cache(aux) => {
            return Ok(Role::Auxiliary(aux.guid, found));
        }
        LabelConfig::Member(config) => config,
    };
    let guid = config.guid.filter(|_| config.txg != Txg(0));
    let guid = guid.ok_or("its label names no pool: it was being added or removed when written")?;
    let signs = Signs::of(&scanned.labels, config.vdev_tree.ashift);
    let uberblocks = scanned.labels.into_iter().flat_map(|label| label.uberblocks).collect();
    Ok(Role::Member(Box::new(Member { guid, config, found, uberblocks, signs }), notes))
}

fn says_active(state: Option<u64>) -> bool {
    state.map(PoolState::from) == Some(PoolState::Active)
}

/// The actual and the required size of a truncated device.
fn shortfall(device: &dyn Device, config: &LabelPool) -> Option<(u64, u64)> {
    let least_bytes = least_leaf_bytes(&config.vdev_tree, config.guid?).saturating_add(VDEV_LABELS_BYTES);
    let size_bytes = device.size_bytes();
    (size_bytes < least_bytes).then_some((size_bytes, least_bytes))
}

/// Problems of the device and of its other labels.
fn label_notes(path: &str, lists: &[&Nvlist], best: &Nvlist, shortfall: Option<(u64, u64)>) -> Vec<Problem> {
    let mut notes = Vec::new();
    let bad = (VDEV_LABELS as usize).saturating_sub(lists.len());
    if let Some((size_bytes, least_bytes)) = shortfall {
        let why =
            "is cut short: what is left is read, the rest is missing; copy the whole disk or image again";
        notes.push(problem(path, format!("{why} ({size_bytes} of at least {least_bytes} bytes are here)")));
    } else if bad > 0 {
        notes.push(problem(path, format!("{bad} of 4 labels are damaged; the others are used")));
    }
    let differ = |name: &str| lists.iter().any(|list| list.get_u64(name) != best.get_u64(name));
    if differ("guid") {
        notes.push(problem(path, "its labels belong to different vdevs; the newest is used"));
    } else if differ("txg") {
        let why = "its labels are of different txgs: a write was interrupted; the newest of a \
                   completed txg is used";
        notes.push(problem(path, why));
    }
    notes
}

fn assemble(candidates: Candidates, mut notes: Vec<Problem>) -> Result<FoundPool, String> {
    let (members, duplicates) = copies::choose(candidates);
    notes.extend(duplicates.iter().map(|copy| problem(&copy.left_out, copy.to_string())));
    let rank = |m: &&Member| (m.found.label_txg, m.config.state == PoolState::Active);
    let newest = members.values().max_by_key(rank).ok_or("no device")?;
    let tops = top_level_vdevs(&members);
    // Pools older than version 19 do not record the number of vdevs. Then the labels' ids must do; the
    // uberblock's sum of all guids tells whether there are more.
    let known = tops.keys().next_back().map_or(0, |&id| id + 1);
    let count = newest.config.vdev_children.filter(|&named| named > 0).unwrap_or(known);
    let vdev = |id: u64| match tops.get(&id) {
        _ if newest.config.hole_array.contains(&VdevId(id)) => VdevConfig::new(VdevKind::Hole, id, Guid(0)),
        Some(member) => member.config.vdev_tree.clone(),
        None => VdevConfig::new(VdevKind::Missing, id, Guid(0)),
    };
    let mut config = PoolConfig::new(&newest.config, (0..count).map(vdev).collect());
    let (says_count, label_txg) = (newest.config.vdev_children.is_some(), newest.found.label_txg);
    let uberblocks = newest_first(members.values().flat_map(|m| m.uberblocks.iter().copied()));
    let in_effect = uberblocks.first().filter(|newest| newest.txg >= label_txg);
    if !says_count && in_effect.is_some_and(|uberblock| uberblock.guid_sum != guid_sum(&config)) {
        config.vdevs.push(VdevConfig::new(VdevKind::Missing, count, Guid(0)));
    }
    let signs = members.values().map(|member| &member.signs);
    let lost = uberblocks.first().and_then(|newest| lost_states(newest, signs));
    let devices = keep_named(members, &config.vdevs, &mut notes);
    let auxiliary = BTreeMap::new();
    Ok(FoundPool { config, uberblocks, devices, auxiliary, notes, lost, duplicates, taps: None, fence: None })
}

fn guid_sum(config: &PoolConfig) -> u64 {
    let vdevs = config.vdevs.iter().flat_map(VdevConfig::walk);
    vdevs.fold(config.guid.0, |sum, vdev| sum.wrapping_add(vdev.guid.0))
}

/// For each id, the member with the newest description.
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

/// A leaf lags if its labels are older, or if it lacks more than its siblings' newest uberblock. It may lack
/// only that one after an interrupted write. Older labels beside the newest uberblock are no sign of absence:
/// opening a pool marks its labels, perhaps interrupted between two devices.
fn lag(members: &Members, siblings: &[Guid], leaf: Guid) -> Option<String> {
    let (guid, leaf) = (leaf, members.get(&leaf)?);
    let siblings = || siblings.iter().filter_map(|guid| members.get(guid));
    let label_txg = leaf.found.label_txg;
    let newest_label = siblings().map(|m| m.found.label_txg).max()?;
    let newest = |m: &Member| {
        let newest = m.uberblocks.iter().max_by_key(|uberblock| uberblock.txg)?;
        Some((newest.txg, newest.rootbp))
    };
    let of_others = siblings().filter(|m| m.guid != guid).filter_map(newest).max_by_key(|(txg, _)| *txg);
    if label_txg < newest_label && (of_others.is_none() || newest(leaf) != of_others) {
        return Some(format!("was away: its labels are of txg {label_txg}, its siblings' of {newest_label}"));
    }
    let own = leaf.uberblocks.iter().map(|uberblock| uberblock.txg).max()?;
    let of_siblings = siblings().flat_map(|m| &m.uberblocks).map(|uberblock| uberblock.txg);
    let missed: BTreeSet<Txg> = of_siblings.filter(|txg| *txg > own).collect();
    let newest = missed.last().filter(|_| missed.len() > 1)?;
    Some(format!(
        "was away, or is an old copy: its newest uberblock is of txg {own}, its siblings' of {newest}"
    ))
}

fn history(members: &Members, siblings: &[Guid], leaf: Guid) -> History {
    let of = |guid: &Guid| members.get(guid).map_or(&[][..], |member| &member.uberblocks);
    let others: Vec<Uberblock> =
        siblings.iter().filter(|guid| **guid != leaf).flat_map(of).copied().collect();
    History::of(of(&leaf), &others)
}

/// Keeps the devices that the vdevs name, marks lagging ones, and notes the others.
fn keep_named(
    members: Members,
    tops: &[VdevConfig],
    notes: &mut Vec<Problem>,
) -> BTreeMap<Guid, FoundDevice> {
    let mut lags = BTreeMap::new();
    for top in tops {
        let leaves: Vec<Guid> = top.leaves().map(|leaf| leaf.guid).collect();
        lags.extend(leaves.iter().map(|&leaf| {
            let lag = lag(&members, &leaves, leaf);
            (leaf, lag.map(|lag| (lag, history(&members, &leaves, leaf))))
        }));
    }
    let mut devices = BTreeMap::new();
    for (guid, Member { mut found, .. }) in members {
        let Some(lag) = lags.remove(&guid) else {
            notes.push(problem(&found.path, "is no longer part of this pool and is left out"));
            continue;
        };
        if let Some((why, history)) = lag {
            (found.stale, found.history) = (true, history);
            notes.push(problem(&found.path, why));
        }
        devices.insert(guid, found);
    }
    devices
}

fn newest_first(uberblocks: impl Iterator<Item = Uberblock>) -> Vec<Uberblock> {
    let mut all: Vec<Uberblock> = uberblocks.collect();
    all.sort_by(|a, b| b.rank().cmp(&a.rank()).then_with(|| a.rootbp.words().cmp(b.rootbp.words())));
    // Heartbeats rewrite the same root with another sequence number.
    all.dedup_by(|later, first| later.txg == first.txg && later.rootbp == first.rootbp);
    all
}
