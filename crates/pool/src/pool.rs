//! An assembled pool: a cheap handle for reading and writing blocks.
//!
//! A pool is assembled twice. The labels alone give a tree that can read the MOS. The MOS holds the trusted
//! configuration, from which the same devices are assembled again.
//!
//! ```text
//!   Pool (txg 7) ---.                     .--> config, vdevs, devices   in use now
//!   Pool (txg 8) ----+--> Live --current--+
//!   datasets' Pool -'                     '--> earlier trees, until the last I/O that uses them ends
//! ```
//!
//! Idea: all views of a pool, including those of idle datasets, share one current vdev tree. Every operation
//! takes that tree when it begins. Once a device leaves, no new operation can reach it, and it is closed when
//! the last operation under way ends.
//!
//! Locking: a [`Pool`] may be cloned and used from any task. A lock guards the current tree. It is held to
//! read or replace the tree, never across an await. Error counters and missed txgs have their own
//! synchronisation (`vdev::leaf`, `vdev::missed`).

use crate::alloc::{Allocator, Keeper, KeptSpace};
use crate::config::{PoolConfig, PoolState, VdevClass, VdevConfig};
use crate::discover::{FoundDevice, FoundPool};
use crate::error::Result;
use crate::health::{ErrorCounts, Trouble};
use crate::leaf_io::LeafIoTable;
use crate::read_errors::ReadErrors;
use crate::second::SecondLevel;
use crate::suspend::state::{Suspension, Waits};
use crate::vdev::leaf::{Leaf, Probe};
use crate::vdev::missed::Missed;
use crate::vdev::queue::{ClassLoad, IoClass, Moved, QueueSettings};
use crate::vdev::reflow::{Reflow, Reflowed};
use crate::vdev::{VdevTree, build};
use crate::write::retained::blocks::Retained;
use cenote_boxed::boxed;
use cenote_codec::checksum::ChecksumSalt;
use cenote_format::features::Since;
use cenote_format::indirect::IndirectMapping;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_runtime::Runtime;
use futures::future::join_all;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// An assembled pool. Cloning it costs a few atomic increments.
#[derive(Clone)]
pub struct Pool {
    live: Arc<Live>,
    uberblock: Arc<Uberblock>,
    reads: IoClass,
    writes: IoClass,
    /// Whether errors count on the leaf.
    counts: bool,
    waits: Waits,
    /// Keeps the blocks of this uberblock's tree from reuse.
    kept: Option<KeptSpace>,
}

struct Live {
    runtime: Runtime,
    name: String,
    salt: Option<ChecksumSalt>,
    may_be_live: bool,
    missed: Arc<Missed>,
    /// The DTLs when the pool was opened.
    noted: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    wrong: Arc<ReadErrors>,
    reflow: Arc<Reflow>,
    settings: Arc<QueueSettings>,
    suspension: Suspension,
    retained: Retained,
    /// A larger gang header would have helped.
    cramped: AtomicBool,
    second: RwLock<Option<Arc<dyn SecondLevel>>>,
    /// Set once the pool changes.
    keeper: OnceLock<Arc<Keeper>>,
    current: RwLock<Current>,
}

/// Replaced when a device joins, leaves or changes state.
#[derive(Clone)]
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

/// Facts from the MOS that labels do not contain.
#[derive(Debug, Clone)]
pub struct Trusted {
    /// Its configuration ([`PoolConfig::from_mos`]).
    pub config: PoolConfig,
    /// Mappings of removed top-level vdevs.
    pub indirect: BTreeMap<VdevId, Arc<IndirectMapping>>,
    /// Txgs that leaves missed according to their DTLs, first and last.
    pub noted: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    /// Txgs that leaves may have missed, with and without a DTL.
    pub behind: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    /// `org.illumos:checksum_salt`.
    pub checksum_salt: Option<[u8; 32]>,
}

