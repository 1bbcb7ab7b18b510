//! Clones: `zfs clone pool/a@s pool/b`, one or whole trees.
//!
//! A clone's head begins with the snapshot's tree and is not charged for it. All clones of one call are made
//! in one txg, or none.
//!
//! Source: OpenZFS `dmu_objset.c` (`dmu_objset_clone_sync`).

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, name};
use cenote_engine::livelist::make_livelist;
use cenote_engine::logs::without_log;
use cenote_engine::{Engine, Reach, SpaceCheck, SyncContext};
use cenote_format::objset::ObjsetType;
use cenote_format::props::AppliesTo;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::{DatasetError, Result};

use crate::allow::grant_at_creation;
use crate::counts::{Limited, check_count, count_if_others_are};
use crate::create::parent_of_new;
use crate::crypt::share_key;
use crate::destroy::remove_head;
use crate::make::{make_dir, make_head};
use crate::new_dataset::Settings;
use crate::set::{SetAt, check_limit, check_setting, require_feature, store_setting};
use crate::touch::touch;
use crate::whole::readable;

/// Clones a snapshot.
///
/// # Errors
/// The snapshot or the parent is missing, the name is invalid or taken, or a setting is invalid.
#[boxed]
pub async fn clone_snapshot(engine: &Engine, snapshot: &str, name: &str, settings: Settings) -> Result<()> {
    clone_snapshots(engine, vec![(snapshot.to_owned(), name.to_owned())], settings).await
}

/// Clones pairs of a snapshot and the clone's name, all or none. A clone may be the parent of a later one.
///
/// # Errors
/// The same.
#[boxed]
pub async fn clone_snapshots(
    engine: &Engine,
    clones: Vec<(String, String)>,
    settings: Settings,
) -> Result<()> {
    engine
        .run_when_quiet(SpaceCheck::Normal, || {
            let (clones, settings) = (clones.clone(), settings.clone());
            move |context| {
                Box::pin(async move {
                    clone_snapshots_sync(context, &clones, &settings).await?;
                    touch(context, clones.iter().map(|(_, name)| &**name), Reach::New).await
                })
            }
        })
        .await
}

pub(crate) async fn clone_snapshots_sync(
    context: &mut SyncContext,
    clones: &[(String, String)],
    settings: &Settings,
) -> Result<()> {
    let mut made = Vec::new();
    for (snapshot, name) in clones {
        if let Err(error) = clone_snapshot_sync(context, snapshot, name, settings, &mut made).await {
            for head in made.into_iter().rev() {
                context.unmake_objset(DatasetId(head.0));
                remove_head(context, head).await?;
            }
            return Err(error);
        }
    }
    for ((snapshot, name), head) in clones.iter().zip(made) {
        let origin = context.mos().await?.dataset(snapshot).await?.id();
        context.log_of_dataset((name, head), "clone", &format!("origin={snapshot} ({origin})")).await?;
    }
    Ok(())
}

/// Makes one clone, and pushes it to `made` once a failure would have to undo it.
async fn clone_snapshot_sync(
    context: &mut SyncContext,
    snapshot: &str,
    name: &str,
    settings: &Settings,
    made: &mut Vec<ObjectId>,
) -> Result<()> {
    let (origin, parent) = check_clone(context, snapshot, name, settings).await?;
    let (_, own) = name::split_child(name)?;
    let dir = make_dir(context, Some(parent.dir().id()), own).await?;
    let head = make_head(context, dir, Some(ObjectId(origin.id().0)), 0).await?;
    made.push(head);
    grant_at_creation(context, parent.dir(), dir).await?;
    share_key(context, origin.dir(), dir).await?;
    count_if_others_are(context, &context.mos().await?.dataset(name).await?).await?;
    make_livelist(context, dir).await?;
    without_log(context, DatasetId(head.0)).await?;
    for (property, value) in settings {
        let clone = context.mos().await?.dataset(name).await?;
        check_limit(&clone, property, value).await?;
        store_setting(context, &clone, property, value).await?;
    }
    Ok(())
}

/// Checks a new clone; returns the snapshot and the clone's parent.
pub(crate) async fn check_clone(
    context: &SyncContext,
    snapshot: &str,
    name: &str,
    settings: &Settings,
) -> Result<(Dataset, Dataset)> {
    name::split_at(snapshot, '@')?;
    let origin = readable(context.mos().await?.dataset(snapshot).await?).await?;
    // The clone's blocks would share the snapshot's birth txg and pass for blocks of the snapshot.
    if origin.creation_txg() >= context.txg() {
        return Err(DatasetError::NextTxg { name: snapshot.into() });
    }
    // Only an intent log, which the clone starts without, needs the key.
    if !origin.objset_head().await?.phys().zil_header.log.is_hole() {
        origin.key().await?;
    }
    let parent = parent_of_new(context, name).await?;
    check_clone_settings(context, &origin, name, settings).await?;
    check_count(context, Limited::Filesystems, &[(parent.dir(), 1)], None).await?;
    let head = context.dir_phys(origin.dir().id()).await?.head_dataset;
    context.check_deadlist(context.dataset_phys(head).await?.deadlist).await?;
    Ok((origin, parent))
}

async fn check_clone_settings(
    context: &SyncContext,
    origin: &Dataset,
    name: &str,
    settings: &Settings,
) -> Result<()> {
    let is_volume = origin.content_type().await? == ObjsetType::Zvol;
    let applies = if is_volume { AppliesTo::VOL } else { AppliesTo::FS };
    for (property, value) in settings {
        check_setting(name, property, value, applies, SetAt::Existing)?;
        require_feature(context, name, property, value).await?;
    }
    Ok(())
}
