//! Where the engine meets intent logs: opening datasets, writing txgs, closing the pool.
//!
//! ```text
//!   start      claim unreplayed logs and open their datasets; `Logs::awaiting_replay` hands them out. A log
//!              that cannot be read to its end keeps the engine from starting, unless its end is given up
//!   dataset    each open dataset has a log
//!   sync       write the log's header to the head, free covered blocks, then drop records
//!   export     logs end
//! ```

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Mos};
use cenote_format::blkptr::Blkptr;
use cenote_format::objset::{ObjsetType, ZilHeader};
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::{DatasetError, LiveObjset, Objset, Result};
use cenote_pool::{IoClass, VdevClass};

use crate::context::SyncContext;
use crate::engine::{Engine, LiveDataset, Shared, WeakEngine};
use crate::in_use::uses::Quiet;
use crate::store::features::Features;
use crate::store::policy::StoragePolicy;
use crate::store::txg::{InFlight, SyncingTxg};
use crate::txgs::Hold;
use crate::zil::claim::FoundLog;
use crate::zil::log::Log;

/// An intent log readable only in part: later commits are lost.
#[derive(Debug)]
pub struct LostLog {
    /// Its dataset.
    pub dataset: String,
    /// Records that can be replayed.
    pub kept: usize,
    /// Why reading ended.
    pub why: DatasetError,
}

pub(crate) struct OpenedLog {
    pub(crate) dataset: DatasetId,
    pub(crate) objset: LiveObjset,
    pub(crate) log: Log,
}

impl Engine {
    /// Claims logs before anything else is allocated. `lost` lists unreadable parts given up.
    pub(crate) async fn claim_logs(&self, mos: &Mos, mut lost: Option<&mut Vec<LostLog>>) -> Result<()> {
        let first = self.open_txg();
        for (head, objset) in heads_with_logs(mos).await? {
            if let Some(found) = self.claim_log(head.name(), &objset, first, lost.as_deref_mut()).await? {
                let policy = Arc::new(StoragePolicy::of(&head).await?);
                let live = LiveObjset::counted(objset, first, self.0.throttle.dirty());
                let log = Some(self.log(head.id(), &policy, found));
                self.0.datasets.lock().insert(head.id(), LiveDataset { objset: live, policy, log });
            }
        }
        Ok(())
    }

    /// Their records belong to no txg of this state.
    pub(crate) async fn give_up_logs(&self, mos: &Mos) -> Result<()> {
        let (first, last) = (self.open_txg(), mos.uberblock().txg);
        let vdevs = mos.pool().tree().vdevs();
        for (head, objset) in heads_with_logs(mos).await? {
            let header = objset.phys().zil_header;
            let mut found = FoundLog::stale(objset.intent_log().await, &header, last, first);
            found.blocks.retain(|bp| bp.dvas().all(|dva| vdevs.class_of(dva.vdev) != Some(VdevClass::Log)));
            let policy = Arc::new(StoragePolicy::of(&head).await?);
            let live = LiveObjset::counted(objset, first, self.0.throttle.dirty());
            let log = Some(self.log(head.id(), &policy, found));
            self.0.datasets.lock().insert(head.id(), LiveDataset { objset: live, policy, log });
        }
        Ok(())
    }

    /// `None`: the log matters only once its dataset is opened.
    async fn claim_log(
        &self,
        name: &str,
        objset: &Objset,
        first: Txg,
        lost: Option<&mut Vec<LostLog>>,
    ) -> Result<Option<FoundLog>> {
        let (log, header) = (objset.intent_log().await, &objset.phys().zil_header);
        let uberblock = objset.pool().uberblock();
        let tree_txg = uberblock.rootbp.logical_birth();
        // The pool was rewound, and nothing has been written since.
        if tree_txg < uberblock.txg && !header.is_claimed() {
            return Ok(Some(FoundLog::stale(log, header, tree_txg, first)));
        }
        if let Some(why) = log.damaged.clone() {
            let Some(lost) = lost else {
                let (pool, source) = (objset.pool().name().into(), Arc::new(why));
                return Err(DatasetError::LogUnreadable { pool, name: name.into(), source });
            };
            lost.push(LostLog { dataset: name.into(), kept: log.records.len(), why });
        }
        let mut found = FoundLog::of(log, header, first);
        if !found.is_pressing() {
            return Ok(None);
        }
        found.claim(objset, &self.0.allocator, first).await?;
        self.share_with_log(&found.to_share).await?;
        Ok(Some(found))
    }

