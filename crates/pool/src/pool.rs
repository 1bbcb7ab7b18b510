//! An assembled pool: a cheap handle for reading and writing blocks.
//!
//! A pool is assembled twice. The labels alone give a tree that can read the MOS; the MOS gives the trusted
//! configuration, from which the same devices are assembled again.
//!
//! ```text
//!   Pool (txg 7) ---.                     .--> config, vdevs, devices   as they are now
//!   Pool (txg 8) ----+--> Live --current--+
//!   datasets' Pool -'                     '--> those before, until the last I/O that began with them ends
//! ```
//!
//! Idea: all views of a pool, those of idle datasets included, share one current tree of vdevs, which every
//! operation takes when it begins. So when a device leaves, no later operation reads it, and it is closed
//! when the operations under way are done.
//!
//! Locking: a [`Pool`] may be cloned and used from any task. A lock guards the current tree; it is held to
//! take it or to replace it, never across an await. Error counters and missed txgs synchronise themselves
//! (`vdev::leaf`, `vdev::missed`).

use crate::alloc::{Allocator, Keeper, KeptSpace};
use crate::config::{PoolConfig, PoolState, VdevClass, VdevConfig};
use crate::discover::{FoundDevice, FoundPool};
use crate::error::Result;
use crate::health::{ErrorCounts, Trouble};
use crate::second::SecondLevel;
use crate::suspend::state::{Suspension, Waits};
use crate::taps::Taps;
use crate::vdev::leaf::{Leaf, Probe};
use crate::vdev::missed::Missed;
use crate::vdev::queue::{ClassLoad, IoClass, Moved, QueueSettings};
use crate::vdev::reflow::{Reflow, Reflowed};
use crate::vdev::{VdevTree, build};
use crate::write::retained::blocks::Retained;
use crate::wrong::Wrong;
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

/// How often it is looked whether operations have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A pool, assembled from devices. Cloning it costs two atomic increments.
#[derive(Clone)]
pub struct Pool {
    live: Arc<Live>,
    uberblock: Arc<Uberblock>,
    reads: IoClass,
    writes: IoClass,
    /// What is found wrong counts on its leaf.
    counts: bool,
    waits: Waits,
    /// The tree of its uberblock stays whole.
    kept: Option<KeptSpace>,
}

/// What all views of a pool share.
struct Live {
    runtime: Runtime,
    name: String,
    salt: Option<ChecksumSalt>,
    may_be_live: bool,
    missed: Arc<Missed>,
    /// What DTLs said of that when the pool was opened.
    noted: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    wrong: Arc<Wrong>,
    /// The expansion of a RAID-Z, if one runs.
    reflow: Arc<Reflow>,
    settings: Arc<QueueSettings>,
    suspension: Suspension,
    retained: Retained,
    /// A gang could have done with a larger header.
    cramped: AtomicBool,
    second: RwLock<Option<Arc<dyn SecondLevel>>>,
    /// Who keeps the states of a pool that changes.
    keeper: OnceLock<Arc<Keeper>>,
    current: RwLock<Current>,
}

/// What changes when a device joins, leaves or changes its state.
#[derive(Clone)]
struct Current {
    config: Arc<PoolConfig>,
    found: Arc<FoundPool>,
    vdevs: Arc<VdevTree>,
    /// Where the bytes of removed vdevs are.
    indirect: BTreeMap<VdevId, Arc<IndirectMapping>>,
    /// Leaves that are out of use until the pool is opened again.
    aside: BTreeSet<Guid>,
    /// Leaves that have no device although there is one, and why.
    refused: BTreeMap<Guid, Trouble>,
    /// Trees before this one, as long as operations use them.
    earlier: Vec<Weak<VdevTree>>,
}

