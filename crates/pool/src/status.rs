//! Derives the state of every vdev from its configuration, its device and its children.
//!
//! Idea: a vdev above leaves is unavailable if more children failed than its redundancy allows. A failed log
//! only degrades the pool, since only the log's records are lost.
//!
//! ```text
//!   leaf     faulted, offline          as configured, found or not
//!            no device with its guid   REMOVED if it was, else UNAVAIL (also one that another's labels name)
//!            device too small          UNAVAIL: its end is missing (the rest is read all the same)
//!   raidz    failed > parity           UNAVAIL      any failed or degraded  DEGRADED
//!   mirror   all failed                UNAVAIL      any failed or degraded  DEGRADED (also spare, replacing)
//!   pool     any failed (not a log)    UNAVAIL      any failed or degraded  DEGRADED
//! ```
//!
//! Source: OpenZFS `vdev.c` (`vdev_open`, `vdev_propagate_state`), `vdev_op_state_change` of each kind,
//! `zpool_vdev_name`.

mod names;

use crate::config::{PoolConfig, VdevClass, VdevConfig, VdevKind, least_bytes, least_child_bytes};
use crate::discover::{FoundDevice, FoundPool};
use crate::health::{ErrorCounts, PoolHealth, Trouble, VdevState, VdevStatus};
use crate::pool::{Pool, Tree};
use cenote_format::label::{ERR_EXCEEDED, LABEL_BYTES, VDEV_LABELS_BYTES};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use names::{Names, shown};
use std::collections::{BTreeMap, BTreeSet};

impl FoundPool {
    /// State of the pool and every vdev, from labels alone.
    pub fn status(&self) -> PoolHealth {
        health(&self.config, self, Now::default())
    }
}

impl Tree {
    /// The pool as a search would find it at this uberblock; no device is read.
    pub fn as_found(&self, uberblock: &Uberblock) -> FoundPool {
        let (config, found) = (self.config(), self.found());
        FoundPool {
            config: PoolConfig::clone(&config),
            uberblocks: vec![*uberblock],
            ..FoundPool::clone(&found)
        }
    }
}

impl Pool {
    /// State of the pool and every vdev, from the current configuration, with error counters.
    pub fn status(&self) -> PoolHealth {
        let tree = self.tree();
        let errors = self.counters().errors().into_iter().collect();
        let slow_ios = self.counters().slow_ios().into_iter().collect();
        let (hung, refused) = (self.devices().hung(), tree.refused_devices());
        let now = Now { errors, slow_ios, hung, refused };
        PoolHealth {
            standstill: self.suspension().standstill(),
            ..health(&tree.config(), &tree.found(), now)
        }
    }
}

/// Known only for an open pool.
#[derive(Default)]
struct Now {
    errors: BTreeMap<Guid, ErrorCounts>,
    slow_ios: BTreeMap<Guid, u64>,
    hung: Vec<Guid>,
    refused: BTreeMap<Guid, Trouble>,
}

fn health(config: &PoolConfig, found: &FoundPool, now: Now) -> PoolHealth {
    let names = Names::gather(config, found);
    let examiner = Examiner { found, now, names };
    let tops: Vec<VdevStatus> =
        config.vdevs.iter().map(|top| examiner.vdev(top, top.class, least_bytes(top))).collect();
    let mut in_use = BTreeSet::new();
    for top in &tops {
        top.walk(&mut |vdev| _ = in_use.insert(vdev.guid));
    }
    let spare = |spare: &VdevConfig| {
        let mut status = examiner.auxiliary(spare);
        if status.kind == VdevKind::DistributedSpare {
            // It is as large as the devices that it is spread over.
            status.size_bytes = smallest_leaf(&tops);
        }
        if in_use.contains(&spare.guid) {
            status.trouble = Some(Trouble::InUse);
        }
        status
    };
    PoolHealth {
        spares: config.spares.iter().map(spare).collect(),
        l2cache: config.l2cache.iter().map(|vdev| examiner.auxiliary(vdev)).collect(),
        root: root(config, tops),
        standstill: None,
    }
}

