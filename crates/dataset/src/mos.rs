//! The opened pool: its meta object set (MOS) and object directory.
//!
//! Idea: the object directory (object 1, a ZAP) names the important objects of the MOS. They are read on
//! demand, each by its own module: datasets in [`crate::dataset`], [`crate::history`], [`crate::errlog`],
//! space in [`crate::spacemaps`].
//!
//! Source: OpenZFS `dmu.h` (`DMU_POOL_*`), `spa.c`.

use std::collections::BTreeSet;
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_format::bpobj::{BptreeEntry, BptreePhys};
use cenote_format::dsl::DslDatasetPhys;
use cenote_format::dsl::names::{self, pool as directory_names};
use cenote_format::features::{Feature, SPA_FEATURES};
use cenote_format::nvlist::Nvlist;
use cenote_format::scan::{ErrorScrubPhys, ScanFunc, ScanPhys};
use cenote_format::txg_log::{TxgLog, TxgRing};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_format::words::{Phys, Words};
use cenote_object::deadlist::Bpobj;
use cenote_object::{DatasetError, Objset, Result, Zap, ZapEntry};
use cenote_pool::{Pool, PoolConfig};
use tokio::sync::OnceCell;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::keys::Keyring;

/// Directory charged for pending frees, `FREE_DIR_NAME`.
pub const FREE_DIR_NAME: &str = "$FREE";
/// Directory charged for leaked space, `LEAK_DIR_NAME`.
pub const LEAK_DIR_NAME: &str = "$LEAK";
/// Directory that all others are cloned from, `ORIGIN_DIR_NAME`.
pub const ORIGIN_DIR_NAME: &str = "$ORIGIN";
/// Directory charged for the MOS, `MOS_DIR_NAME`.
pub const MOS_DIR_NAME: &str = "$MOS";
/// The child directory whose head a receive into an existing dataset fills, `recv_clone_name`.
pub const RECV_CLONE_NAME: &str = "%recv";

/// State of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureState {
    /// Not enabled.
    Disabled,
    /// Enabled, not in use.
    Enabled,
    /// In use.
    Active,
}

impl std::fmt::Display for FeatureState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            FeatureState::Disabled => "disabled",
            FeatureState::Enabled => "enabled",
            FeatureState::Active => "active",
        })
    }
}

/// An opened pool. Cloning costs one atomic increment.
#[derive(Clone)]
pub struct Mos(Arc<MosInner>);

struct MosInner {
    objset: Objset,
    /// In a rescue, may be the read error.
    directory: Result<Zap>,
    config: Nvlist,
    /// Vdevs of this state, if the pool's may differ by now.
    vdevs: Option<Arc<PoolConfig>>,
    root_dir: ObjectId,
    keyring: Arc<Keyring>,
    /// Shared by all datasets and expensive: counts shared blocks and checkpoints.
    usable_bytes: OnceCell<u64>,
    first_version: OnceCell<Option<ObjectId>>,
}

impl MosInner {
    fn new(
        objset: Objset,
        directory: Result<Zap>,
        config: Nvlist,
        root_dir: ObjectId,
        keyring: Arc<Keyring>,
    ) -> MosInner {
        let (usable_bytes, first_version) = (OnceCell::new(), OnceCell::new());
        MosInner { objset, directory, config, vdevs: None, root_dir, keyring, usable_bytes, first_version }
    }
}

impl Mos {
    pub(crate) fn new(
        objset: Objset,
        directory: Result<Zap>,
        config: Nvlist,
        root_dir: ObjectId,
        keyring: Arc<Keyring>,
    ) -> Mos {
        Mos(Arc::new(MosInner::new(objset, directory, config, root_dir, keyring)))
    }

    /// Opens the MOS of a past state with its vdevs; the pool's configuration is known elsewhere.
    ///
    /// # Errors
    /// The object directory is damaged.
    #[boxed]
    pub async fn at(objset: &Objset, keyring: Arc<Keyring>, vdevs: Arc<PoolConfig>) -> Result<Mos> {
        let directory = Zap::open_id(objset, names::DMU_POOL_DIRECTORY_OBJECT).await?;
        let root_dir = directory.get_u64(directory_names::ROOT_DATASET).await?.unwrap_or_default();
        let (objset, root_dir) = (objset.clone(), ObjectId(root_dir));
        let inner = MosInner::new(objset, Ok(directory), Nvlist::new(), root_dir, keyring);
        Ok(Mos(Arc::new(MosInner { vdevs: Some(vdevs), ..inner })))
    }