/// What the MOS knows about the pool and labels don't.
#[derive(Debug, Clone)]
pub struct Trusted {
    /// The configuration in the MOS ([`PoolConfig::from_mos`]).
    pub config: PoolConfig,
    /// For each removed top-level vdev, where its bytes are now.
    pub indirect: BTreeMap<VdevId, Arc<IndirectMapping>>,
    /// The txgs that leaves missed, as runs of first and last txg, according to their dirty time logs (DTL).
    pub noted: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    /// The same of what they may have missed: also that which no log can know.
    pub behind: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    /// `org.illumos:checksum_salt`.
    pub checksum_salt: Option<[u8; 32]>,
}

impl Pool {
    /// Assembles a pool from labels alone, as of `uberblock` (one of `found.uberblocks`).
    ///
    /// Enough to read the MOS; a removed vdev's blocks and salted checksums need [`Pool::with_trusted`].
    /// Missing devices are no error here, only when something that they alone hold is read.
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

    /// The same pool as of another root, after a txg was synced. All else is shared.
    pub fn at(&self, uberblock: &Uberblock) -> Pool {
        Pool { uberblock: Arc::new(*uberblock), kept: None, ..self.clone() }
    }

    /// The same view as of a checkpoint, whose tree the pool keeps: what this view keeps, that one does, too.
    pub fn at_checkpoint(&self, checkpoint: &Uberblock) -> Pool {
        Pool { uberblock: Arc::new(*checkpoint), ..self.clone() }
    }

    /// From now on the pool changes: this allocator says what becomes free.
    pub fn begin_to_change(&self, space: &Allocator) {
        space.keeper().finish(self.uberblock.txg);
        // An engine that could not begin may have left another.
        drop(self.live.keeper.set(space.keeper().clone()));
    }

    /// The same view, whose tree stays whole as long as it, or anything that was opened through it, is held.
    /// The space must have been kept before the view was taken.
    pub fn keeping(&self, kept: KeptSpace) -> Pool {
        Pool { kept: Some(kept), ..self.clone() }
    }

    /// The same view for those who hold it for long: nothing is kept for it.
    pub fn not_keeping(&self) -> Pool {
        Pool { kept: None, ..self.clone() }
    }

    /// Keeps the state of the pool that is on disk now, if the pool changes.
    pub fn keep_now(&self) -> Option<KeptSpace> {
        self.live.keeper.get().map(|keeper| keeper.keep(false))
    }

    /// Whether nothing that this view's tree refers to can have been freed and written over since.
    pub fn has_whole_tree(&self) -> bool {
        self.has_kept(None)
    }

    /// The same for a read that has `kept` space by itself.
    pub(crate) fn has_kept(&self, kept: Option<&KeptSpace>) -> bool {
        match (kept.or(self.kept.as_ref()), self.live.keeper.get()) {
            (Some(kept), _) => !kept.is_given_up(),
            (None, Some(keeper)) => keeper.is_recent(self.uberblock.txg),
            (None, None) => true,
        }
    }

    /// The same pool, for operations of a class: a class of reads says how blocks are read through this view,
    /// a class of writes how they are written, any other says both.
    pub fn for_class(&self, class: IoClass) -> Pool {
        match class {
            IoClass::SyncRead | IoClass::AsyncRead => Pool { reads: class, ..self.clone() },
            IoClass::SyncWrite | IoClass::AsyncWrite => Pool { writes: class, ..self.clone() },
            _ => Pool { reads: class, writes: class, ..self.clone() },
        }
    }

    /// The same pool, to look again at what was found wrong, which has been counted.
    pub fn without_counting(&self) -> Pool {
        Pool { counts: false, ..self.clone() }
    }

    /// The same pool, for those whose reads wait, or don't.
    pub fn waiting(&self, waits: Waits) -> Pool {
        Pool { waits, ..self.clone() }
    }

    /// Which of its reads wait.
    pub(crate) fn waits(&self) -> Waits {
        self.waits
    }

    /// Whether what is found wrong through this view counts on its leaf.
    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    /// The class of reads through this view.
    pub(crate) fn reads(&self) -> IoClass {
        self.reads
    }

    /// The class of writes through this view.
    pub(crate) fn writes(&self) -> IoClass {
        self.writes
    }