impl Pool {
    /// Assembles a pool from labels alone: enough to read the MOS. Blocks of removed vdevs and salted
    /// checksums need [`Pool::with_trusted`]. A missing device is an error only when a block that it alone
    /// holds is read.
    #[boxed]
    pub async fn assemble(rt: &Runtime, found: &FoundPool, uberblock: &Uberblock) -> Result<Pool> {
        let (missed, settings) = (Arc::<Missed>::default(), Arc::<QueueSettings>::default());
        let reflow = Arc::new(Reflow::from(Reflowed::of(uberblock)));
        let material = build::Material {
            runtime: rt,
            reflow: &reflow,
            found,
            indirect: &BTreeMap::new(),
            missed: &missed,
            settings: &settings,
            earlier: &[],
        };
        let vdevs = Arc::new(build::build(&found.config, &material));
        let may_be_live = found.state() == PoolState::Active && !found.is_writable();
        let current = Current {
            config: Arc::new(found.config.clone()),
            found: Arc::new(found.clone()),
            vdevs,
            indirect: BTreeMap::new(),
            aside: BTreeSet::new(),
            refused: BTreeMap::new(),
            earlier: Vec::new(),
        };
        let live = Live {
            runtime: rt.clone(),
            name: found.config.name.clone(),
            salt: None,
            may_be_live,
            missed,
            noted: BTreeMap::new(),
            wrong: Arc::default(),
            reflow,
            settings,
            suspension: Suspension::default(),
            retained: Retained::default(),
            cramped: AtomicBool::new(false),
            second: RwLock::default(),
            keeper: OnceLock::new(),
            current: current.into(),
        };
        let (reads, writes) = (IoClass::SyncRead, IoClass::AsyncWrite);
        let (live, uberblock) = (Arc::new(live), Arc::new(*uberblock));
        Ok(Pool { live, uberblock, reads, writes, counts: true, waits: Waits::Never, kept: None })
    }

    /// A view at a later uberblock.
    pub fn at(&self, uberblock: &Uberblock) -> Pool {
        Pool { uberblock: Arc::new(*uberblock), kept: None, ..self.clone() }
    }

    /// A view of a checkpoint's tree, with this view's [`KeptSpace`].
    pub fn at_checkpoint(&self, checkpoint: &Uberblock) -> Pool {
        Pool { uberblock: Arc::new(*checkpoint), ..self.clone() }
    }

    /// Marks the pool as changing.
    pub fn begin_to_change(&self, space: &Allocator) {
        space.keeper().finish(self.uberblock.txg);
        // An engine that failed to start may have left another keeper.
        drop(self.live.keeper.set(space.keeper().clone()));
    }

    /// A view whose tree stays whole. The space must have been kept before the view was taken.
    pub fn keeping(&self, kept: KeptSpace) -> Pool {
        Pool { kept: Some(kept), ..self.clone() }
    }

    /// A view for long-term holders, which keeps no space.
    pub fn not_keeping(&self) -> Pool {
        Pool { kept: None, ..self.clone() }
    }

    /// Keeps the on-disk state, if the pool changes.
    pub fn keep_now(&self) -> Option<KeptSpace> {
        self.live.keeper.get().map(|keeper| keeper.keep(false))
    }

    /// Whether this view's blocks cannot have been freed and overwritten.
    pub fn has_whole_tree(&self) -> bool {
        self.has_kept(None)
    }

    /// For a read with its own `kept` space.
    pub(crate) fn has_kept(&self, kept: Option<&KeptSpace>) -> bool {
        match (kept.or(self.kept.as_ref()), self.live.keeper.get()) {
            (Some(kept), _) => !kept.is_given_up(),
            (None, Some(keeper)) => keeper.is_recent(self.uberblock.txg),
            (None, None) => true,
        }
    }

    /// A view for I/O of a class. A read class leaves writes unchanged, and vice versa.
    pub fn for_class(&self, class: IoClass) -> Pool {
        match class {
            IoClass::SyncRead | IoClass::AsyncRead => Pool { reads: class, ..self.clone() },
            IoClass::SyncWrite | IoClass::AsyncWrite => Pool { writes: class, ..self.clone() },
            _ => Pool { reads: class, writes: class, ..self.clone() },
        }
    }

    /// A view that does not count errors again.
    pub fn without_counting(&self) -> Pool {
        Pool { counts: false, ..self.clone() }
    }

    /// A view with other [`Waits`].
    pub fn waiting(&self, waits: Waits) -> Pool {
        Pool { waits, ..self.clone() }
    }

