//! Creates file systems and volumes: `zfs create`.
//!
//! ```text
//!   parent's table of children --> directory (properties) --> head, a clone of the empty $ORIGIN
//!                                                               '--> object set, filled by the caller
//! ```
//!
//! Source: OpenZFS `dmu_objset.c` (`dmu_objset_create_sync`), `dsl_dataset.c` (`dsl_dataset_create_sync`).

use cenote_boxed::boxed;
use cenote_dataset::mos::ORIGIN_DIR_NAME;
use cenote_dataset::{Dataset, DatasetKind, Value, name};
use cenote_engine::history::NO_DETAILS;
use cenote_engine::{Engine, Reach, SpaceCheck, SyncContext};
use cenote_format::dsl::DS_FLAG_CI_DATASET;
use cenote_format::features::Since;
use cenote_format::objset::ObjsetType;
use cenote_format::props::AppliesTo;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::{DatasetError, Result};

use crate::allow::grant_at_creation;
use crate::counts::{Limited, check_count, count_if_others_are};
use crate::crypt::{NewCrypt, check_encryption, encrypt, plan_encryption};
use crate::destroy::remove_head;
use crate::make::{make_dir, make_head};
use crate::new_dataset::{Fill, Settings};
use crate::set::{SetAt, check_limit, check_setting, require_feature, store_setting};
use crate::touch::touch;
use crate::whole::readable;

/// Settings of a new dataset not stored as properties: `fill` stores them in the object set, or they belong
/// to the keys.
pub const KEPT_ELSEWHERE: [&str; 10] = [
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

/// Case-insensitive names also set a flag of the head.
pub(crate) fn is_case_insensitive((property, value): &(String, Value)) -> bool {
    property == "casesensitivity" && *value == CASE_INSENSITIVE
}

/// Parameters of a new dataset.
struct Making {
    kind: ObjsetType,
    settings: Settings,
    crypt: Option<NewCrypt>,
    fill: Fill,
}

/// Creates a file system. `fill` writes the initial object set and must apply settings stored there
/// (`casesensitivity`...).
///
/// # Errors
/// The name is invalid or taken, the parent or a key is missing, a setting is invalid, or `fill` fails.
#[boxed]
pub async fn create_filesystem(engine: &Engine, name: &str, settings: Settings, fill: Fill) -> Result<()> {
    create_dataset(engine, name, ObjsetType::Zfs, settings, fill).await
}

/// Creates a volume, like [`create_filesystem`].
///
/// # Errors
/// The same.
#[boxed]
pub async fn create_volume(engine: &Engine, name: &str, settings: Settings, fill: Fill) -> Result<()> {
    create_dataset(engine, name, ObjsetType::Zvol, settings, fill).await
}

async fn create_dataset(
    engine: &Engine,
    name: &str,
    kind: ObjsetType,
    mut settings: Settings,
    fill: Fill,
) -> Result<()> {
    let crypt = plan_encryption(engine, name, &mut settings).await?;
    let (name, making) = (name.to_owned(), Making { kind, settings, crypt, fill });
    engine
        .run_within(SpaceCheck::Normal, move |context| {
            Box::pin(async move {
                create_dataset_sync(context, &name, making).await?;
                touch(context, [&*name], Reach::New).await
            })
        })
        .await
}

async fn create_dataset_sync(context: &mut SyncContext, name: &str, making: Making) -> Result<()> {
    let Making { kind, settings, crypt, .. } = &making;
    let parent = parent_of_new(context, name).await?;
    let applies = if *kind == ObjsetType::Zvol { AppliesTo::VOL } else { AppliesTo::FS };
    for (property, value) in settings {
        check_setting(name, property, value, applies, SetAt::Creation)?;
        require_feature(context, name, property, value).await?;
    }
    check_count(context, Limited::Filesystems, &[(parent.dir(), 1)], None).await?;
    if crypt.is_some() {
        check_encryption(context, name).await?;
    }
    let (_, own) = name::split_child(name)?;
    let is_ci = settings.iter().any(is_case_insensitive);
    let origin = empty_origin(context).await?;
    let dir = make_dir(context, Some(parent.dir().id()), own).await?;
    let head = make_head(context, dir, origin, if is_ci { DS_FLAG_CI_DATASET } else { 0 }).await?;
    grant_at_creation(context, parent.dir(), dir).await?;
    count_if_others_are(context, &context.mos().await?.dataset(name).await?).await?;
    let made = furnish(context, name, dir, head, making).await;
    if made.is_err() {
        context.unmake_objset(DatasetId(head.0));
        remove_head(context, head).await?;
    }
    made
}

async fn furnish(
    context: &mut SyncContext,
    name: &str,
    dir: ObjectId,
    head: ObjectId,
    making: Making,
) -> Result<()> {
    let Making { kind, settings, crypt, fill } = making;
    context.log_of_dataset((name, head), "create", NO_DETAILS).await?;
    if let Some(crypt) = &crypt {
        encrypt(context, dir, head, crypt).await?;
    }
    set_at_creation(context, DatasetId(head.0), &settings).await?;
    fill(context.make_objset(DatasetId(head.0), kind).await?).await
}

/// Stores the checked settings of a new head, except those in its object set.
pub(crate) async fn set_at_creation(
    context: &mut SyncContext,
    head: DatasetId,
    settings: &Settings,
) -> Result<()> {
    for (property, value) in settings {
        if !KEPT_ELSEWHERE.contains(&property.as_str()) {
            let dataset = context.mos().await?.dataset_by_id(head).await?;
            // Any limit that rules out this reservation.
            let no_room = |_| DatasetError::unsuitable(dataset.name(), "out of space");
            check_limit(&dataset, property, value).await.map_err(no_room)?;
            store_setting(context, &dataset, property, value).await?;
        }
    }
    Ok(())
}

/// The parent of a new dataset: a file system without a child of that name.
pub(crate) async fn parent_of_new(context: &SyncContext, name: &str) -> Result<Dataset> {
    let (above, own) = name::split_child(name)?;
    let parent = match context.mos().await?.dataset(above).await {
        Err(DatasetError::NoDataset { .. }) => {
            return Err(DatasetError::unsuitable(name, "parent does not exist; -p creates it"));
        }
        found => readable(found?).await?,
    };
    if parent.kind().await? != DatasetKind::Filesystem {
        return Err(DatasetError::unsuitable(name, "parent is not a filesystem"));
    }
    if parent.dir().child(own).await?.is_some() {
        return Err(DatasetError::DatasetExists { name: name.into() });
    }
    Ok(parent)
}

/// The empty snapshot that all datasets descend from; none in old pools.
pub(crate) async fn empty_origin(context: &SyncContext) -> Result<Option<ObjectId>> {
    if !context.has(Since::Origin) {
        return Ok(None);
    }
    let head = context.dir_phys(context.special_dir(ORIGIN_DIR_NAME).await?).await?.head_dataset;
    let origin = context.dataset_phys(head).await?.prev_snapshot;
    Ok((origin.0 != 0).then_some(origin))
}
