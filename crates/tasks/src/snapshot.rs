//! Takes snapshots of one or more datasets at one instant: `zfs snapshot`.
//!
//! Idea: tasks run after the txg's datasets are written, so a snapshot only keeps the existing tree.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_snapshot_check`, `dsl_dataset_snapshot_sync`).

use std::cmp::Ordering;

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, name};
use cenote_engine::history::NO_DETAILS;
use cenote_engine::{Engine, Reach, SpaceCheck, SyncContext};
use cenote_format::dsl::names::{dataset_field, dir_field};
use cenote_format::features::Since;
use cenote_format::props::AppliesTo;
use cenote_format::units::ObjectId;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, Result, ZapEdit, ZapValue};

use crate::counts::{Limited, check_count};
use crate::make::make_snapshot;
use crate::new_dataset::Settings;
use crate::pool::scan::state::snapshotted;
use crate::set::{SetAt, check_setting, refreservation, store_setting};
use crate::touch::touch_heads;
use crate::whole::readable;

/// Takes snapshots (`pool/a@s`) of several datasets at one instant, all or none. They include everything done
/// before the call.
///
/// # Errors
/// A name is invalid or taken, a dataset is missing, or the refreservation cannot be kept.
#[boxed]
pub async fn snapshot(engine: &Engine, names: &[String]) -> Result<()> {
    snapshot_with(engine, names, Settings::new()).await
}

/// The same, with user properties for all.
///
/// # Errors
/// As [`snapshot`], or an invalid property.
#[boxed]
pub async fn snapshot_with(engine: &Engine, names: &[String], settings: Settings) -> Result<()> {
    engine
        .run_in_turn(SpaceCheck::Normal, || {
            let (names, settings) = (names.to_vec(), settings.clone());
            move |context| {
                Box::pin(async move {
                    let heads = snapshot_sync(context, &names, &settings).await?;
                    touch_heads(context, &heads, Reach::Snapshots);
                    Ok(())
                })
            }
        })
        .await
}

/// Returns the heads.
pub(crate) async fn snapshot_sync(
    context: &mut SyncContext,
    names: &[String],
    settings: &Settings,
) -> Result<Vec<Dataset>> {
    let heads = check_snapshots(context, names, settings).await?;
    take_all(context, &heads, settings).await?;
    Ok(heads.into_iter().map(|(head, _)| head).collect())
}

/// Checks new snapshots; returns the head of each, and its name after the `@`.
pub(crate) async fn check_snapshots(
    context: &SyncContext,
    names: &[String],
    settings: &Settings,
) -> Result<Vec<(Dataset, String)>> {
    let mos = context.mos().await?;
    let first = names.first().map_or("", |name| name);
    for (property, value) in settings {
        context.require(Since::SnapshotProperties, first)?;
        check_setting(first, property, value, AppliesTo::SNAP, SetAt::Creation)?;
    }
    let mut heads: Vec<(Dataset, String)> = Vec::new();
    for full in names {
        let (path, own) = name::split_at(full, '@')?;
        let head = readable(mos.dataset(path).await?).await?;
        if heads.iter().any(|(other, _)| other.id() == head.id()) {
            return Err(DatasetError::unsuitable(full, "multiple snapshots of same fs not allowed"));
        }
        if head.snapshot(own).await?.is_some() {
            return Err(DatasetError::DatasetExists { name: full.as_str().into() });
        }
        // Blocks shared with the snapshot no longer count towards the refreservation: it needs that much more
        // space.
        let needed_bytes = head.phys().unique_bytes.min(head.setting("refreservation").await?);
        let available_bytes = if needed_bytes == 0 { 0 } else { head.dir().available().await? };
        if needed_bytes > available_bytes {
            let name = full.as_str().into();
            return Err(DatasetError::NoSpace { name, needed_bytes, available_bytes });
        }
        heads.push((head, own.to_owned()));
    }
    for (head, _) in &heads {
        match head.phys().prev_snapshot_txg.cmp(&context.txg()) {
            Ordering::Less => {}
            // Births could not tell two snapshots of one txg apart.
            Ordering::Equal => return Err(DatasetError::NextTxg { name: head.name().into() }),
            Ordering::Greater => {
                let why = "is damaged: it says that its last snapshot is of a later txg";
                return Err(DatasetError::unsuitable(head.name(), why));
            }
        }
    }
    for (head, _) in &heads {
        context.check_deadlist(head.phys().deadlist).await?;
    }
    let added: Vec<_> = heads.iter().map(|(head, _)| (head.dir(), 1)).collect();
    check_count(context, Limited::Snapshots, &added, None).await?;
    Ok(heads)
}

async fn take_all(context: &mut SyncContext, heads: &[(Dataset, String)], settings: &Settings) -> Result<()> {
    for (head, own) in heads {
        let id = ObjectId(head.id().0);
        let snapshot = make_snapshot(context, id, own, refreservation(context, id).await?).await?;
        snapshotted(context, id, snapshot).await?;
        note_ivset(context, head, snapshot).await?;
        note_snapshots_changed(context, head.dir().id()).await?;
        let full = format!("{}@{own}", head.name());
        context.log_of_dataset((&full, snapshot), "snapshot", NO_DETAILS).await?;
        if !settings.is_empty() {
            let taken = context.mos().await?.dataset(&full).await?;
            for (property, value) in settings {
                store_setting(context, &taken, property, value).await?;
            }
        }
    }
    Ok(())
}

/// Gives a snapshot of an encrypted dataset its IV set guid.
pub(crate) async fn note_ivset(context: &mut SyncContext, head: &Dataset, snapshot: ObjectId) -> Result<()> {
    if head.dir().field(dir_field::CRYPTO_KEY_OBJ).await?.is_none()
        || FeatureCounts::of(&context.edit()).count("bookmark_v2").await?.is_none()
    {
        return Ok(());
    }
    context.zapify(snapshot).await?;
    let ivset = context.new_fsid();
    ZapEdit::new(&context.edit(), snapshot).add(dataset_field::IVSET_GUID, ivset.0).await
}

/// Properties `snapshots_changed` and `snapshots_changed_nsecs` (`dsl_dir_snap_cmtime_update`).
pub(crate) async fn note_snapshots_changed(context: &mut SyncContext, dir: ObjectId) -> Result<()> {
    let is_extended = context.edit().view().head(dir).await?.object_type.is_zap();
    if !is_extended && FeatureCounts::of(&context.edit()).count("extensible_dataset").await?.is_none() {
        return Ok(());
    }
    context.zapify(dir).await?;
    let now = context.now_ns();
    let now = ZapValue::from_words(&[now / 1_000_000_000, now % 1_000_000_000]);
    ZapEdit::new(&context.edit(), dir).update(dir_field::SNAPSHOTS_CHANGED, &now).await
}