    pub(crate) fn waits(&self) -> Waits {
        self.waits
    }

    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    pub(crate) fn reads(&self) -> IoClass {
        self.reads
    }

    pub(crate) fn writes(&self) -> IoClass {
        self.writes
    }

    /// Adds a second-level cache for users' reads.
    pub fn set_second_level(&self, second: Arc<dyn SecondLevel>) {
        *self.live.second.write() = Some(second);
    }

    pub(crate) fn second_level(&self) -> Option<Arc<dyn SecondLevel>> {
        match self.reads {
            IoClass::SyncRead | IoClass::AsyncRead => self.live.second.read().clone(),
            _ => None,
        }
    }

    /// Settings of the device queues.
    pub fn queue_settings(&self) -> &QueueSettings {
        &self.live.settings
    }

    /// Load of each leaf, by [`IoClass::ALL`].
    pub fn queue_loads(&self) -> Vec<(Guid, [ClassLoad; IoClass::ALL.len()])> {
        self.vdevs().leaves().iter().map(|leaf| (leaf.guid, leaf.load())).collect()
    }

    /// Reads and writes sent to all devices.
    pub fn moved(&self) -> [Moved; 2] {
        let mut sum = [Moved::default(); 2];
        for leaf in self.vdevs().leaves() {
            for (sum, moved) in sum.iter_mut().zip(leaf.moved()) {
                sum.operations += moved.operations;
                sum.bytes += moved.bytes;
            }
        }
        sum
    }

    /// The pool with the MOS's configuration. It keeps devices and error counters, but is independent from
    /// here on.
    #[boxed]
    pub async fn with_trusted(&self, trusted: Trusted) -> Result<Pool> {
        let Current { found, vdevs, .. } = self.current();
        let missed = Arc::new(Missed::of(trusted.behind));
        let reflow = Arc::new(Reflow::from(Reflowed::of(&self.uberblock)));
        let material = build::Material {
            runtime: self.runtime(),
            reflow: &reflow,
            found: &found,
            indirect: &trusted.indirect,
            missed: &missed,
            settings: &self.live.settings,
            earlier: vdevs.leaves(),
        };
        let vdevs = Arc::new(build::build(&trusted.config, &material));
        // The tree built from labels did not know which leaves are behind.
        vdevs
            .leaves()
            .iter()
            .filter(|leaf| vdevs.is_lagging(leaf))
            .for_each(|leaf| leaf.forgive_mismatches());
        let live = Live {
            runtime: self.runtime().clone(),
            name: trusted.config.name.clone(),
            salt: trusted.checksum_salt.map(ChecksumSalt::new),
            may_be_live: self.live.may_be_live,
            missed,
            noted: trusted.noted,
            wrong: self.live.wrong.clone(),
            reflow,
            settings: self.live.settings.clone(),
            suspension: Suspension::default(),
            retained: Retained::default(),
            cramped: AtomicBool::new(false),
            second: RwLock::default(),
            keeper: OnceLock::new(),
            current: Current {
                config: Arc::new(trusted.config),
                found,
                vdevs,
                indirect: trusted.indirect,
                aside: BTreeSet::new(),
                refused: BTreeMap::new(),
                earlier: Vec::new(),
            }
            .into(),
        };
        Ok(Pool { live: Arc::new(live), ..self.clone() })
    }

    /// Replaces the vdev tree, for operations that begin later. `joining` are devices of joining or returning
    /// leaves. `lacking` is a leaf that lacks txgs, first to last. Unused devices are closed after their last
    /// operation.
    pub fn set_vdevs(
        &self,
        mut vdevs: Vec<VdevConfig>,
        joining: BTreeMap<Guid, FoundDevice>,
        lacking: Option<(Guid, (Txg, Txg))>,
    ) {
        if let Some((leaf, txgs)) = lacking {
            self.live.missed.note_all(leaf, txgs);
        }
        let mut current = self.live.current.write();
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
        self.live.missed.keep_only(&stay);
        let config = PoolConfig { vdevs, ..PoolConfig::clone(&current.config) };
        let leaves = current.vdevs.leaves().to_vec();
        self.rebuild(&mut current, config, found, &leaves);
        current.aside.retain(|leaf| stay.contains(leaf));
    }