    /// Blocks are looked for there first, from now on, by all views that read for users.
    pub fn set_second_level(&self, second: Arc<dyn SecondLevel>) {
        *self.live.second.write() = Some(second);
    }

    pub(crate) fn second_level(&self) -> Option<Arc<dyn SecondLevel>> {
        match self.reads {
            IoClass::SyncRead | IoClass::AsyncRead => self.live.second.read().clone(),
            _ => None,
        }
    }

    /// What the queues of its devices go by.
    pub fn queue_settings(&self) -> &QueueSettings {
        &self.live.settings
    }

    /// What waits and is under way at each leaf, by guid, in the order of [`IoClass::ALL`].
    pub fn queue_loads(&self) -> Vec<(Guid, [ClassLoad; IoClass::ALL.len()])> {
        self.vdevs().leaves().iter().map(|leaf| (leaf.guid, leaf.load())).collect()
    }

    /// What all of its devices were sent: reads and writes.
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

    /// The same pool, devices and error counters, with the MOS's configuration instead of the labels'. From
    /// here on, the two have nothing to do with each other.
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
        // Until now nothing told that these lack what was read for.
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

    /// From now on the pool has these vdevs: every operation that begins later uses them, through whatever
    /// view of the pool. `joining` are devices of leaves that join or come back; `lacking` is a leaf that
    /// lacks what was written in some txgs, first and last. Devices that no leaf in use has any more are
    /// let go, and closed once no operation uses them.
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

    /// Leaves get other devices, in a pool that is otherwise as it was: those that they have are gone.
    pub fn reopen(&self, devices: BTreeMap<Guid, FoundDevice>) {
        let mut current = self.live.current.write();
        let (config, mut found) = (PoolConfig::clone(&current.config), FoundPool::clone(&current.found));
        found.join(devices);
        let leaves = current.vdevs.leaves().to_vec();
        self.rebuild(&mut current, config, found, &leaves);
    }

    /// The pool is left for good: every operation that begins later fails, through whatever view is still
    /// held somewhere, and the devices are closed when those under way end.
    pub fn let_go_of_devices(&self) {
        let mut current = self.live.current.write();
        let (config, mut found) = (PoolConfig::clone(&current.config), FoundPool::clone(&current.found));
        found.devices.clear();
        found.auxiliary.clear();
        self.rebuild(&mut current, config, found, &[]);
    }

    /// From the next tree on, a vdev's bytes are where this says.
    pub fn set_mapping(&self, vdev: VdevId, mapping: Arc<IndirectMapping>) {
        self.live.current.write().indirect.insert(vdev, mapping);
    }

    /// The MOS has these objects for the vdevs: their metaslabs' maps, ZAPs, dirty time logs. A vdev that has
    /// joined had none before the end of its first txg.
    pub fn learn_objects(&self, told: &[VdevConfig]) {
        let mut current = self.live.current.write();
        let mut config = PoolConfig::clone(&current.config);
        if learn_objects(&mut config.vdevs, told) {
            let (found, leaves) = (FoundPool::clone(&current.found), current.vdevs.leaves().to_vec());
            self.rebuild(&mut current, config, found, &leaves);
        }
    }

    /// Another tree from now on, in which these leaves go on.
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

    /// Waits until the operations have ended that began with a tree before this one.
    #[boxed]
    pub async fn earlier_trees_ended(&self) {
        let earlier = self.live.current.read().earlier.clone();
        while earlier.iter().any(|earlier| earlier.strong_count() > 0) {
            self.live.runtime.sleep(LOOK_INTERVAL).await;
        }
    }