    /// Configuration with the vdevs of this state, to which its space maps refer. Blocks are read from the
    /// pool's current vdevs ([`cenote_pool::Tree::vdevs`]).
    pub fn pool_config(&self) -> Arc<PoolConfig> {
        self.0.vdevs.clone().unwrap_or_else(|| self.pool().tree().config())
    }

    /// Underlying pool: blocks, vdevs, status.
    pub fn pool(&self) -> &Pool {
        self.0.objset.pool()
    }

    /// Cached [`Mos::usable_bytes`].
    pub(crate) fn usable_bytes_cell(&self) -> &OnceCell<u64> {
        &self.0.usable_bytes
    }

    /// Meta object set.
    pub fn objset(&self) -> &Objset {
        &self.0.objset
    }

    /// Object directory.
    ///
    /// # Errors
    /// It is damaged, and the pool was opened for a rescue.
    pub fn directory(&self) -> Result<&Zap> {
        self.0.directory.as_ref().map_err(Clone::clone)
    }

    /// Trusted configuration from the MOS.
    pub fn config(&self) -> &Nvlist {
        &self.0.config
    }

    /// Uberblock of this state.
    pub fn uberblock(&self) -> &Uberblock {
        self.pool().uberblock()
    }

    /// Keys of the encrypted datasets.
    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.0.keyring
    }

    /// A number in the object directory.
    ///
    /// # Errors
    /// The directory is damaged.
    #[boxed]
    pub async fn directory_u64(&self, name: &str) -> Result<Option<u64>> {
        self.directory()?.get_u64(name).await
    }

    /// A ZAP in the object directory.
    ///
    /// # Errors
    /// The directory or the ZAP is damaged.
    #[boxed]
    pub async fn directory_zap(&self, name: &str) -> Result<Option<Zap>> {
        match self.directory_u64(name).await? {
            None | Some(0) => Ok(None),
            Some(id) => Zap::open_id(self.objset(), ObjectId(id)).await.map(Some),
        }
    }

    /// Explicitly set pool properties, without `ashift`, which the vdevs keep.
    ///
    /// # Errors
    /// The table is damaged.
    #[boxed]
    pub async fn pool_properties(&self) -> Result<Vec<ZapEntry>> {
        match self.directory_zap(directory_names::PROPS).await? {
            Some(zap) => zap.to_vec().await,
            None => Ok(Vec::new()),
        }
    }

    /// State of every known feature, in the order of `zpool get all`; all disabled in pools older than
    /// features.
    ///
    /// # Errors
    /// A table is damaged.
    #[boxed]
    pub async fn features(&self) -> Result<Vec<(&'static Feature, FeatureState)>> {
        let read = self.directory_zap(directory_names::FEATURES_FOR_READ).await?;
        let write = self.directory_zap(directory_names::FEATURES_FOR_WRITE).await?;
        let mut states = Vec::new();
        for feature in &SPA_FEATURES {
            let table = if feature.readonly_compatible { &write } else { &read };
            let count = match table {
                Some(zap) => zap.get_u64(feature.guid).await?,
                None => None,
            };
            let state = match count {
                None => FeatureState::Disabled,
                Some(0) => FeatureState::Enabled,
                Some(_) => FeatureState::Active,
            };
            states.push((feature, state));
        }
        Ok(states)
    }

    /// Names of the enabled features.
    ///
    /// # Errors
    /// A table is damaged.
    #[boxed]
    pub async fn enabled_features(&self) -> Result<BTreeSet<&'static str>> {
        let states = self.features().await?;
        let is_enabled = |state: FeatureState| state != FeatureState::Disabled;
        Ok(states.iter().filter(|(_, state)| is_enabled(*state)).map(|(feature, _)| feature.name).collect())
    }

    /// The current or last scrub or resilver, if any.
    ///
    /// # Errors
    /// The record is malformed.
    #[boxed]
    pub async fn scan_status(&self) -> Result<Option<ScanPhys>> {
        scan_in(self.directory()?).await
    }

    /// The current or last error scrub. A later scan clears it.
    ///
    /// # Errors
    /// The record is malformed.
    #[boxed]
    pub async fn error_scrub_status(&self) -> Result<Option<ErrorScrubPhys>> {
        error_scrub_in(self.directory()?).await
    }

    /// The noted times of txgs, as far as they can be read.
    ///
    /// # Errors
    /// Damaged object directory.
    #[boxed]
    pub async fn txg_log(&self) -> Result<TxgLog> {
        txg_log_in(self.directory()?).await
    }

    /// Blocks freed by datasets but not yet on the vdevs: lists that the next txgs process (`freeing`).
    ///
    /// # Errors
    /// A list is damaged.
    #[boxed]
    pub async fn pending_frees(&self) -> Result<Vec<Bpobj>> {
        let mut lists = Vec::new();
        for name in [directory_names::SYNC_BPOBJ, directory_names::FREE_BPOBJ] {
            if let Some(id) = self.directory_u64(name).await?.filter(|&id| id != 0) {
                lists.push(Bpobj::open(self.objset(), ObjectId(id)).await?);
            }
        }
        Ok(lists)
    }

    /// Bytes still held by destroyed datasets (`freeing`).
    ///
    /// # Errors
    /// A directory is damaged.
    #[boxed]
    pub async fn freeing_bytes(&self) -> Result<u64> {
        Ok(self.root_dir().await?.child(FREE_DIR_NAME).await?.map_or(0, |dir| dir.phys().used_bytes))
    }

    /// Trees of destroyed datasets not completely freed.
    ///
    /// # Errors
    /// The list is damaged.
    #[boxed]
    pub async fn pending_destroys(&self) -> Result<Vec<BptreeEntry>> {
        let Some(id) = self.directory_u64(directory_names::BPTREE_OBJ).await?.filter(|&id| id != 0) else {
            return Ok(Vec::new());
        };
        let object = self.objset().object(ObjectId(id)).await?;
        let phys = BptreePhys::decode(object.dnode().bonus(), object.dnode().endian());
        let phys = phys.map_err(|e| object.format(e))?;
        let words = BptreeEntry::COUNT as u64;
        let count = phys.end.saturating_sub(phys.begin);
        if phys.end > object.capacity_bytes() / (words * 8) {
            return Err(object.damaged("claims more trees to free than it has room for"));
        }
        let all = object.read_table(phys.begin * words, count * words).await?;
        let entries = all.chunks_exact(BptreeEntry::COUNT).map(BptreeEntry::from_words);
        entries.collect::<Result<_, _>>().map_err(|e| object.format(e))
    }

    /// Uberblock of the checkpoint, if any.
    ///
    /// # Errors
    /// The directory is damaged.
    #[boxed]
    pub async fn checkpoint(&self) -> Result<Option<Uberblock>> {
        let value = self.directory()?.lookup(directory_names::ZPOOL_CHECKPOINT.as_bytes()).await?;
        let Some(value) = value else { return Ok(None) };
        // Words of the uberblock in field order. Older versions had fewer.
        let raw: Vec<u8> = value.words().flat_map(u64::to_le_bytes).collect();
        let mut slot = [0; UBERBLOCK_BYTES];
        let len = raw.len().min(UBERBLOCK_BYTES);
        slot[..len].copy_from_slice(&raw[..len]);
        let uberblock = Uberblock::decode(&slot);
        uberblock.map(Some).map_err(|e| self.objset().format(names::DMU_POOL_DIRECTORY_OBJECT, e))
    }

    /// Opens the MOS of the checkpoint.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn at_checkpoint(&self, checkpoint: &Uberblock) -> Result<Mos> {
        let (pool, cache) = (self.pool().at(checkpoint), self.objset().cache());
        let objset = Objset::open(&pool, cache, DatasetId(0), checkpoint.rootbp, None).await?;
        Mos::at(&objset, self.0.keyring.clone(), self.pool_config()).await
    }

    /// Root file system of the pool.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn root_dataset(&self) -> Result<Dataset> {
        let dir = self.root_dir().await?;
        Dataset::open_head(dir).await
    }

    /// Root directory of the name tree.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn root_dir(&self) -> Result<Dir> {
        Dir::open(self, self.0.root_dir, None, self.pool().name().to_owned()).await
    }

    /// Finds a file system, volume or snapshot by full name. The pool's guid may replace its name, since
    /// several pools may share a name.
    ///
    /// # Errors
    /// [`DatasetError::NoDataset`], or damage on the path.
    #[boxed]
    pub async fn dataset(&self, name: &str) -> Result<Dataset> {
        let missing = || DatasetError::NoDataset { name: name.into() };
        let (path, snapshot) = match name.split_once('@') {
            Some((path, snapshot)) => (path, Some(snapshot)),
            None => (name, None),
        };
        let mut parts = path.split('/');
        let is_this_pool =
            |pool: &str| pool == self.pool().name() || pool == self.pool().tree().guid().0.to_string();
        // Only OpenZFS's internal datasets have a `$` in their names; they have no content.
        if !parts.next().is_some_and(is_this_pool) || name.contains('$') {
            return Err(missing());
        }
        let mut dir = self.root_dir().await?;
        for part in parts {
            dir = dir.child(part).await?.ok_or_else(missing)?;
        }
        let head = Dataset::open_head(dir).await?;
        match snapshot {
            None => Ok(head),
            Some(snapshot) => head.snapshot(snapshot).await?.ok_or_else(missing),
        }
    }

    /// Opens a file system, volume or snapshot by number.
    ///
    /// # Errors
    /// It does not exist or is damaged.
    #[boxed]
    pub async fn dataset_by_id(&self, id: DatasetId) -> Result<Dataset> {
        Dataset::open_by_id(self, id).await
    }

    /// On-disk fields of a file system, volume or snapshot; no name lookup.
    ///
    /// # Errors
    /// It does not exist or is damaged.
    #[boxed]
    pub async fn dataset_phys(&self, id: DatasetId) -> Result<DslDatasetPhys> {
        let dnode = self.objset().dnode(ObjectId(id.0)).await?;
        let phys = DslDatasetPhys::decode(dnode.bonus(), dnode.endian());
        phys.map_err(|e| self.objset().format(ObjectId(id.0), e))
    }

    /// The empty snapshot `$ORIGIN@$ORIGIN`, at which all chains of newer pools begin.
    pub(crate) async fn first_version(&self) -> Result<Option<ObjectId>> {
        let look = async || {
            let Some(dir) = self.root_dir().await?.child(ORIGIN_DIR_NAME).await? else { return Ok(None) };
            Ok(Some(self.dataset_phys(DatasetId(dir.phys().head_dataset.0)).await?.prev_snapshot))
        };
        self.0.first_version.get_or_try_init(look).await.copied()
    }

    /// Direct successors of a dataset: its next snapshot or head, and the oldest snapshot or head of each
    /// clone. For `None`, the starts of all chains.
    ///
    /// # Errors
    /// A dataset is damaged.
    #[boxed]
    pub async fn datasets_after(&self, id: Option<DatasetId>) -> Result<Vec<DatasetId>> {
        let Some(id) = id else {
            let Some(first) = self.first_version().await?.map(|first| DatasetId(first.0)) else {
                return self.first_datasets(ObjectId(0)).await;
            };
            // Skip the empty head of `$ORIGIN`.
            let own = self.dataset_phys(first).await?.next_snapshot;
            let mut after = self.datasets_after(Some(first)).await?;
            after.retain(|id| id.0 != own.0);
            return Ok(after);
        };
        let phys = self.dataset_phys(id).await?;
        let next = phys.next_snapshot;
        let mut after: Vec<DatasetId> = (next.0 != 0).then_some(DatasetId(next.0)).into_iter().collect();
        if phys.num_children > 1 {
            let clones = match phys.next_clones_zap {
                ObjectId(0) => Vec::new(),
                list => Zap::open_id(self.objset(), list).await?.to_vec().await?,
            };
            // Older pools do not list clones.
            match clones.len() as u64 == phys.num_children - 1 {
                true => {
                    let numbers = clones.iter().filter_map(|clone| clone.value.as_u64());
                    after.extend(numbers.map(DatasetId));
                }
                false => after.extend(self.first_datasets(ObjectId(id.0)).await?),
            }
        }
        after.retain(|id| id.0 != 0);
        Ok(after)
    }

    /// Oldest dataset of each chain that begins at `origin`.
    async fn first_datasets(&self, origin: ObjectId) -> Result<Vec<DatasetId>> {
        let mut firsts = Vec::new();
        for head in self.all_datasets().await? {
            let (mut first, mut phys) = (head.id(), *head.phys());
            // If the snapshot's next differs, this chain is a clone of it.
            while phys.prev_snapshot.0 != 0 {
                let before = self.dataset_phys(DatasetId(phys.prev_snapshot.0)).await?;
                if before.next_snapshot != ObjectId(first.0) {
                    break;
                }
                (first, phys) = (DatasetId(phys.prev_snapshot.0), before);
            }
            let is_new = phys.prev_snapshot == origin && !firsts.contains(&first);
            firsts.extend(is_new.then_some(first));
        }
        Ok(firsts)
    }

    /// All file systems and volumes, parents before children, siblings by name.
    ///
    /// # Errors
    /// A directory is damaged.
    #[boxed]
    pub async fn all_datasets(&self) -> Result<Vec<Dataset>> {
        self.root_dataset().await?.descendants().await
    }

    /// All datasets that open, and name and error of each that does not ([`Dataset::reachable`]).
    ///
    /// # Errors
    /// The root is damaged.
    #[boxed]
    pub async fn reachable_datasets(&self) -> Result<(Vec<Dataset>, Vec<(String, DatasetError)>)> {
        Ok(self.root_dataset().await?.reachable().await)
    }

    /// Opens every file system's and volume's object set, as far as possible without keys.
    ///
    /// # Errors
    /// The first failure.
    #[boxed]
    pub async fn open_all_heads(&self) -> Result<()> {
        for dataset in self.all_datasets().await? {
            dataset.objset_head().await?;
        }
        Ok(())
    }
}