fn root(config: &PoolConfig, tops: Vec<VdevStatus>) -> VdevStatus {
    let mut root = VdevConfig::new(VdevKind::Root, 0, config.guid);
    root.path = Some(config.name.clone());
    let counted = |top: &&VdevStatus| !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect);
    let failed = |top: &&VdevStatus| top.state < VdevState::Degraded;
    let lost = tops.iter().filter(counted).filter(failed).any(|top| top.class != VdevClass::Log);
    let worst = tops.iter().filter(counted).map(|top| top.state).min().unwrap_or(VdevState::Online);
    let unknown = tops.iter().any(|top| top.kind == VdevKind::Missing);
    let (state, trouble) = match () {
        () if lost && unknown => (VdevState::Unavailable, Some(Trouble::MissingDevice)),
        () if lost => (VdevState::Unavailable, Some(Trouble::InsufficientReplicas)),
        () if worst < VdevState::Online => (VdevState::Degraded, None),
        () => (VdevState::Online, None),
    };
    VdevStatus { state, trouble, ..bare(&root, config.name.clone(), tops) }
}

struct Examiner<'a> {
    found: &'a FoundPool,
    now: Now,
    names: Names,
}

impl Examiner<'_> {
    /// Its leaves' sizes exclude labels.
    fn vdev(&self, config: &VdevConfig, class: VdevClass, least_bytes: u64) -> VdevStatus {
        let child_bytes = least_child_bytes(config, least_bytes);
        let child = |child| self.vdev(child, class, child_bytes);
        let mut children: Vec<VdevStatus> = config.children.iter().map(child).collect();
        if config.non_allocating {
            children.iter_mut().for_each(forbid_allocations);
        }
        let device = self.device(config);
        let (state, trouble) = match config.is_leaf() {
            true if self.now.hung.contains(&config.guid) => (VdevState::Faulted, Some(Trouble::Hung)),
            true => leaf(config, device, self.now.refused.get(&config.guid), least_bytes),
            false => interior(config, &children),
        };
        let mut status = bare(config, self.names.of(config), children);
        if let Some(device) = device {
            status.path = Some(device.path.clone());
            status.size_bytes = Some(device.device.size_bytes() / LABEL_BYTES * LABEL_BYTES);
        }
        if config.kind == VdevKind::DistributedSpare {
            status.size_bytes = smallest_device(self.found);
        }
        status.errors = self.now.errors.get(&config.guid).copied().unwrap_or_default();
        status.slow_ios = self.now.slow_ios.get(&config.guid).copied().filter(|_| config.is_leaf());
        status.expandable_bytes = expandable(config, &status);
        VdevStatus { class, state, trouble, ..status }
    }

    /// If missing, its path remains its name.
    fn auxiliary(&self, config: &VdevConfig) -> VdevStatus {
        let mut status = self.vdev(config, VdevClass::Normal, 0);
        if let Some(Trouble::CannotOpen { was }) = &mut status.trouble {
            *was = None;
        }
        status
    }

    fn device(&self, config: &VdevConfig) -> Option<&FoundDevice> {
        self.found.device(config.guid).filter(|_| config.is_leaf())
    }
}

fn forbid_allocations(vdev: &mut VdevStatus) {
    vdev.non_allocating = true;
    vdev.children.iter_mut().for_each(forbid_allocations);
}

fn bare(config: &VdevConfig, name: String, children: Vec<VdevStatus>) -> VdevStatus {
    VdevStatus {
        name,
        kind: config.kind.clone(),
        id: config.id,
        guid: config.guid,
        class: config.class,
        path: config.path.as_deref().map(shown),
        state: VdevState::Online,
        trouble: None,
        resilvering: config.resilver_txg != Txg(0) || config.rebuild_txg != Txg(0),
        awaits_resilver: config.resilver_defer,
        removing: config.removing,
        non_allocating: config.non_allocating,
        size_bytes: None,
        expandable_bytes: 0,
        errors: ErrorCounts::default(),
        slow_ios: None,
        children,
    }
}

