//! Holds: `zfs hold`, `zfs release`. A held snapshot cannot be destroyed.
//!
//! Source: OpenZFS `dsl_userhold.c`.

use std::collections::HashSet;

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_engine::{Engine, Reach, SpaceCheck, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::features::Since;
use cenote_format::units::ObjectId;
use cenote_object::{DatasetError, NewZap, Result, ZapEdit};

use crate::destroy_snapshot::{Heads, Leaving, remove_snapshot, withdraw_if_last};
use crate::touch::touch;

/// `MAXNAMELEN`, less the NUL.
const MAX_TAG_BYTES: usize = 255;

/// Holds snapshots under a tag, all or none.
///
/// # Errors
/// A snapshot is missing or already has that tag.
#[boxed]
pub async fn hold_snapshots(engine: &Engine, snapshots: &[String], tag: &str) -> Result<()> {
    let (snapshots, tag) = (snapshots.to_vec(), tag.to_owned());
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                context.touch_nothing();
                hold_snapshots_sync(context, &snapshots, &tag).await
            })
        })
        .await
}

/// Releases holds, all or none. Destroys deferred snapshots whose last hold this was.
///
/// # Errors
/// A snapshot is missing or lacks that tag.
#[boxed]
pub async fn release_snapshots(engine: &Engine, snapshots: &[String], tag: &str) -> Result<()> {
    engine
        .run_when_quiet(SpaceCheck::None, || {
            let (snapshots, tag) = (snapshots.to_vec(), tag.to_owned());
            move |context| {
                Box::pin(async move {
                    release_snapshots_sync(context, &snapshots, &tag).await?;
                    // A deferred one is destroyed.
                    touch(context, snapshots.iter().map(String::as_str), Reach::Snapshots).await
                })
            }
        })
        .await
}

/// Opens snapshots and checks that each is held, or not held, under that tag.
async fn snapshots_held(
    context: &SyncContext,
    names: &[String],
    tag: &str,
    held: bool,
) -> Result<Vec<Dataset>> {
    let (mut heads, mut found, mut met) = (Heads::of(context.mos().await?), Vec::new(), HashSet::new());
    for full in names {
        let snapshot = heads.snapshot(full).await?;
        let snapshot = snapshot.ok_or_else(|| DatasetError::NoDataset { name: full.as_str().into() })?;
        let is_held = snapshot.holds().await?.iter().any(|(other, _)| other == tag);
        // A snapshot named twice fails the second time.
        if is_held != held || !met.insert(snapshot.id()) {
            let why = if held { "no such tag on this dataset" } else { "tag already exists on this dataset" };
            return Err(DatasetError::unsuitable(full, why));
        }
        found.push(snapshot);
    }
    Ok(found)
}

async fn hold_snapshots_sync(context: &mut SyncContext, names: &[String], tag: &str) -> Result<()> {
    if tag.is_empty() || tag.len() > MAX_TAG_BYTES || tag.contains('\0') {
        return Err(DatasetError::BadName { name: tag.into(), why: "tag too long, or empty".into() });
    }
    context.require(Since::Holds, tag)?;
    for snapshot in snapshots_held(context, names, tag, false).await? {
        let (edit, id) = (context.edit(), ObjectId(snapshot.id().0));
        let refs = snapshot.holds().await?.len() + 1;
        let mut phys = context.dataset_phys(id).await?;
        if phys.userrefs_zap.0 == 0 {
            phys.userrefs_zap = NewZap::of(ObjectType::USERREFS).create(&edit).await?;
            context.set_dataset_phys(id, &phys).await?;
        }
        ZapEdit::new(&edit, phys.userrefs_zap).add(tag, context.now_s()).await?;
        let details = format!("tag={tag} temp=0 refs={refs}");
        context.log_of_dataset((snapshot.name(), id), "hold", &details).await?;
    }
    Ok(())
}

async fn release_snapshots_sync(context: &mut SyncContext, names: &[String], tag: &str) -> Result<()> {
    let mut released = Vec::new();
    for snapshot in snapshots_held(context, names, tag, true).await? {
        let last = withdraw_if_last(context, &snapshot, Leaving::Hold).await?;
        released.push((snapshot, last));
    }
    for (snapshot, last) in released {
        let refs = snapshot.holds().await?.len() - 1;
        ZapEdit::new(&context.edit(), snapshot.phys().userrefs_zap).remove(tag).await?;
        let details = format!("tag={tag} refs={refs}");
        let id = ObjectId(snapshot.id().0);
        context.log_of_dataset((snapshot.name(), id), "release", &details).await?;
        if let Some(withdrawn) = last {
            remove_snapshot(context, withdrawn, snapshot.name()).await?;
        }
    }
    Ok(())
}
