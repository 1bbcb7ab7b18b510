//! Where the engine meets intent logs: opening datasets, writing groups, closing the pool.
//!
//! ```text
//!   start      logs that were not replayed: claimed, their datasets opened; `logs_to_replay` hands them out.
//!              One that can't be read to its end keeps the engine from starting, unless its end is given up
//!   dataset    a log of its own for each dataset that is opened
//!   sync       the head gets the log's header, blocks that are covered are freed, then records forgotten
//!   export     logs end
//! ```

use std::sync::{Arc, Weak};

use cenote_format::blkptr::Blkptr;
use cenote_format::objset::{ObjsetType, ZilHeader};
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_pool::Pool;
use cenote_pool::alloc::{AllocClass, Allocator};

use super::{Engine, Hold, Inner, LiveDataset, SyncContext};
use crate::dsl::Dataset;
use crate::error::{DatasetError, Result};
use crate::live::LiveObjset;
use crate::mos::Mos;
use crate::objset::Objset;
use crate::sync::blocks::Group;
use crate::sync::policy::StoragePolicy;
use crate::zil::{Found, Log};

/// An intent log of which only the beginning can be read: what was committed after that is lost.
#[derive(Debug)]
pub struct LostLog {
    /// Its dataset.
    pub dataset: String,
    /// How many records come before the loss. They are replayed.
    pub kept: usize,
    /// Why reading ended.
    pub why: DatasetError,
}

/// An engine that may be gone by now.
#[derive(Clone)]
pub(crate) struct WeakEngine(Weak<Inner>);

impl WeakEngine {
    /// # Errors
    /// It is gone.
    pub(crate) fn upgrade(&self) -> Result<Engine> {
        let gone = || DatasetError::unsuitable("the pool", "was closed; open it again");
        self.0.upgrade().map(Engine).ok_or_else(gone)
    }

    /// Whether the pool has devices for nothing but logs.
    pub(crate) fn has_log_device(&self) -> bool {
        self.0.upgrade().is_some_and(|engine| engine.allocator.has_class(AllocClass::Log))
    }
}

/// What logs need of the engine.
impl Engine {
    /// Logs that are to be replayed are claimed, before anything else is allocated. What can't be read is given up, and noted in `lost` if
    /// there is such a list.
    pub(super) async fn claim_logs(&self, mos: &Mos, mut lost: Option<&mut Vec<LostLog>>) -> Result<()> {
        let first = self.open_txg();
        for head in mos.all_datasets().await?.into_iter().filter(|dataset| !dataset.is_snapshot()) {
            let objset = head.objset_head().await?;
            if objset.phys().zil_header.log.is_hole() {
                continue;
            }
            let objset = head.objset().await?;
            if let Some(found) = self.claim_log(head.name(), &objset, first, lost.as_deref_mut()).await? {
                let policy = Arc::new(StoragePolicy::of(&head).await?);
                let live = LiveObjset::counted(objset, first, self.0.throttle.dirty());
                live.set_log(self.log(head.id(), &policy, found));
                self.0.datasets.lock().insert(head.id(), LiveDataset { objset: live, policy });
            }
        }
        Ok(())
    }

    /// What group `first` has to know of a log; `None`: nothing, unless its dataset is opened.
    async fn claim_log(
        &self,
        name: &str,
        objset: &Objset,
        first: Txg,
        lost: Option<&mut Vec<LostLog>>,
    ) -> Result<Option<Found>> {
        let (log, header) = (objset.intent_log().await, &objset.phys().zil_header);
        let uberblock = objset.pool().uberblock();
        let tree_txg = uberblock.rootbp.logical_birth();
        // Somebody went back to an older tree, and nothing has been written since.
        if tree_txg < uberblock.txg && !header.is_claimed() {
            return Ok(Some(Found::stale(log, header, tree_txg, first)));
        }
        if let Some(why) = log.damaged.clone() {
            let Some(lost) = lost else {
                let (pool, source) = (objset.pool().name().into(), Arc::new(why));
                return Err(DatasetError::LogUnreadable { pool, name: name.into(), source });
            };
            lost.push(LostLog { dataset: name.into(), kept: log.records.len(), why });
        }
        let mut found = Found::of(log, header, first);
        if !found.is_pressing() {
            return Ok(None);
        }
        found.claim(objset, &self.0.allocator, first).await?;
        self.share_with_log(&found.to_share).await?;
        Ok(Some(found))
    }

    /// Makes a log that is claimed an owner of other files' blocks. Nobody else changes the MOS yet.
    async fn share_with_log(&self, blocks: &[Blkptr]) -> Result<()> {
        let (mos, pool) = (self.0.mos.edit(), self.pool());
        let mut shared = self.0.shared.lock().await;
        for bp in blocks {
            shared.share_clone(&mos, &pool, bp).await?;
        }
        Ok(())
    }