fn leaf(
    config: &VdevConfig,
    device: Option<&FoundDevice>,
    refused: Option<&Trouble>,
    least_bytes: u64,
) -> (VdevState, Option<Trouble>) {
    let room = |found: &FoundDevice| found.device.size_bytes().saturating_sub(VDEV_LABELS_BYTES);
    let there = device.is_some() || config.kind == VdevKind::DistributedSpare;
    match () {
        () if config.faulted && !config.removed => (VdevState::Faulted, Some(diagnosis(config))),
        () if config.offline => (VdevState::Offline, None),
        () if !there && refused.is_some() => (VdevState::Unavailable, refused.cloned()),
        () if !there && config.removed => (VdevState::Removed, None),
        () if !there => {
            (VdevState::Unavailable, Some(Trouble::CannotOpen { was: config.path.as_deref().map(shown) }))
        }
        () if device.is_some_and(|device| room(device) < least_bytes) => {
            (VdevState::Unavailable, Some(Trouble::TooSmall))
        }
        () if config.degraded => (VdevState::Degraded, Some(diagnosis(config))),
        () if device.is_some_and(|device| device.stale) => (VdevState::Online, Some(Trouble::Stale)),
        () => (VdevState::Online, None),
    }
}

fn diagnosis(config: &VdevConfig) -> Trouble {
    match config.aux_state.as_deref() {
        Some(ERR_EXCEEDED) => Trouble::TooManyErrors,
        _ => Trouble::External,
    }
}

fn interior(config: &VdevConfig, children: &[VdevStatus]) -> (VdevState, Option<Trouble>) {
    let unsupported = |kind: String| (VdevState::Unavailable, Some(Trouble::UnsupportedKind(kind)));
    let have_failed = children.iter().enumerate().filter(|(_, child)| child.state < VdevState::Degraded);
    let failed = config.failures(have_failed.map(|(index, _)| index));
    let in_rows = |child: &&VdevStatus| matches!(child.kind, VdevKind::Raidz | VdevKind::Draid);
    if let Some(child) = children.iter().find(in_rows) {
        // Only `ztest` creates these.
        return unsupported(format!("{} of {}", config.kind, child.kind));
    }
    let bearable = match config.kind {
        VdevKind::Raidz | VdevKind::Draid => config.parity,
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => children.len().saturating_sub(1),
        VdevKind::Indirect | VdevKind::Hole => return (VdevState::Online, None),
        VdevKind::Missing => return (VdevState::Unavailable, Some(Trouble::MissingDevice)),
        _ => return unsupported(config.kind.to_string()),
    };
    let is_offline = |child: &VdevStatus| child.state == VdevState::Offline;
    match () {
        () if failed > bearable && children.iter().all(is_offline) => {
            (VdevState::Offline, Some(Trouble::ChildrenOffline))
        }
        () if failed > bearable => (VdevState::Unavailable, Some(Trouble::InsufficientReplicas)),
        () if children.iter().any(|child| child.state < VdevState::Online) => (VdevState::Degraded, None),
        () => (VdevState::Online, None),
    }
}

/// In whole metaslabs; 0 for a dRAID.
fn expandable(config: &VdevConfig, status: &VdevStatus) -> u64 {
    let width = match config.kind {
        // The child being added counts once the expansion is done.
        VdevKind::Raidz => config.children.len() as u64 - u64::from(config.raidz_expanding),
        VdevKind::Disk | VdevKind::File | VdevKind::Mirror => 1,
        _ => return 0,
    };
    if config.asize_bytes == 0 || config.metaslab_shift == 0 {
        return 0;
    }
    let smallest = smallest_leaf(std::slice::from_ref(status)).unwrap_or(0);
    let room = smallest.saturating_sub(VDEV_LABELS_BYTES).saturating_mul(width);
    room.saturating_sub(config.asize_bytes) >> config.metaslab_shift << config.metaslab_shift
}