    /// Nothing else changes the MOS yet.
    async fn share_with_log(&self, blocks: &[Blkptr]) -> Result<()> {
        let (mos, pool) = (self.0.mos.edit(), self.pool());
        let mut shared = self.0.tables.lock().await;
        for bp in blocks {
            shared.share_clone(&mos, &pool, bp).await?;
        }
        Ok(())
    }

    pub(crate) async fn open_log(
        &self,
        dataset: DatasetId,
        objset: &Objset,
        policy: &StoragePolicy,
    ) -> Result<Log> {
        let header = &objset.phys().zil_header;
        let found = match header.log.is_hole() {
            true => FoundLog::nothing(),
            false => FoundLog::of(objset.intent_log().await, header, self.open_txg()),
        };
        Ok(self.log(dataset, policy, found))
    }

    /// Never gets a record.
    pub(crate) fn log_of_raw(&self, dataset: DatasetId, policy: &StoragePolicy) -> Log {
        self.log(dataset, policy, FoundLog::nothing())
    }

    fn log(&self, dataset: DatasetId, policy: &StoragePolicy, found: FoundLog) -> Log {
        let total = self.0.throttle.dirty().clone();
        Log::new(dataset, WeakEngine(Arc::downgrade(&self.0)), policy.log, found, total)
    }

    pub(crate) fn opened_logs(&self) -> Vec<OpenedLog> {
        let datasets = self.0.datasets.lock();
        let with_log = |(&id, dataset): (&DatasetId, &LiveDataset)| {
            Some(OpenedLog { dataset: id, objset: dataset.objset.clone(), log: dataset.log.clone()? })
        };
        datasets.iter().filter_map(with_log).collect()
    }

    pub(crate) async fn end_logs_of(&self, is_meant: impl Fn(DatasetId) -> bool) -> Result<()> {
        for opened in self.opened_logs().into_iter().filter(|opened| is_meant(opened.dataset)) {
            // An abandoned commit may still run and wait for a txg: take its turn before the hold.
            let _turn = opened.log.0.turn.lock().await;
            let hold = self.hold().await?;
            opened.log.end(hold.txg());
        }
        Ok(())
    }

    pub(crate) fn policy_of(&self, dataset: DatasetId) -> Option<Arc<StoragePolicy>> {
        self.0.datasets.lock().get(&dataset).map(|open| open.policy.clone())
    }

    /// For blocks of the held txg outside its tree.
    pub(crate) fn apart_from_tree(&self, hold: &Hold) -> SyncingTxg {
        let allocator = self.0.allocator.clone();
        SyncingTxg {
            pool: self.pool().for_class(IoClass::SyncWrite),
            cache: self.0.cache.clone(),
            allocator,
            txg: hold.txg(),
            pass: 1,
            features: Features { hole_birth: false, embedded_data: false, ..self.0.carried.lock().features },
            tables: None,
            tables_are_full: false,
            in_flight: InFlight::default(),
        }
    }
}

/// The intent logs of a pool.
#[derive(Clone, Copy)]
pub struct Logs<'a>(pub(crate) &'a Engine);

impl Engine {
    /// Intent logs.
    pub fn logs(&self) -> Logs<'_> {
        Logs(self)
    }
}