    /// Replaces lost devices of leaves.
    pub fn reopen(&self, devices: BTreeMap<Guid, FoundDevice>) {
        let mut current = self.live.current.write();
        let (config, mut found) = (PoolConfig::clone(&current.config), FoundPool::clone(&current.found));
        found.join(devices);
        let leaves = current.vdevs.leaves().to_vec();
        self.rebuild(&mut current, config, found, &leaves);
    }

    /// Releases all devices: later operations fail, and the devices are closed when those under way end.
    pub fn let_go_of_devices(&self) {
        let mut current = self.live.current.write();
        let (config, mut found) = (PoolConfig::clone(&current.config), FoundPool::clone(&current.found));
        found.devices.clear();
        found.auxiliary.clear();
        self.rebuild(&mut current, config, found, &[]);
    }

    /// Sets a removed vdev's mapping, from the next tree on.
    pub fn set_mapping(&self, vdev: VdevId, mapping: Arc<IndirectMapping>) {
        self.live.current.write().indirect.insert(vdev, mapping);
    }

    /// Learns the vdevs' MOS objects: space maps, ZAPs, DTLs. A new vdev has none until its first txg ends.
    pub fn learn_objects(&self, told: &[VdevConfig]) {
        let mut current = self.live.current.write();
        let mut config = PoolConfig::clone(&current.config);
        if learn_objects(&mut config.vdevs, told) {
            let (found, leaves) = (FoundPool::clone(&current.found), current.vdevs.leaves().to_vec());
            self.rebuild(&mut current, config, found, &leaves);
        }
    }

    fn rebuild(&self, current: &mut Current, config: PoolConfig, found: FoundPool, leaves: &[Arc<Leaf>]) {
        let material = build::Material {
            runtime: &self.live.runtime,
            reflow: &self.live.reflow,
            found: &found,
            indirect: &current.indirect,
            missed: &self.live.missed,
            settings: &self.live.settings,
            earlier: leaves,
        };
        let vdevs = Arc::new(build::build(&config, &material));
        current.earlier.retain(|earlier| earlier.strong_count() > 0);
        current.earlier.push(Arc::downgrade(&current.vdevs));
        (current.config, current.found, current.vdevs) = (Arc::new(config), Arc::new(found), vdevs);
    }