fn smallest_leaf(vdevs: &[VdevStatus]) -> Option<u64> {
    let mut smallest: Option<u64> = None;
    for vdev in vdevs {
        vdev.walk(&mut |vdev| smallest = [smallest, vdev.size_bytes].into_iter().flatten().min());
    }
    smallest
}

fn smallest_device(found: &FoundPool) -> Option<u64> {
    let sizes = found.devices.values().map(|found| found.device.size_bytes() / LABEL_BYTES * LABEL_BYTES);
    sizes.min()
}

#[cfg(test)]
mod tests {
    use cenote_format::units::ObjectId;

    use super::*;

    fn child(state: VdevState) -> VdevStatus {
        let config = VdevConfig::new(VdevKind::Disk, 0, Guid(1));
        VdevStatus { state, ..bare(&config, "disk".into(), Vec::new()) }
    }

    fn state_of(kind: VdevKind, parity: usize, children: &[VdevState]) -> VdevState {
        let config = VdevConfig { parity, ..VdevConfig::new(kind, 0, Guid(2)) };
        let children: Vec<VdevStatus> = children.iter().copied().map(child).collect();
        interior(&config, &children).0
    }

    #[test]
    fn a_vdev_bears_as_many_failures_as_it_has_redundancy() {
        use VdevState::{Degraded, Faulted, Offline, Online, Unavailable};
        assert_eq!(state_of(VdevKind::Raidz, 2, &[Online, Online, Online]), Online);
        assert_eq!(state_of(VdevKind::Raidz, 2, &[Unavailable, Faulted, Online]), Degraded);
        assert_eq!(state_of(VdevKind::Raidz, 1, &[Unavailable, Faulted, Online]), Unavailable);
        assert_eq!(state_of(VdevKind::Mirror, 0, &[Unavailable, Online]), Degraded);
        assert_eq!(state_of(VdevKind::Mirror, 0, &[Unavailable, Faulted]), Unavailable);
        assert_eq!(state_of(VdevKind::Mirror, 0, &[Offline, Offline]), Offline);
        assert_eq!(state_of(VdevKind::Mirror, 0, &[Degraded, Online]), Degraded);
    }

    #[test]
    fn a_mirror_of_raidz_is_said_to_be_unknown() {
        let raidz = bare(&VdevConfig::new(VdevKind::Raidz, 0, Guid(1)), "raidz1-0".into(), Vec::new());
        let mirror = VdevConfig::new(VdevKind::Mirror, 0, Guid(2));
        let unknown = Trouble::UnsupportedKind("mirror of raidz".into());
        assert_eq!(interior(&mirror, &[raidz]), (VdevState::Unavailable, Some(unknown)));
    }

    #[test]
    fn a_lost_log_degrades_the_pool_and_any_other_lost_vdev_makes_it_unavailable() {
        let config = |vdevs| PoolConfig {
            name: "p".into(),
            guid: Guid(9),
            version: 5000,
            state: crate::config::PoolState::Exported,
            txg: Txg(1),
            hostid: None,
            hostname: None,
            comment: None,
            compatibility: None,
            features_for_read: Vec::new(),
            root_zap: ObjectId(0),
            vdevs,
            spares: Vec::new(),
            l2cache: Vec::new(),
        };
        let of = |class| {
            let lost = VdevStatus { class, ..child(VdevState::Unavailable) };
            root(&config(Vec::new()), vec![child(VdevState::Online), lost]).state
        };
        assert_eq!(of(VdevClass::Log), VdevState::Degraded);
        assert_eq!(of(VdevClass::Normal), VdevState::Unavailable);
        assert_eq!(of(VdevClass::Special), VdevState::Unavailable);
    }
}