    /// A log for a dataset that is opened.
    pub(super) async fn open_log(
        &self,
        dataset: DatasetId,
        objset: &Objset,
        policy: &StoragePolicy,
    ) -> Result<Log> {
        let header = &objset.phys().zil_header;
        let found = match header.log.is_hole() {
            true => Found::nothing(),
            false => Found::of(objset.intent_log().await, header, self.open_txg()),
        };
        Ok(self.log(dataset, policy, found))
    }

    fn log(&self, dataset: DatasetId, policy: &StoragePolicy, found: Found) -> Log {
        let total = self.0.throttle.dirty().clone();
        Log::new(dataset, WeakEngine(Arc::downgrade(&self.0)), policy.log, found, total)
    }

    /// All logs there are.
    pub(crate) fn opened_logs(&self) -> Vec<(DatasetId, LiveObjset, Log)> {
        let datasets = self.0.datasets.lock();
        let with_log = |(&id, dataset): (&DatasetId, &LiveDataset)| {
            Some((id, dataset.objset.clone(), dataset.objset.log()?.clone()))
        };
        datasets.iter().filter_map(with_log).collect()
    }

    /// Ends all logs: the next group on disk covers what they hold, and leaves no log. Those that wait for their replay stay.
    pub(super) async fn end_logs(&self) -> Result<()> {
        let hold = self.hold().await?;
        for (.., log) in self.opened_logs() {
            log.end(hold.txg());
        }
        Ok(())
    }

    /// The group that is open.
    pub(crate) fn open_txg(&self) -> Txg {
        self.0.groups.open()
    }

    /// The last group on disk.
    pub(crate) fn synced(&self) -> Result<Txg> {
        self.0.groups.synced()
    }

    pub(crate) fn pool(&self) -> Pool {
        self.0.pool.read().clone()
    }

    pub(crate) fn allocator(&self) -> &Allocator {
        &self.0.allocator
    }

    /// How an opened dataset is stored.
    pub(crate) fn policy_of(&self, dataset: DatasetId) -> Option<Arc<StoragePolicy>> {
        self.0.datasets.lock().get(&dataset).map(|open| open.policy.clone())
    }

    /// For blocks of the group that is held open, which its tree will not have.
    pub(crate) fn apart_from_tree(&self, hold: &Hold) -> Group {
        let allocator = self.0.allocator.clone();
        Group {
            pool: self.pool(),
            allocator,
            txg: hold.txg(),
            pass: 1,
            hole_birth: false,
            embed: false,
            compression: self.0.features.compression,
            tables: None,
        }
    }
}

impl Inner {
    /// Group `txg` is on disk: nobody has to write its records any more.
    pub(super) fn forget_records(&self, txg: Txg) {
        for dataset in self.datasets.lock().values() {
            dataset.objset.log().inspect(|log| log.drop_through(txg));
        }
    }
}

impl SyncContext {
    /// The header that the head of a dataset gets; what its log does not need any more is freed.
    pub(super) async fn settle_log(&mut self, objset: &LiveObjset) -> Result<ZilHeader> {
        let Some(log) = objset.log() else { return Ok(objset.on_disk().phys().zil_header) };
        let settled = log.settle(self.group.txg).await;
        // Not at once: the group that frees what a log shared may be the one in which a file gets it.
        self.dead.extend(settled.dead);
        let on_disk = objset.on_disk();
        let (had_log, has_log) = (!on_disk.phys().zil_header.log.is_hole(), !settled.header.log.is_hole());
        if had_log != has_log && on_disk.phys().objset_type == ObjsetType::Zfs {
            self.use_log_feature(ObjectId(objset.dataset_id().0), has_log).await?;
        }
        Ok(settled.header)
    }

    /// Frees the log of a dataset that goes, or gets another tree.
    pub(crate) async fn free_log(&mut self, head: &Dataset) -> Result<()> {
        let open = self.engine.datasets.lock().get(&head.id()).cloned();
        let blocks = match open.as_ref().and_then(|open| open.objset.log()) {
            Some(log) => log.abandon(),
            None => {
                let objset = head.objset_head().await?;
                Found::of(objset.intent_log().await, &objset.phys().zil_header, self.txg()).into_blocks()
            }
        };
        for bp in blocks {
            self.free_now(&bp).await?;
        }
        Ok(())
    }

    /// A head begins with the tree of a snapshot, whose head leads to the log of its day: it gets one that leads to none.
    pub(crate) async fn without_log(&mut self, head: DatasetId) -> Result<()> {
        let dataset = self.mos().await?.dataset_by_id(head).await?;
        let objset = dataset.objset().await?;
        if objset.phys().zil_header.log.is_hole() {
            return Ok(());
        }
        let policy = Arc::new(StoragePolicy::of(&dataset).await?);
        let engine = Engine(self.engine.clone());
        let live = LiveObjset::counted(objset, self.txg(), engine.0.throttle.dirty());
        live.set_log(engine.log(head, &policy, Found::nothing()));
        self.born_objsets.push(LiveDataset { objset: live, policy });
        Ok(())
    }
}
