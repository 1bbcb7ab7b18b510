//! The state of a pool and its vdevs, and what to do about it.
//!
//! A leaf is online if a device with its guid was found; a vdev above it is as good as its redundancy allows; the pool
//! is as bad as its worst top-level vdev, but for logs, which can be done without.
//!
//! Source: OpenZFS `vdev_propagate_state`, `libzfs_status.c` (order of reasons, message ids), `show_import`.

use crate::config::{PoolConfig, PoolState, VdevClass, VdevConfig, VdevKind};
use crate::discover::{FoundDevice, FoundPool};
use crate::health::{ErrorCounts, PoolHealth, Trouble, VdevState, VdevStatus};
use crate::pool::Pool;
use cenote_format::units::{Guid, Txg};
use std::collections::BTreeMap;

/// Highest version before feature flags, and that of feature flags, `SPA_VERSION`.
const LAST_NUMBERED_VERSION: u64 = 28;
const FEATURES_VERSION: u64 = 5000;

pub(crate) fn of_found(found: &FoundPool) -> PoolHealth {
    health(&found.config, found, &BTreeMap::new())
}

pub(crate) fn of_pool(pool: &Pool) -> PoolHealth {
    health(pool.config(), pool.found(), &pool.error_counters().into_iter().collect())
}

fn health(config: &PoolConfig, found: &FoundPool, errors: &BTreeMap<Guid, ErrorCounts>) -> PoolHealth {
    let judge = Judge { found, errors };
    let children: Vec<VdevStatus> = config.vdevs.iter().map(|top| judge.vdev(top, top.class)).collect();
    let state = pool_state(&children);
    let trouble = (state < VdevState::Degraded).then_some(Trouble::InsufficientReplicas);
    let root = VdevStatus {
        name: config.name.clone(),
        kind: VdevKind::Root,
        guid: config.guid,
        class: VdevClass::Normal,
        path: None,
        state,
        trouble,
        resilvering: children.iter().any(|child| child.resilvering),
        errors: ErrorCounts::default(),
        children,
    };
    let list = |vdevs: &[VdevConfig]| vdevs.iter().map(|v| judge.vdev(v, VdevClass::Normal)).collect();
    let (message_id, status) = reason(config, &root);
    PoolHealth {
        state,
        message_id,
        status: status.map(str::to_owned),
        action: action(config, &root),
        importable: state >= VdevState::Degraded,
        spares: list(&config.spares),
        l2cache: list(&config.l2cache),
        root,
    }
}

struct Judge<'a> {
    found: &'a FoundPool,
    errors: &'a BTreeMap<Guid, ErrorCounts>,
}

impl Judge<'_> {
    fn vdev(&self, config: &VdevConfig, class: VdevClass) -> VdevStatus {
        let children: Vec<VdevStatus> = config.children.iter().map(|child| self.vdev(child, class)).collect();
        let device = self.device(config);
        let (state, trouble) = match config.kind {
            VdevKind::Disk | VdevKind::File => self.leaf(config, device),
            VdevKind::DistributedSpare | VdevKind::Hole | VdevKind::Indirect => (VdevState::Online, None),
            VdevKind::Missing => (VdevState::Unavailable, Some(Trouble::CannotOpen { was: None })),
            VdevKind::Unknown => {
                let trouble = Trouble::UnsupportedKind(config.type_name.clone());
                (VdevState::Unavailable, Some(trouble))
            }
            VdevKind::Root | VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => {
                redundant(&children, children.len().saturating_sub(1))
            }
            VdevKind::Raidz | VdevKind::Draid => redundant(&children, config.parity),
        };
        VdevStatus {
            name: name(config, device),
            kind: config.kind,
            guid: config.guid,
            class,
            path: device.map(|device| device.path.clone()).or_else(|| config.path.clone()),
            state,
            trouble,
            resilvering: config.resilver_txg != Txg(0) || children.iter().any(|child| child.resilvering),
            errors: self.errors.get(&config.guid).copied().unwrap_or_default(),
            children,
        }
    }

    fn device(&self, config: &VdevConfig) -> Option<&FoundDevice> {
        self.found.devices.get(&config.guid).or_else(|| self.found.auxiliary.get(&config.guid))
    }

    fn leaf(&self, config: &VdevConfig, device: Option<&FoundDevice>) -> (VdevState, Option<Trouble>) {
        let Some(device) = device else {
            let state = match config {
                VdevConfig { offline: true, .. } => return (VdevState::Offline, None),
                VdevConfig { removed: true, .. } => VdevState::Removed,
                _ => VdevState::Unavailable,
            };
            return (state, Some(Trouble::CannotOpen { was: config.path.clone() }));
        };
        if config.offline {
            (VdevState::Offline, None)
        } else if config.faulted {
            (VdevState::Faulted, Some(Trouble::External))
        } else if config.degraded {
            (VdevState::Degraded, Some(Trouble::External))
        } else if device.stale {
            (VdevState::Online, Some(Trouble::Stale))
        } else {
            (VdevState::Online, None)
        }
    }
}

