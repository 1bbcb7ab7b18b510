//! The vdev tree of a pool and the devices behind it, shared by all views of the pool.
//!
//! ```text
//!   Pool (txg 7) ---.                     .--> config, vdevs, devices   in use now
//!   Pool (txg 8) ----+--> Tree --current--+
//!   datasets' Pool -'                     '--> earlier trees, until the last I/O that uses them ends
//! ```
//!
//! Idea: all views of a pool, including those of idle datasets, share one current vdev tree. Every operation
//! takes that tree when it begins. A device that leaves is closed when the last operation under way ends.
//!
//! Locking: a lock guards the current tree. It is held to read or replace the tree, never across an await.
//! Error counters and missed txgs have their own synchronisation (`vdev::leaf`, `vdev::missed`).

use crate::config::{PoolConfig, VdevConfig};
use crate::discover::{FoundDevice, FoundPool};
use crate::health::Trouble;
use crate::vdev::leaf::Leaf;
use crate::vdev::missed::Missed;
use crate::vdev::queue::QueueSettings;
use crate::vdev::reflow::{Reflow, Reflowed};
use crate::vdev::{VdevTree, build};
use cenote_boxed::boxed;
use cenote_format::indirect::IndirectMapping;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_runtime::Runtime;
use futures::future::join_all;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The vdevs of a pool: the current tree, and changes to it.
pub struct Tree {
    runtime: Runtime,
    missed: Arc<Missed>,
    /// The DTLs when the pool was opened.
    noted: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    reflow: Arc<Reflow>,
    settings: Arc<QueueSettings>,
    current: RwLock<Current>,
}

/// Replaced when a device joins, leaves or changes state.
struct Current {
    config: Arc<PoolConfig>,
    found: Arc<FoundPool>,
    vdevs: Arc<VdevTree>,
    indirect: BTreeMap<VdevId, Arc<IndirectMapping>>,
    /// Out of use until the pool is reopened.
    aside: BTreeSet<Guid>,
    /// Leaves whose device was refused, and why.
    refused: BTreeMap<Guid, Trouble>,
    /// Previous trees that operations still use.
    earlier: Vec<Weak<VdevTree>>,
}

pub(super) struct Parts<'a> {
    pub(super) config: PoolConfig,
    pub(super) found: Arc<FoundPool>,
    pub(super) indirect: BTreeMap<VdevId, Arc<IndirectMapping>>,
    pub(super) missed: Missed,
    pub(super) noted: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    pub(super) reflowed: Reflowed,
    pub(super) settings: Arc<QueueSettings>,
    /// Leaves with the same devices, which keep their counters.
    pub(super) leaves: &'a [Arc<Leaf>],
}

impl Tree {
    pub(super) fn new(runtime: &Runtime, parts: Parts<'_>) -> Tree {
        let Parts { config, found, indirect, missed, noted, reflowed, settings, leaves } = parts;
        let (missed, reflow) = (Arc::new(missed), Arc::new(Reflow::from(reflowed)));
        let material = build::Material {
            runtime,
            reflow: &reflow,
            found: &found,
            indirect: &indirect,
            missed: &missed,
            settings: &settings,
            earlier: leaves,
        };
        let current = Current {
            vdevs: Arc::new(build::build(&config, &material)),
            config: Arc::new(config),
            found,
            indirect,
            aside: BTreeSet::new(),
            refused: BTreeMap::new(),
            earlier: Vec::new(),
        };
        Tree { runtime: runtime.clone(), missed, noted, reflow, settings, current: current.into() }
    }

