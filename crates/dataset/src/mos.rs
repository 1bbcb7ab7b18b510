//! The opened pool: its meta object set (MOS) and what is found there.
//!
//! Idea: everything that is not a user's data is an object of the MOS, and the object directory (object 1, a
//! ZAP) names the important ones. This type is the handle that all others hang from; what lies behind a name
//! is read when it is asked for, each in its own module: datasets in [`crate::dataset`], [`crate::history`],
//! [`crate::errlog`], space in [`crate::spacemaps`].
//!
//! Source: OpenZFS `dmu.h` (`DMU_POOL_*`), `spa.c`.

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_format::bpobj::{BptreeEntry, BptreePhys};
use cenote_format::dsl::DslDatasetPhys;
use cenote_format::dsl::names::{self, pool as directory_names};
use cenote_format::features::{Feature, SPA_FEATURES};
use cenote_format::nvlist::Nvlist;
use cenote_format::scan::{ErrorScrubPhys, ScanFunc, ScanPhys};
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

/// The directory below the root that is charged for what is being freed, `FREE_DIR_NAME`.
pub const FREE_DIR_NAME: &str = "$FREE";
/// The directory below the root that is charged for what could not be freed, `LEAK_DIR_NAME`.
pub const LEAK_DIR_NAME: &str = "$LEAK";
/// The directory that all others are cloned from, `ORIGIN_DIR_NAME`.
pub const ORIGIN_DIR_NAME: &str = "$ORIGIN";
/// The directory of what the MOS takes, `MOS_DIR_NAME`.
pub const MOS_DIR_NAME: &str = "$MOS";

/// Whether a pool uses a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureState {
    /// It can't be used.
    Disabled,
    /// It can be used, and isn't.
    Enabled,
    /// It is used.
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

/// An opened pool. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct Mos(Arc<MosInner>);

struct MosInner {
    objset: Objset,
    /// Or why it can't be read, in a rescue.
    directory: Result<Zap>,
    config: Nvlist,
    /// The vdevs of this state, if the pool may have others by now.
    vdevs: Option<Arc<PoolConfig>>,
    root_dir: ObjectId,
    keyring: Arc<Keyring>,
    /// The same for every dataset, and dear: shared blocks and checkpoints are counted for it.
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

    /// The MOS of a pool whose configuration is at hand elsewhere, in a state in which it had these vdevs.
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

    /// The pool with the vdevs of this state: its space maps are theirs. Blocks are read from those that the
    /// pool has now ([`Pool::vdevs`]).
    pub fn pool_config(&self) -> Arc<PoolConfig> {
        self.0.vdevs.clone().unwrap_or_else(|| self.pool().config())
    }

    /// The pool below: blocks, vdevs, status.
    pub fn pool(&self) -> &Pool {
        self.0.objset.pool()
    }

    /// Where [`Mos::usable_bytes`] is remembered.
    pub(crate) fn usable_bytes_cell(&self) -> &OnceCell<u64> {
        &self.0.usable_bytes
    }

    /// The meta object set.
    pub fn objset(&self) -> &Objset {
        &self.0.objset
    }

    /// The object directory.
    ///
    /// # Errors
    /// It is damaged, and the pool was opened for a rescue.
    pub fn directory(&self) -> Result<&Zap> {
        self.0.directory.as_ref().map_err(Clone::clone)
    }

    /// The trusted configuration, as the MOS has it.
    pub fn config(&self) -> &Nvlist {
        &self.0.config
    }

    /// The root that this state of the pool hangs from.
    pub fn uberblock(&self) -> &Uberblock {
        self.pool().uberblock()
    }

    /// Keys of its encrypted datasets.
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

    /// The ZAP that the object directory has under a name.
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

    /// Pool properties that were set (`ashift` is not among them: it lies in the vdevs).
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

    /// Every known feature and what it is here, in the order of `zpool get all`; none in pools older than
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