/// State of a vdev that can do without `tolerance` of its children.
fn redundant(children: &[VdevStatus], tolerance: usize) -> (VdevState, Option<Trouble>) {
    let gone = children.iter().filter(|child| child.state < VdevState::Degraded).count();
    if gone > tolerance || gone == children.len() {
        (VdevState::Unavailable, Some(Trouble::InsufficientReplicas))
    } else if children.iter().any(|child| child.state < VdevState::Online) {
        (VdevState::Degraded, None)
    } else {
        (VdevState::Online, None)
    }
}

fn pool_state(tops: &[VdevStatus]) -> VdevState {
    let is_gone = |top: &&VdevStatus| top.state < VdevState::Degraded;
    if tops.iter().any(|top| is_gone(&top) && top.class != VdevClass::Log) {
        VdevState::Unavailable
    } else if tops.iter().any(|top| top.state < VdevState::Online) {
        VdevState::Degraded
    } else {
        VdevState::Online
    }
}

fn name(config: &VdevConfig, device: Option<&FoundDevice>) -> String {
    let id = config.id;
    match config.kind {
        VdevKind::Raidz => format!("raidz{}-{id}", config.parity),
        VdevKind::Draid => {
            let (parity, children) = (config.parity, config.children.len());
            let shape = config.draid.map(|d| format!(":{}d:{children}c:{}s", d.data, d.spares));
            format!("draid{parity}{}-{id}", shape.unwrap_or_default())
        }
        VdevKind::DistributedSpare => config.path.clone().unwrap_or_default(),
        VdevKind::Disk | VdevKind::File => match (device, &config.path) {
            (Some(device), _) => leaf_name(config, &device.path),
            (None, Some(path)) if config.offline => leaf_name(config, path),
            // What is missing goes by its guid, as where it was may be something else by now.
            _ => config.guid.to_string(),
        },
        VdevKind::Root => "root".into(),
        VdevKind::Mirror => format!("mirror-{id}"),
        VdevKind::Replacing => format!("replacing-{id}"),
        VdevKind::Spare => format!("spare-{id}"),
        VdevKind::Indirect => format!("indirect-{id}"),
        VdevKind::Hole => format!("hole-{id}"),
        VdevKind::Missing => format!("missing-{id}"),
        VdevKind::Unknown => format!("{}-{id}", config.type_name),
    }
}

/// Files go by their path, disks by its last part.
fn leaf_name(config: &VdevConfig, path: &str) -> String {
    match config.kind {
        VdevKind::Disk => path.rsplit('/').next().unwrap_or(path).to_owned(),
        _ => path.to_owned(),
    }
}

/// The reason that weighs most, with its message id.
fn reason(config: &PoolConfig, root: &VdevStatus) -> (Option<&'static str>, Option<&'static str>) {
    let has = |test: &dyn Fn(&VdevStatus) -> bool| any(root, test);
    let fatal = root.state < VdevState::Degraded;
    let is_newer = config.version > LAST_NUMBERED_VERSION && config.version != FEATURES_VERSION;
    if is_newer {
        (Some("ZFS-8000-A5"), Some("The pool has a version that this program does not know."))
    } else if has(&|vdev| vdev.kind == VdevKind::Missing) {
        (Some("ZFS-8000-6X"), Some("Devices are missing, and which ones the devices found do not say."))
    } else if has(&|vdev| matches!(vdev.trouble, Some(Trouble::CannotOpen { .. }))) {
        let id = if fatal { "ZFS-8000-3C" } else { "ZFS-8000-2Q" };
        (Some(id), Some("Devices of the pool are missing."))
    } else if has(&|vdev| matches!(vdev.trouble, Some(Trouble::CorruptedData | Trouble::BadLabel))) {
        let id = if fatal { "ZFS-8000-5E" } else { "ZFS-8000-4J" };
        (Some(id), Some("Devices of the pool hold damaged data."))
    } else if has(&|vdev| vdev.state == VdevState::Faulted) {
        (None, Some("Devices were taken out of use because of errors."))
    } else if has(&|vdev| vdev.errors != ErrorCounts::default()) {
        (Some("ZFS-8000-9P"), Some("Devices gave errors while the pool was read."))
    } else if has(&|vdev| vdev.state == VdevState::Offline) {
        (None, Some("Devices were taken offline by the administrator."))
    } else if has(&|vdev| vdev.resilvering) {
        (None, Some("Devices were being resilvered when the pool was last written."))
    } else if config.state == PoolState::Active {
        (Some("ZFS-8000-EY"), Some("The pool was not exported: it is in use, or its machine stopped."))
    } else if config.version < FEATURES_VERSION {
        (None, Some("The pool has a version from before feature flags."))
    } else {
        (None, None)
    }
}

fn action(config: &PoolConfig, root: &VdevStatus) -> String {
    let open = "It can be opened read-only by its name or numeric identifier";
    match root.state {
        VdevState::Online if config.state == PoolState::Active => {
            format!("{open}; if another machine has it in use, what is read may change meanwhile.")
        }
        VdevState::Online => format!("{open}."),
        VdevState::Degraded => {
            format!(
                "{open}; attach the missing devices or search their folders with -d to regain redundancy."
            )
        }
        _ => "It can't be opened: attach the missing devices, or name the folders that hold them with -d."
            .into(),
    }
}

fn any(vdev: &VdevStatus, test: &dyn Fn(&VdevStatus) -> bool) -> bool {
    test(vdev) || vdev.children.iter().any(|child| any(child, test))
}
