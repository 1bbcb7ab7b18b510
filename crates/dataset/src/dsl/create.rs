//! File systems and volumes made: `zfs create`.
//!
//! ```text
//!   parent's table of children --> directory (properties) --> head, a clone of the empty $ORIGIN --> object set, filled by the caller
//! ```
//!
//! Source: OpenZFS `dmu_objset.c` (`dmu_objset_create_sync`), `dsl_dataset.c` (`dsl_dataset_create_sync`).

use cenote_format::dsl::DS_FLAG_CI_DATASET;
use cenote_format::features::Since;
use cenote_format::objset::ObjsetType;
use cenote_format::props::AppliesTo;
use cenote_format::units::{DatasetId, ObjectId};

use super::crypt::NewCrypt;
use super::make::ORIGIN_DIR_NAME;
use super::set::{SetAt, check_setting};
use super::{Dataset, DatasetKind, name};
use crate::engine::{Engine, FillRoot, NO_DETAILS, SpaceCheck, SyncContext};
use crate::error::{DatasetError, Result};
use crate::properties::Value;

/// Properties by name, as they are stored.
pub type Settings = Vec<(String, Value)>;

/// Facts of a new dataset that are not kept with its properties but by `fill`, in its object set, or with its keys.
const KEPT_ELSEWHERE: [&str; 10] = [
    "version",
    "normalization",
    "utf8only",
    "casesensitivity",
    "volsize",
    "volblocksize",
    "encryption",
    "keyformat",
    "pbkdf2iters",
    "pbkdf2salt",
];
/// `ZFS_CASE_INSENSITIVE`.
const CASE_INSENSITIVE: Value = Value::Number(1);

/// A setting that makes names of any case the same, which the head says too.
pub(crate) fn is_case_insensitive((property, value): &(String, Value)) -> bool {
    property == "casesensitivity" && *value == CASE_INSENSITIVE
}

/// What a new dataset is to be like.
struct Making {
    kind: ObjsetType,
    settings: Settings,
    crypt: Option<NewCrypt>,
    fill: FillRoot,
}

impl Engine {
    /// Makes a file system. `fill` makes what an empty one has; what the settings say of that (`casesensitivity`...) is for it to heed.
    ///
    /// # Errors
    /// The name can't be or is taken, there is no parent, a setting can't be, a key is missing; or what `fill` says.
    pub async fn create_filesystem(&self, name: &str, settings: Settings, fill: FillRoot) -> Result<()> {
        self.create_dataset(name, ObjsetType::Zfs, settings, fill).await
    }

    /// Makes a volume, as [`Engine::create_filesystem`].
    ///
    /// # Errors
    /// The same.
    pub async fn create_volume(&self, name: &str, settings: Settings, fill: FillRoot) -> Result<()> {
        self.create_dataset(name, ObjsetType::Zvol, settings, fill).await
    }

    async fn create_dataset(
        &self,
        name: &str,
        kind: ObjsetType,
        mut settings: Settings,
        fill: FillRoot,
    ) -> Result<()> {
        let crypt = self.plan_encryption(name, &mut settings).await?;
        let (name, making) = (name.to_owned(), Making { kind, settings, crypt, fill });
        self.run_within(SpaceCheck::Normal, move |context| {
            Box::pin(async move { context.create_dataset(&name, making).await })
        })
        .await
    }
}

impl SyncContext {
    async fn create_dataset(&mut self, name: &str, making: Making) -> Result<()> {
        let Making { kind, settings, crypt, .. } = &making;
        let parent = self.parent_of_new(name).await?;
        let applies = if *kind == ObjsetType::Zvol { AppliesTo::VOL } else { AppliesTo::FS };
        for (property, value) in settings {
            check_setting(name, property, value, applies, SetAt::Creation)?;
            self.require_feature(name, property, value).await?;
        }
        if crypt.is_some() {
            self.check_encryption(name).await?;
        }
        let (_, own) = name::split_child(name)?;
        let is_ci = settings.iter().any(is_case_insensitive);
        let origin = self.empty_origin().await?;
        let dir = self.make_dir(Some(parent.dir().id()), own).await?;
        let head = self.make_head(dir, origin, if is_ci { DS_FLAG_CI_DATASET } else { 0 }).await?;
        self.count_if_others_are(&self.mos().await?.dataset(name).await?).await?;
        let made = self.furnish(name, dir, head, making).await;
        if made.is_err() {
            self.unmake_objset(DatasetId(head.0));
            self.remove_head(head).await?;
        }
        made
    }

    async fn furnish(&mut self, name: &str, dir: ObjectId, head: ObjectId, making: Making) -> Result<()> {
        let Making { kind, settings, crypt, fill } = making;
        self.log_of_dataset((name, head), "create", NO_DETAILS).await?;
        if let Some(crypt) = &crypt {
            self.encrypt(dir, head, crypt).await?;
        }
        self.set_at_creation(DatasetId(head.0), &settings).await?;
        fill(self.make_objset(DatasetId(head.0), kind).await?).await
    }

    /// Stores the settings of a new head that were checked, but for what its object set keeps.
    pub(crate) async fn set_at_creation(&mut self, head: DatasetId, settings: &Settings) -> Result<()> {
        for (property, value) in settings {
            if !KEPT_ELSEWHERE.contains(&property.as_str()) {
                let dataset = self.mos().await?.dataset_by_id(head).await?;
                // Whatever keeps a new dataset from being promised so much.
                let no_room = |_| DatasetError::unsuitable(dataset.name(), "out of space");
                self.check_limit(&dataset, property, value).await.map_err(no_room)?;
                self.store_setting(&dataset, property, value).await?;
            }
        }
        Ok(())
    }

    /// The parent of a dataset that is to be made: a file system, in which the name is free.
    pub(super) async fn parent_of_new(&self, name: &str) -> Result<Dataset> {
        let (above, own) = name::split_child(name)?;
        let parent = match self.mos().await?.dataset(above).await {
            Err(DatasetError::NoDataset { .. }) => {
                return Err(DatasetError::unsuitable(name, "parent does not exist; -p creates it"));
            }
            found => found?,
        };
        if parent.kind().await? != DatasetKind::Filesystem {
            return Err(DatasetError::unsuitable(name, "parent is not a filesystem"));
        }
        if parent.dir().child(own).await?.is_some() {
            return Err(DatasetError::DatasetExists { name: name.into() });
        }
        Ok(parent)
    }

    /// The snapshot that all datasets descend from; none in old pools.
    async fn empty_origin(&self) -> Result<Option<ObjectId>> {
        if !self.has(Since::Origin) {
            return Ok(None);
        }
        let head = self.dir_phys(self.special_dir(ORIGIN_DIR_NAME).await?).await?.head_dataset;
        let origin = self.dataset_phys(head).await?.prev_snapshot;
        Ok((origin.0 != 0).then_some(origin))
    }
}