    /// What the last scrub or resilver did, or the one under way; `None` if there was none.
    ///
    /// # Errors
    /// What is noted makes no sense.
    #[boxed]
    pub async fn scan_status(&self) -> Result<Option<ScanPhys>> {
        scan_in(self.directory()?).await
    }

    /// The same of the last scrub of known errors. It is forgotten when a scan begins.
    ///
    /// # Errors
    /// What is noted makes no sense.
    #[boxed]
    pub async fn error_scrub_status(&self) -> Result<Option<ErrorScrubPhys>> {
        error_scrub_in(self.directory()?).await
    }

    /// Blocks that are free for users and not yet on the vdevs: lists that the next txgs work off
    /// (`freeing`).
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

    /// Bytes that what was destroyed still takes (`freeing`).
    ///
    /// # Errors
    /// A directory is damaged.
    #[boxed]
    pub async fn freeing_bytes(&self) -> Result<u64> {
        Ok(self.root_dir().await?.child(FREE_DIR_NAME).await?.map_or(0, |dir| dir.phys().used_bytes))
    }

    /// Trees of destroyed datasets that are still being freed in the background.
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

    /// The state that a checkpoint keeps, if there is one.
    ///
    /// # Errors
    /// The directory is damaged.
    #[boxed]
    pub async fn checkpoint(&self) -> Result<Option<Uberblock>> {
        let value = self.directory()?.lookup(directory_names::ZPOOL_CHECKPOINT.as_bytes()).await?;
        let Some(value) = value else { return Ok(None) };
        // Words of the uberblock, in the order of its fields. Older versions had fewer.
        let raw: Vec<u8> = value.words().flat_map(u64::to_le_bytes).collect();
        let mut slot = [0; UBERBLOCK_BYTES];
        let len = raw.len().min(UBERBLOCK_BYTES);
        slot[..len].copy_from_slice(&raw[..len]);
        let uberblock = Uberblock::decode(&slot);
        uberblock.map(Some).map_err(|e| self.objset().format(names::DMU_POOL_DIRECTORY_OBJECT, e))
    }

