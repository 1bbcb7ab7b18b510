//! A dataset: one version of content, live or snapshot.

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_cache::Caching;
use cenote_format::Phys;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::{DS_FLAG_DEFER_DESTROY, DslDatasetPhys};
use cenote_format::objset::ObjsetType;
use cenote_format::units::{DatasetId, Guid, ObjectId, Txg};
use cenote_object::{Objset, Result, Zap};
use cenote_pool::DatasetKey;

use crate::dir::Dir;
use crate::keys::KeyStatus;
use crate::mos::Mos;

/// Kind of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatasetKind {
    /// Live file system.
    Filesystem,
    /// Live volume.
    Volume,
    /// Snapshot of either.
    Snapshot,
}

impl std::fmt::Display for DatasetKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            DatasetKind::Filesystem => "filesystem",
            DatasetKind::Volume => "volume",
            DatasetKind::Snapshot => "snapshot",
        })
    }
}

/// A dataset or snapshot. Cloning costs one atomic increment.
#[derive(Clone)]
pub struct Dataset(Arc<DatasetInner>);

struct DatasetInner {
    dir: Dir,
    id: DatasetId,
    name: String,
    phys: DslDatasetPhys,
    fields: Option<Zap>,
}

impl Dataset {
    pub(crate) async fn open_head(dir: Dir) -> Result<Dataset> {
        let id = dir.phys().head_dataset;
        let name = dir.name().to_owned();
        Dataset::open(dir, DatasetId(id.0), name).await
    }

    pub(crate) async fn open_by_id(mos: &Mos, id: DatasetId) -> Result<Dataset> {
        let (phys, _) = read_phys(mos, id).await?;
        let dir = Dir::open_by_id(mos, phys.dir).await?;
        let head = Dataset::open_head(dir).await?;
        if head.id() == id {
            return Ok(head);
        }
        let name = match head.snapshot_table().await? {
            Some(zap) => zap.name_of(id.0).await?,
            None => None,
        };
        let unnamed = || mos.objset().damaged(ObjectId(id.0), "is not among its dataset's snapshots");
        head.open_snapshot(&name.ok_or_else(unnamed)?, id).await
    }

    pub(super) async fn open(dir: Dir, id: DatasetId, name: String) -> Result<Dataset> {
        let (phys, fields) = read_phys(dir.mos(), id).await?;
        Ok(Dataset(Arc::new(DatasetInner { dir, id, name, phys, fields })))
    }

    /// Pool.
    pub fn mos(&self) -> &Mos {
        self.0.dir.mos()
    }

    /// Directory; a snapshot's is its head's.
    pub fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// Object number, property `objsetid`.
    pub fn id(&self) -> DatasetId {
        self.0.id
    }

    /// Full name, `pool/a` or `pool/a@s`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Snapshot name after the `@`.
    pub fn snapshot_name(&self) -> Option<&str> {
        self.name().split_once('@').map(|(_, snapshot)| snapshot)
    }

    /// Permanent identity.
    pub fn guid(&self) -> Guid {
        self.phys().guid
    }

    /// Txg of creation.
    pub fn creation_txg(&self) -> Txg {
        self.phys().creation_txg
    }

    /// On-disk fields.
    pub fn phys(&self) -> &DslDatasetPhys {
        &self.0.phys
    }