    /// Waits for all operations on earlier trees.
    #[boxed]
    pub async fn earlier_trees_ended(&self) {
        let earlier = self.live.current.read().earlier.clone();
        while earlier.iter().any(|earlier| earlier.strong_count() > 0) {
            self.live.runtime.sleep(LOOK_INTERVAL).await;
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
        let mut current = self.live.current.write();
        let mut found = FoundPool::clone(&current.found);
        let look = |leaf: &Arc<Leaf>| {
            let of = grown.iter().find(|(device, _)| Arc::ptr_eq(device, &leaf.device));
            let (Some(found), Some((_, grown))) = (found.devices.get_mut(&leaf.guid), of) else {
                return leaf.clone();
            };
            found.device = grown.clone();
            Arc::new(leaf.on(&self.live.runtime, grown.clone(), &self.live.settings))
        };
        let leaves: Vec<Arc<Leaf>> = current.vdevs.leaves().iter().map(look).collect();
        let config = PoolConfig::clone(&current.config);
        self.rebuild(&mut current, config, found, &leaves);
    }

    /// Waits until responsive devices have finished all changes, even abandoned ones.
    #[boxed]
    pub async fn idle(&self) {
        self.vdevs().idle().await;
    }

    /// Changes spares, cache devices or the comment.
    pub fn set_beside(&self, change: impl FnOnce(&mut PoolConfig)) {
        let mut current = self.live.current.write();
        let mut config = PoolConfig::clone(&current.config);
        change(&mut config);
        current.config = Arc::new(config);
    }

    /// Adds a spare or cache device.
    pub fn keep_beside(&self, guid: Guid, device: FoundDevice) {
        let mut current = self.live.current.write();
        let mut found = FoundPool::clone(&current.found);
        found.auxiliary.insert(guid, device);
        current.found = Arc::new(found);
    }

    /// Removes a spare or cache device, closed after its last use.
    pub fn forget_beside(&self, guid: Guid) {
        let mut current = self.live.current.write();
        let mut found = FoundPool::clone(&current.found);
        found.auxiliary.remove(&guid);
        current.found = Arc::new(found);
    }

    /// Takes a leaf out of use, from the next tree until the pool is reopened, or puts it back.
    pub fn set_aside(&self, leaf: Guid, is_aside: bool) {
        let mut current = self.live.current.write();
        match is_aside {
            true => current.aside.insert(leaf),
            false => current.aside.remove(&leaf),
        };
    }

    /// Whether [`Pool::set_aside`] took a leaf out of use.
    pub fn is_set_aside(&self, leaf: Guid) -> bool {
        self.live.current.read().aside.contains(&leaf)
    }

    /// Rejects a leaf's device, from the next tree on: it is not the leaf's own.
    pub fn refuse_device(&self, leaf: Guid, why: Trouble) {
        self.live.current.write().refused.insert(leaf, why);
    }

    pub(crate) fn refused_devices(&self) -> BTreeMap<Guid, Trouble> {
        self.live.current.read().refused.clone()
    }

    fn current(&self) -> Current {
        self.live.current.read().clone()
    }

    /// Counters and fault switches, if the pool was opened for good.
    pub fn leaf_io(&self) -> Option<Arc<LeafIoTable>> {
        self.live.current.read().found.taps.clone()
    }

    /// The device of a leaf.
    pub fn device(&self, leaf: Guid) -> Option<FoundDevice> {
        self.live.current.read().found.devices.get(&leaf).cloned()
    }

    /// Whether a device belongs to any leaf.
    pub fn holds(&self, device: &FoundDevice) -> bool {
        let current = self.live.current.read();
        current.found.devices.values().any(|held| Arc::ptr_eq(&held.device, &device.device))
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.live.runtime
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.live.name
    }

    /// The pool's guid.
    pub fn guid(&self) -> Guid {
        self.live.current.read().config.guid
    }

    /// Changes the pool's guid, in all views.
    pub fn set_guid(&self, guid: Guid) {
        let mut current = self.live.current.write();
        let mut found = FoundPool::clone(&current.found);
        found.config.guid = guid;
        current.found = Arc::new(found);
        current.config = Arc::new(PoolConfig { guid, ..PoolConfig::clone(&current.config) });
    }

    /// Tracks departing leaves until earlier operations release them.
    pub fn in_use(&self, leaves: &[Guid]) -> LeavesInUse {
        let vdevs = self.vdevs();
        let meant = vdevs.leaves().iter().filter(|leaf| leaves.contains(&leaf.guid));
        LeavesInUse { runtime: self.live.runtime.clone(), leaves: meant.map(Arc::downgrade).collect() }
    }

    /// SPA version, from the uberblock.
    pub fn version(&self) -> u64 {
        self.uberblock.version
    }

    /// Whether the pool's version includes a feature.
    pub fn has(&self, what: Since) -> bool {
        what.is_in(self.version())
    }

    /// This view's uberblock.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<PoolConfig> {
        self.live.current.read().config.clone()
    }

    /// The discovery result, with the current devices.
    pub fn found(&self) -> Arc<FoundPool> {
        self.live.current.read().found.clone()
    }

    /// The current vdev tree, for one operation: holding it keeps devices open.
    pub fn vdevs(&self) -> Arc<VdevTree> {
        self.live.current.read().vdevs.clone()
    }

    /// Sets whether resilvers prefer to read this leaf.
    pub fn set_read_first(&self, leaf: Guid, is_first: bool) {
        let vdevs = self.vdevs();
        let leaves = vdevs.leaves().iter().filter(|one| one.guid == leaf);
        leaves.for_each(|one| one.set_read_first(is_first));
    }

    /// Error counts of each leaf with a device.
    pub fn error_counters(&self) -> Vec<(Guid, ErrorCounts)> {
        self.vdevs().leaves().iter().map(|leaf| (leaf.guid, leaf.errors())).collect()
    }

    /// Resets the errors of one leaf, or of all.
    pub fn clear_errors(&self, only: Option<Guid>) {
        let vdevs = self.vdevs();
        let leaves = vdevs.leaves().iter().filter(|leaf| only.is_none_or(|only| only == leaf.guid));
        leaves.for_each(|leaf| leaf.clear_errors());
    }