    /// The MOS of that state.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn at_checkpoint(&self, checkpoint: &Uberblock) -> Result<Mos> {
        let (pool, cache) = (self.pool().at_checkpoint(checkpoint), self.objset().cache());
        let objset = Objset::open(&pool, cache, DatasetId(0), checkpoint.rootbp, None).await?;
        Mos::at(&objset, self.0.keyring.clone(), self.pool_config()).await
    }

    /// The pool's root file system.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn root_dataset(&self) -> Result<Dataset> {
        let dir = self.root_dir().await?;
        Dataset::open_head(dir).await
    }

    /// The root of the tree of names.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn root_dir(&self) -> Result<Dir> {
        Dir::open(self, self.0.root_dir, None, self.pool().name().to_owned()).await
    }

    /// A file system, volume or snapshot by its full name, which may begin with the pool's guid: several
    /// pools may be called the same.
    ///
    /// # Errors
    /// [`DatasetError::NoDataset`], or damage on the way.
    #[boxed]
    pub async fn dataset(&self, name: &str) -> Result<Dataset> {
        let missing = || DatasetError::NoDataset { name: name.into() };
        let (path, snapshot) = match name.split_once('@') {
            Some((path, snapshot)) => (path, Some(snapshot)),
            None => (name, None),
        };
        let mut parts = path.split('/');
        let is_this_pool =
            |pool: &str| pool == self.pool().name() || pool == self.pool().guid().0.to_string();
        // No dataset of a user's has a `$` in its name: those of OpenZFS's own have no content to be shown.
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

    /// A file system, volume or snapshot by its number.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    #[boxed]
    pub async fn dataset_by_id(&self, id: DatasetId) -> Result<Dataset> {
        Dataset::open_by_id(self, id).await
    }

    /// What lies on disk of a file system, volume or snapshot: no name is looked for.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    #[boxed]
    pub async fn dataset_phys(&self, id: DatasetId) -> Result<DslDatasetPhys> {
        let dnode = self.objset().dnode(ObjectId(id.0)).await?;
        let phys = DslDatasetPhys::decode(dnode.bonus(), dnode.endian());
        phys.map_err(|e| self.objset().format(ObjectId(id.0), e))
    }

    /// The empty snapshot at which all chains of newer pools begin, `$ORIGIN@$ORIGIN`.
    pub(crate) async fn first_version(&self) -> Result<Option<ObjectId>> {
        let look = async || {
            let Some(dir) = self.root_dir().await?.child(ORIGIN_DIR_NAME).await? else { return Ok(None) };
            Ok(Some(self.dataset_phys(DatasetId(dir.phys().head_dataset.0)).await?.prev_snapshot))
        };
        self.0.first_version.get_or_try_init(look).await.copied()
    }

    /// The datasets that come right after one in their chains: its next snapshot or head, and its clones'
    /// oldest snapshots or heads. After none: where all chains begin.
    ///
    /// # Errors
    /// A dataset is damaged.
    #[boxed]
    pub async fn datasets_after(&self, id: Option<DatasetId>) -> Result<Vec<DatasetId>> {
        let Some(id) = id else {
            let Some(first) = self.first_version().await?.map(|first| DatasetId(first.0)) else {
                return self.first_datasets(ObjectId(0)).await;
            };
            // Not its own, empty head.
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
            // Older pools don't list them.
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

    /// The oldest of each head's chain, of chains that begin at `origin`.
    async fn first_datasets(&self, origin: ObjectId) -> Result<Vec<DatasetId>> {
        let mut firsts = Vec::new();
        for head in self.all_datasets().await? {
            let (mut first, mut phys) = (head.id(), *head.phys());
            // A snapshot whose next is another one has this chain's as a clone.
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

    /// The same as far as they can be opened, and the names and errors of the others: [`Dataset::reachable`].
    ///
    /// # Errors
    /// The root is damaged.
    #[boxed]
    pub async fn reachable_datasets(&self) -> Result<(Vec<Dataset>, Vec<(String, DatasetError)>)> {
        Ok(self.root_dataset().await?.reachable().await)
    }

    /// Opens the object set of every file system and volume, as far as it goes without keys.
    ///
    /// # Errors
    /// The first that can't be opened.
    #[boxed]
    pub async fn open_all_heads(&self) -> Result<()> {
        for dataset in self.all_datasets().await? {
            dataset.objset_head().await?;
        }
        Ok(())
    }
}

/// What an object directory says of the last scan: [`Mos::scan_status`] for those who have nothing else open.
///
/// # Errors
/// What is noted makes no sense.
#[boxed]
pub async fn scan_in(directory: &Zap) -> Result<Option<ScanPhys>> {
    words_in(directory, directory_names::SCAN).await
}

/// [`Mos::error_scrub_status`], likewise.
///
/// # Errors
/// What is noted makes no sense.
#[boxed]
pub async fn error_scrub_in(directory: &Zap) -> Result<Option<ErrorScrubPhys>> {
    let noted = words_in(directory, directory_names::ERRORSCRUB).await?;
    Ok(noted.filter(|scrub: &ErrorScrubPhys| ScanFunc::from(scrub.func) == ScanFunc::ErrorScrub))
}

async fn words_in<T: Phys>(directory: &Zap, name: &str) -> Result<Option<T>> {
    let Some(value) = directory.lookup(name.as_bytes()).await? else { return Ok(None) };
    let words: Vec<u64> = value.words().collect();
    T::from_words(&words).map(Some).map_err(|e| directory.object().format(e))
}

/// Bytes of `uberblock_t` that a checkpoint keeps, at most.
const UBERBLOCK_BYTES: usize = 1024;

impl std::fmt::Debug for Mos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mos({:?})", self.pool())
    }
}