/// [`Mos::scan_status`] from an object directory alone.
///
/// # Errors
/// The record is malformed.
#[boxed]
pub async fn scan_in(directory: &Zap) -> Result<Option<ScanPhys>> {
    words_in(directory, directory_names::SCAN).await
}

/// [`Mos::error_scrub_status`] from an object directory alone.
///
/// # Errors
/// The record is malformed.
#[boxed]
pub async fn error_scrub_in(directory: &Zap) -> Result<Option<ErrorScrubPhys>> {
    let noted = words_in(directory, directory_names::ERRORSCRUB).await?;
    Ok(noted.filter(|scrub: &ErrorScrubPhys| ScanFunc::from(scrub.func) == ScanFunc::ErrorScrub))
}

/// [`Mos::txg_log`] from an object directory alone.
///
/// # Errors
/// Damage.
#[boxed]
pub async fn txg_log_in(directory: &Zap) -> Result<TxgLog> {
    // A malformed ring is lost, as the log is best effort.
    let ring = async |name: &str| {
        let words: Option<Vec<u64>> =
            directory.lookup(name.as_bytes()).await?.map(|value| value.words().collect());
        Ok::<_, DatasetError>(words.and_then(|words| TxgRing::from_words(&words).ok()).unwrap_or_default())
    };
    Ok(TxgLog {
        minutes: ring(directory_names::TXG_LOG_TIME_MINUTES).await?,
        days: ring(directory_names::TXG_LOG_TIME_DAYS).await?,
        months: ring(directory_names::TXG_LOG_TIME_MONTHS).await?,
    })
}

async fn words_in<T: Phys>(directory: &Zap, name: &str) -> Result<Option<T>> {
    let Some(value) = directory.lookup(name.as_bytes()).await? else { return Ok(None) };
    let words: Vec<u64> = value.words().collect();
    T::from_words(&words).map(Some).map_err(|e| directory.object().format(e))
}

/// Bound on the `uberblock_t` of a checkpoint.
const UBERBLOCK_BYTES: usize = 1024;

impl std::fmt::Debug for Mos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mos({:?})", self.pool())
    }
}