    /// Tests a leaf's device; `None` if the leaf is not in use.
    #[boxed]
    pub async fn probe(&self, leaf: Guid) -> Option<Probe> {
        let vdevs = self.vdevs();
        let found = vdevs.leaves().iter().find(|one| one.guid == leaf && !one.is_away())?.clone();
        Some(found.probe().await)
    }

    /// Leaves that were away, are out of use or resilvering. Verification does not blame them.
    pub fn lagging_leaves(&self) -> Vec<Guid> {
        let vdevs = self.vdevs();
        vdevs.leaves().iter().filter(|leaf| vdevs.is_lagging(leaf)).map(|leaf| leaf.guid).collect()
    }

    /// Txgs that a leaf lacks in part, first and last: from its DTL and later failed writes.
    pub fn missing_txgs(&self, leaf: Guid) -> Vec<(Txg, Txg)> {
        self.live.missed.of_leaf(leaf)
    }

    /// [`Pool::missing_txgs`] of all leaves, for their DTLs.
    pub fn missed(&self) -> BTreeMap<Guid, Vec<(Txg, Txg)>> {
        self.live.missed.all()
    }

    /// The DTLs' contents when the pool was opened.
    pub fn noted_missed(&self) -> &BTreeMap<Guid, Vec<(Txg, Txg)>> {
        &self.live.noted
    }

    /// Records a resilver of a leaf up to a txg.
    pub fn caught_up(&self, leaf: Guid, upto: Txg) {
        let mut current = self.live.current.write();
        self.live.missed.take_out(leaf, upto);
        let mut found = FoundPool::clone(&current.found);
        found.devices.get_mut(&leaf).into_iter().for_each(|device| device.stale = false);
        current.found = Arc::new(found);
        for one in current.vdevs.leaves().iter().filter(|one| one.guid == leaf) {
            one.set_state(false, one.is_away());
        }
    }

    /// Whether other leaves hold all of a leaf's data.
    pub fn can_spare(&self, leaf: Guid) -> bool {
        self.vdevs().can_spare(leaf)
    }

    /// The log vdev that a leaf belongs to.
    pub fn log_of(&self, leaf: Guid) -> Option<VdevId> {
        let vdevs = self.vdevs();
        let mut logs = vdevs.tops().filter(|top| top.class == VdevClass::Log);
        logs.find(|top| top.leaves().any(|one| one.guid == leaf)).map(|top| VdevId(top.id))
    }

    /// Whether a leaf can be removed from an open pool: others hold its data, or it belongs to a log vdev,
    /// whose contents are also in memory.
    pub fn is_expendable(&self, leaf: Guid) -> bool {
        self.can_spare(leaf) || self.log_of(leaf).is_some()
    }

    /// Whether a leaf is in use and complete.
    pub fn is_whole(&self, leaf: Guid) -> bool {
        self.vdevs().is_whole(leaf)
    }

    /// The allocation class of a top-level vdev.
    pub fn class_of(&self, vdev: VdevId) -> Option<VdevClass> {
        self.vdevs().class_of(vdev)
    }

    pub(crate) fn suspension(&self) -> &Suspension {
        &self.live.suspension
    }

    pub(crate) fn retained(&self) -> &Retained {
        &self.live.retained
    }

    pub(crate) fn missed_here(&self) -> &Arc<Missed> {
        &self.live.missed
    }

    pub(crate) fn reflow_here(&self) -> &Arc<Reflow> {
        &self.live.reflow
    }

    pub(crate) fn cramped(&self) -> &AtomicBool {
        &self.live.cramped
    }

    pub(crate) fn wrong(&self) -> &ReadErrors {
        &self.live.wrong
    }

    pub(crate) fn salt(&self) -> Option<&ChecksumSalt> {
        self.live.salt.as_ref()
    }

    /// Whether another system may be writing: the pool was never exported, and we do not hold it.
    pub(crate) fn may_be_live(&self) -> bool {
        self.live.may_be_live
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

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} txg {})", self.name(), self.uberblock.txg)
    }
}