    /// Looks how large the devices are: those that have grown since they were opened are used as they are
    /// now.
    #[boxed]
    pub async fn look_at_sizes(&self) {
        // A device that hangs answers late, so this comes before the lock.
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

    /// Waits until no change is under way at any device that answers, not even one that nobody waits for any
    /// more.
    #[boxed]
    pub async fn idle(&self) {
        self.vdevs().idle().await;
    }

    /// Changes what the configuration says beside the tree: spares, cache devices, the comment.
    pub fn set_beside(&self, change: impl FnOnce(&mut PoolConfig)) {
        let mut current = self.live.current.write();
        let mut config = PoolConfig::clone(&current.config);
        change(&mut config);
        current.config = Arc::new(config);
    }

    /// The device of a spare or cache device that the tree does not name.
    pub fn keep_beside(&self, guid: Guid, device: FoundDevice) {
        let mut current = self.live.current.write();
        let mut found = FoundPool::clone(&current.found);
        found.auxiliary.insert(guid, device);
        current.found = Arc::new(found);
    }

    /// A spare or cache device has left the pool: it is closed when nobody uses it any more.
    pub fn forget_beside(&self, guid: Guid) {
        let mut current = self.live.current.write();
        let mut found = FoundPool::clone(&current.found);
        found.auxiliary.remove(&guid);
        current.found = Arc::new(found);
    }

    /// With the next tree, a leaf is out of use until the pool is opened again; or is not.
    pub fn set_aside(&self, leaf: Guid, is_aside: bool) {
        let mut current = self.live.current.write();
        match is_aside {
            true => current.aside.insert(leaf),
            false => current.aside.remove(&leaf),
        };
    }

    /// Whether a leaf is out of use until the pool is opened again.
    pub fn is_set_aside(&self, leaf: Guid) -> bool {
        self.live.current.read().aside.contains(&leaf)
    }

    /// With the next tree, a leaf has no device until one joins: what is there is not its own.
    pub fn refuse_device(&self, leaf: Guid, why: Trouble) {
        self.live.current.write().refused.insert(leaf, why);
    }

    /// Leaves whose devices were refused, and why.
    pub(crate) fn refused_devices(&self) -> BTreeMap<Guid, Trouble> {
        self.live.current.read().refused.clone()
    }

    fn current(&self) -> Current {
        self.live.current.read().clone()
    }

    /// What stands between the pool and its devices, if it was opened for good.
    pub fn taps(&self) -> Option<Arc<Taps>> {
        self.live.current.read().found.taps.clone()
    }

    /// The device of a leaf.
    pub fn device(&self, leaf: Guid) -> Option<FoundDevice> {
        self.live.current.read().found.devices.get(&leaf).cloned()
    }

    /// Whether a device belongs to one of its leaves, by whatever guid.
    pub fn holds(&self, device: &FoundDevice) -> bool {
        let current = self.live.current.read();
        current.found.devices.values().any(|held| Arc::ptr_eq(&held.device, &device.device))
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.live.runtime
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.live.name
    }

    /// Its guid.
    pub fn guid(&self) -> Guid {
        self.live.current.read().config.guid
    }

    /// The pool has another guid from now on, in all views.
    pub fn set_guid(&self, guid: Guid) {
        let mut current = self.live.current.write();
        let mut found = FoundPool::clone(&current.found);
        found.config.guid = guid;
        current.found = Arc::new(found);
        current.config = Arc::new(PoolConfig { guid, ..PoolConfig::clone(&current.config) });
    }

    /// Leaves that leave the pool, as long as operations that began before use them.
    pub fn in_use(&self, leaves: &[Guid]) -> LeavesInUse {
        let vdevs = self.vdevs();
        let meant = vdevs.leaves().iter().filter(|leaf| leaves.contains(&leaf.guid));
        LeavesInUse { runtime: self.live.runtime.clone(), leaves: meant.map(Arc::downgrade).collect() }
    }

    /// SPA version according to the uberblock.
    pub fn version(&self) -> u64 {
        self.uberblock.version
    }

    /// Whether it has what a version introduced; all pools with feature flags do.
    pub fn has(&self, what: Since) -> bool {
        what.is_in(self.version())
    }

    /// The chosen root.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// The configuration in use now.
    pub fn config(&self) -> Arc<PoolConfig> {
        self.live.current.read().config.clone()
    }

    /// The result of discovery, with the devices in use now.
    pub fn found(&self) -> Arc<FoundPool> {
        self.live.current.read().found.clone()
    }

    /// The vdev tree now: for one operation, not to keep, because it keeps its devices open.
    pub fn vdevs(&self) -> Arc<VdevTree> {
        self.live.current.read().vdevs.clone()
    }

    /// Resilvers read a leaf before others that hold the same; or as they come.
    pub fn set_read_first(&self, leaf: Guid, is_first: bool) {
        let vdevs = self.vdevs();
        let leaves = vdevs.leaves().iter().filter(|one| one.guid == leaf);
        leaves.for_each(|one| one.set_read_first(is_first));
    }

    /// Errors so far of each leaf that has a device, by guid.
    pub fn error_counters(&self) -> Vec<(Guid, ErrorCounts)> {
        self.vdevs().leaves().iter().map(|leaf| (leaf.guid, leaf.errors())).collect()
    }

    /// Errors of a leaf, or of all, count from 0 again.
    pub fn clear_errors(&self, only: Option<Guid>) {
        let vdevs = self.vdevs();
        let leaves = vdevs.leaves().iter().filter(|leaf| only.is_none_or(|only| only == leaf.guid));
        leaves.for_each(|leaf| leaf.clear_errors());
    }

    /// Tries whether the device of a leaf in use can be read and written; `None` if there is no such leaf.
    #[boxed]
    pub async fn probe(&self, leaf: Guid) -> Option<Probe> {
        let vdevs = self.vdevs();
        let found = vdevs.leaves().iter().find(|one| one.guid == leaf && !one.is_away())?.clone();
        Some(found.probe().await)
    }

    /// Leaves with a device that is known to lack some of what it should hold: it was away, is out of use
    /// or is being filled. Verification does not blame them: a resilver will supply what they lack.
    pub fn lagging_leaves(&self) -> Vec<Guid> {
        let vdevs = self.vdevs();
        vdevs.leaves().iter().filter(|leaf| vdevs.is_lagging(leaf)).map(|leaf| leaf.guid).collect()
    }

    /// The txgs of which a leaf lacks something, as runs of first and last txg: those of its dirty time log
    /// (DTL), and those in which a write did not reach it since.
    pub fn missing_txgs(&self, leaf: Guid) -> Vec<(Txg, Txg)> {
        self.live.missed.of_leaf(leaf)
    }

    /// The same of all leaves that lack anything: what their DTLs are to say.
    pub fn missed(&self) -> BTreeMap<Guid, Vec<(Txg, Txg)>> {
        self.live.missed.all()
    }

    /// What DTLs said of that when the pool was opened.
    pub fn noted_missed(&self) -> &BTreeMap<Guid, Vec<(Txg, Txg)>> {
        &self.live.noted
    }

    /// A leaf has been brought all that was born up to a txg.
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

    /// Whether others have all that a leaf holds, so that it can go.
    pub fn can_spare(&self, leaf: Guid) -> bool {
        self.vdevs().can_spare(leaf)
    }

    /// The log vdev that a leaf belongs to.
    pub fn log_of(&self, leaf: Guid) -> Option<VdevId> {
        let vdevs = self.vdevs();
        let mut logs = vdevs.tops().filter(|top| top.class == VdevClass::Log);
        logs.find(|top| top.leaves().any(|one| one.guid == leaf)).map(|top| VdevId(top.id))
    }

    /// Whether a leaf can go while the pool is open: others have all that it holds, or it is a log's, all of
    /// which is in memory, too.
    pub fn is_expendable(&self, leaf: Guid) -> bool {
        self.can_spare(leaf) || self.log_of(leaf).is_some()
    }

    /// Whether a leaf is in use and has all that it should hold.
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

    pub(crate) fn wrong(&self) -> &Wrong {
        &self.live.wrong
    }

    pub(crate) fn salt(&self) -> Option<&ChecksumSalt> {
        self.live.salt.as_ref()
    }

    /// Whether somebody else may be writing to it now: it was never exported, and we don't hold it.
    pub(crate) fn may_be_live(&self) -> bool {
        self.live.may_be_live
    }
}

/// Answers whether anything was new.
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

/// Leaves that operations under way may use although the pool has them no more.
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