    /// The current vdev tree, for one operation: holding it keeps devices open.
    pub fn vdevs(&self) -> Arc<VdevTree> {
        self.current.read().vdevs.clone()
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<PoolConfig> {
        self.current.read().config.clone()
    }

    /// The discovery result, with the current devices.
    pub fn found(&self) -> Arc<FoundPool> {
        self.current.read().found.clone()
    }

    /// The pool's guid.
    pub fn guid(&self) -> Guid {
        self.current.read().config.guid
    }

    /// Changes the pool's guid, in all views.
    pub fn set_guid(&self, guid: Guid) {
        let mut current = self.current.write();
        let mut found = FoundPool::clone(&current.found);
        found.config.guid = guid;
        current.found = Arc::new(found);
        current.config = Arc::new(PoolConfig { guid, ..PoolConfig::clone(&current.config) });
    }

    /// The device of a leaf.
    pub fn device(&self, leaf: Guid) -> Option<FoundDevice> {
        self.current.read().found.devices.get(&leaf).cloned()
    }

    /// Whether a device belongs to any leaf.
    pub fn holds(&self, device: &FoundDevice) -> bool {
        let current = self.current.read();
        current.found.devices.values().any(|held| Arc::ptr_eq(&held.device, &device.device))
    }

    /// Replaces the vdev tree, for later operations. `joining` are devices of joining or returning leaves.
    /// `lacking` is a leaf that lacks txgs, first to last. Unused devices are closed after their last
    /// operation.
    pub fn set_vdevs(
        &self,
        mut vdevs: Vec<VdevConfig>,
        joining: BTreeMap<Guid, FoundDevice>,
        lacking: Option<(Guid, (Txg, Txg))>,
    ) {
        if let Some((leaf, txgs)) = lacking {
            self.missed.note_all(leaf, txgs);
        }
        let mut current = self.current.write();
        let mut found = FoundPool::clone(&current.found);
        current.refused.retain(|leaf, _| !joining.contains_key(leaf));
        found.join(joining);
        for aside in &current.aside {
            if let Some(leaf) = vdevs.iter_mut().find_map(|top| top.leaf_mut(*aside)) {
                leaf.offline = true;
            }
        }
        let leaves = || vdevs.iter().flat_map(VdevConfig::leaves);
        let stay: BTreeSet<Guid> = leaves().map(|leaf| leaf.guid).collect();
        let away: BTreeSet<Guid> =
            leaves().filter(|leaf| leaf.is_taken_out()).map(|leaf| leaf.guid).collect();
        current.refused.retain(|leaf, _| stay.contains(leaf));
        let refused = &current.refused;
        found
            .devices
            .retain(|guid, _| stay.contains(guid) && !away.contains(guid) && !refused.contains_key(guid));
        self.missed.keep_only(&stay);
        let config = PoolConfig { vdevs, ..PoolConfig::clone(&current.config) };
        let leaves = current.vdevs.leaves().to_vec();
        self.rebuild(&mut current, config, found, &leaves);
        current.aside.retain(|leaf| stay.contains(leaf));
    }

    /// Replaces lost devices of leaves.
    pub fn reopen(&self, devices: BTreeMap<Guid, FoundDevice>) {
        let mut current = self.current.write();
        let (config, mut found) = (PoolConfig::clone(&current.config), FoundPool::clone(&current.found));
        found.join(devices);
        let leaves = current.vdevs.leaves().to_vec();
        self.rebuild(&mut current, config, found, &leaves);
    }

    /// Releases all devices: later operations fail, and the devices are closed when those under way end.
    pub fn let_go_of_devices(&self) {
        let mut current = self.current.write();
        let (config, mut found) = (PoolConfig::clone(&current.config), FoundPool::clone(&current.found));
        found.devices.clear();
        found.auxiliary.clear();
        self.rebuild(&mut current, config, found, &[]);
    }

    /// Sets a removed vdev's mapping, from the next tree on.
    pub fn set_mapping(&self, vdev: VdevId, mapping: Arc<IndirectMapping>) {
        self.current.write().indirect.insert(vdev, mapping);
    }

    /// Learns the vdevs' MOS objects: space maps, ZAPs, DTLs. A new vdev has none until its first txg ends.
    pub fn learn_objects(&self, told: &[VdevConfig]) {
        let mut current = self.current.write();
        let mut config = PoolConfig::clone(&current.config);
        if learn_objects(&mut config.vdevs, told) {
            let (found, leaves) = (FoundPool::clone(&current.found), current.vdevs.leaves().to_vec());
            self.rebuild(&mut current, config, found, &leaves);
        }
    }

    fn rebuild(&self, current: &mut Current, config: PoolConfig, found: FoundPool, leaves: &[Arc<Leaf>]) {
        let material = build::Material {
            runtime: &self.runtime,
            reflow: &self.reflow,
            found: &found,
            indirect: &current.indirect,
            missed: &self.missed,
            settings: &self.settings,
            earlier: leaves,
        };
        let vdevs = Arc::new(build::build(&config, &material));
        current.earlier.retain(|earlier| earlier.strong_count() > 0);
        current.earlier.push(Arc::downgrade(&current.vdevs));
        (current.config, current.found, current.vdevs) = (Arc::new(config), Arc::new(found), vdevs);
    }

    /// Waits for all operations on earlier trees.
    #[boxed]
    pub async fn earlier_ended(&self) {
        let earlier = self.current.read().earlier.clone();
        while earlier.iter().any(|earlier| earlier.strong_count() > 0) {
            self.runtime.sleep(LOOK_INTERVAL).await;
        }
    }

    /// Starts using the space of grown devices.
    #[boxed]
    pub async fn look_at_sizes(&self) {
        // A hung device answers late, so ask before taking the lock.
        let leaves: Vec<Arc<Leaf>> = self.vdevs().leaves().to_vec();
        let looks = leaves.iter().map(async |leaf| Some((leaf.device.clone(), leaf.grown().await?)));
        let grown: Vec<_> = join_all(looks).await.into_iter().flatten().collect();
        if grown.is_empty() {
            return;
        }
        let mut current = self.current.write();
        let mut found = FoundPool::clone(&current.found);
        let look = |leaf: &Arc<Leaf>| {
            let of = grown.iter().find(|(device, _)| Arc::ptr_eq(device, &leaf.device));
            let (Some(found), Some((_, grown))) = (found.devices.get_mut(&leaf.guid), of) else {
                return leaf.clone();
            };
            found.device = grown.clone();
            Arc::new(leaf.on(&self.runtime, grown.clone(), &self.settings))
        };
        let leaves: Vec<Arc<Leaf>> = current.vdevs.leaves().iter().map(look).collect();
        let config = PoolConfig::clone(&current.config);
        self.rebuild(&mut current, config, found, &leaves);
    }

    /// Tracks departing leaves until earlier operations release them.
    pub fn in_use(&self, leaves: &[Guid]) -> LeavesInUse {
        let vdevs = self.vdevs();
        let meant = vdevs.leaves().iter().filter(|leaf| leaves.contains(&leaf.guid));
        LeavesInUse { runtime: self.runtime.clone(), leaves: meant.map(Arc::downgrade).collect() }
    }

    /// Changes spares, cache devices or the comment.
    pub fn set_beside(&self, change: impl FnOnce(&mut PoolConfig)) {
        let mut current = self.current.write();
        let mut config = PoolConfig::clone(&current.config);
        change(&mut config);
        current.config = Arc::new(config);
    }

    /// Adds a spare or cache device.
    pub fn keep_beside(&self, guid: Guid, device: FoundDevice) {
        let mut current = self.current.write();
        let mut found = FoundPool::clone(&current.found);
        found.auxiliary.insert(guid, device);
        current.found = Arc::new(found);
    }

    /// Removes a spare or cache device, closed after its last use.
    pub fn forget_beside(&self, guid: Guid) {
        let mut current = self.current.write();
        let mut found = FoundPool::clone(&current.found);
        found.auxiliary.remove(&guid);
        current.found = Arc::new(found);
    }

    /// Takes a leaf out of use, from the next tree until the pool is reopened, or puts it back.
    pub fn set_aside(&self, leaf: Guid, is_aside: bool) {
        let mut current = self.current.write();
        match is_aside {
            true => current.aside.insert(leaf),
            false => current.aside.remove(&leaf),
        };
    }

    /// Whether [`Tree::set_aside`] took a leaf out of use.
    pub fn is_set_aside(&self, leaf: Guid) -> bool {
        self.current.read().aside.contains(&leaf)
    }

    /// Rejects a leaf's device, from the next tree on: it is not the leaf's own.
    pub fn refuse_device(&self, leaf: Guid, why: Trouble) {
        self.current.write().refused.insert(leaf, why);
    }

    /// Records a resilver of a leaf up to a txg, which ended in the txg `now`.
    pub fn caught_up(&self, leaf: Guid, upto: Txg, now: Txg) {
        let mut current = self.current.write();
        self.missed.take_out(leaf, upto, now);
        let mut found = FoundPool::clone(&current.found);
        found.devices.get_mut(&leaf).into_iter().for_each(|device| device.stale = false);
        current.found = Arc::new(found);
        for one in current.vdevs.leaves().iter().filter(|one| one.guid == leaf) {
            one.set_state(false, one.is_away());
        }
    }

    pub(crate) fn refused_devices(&self) -> BTreeMap<Guid, Trouble> {
        self.current.read().refused.clone()
    }

    pub(crate) fn missed(&self) -> &Arc<Missed> {
        &self.missed
    }

    pub(crate) fn noted(&self) -> &BTreeMap<Guid, Vec<(Txg, Txg)>> {
        &self.noted
    }

    pub(crate) fn reflow(&self) -> &Arc<Reflow> {
        &self.reflow
    }

    pub(crate) fn settings(&self) -> &Arc<QueueSettings> {
        &self.settings
    }
}

fn learn_objects(vdevs: &mut [VdevConfig], told: &[VdevConfig]) -> bool {
    let mut is_new = false;
    for vdev in vdevs {
        let Some(told) = told.iter().find(|told| told.guid == vdev.guid) else { continue };
        let pairs = [
            (&mut vdev.metaslab_array, told.metaslab_array),
            (&mut vdev.top_zap, told.top_zap),
            (&mut vdev.leaf_zap, told.leaf_zap),
            (&mut vdev.dtl, told.dtl),
        ];
        for (known, told) in pairs {
            is_new |= std::mem::replace(known, told) != told;
        }
        is_new |= learn_objects(&mut vdev.children, &told.children);
    }
    is_new
}

/// Departed leaves that operations may still use.
pub struct LeavesInUse {
    runtime: Runtime,
    leaves: Vec<Weak<Leaf>>,
}

impl LeavesInUse {
    /// Waits until the last of those operations has ended.
    #[boxed]
    pub async fn ended(&self) {
        while self.leaves.iter().any(|leaf| leaf.strong_count() > 0) {
            self.runtime.sleep(LOOK_INTERVAL).await;
        }
    }
}