impl Logs<'_> {
    /// Ends all logs but those that await replay: the next txg covers their records.
    #[boxed]
    pub async fn end(&self) -> Result<()> {
        self.0.end_logs_of(|_| true).await
    }
}

impl Shared {
    pub(crate) fn forget_records(&self, txg: Txg) {
        for dataset in self.datasets.lock().values() {
            dataset.log.as_ref().inspect(|log| log.drop_through(txg));
        }
    }
}

/// Frees log blocks no longer needed.
pub(crate) async fn settle_log(context: &mut SyncContext, dataset: &LiveDataset) -> Result<ZilHeader> {
    let objset = &dataset.objset;
    let Some(log) = &dataset.log else { return Ok(objset.on_disk().phys().zil_header) };
    let settled = log.settle(context.syncing.txg).await;
    // Not at once: a file may gain a block in the txg that frees the log's share of it.
    context.dead.extend(settled.dead);
    let on_disk = objset.on_disk();
    let (had_log, has_log) = (!on_disk.phys().zil_header.log.is_hole(), !settled.header.log.is_hole());
    if had_log != has_log && on_disk.phys().objset_type == ObjsetType::Zfs {
        context.use_log_feature(ObjectId(objset.dataset_id().0), has_log).await?;
    }
    Ok(settled.header)
}

/// Frees the log of a dataset that goes or gets another tree.
#[boxed]
pub async fn free_log(context: &mut SyncContext, head: &Dataset, quiet: &Quiet) -> Result<()> {
    assert_eq!(quiet.dataset(), head.id(), "the proof is of another dataset");
    let open = context.engine.datasets.lock().get(&head.id()).cloned();
    let blocks = match open.as_ref().and_then(|open| open.log.as_ref()) {
        Some(log) => log.abandon(quiet),
        None => {
            let objset = head.objset_head().await?;
            FoundLog::of(objset.intent_log().await, &objset.phys().zil_header, context.txg()).into_blocks()
        }
    };
    context.free_all(&blocks).await
}

/// Resets the header of a head with a snapshot's tree, which points to an old log.
#[boxed]
pub async fn without_log(context: &mut SyncContext, head: DatasetId) -> Result<()> {
    let dataset = context.mos().await?.dataset_by_id(head).await?;
    // Without a log, its key need not be loaded.
    if dataset.objset_head().await?.phys().zil_header.log.is_hole() {
        return Ok(());
    }
    let objset = dataset.objset().await?;
    let policy = Arc::new(StoragePolicy::of(&dataset).await?);
    let engine = Engine::of(context.engine.clone());
    let live = LiveObjset::counted(objset, context.txg(), engine.0.throttle.dirty());
    let log = Some(engine.log(head, &policy, FoundLog::nothing()));
    context.born_objsets.push(LiveDataset { objset: live, policy, log });
    Ok(())
}

/// A log reachable only through a damaged dataset is lost with it, as in OpenZFS (`zil_claim`): others can be
/// replayed.
async fn heads_with_logs(mos: &Mos) -> Result<Vec<(Dataset, Objset)>> {
    let (reached, lost) = mos.reachable_datasets().await?;
    let note = |name: &str, why: &DatasetError| {
        mos.pool()
            .read_errors()
            .note_aside(format!("'{name}' can't be opened, nor its intent log be replayed: {why}"));
    };
    lost.iter().for_each(|(name, why)| note(name, why));
    let mut heads = Vec::new();
    for head in reached.into_iter().filter(|dataset| !dataset.is_snapshot()) {
        match objset_with_log(&head).await {
            Ok(objset) => heads.extend(objset.map(|objset| (head, objset))),
            Err(why) => note(head.name(), &why),
        }
    }
    Ok(heads)
}

async fn objset_with_log(head: &Dataset) -> Result<Option<Objset>> {
    match head.objset_head().await?.phys().zil_header.log.is_hole() {
        true => Ok(None),
        false => head.objset().await.map(Some),
    }
}