    /// Whether it is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot_name().is_some()
    }

    /// Whether the snapshot's destruction awaits its last hold and clone.
    pub fn is_deferred_destroy(&self) -> bool {
        self.phys().flags & DS_FLAG_DEFER_DESTROY != 0
    }

    /// File system, volume or snapshot.
    ///
    /// # Errors
    /// The object set head is unreadable.
    #[boxed]
    pub async fn kind(&self) -> Result<DatasetKind> {
        if self.is_snapshot() {
            return Ok(DatasetKind::Snapshot);
        }
        Ok(match self.content_type().await? {
            ObjsetType::Zvol => DatasetKind::Volume,
            _ => DatasetKind::Filesystem,
        })
    }

    /// Type of its object set, also for a snapshot.
    ///
    /// # Errors
    /// The object set head is unreadable.
    #[boxed]
    pub async fn content_type(&self) -> Result<ObjsetType> {
        // All versions of a dataset have the same type.
        if let Some(known) = self.dir().content_type().get() {
            return Ok(*known);
        }
        let found = self.objset_head().await?.phys().objset_type;
        Ok(*self.dir().content_type().get_or_init(|| found))
    }

    /// Field of an extended dataset (`dataset_field`), possibly an array.
    ///
    /// # Errors
    /// The table is damaged.
    #[boxed]
    pub async fn field(&self, name: &str) -> Result<Option<Vec<u64>>> {
        match &self.0.fields {
            Some(zap) => Ok(zap.lookup(name.as_bytes()).await?.map(|v| v.words().collect())),
            None => Ok(None),
        }
    }

    /// Text field of an extended dataset.
    ///
    /// # Errors
    /// The table is damaged.
    #[boxed]
    pub async fn text_field(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(zap) = &self.0.fields else { return Ok(None) };
        let found = zap.lookup(name.as_bytes()).await?.and_then(|value| value.as_text());
        Ok(found.map(String::into_bytes))
    }

    /// Opens its object set.
    ///
    /// # Errors
    /// `DatasetError::KeyMissing` and `DatasetError::WrongKey` if encrypted; damage.
    #[boxed]
    pub async fn objset(&self) -> Result<Objset> {
        let key = self.key().await?;
        let objset = self.open_objset(key).await?;
        // Damaged properties must not make the objects unreadable.
        Ok(objset.cached_as(self.caching().await.unwrap_or_default()))
    }

    /// Opens its object set without a key; encrypted objects are unreadable.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn objset_head(&self) -> Result<Objset> {
        self.open_objset(None).await
    }

    /// Opens its object set, without a key if missing.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn readable_objset(&self) -> Result<Objset> {
        match self.objset().await {
            Err(error) if error.is_locked() => self.objset_head().await,
            opened => opened,
        }
    }

    /// Caching of its blocks: `primarycache`, `secondarycache`, `prefetch`.
    async fn caching(&self) -> Result<Caching> {
        let [primary, secondary, prefetch] =
            self.numbers(["primarycache", "secondarycache", "prefetch"]).await?;
        Ok(Caching::of_numbers(primary, secondary, prefetch))
    }

    async fn open_objset(&self, key: Option<Arc<DatasetKey>>) -> Result<Objset> {
        let mos = self.mos().objset();
        Objset::open(mos.pool(), mos.cache(), self.id(), self.phys().bp, key).await
    }

    /// Key of its blocks; `None` if not encrypted.
    ///
    /// # Errors
    /// The key is missing or wrong.
    #[boxed]
    pub async fn key(&self) -> Result<Option<Arc<DatasetKey>>> {
        match self.dir().encryption().await? {
            None => Ok(None),
            Some(info) => self.mos().keyring().dataset_key(self.mos(), self.name(), &info).await.map(Some),
        }
    }

    /// State of its key.
    ///
    /// # Errors
    /// Damage; a missing or wrong key is a state.
    #[boxed]
    pub async fn key_status(&self) -> Result<KeyStatus> {
        match self.key().await {
            Ok(None) => Ok(KeyStatus::None),
            Ok(Some(_)) => Ok(KeyStatus::Available),
            Err(error) if error.is_locked() => Ok(KeyStatus::Unavailable),
            Err(error) => Err(error),
        }
    }
}

pub(super) async fn read_phys(mos: &Mos, id: DatasetId) -> Result<(DslDatasetPhys, Option<Zap>)> {
    let object = mos.objset().object(ObjectId(id.0)).await?;
    let dnode = object.dnode();
    if dnode.bonus_type != ObjectType::DSL_DATASET {
        return Err(object.damaged("is no dataset"));
    }
    let phys = DslDatasetPhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| object.format(e))?;
    let fields = if dnode.object_type.is_zap() { Some(Zap::open(object).await?) } else { None };
    Ok((phys, fields))
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({} object {})", self.name(), self.id())
    }
}
