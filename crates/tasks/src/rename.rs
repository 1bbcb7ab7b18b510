//! Renames file systems, volumes and snapshots: `zfs rename`.
//!
//! A directory that moves takes its used space from the accounts above its old place to those above the new.
//!
//! Source: OpenZFS `dsl_dir.c` (`dsl_dir_rename_sync`), `dsl_dataset.c` (`dsl_dataset_rename_snapshot_sync`).

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Dir, name};
use cenote_engine::account::Account;
use cenote_engine::store::space_delta::SpaceDelta;
use cenote_engine::{Engine, Reach, SpaceCheck, SyncContext};
use cenote_format::dsl::names::dir_field;
use cenote_format::units::ObjectId;
use cenote_object::{DatasetError, Result, ZapEdit};

use crate::counts::{Limited, check_count, common_ancestor, count, count_if_others_are, counted};
use crate::create::parent_of_new;
use crate::snapshot::note_snapshots_changed;
use crate::touch::touch;
use crate::whole::readable;

/// Renames a file system, volume or snapshot within its pool, with its descendants. It may be open.
///
/// # Errors
/// The new name is invalid or taken, lacks a parent, or lies below the old one.
#[boxed]
pub async fn rename(engine: &Engine, from: &str, to: &str) -> Result<()> {
    let (from, to) = (from.to_owned(), to.to_owned());
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                rename_sync(context, &from, &to).await?;
                let reach = if to.contains('@') { Reach::Snapshots } else { Reach::Below };
                touch(context, [&*to], reach).await
            })
        })
        .await
}

/// Renames snapshots of different datasets, as pairs of old and new name: all or none.
///
/// # Errors
/// As [`rename`].
#[boxed]
pub async fn rename_snapshots(engine: &Engine, renames: Vec<(String, String)>) -> Result<()> {
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                rename_snapshots_sync(context, &renames).await?;
                touch(context, renames.iter().map(|(from, _)| &**from), Reach::Snapshots).await
            })
        })
        .await
}

async fn rename_sync(context: &mut SyncContext, from: &str, to: &str) -> Result<()> {
    match from.contains('@') {
        true => rename_snapshots_sync(context, &[(from.to_owned(), to.to_owned())]).await,
        false => rename_dataset(context, from, to).await,
    }
}

async fn rename_dataset(context: &mut SyncContext, from: &str, to: &str) -> Result<()> {
    let (_, old_own) = name::split_child(from)?;
    let (_, own) = name::split_child(to)?;
    let dataset = readable(context.mos().await?.dataset(from).await?).await?;
    check_outside(from, to)?;
    let parent = parent_of_new(context, to).await?;
    check_root_stays(&dataset, &parent).await?;
    check_lengths(&dataset, from, to).await?;
    let (id, old_parent, new_parent) = (dataset.dir().id(), dataset.dir().phys().parent, parent.dir().id());
    if new_parent != old_parent {
        let needed_bytes = dataset.dir().phys().used_bytes.max(dataset.dir().phys().reserved_bytes);
        let available_bytes = room_for(dataset.dir(), parent.dir());
        if available_bytes < needed_bytes {
            let name = to.into();
            return Err(DatasetError::NoSpace { name, needed_bytes, available_bytes });
        }
        count_if_others_are(context, &dataset).await?;
        let shared = common_ancestor(dataset.dir().parent().unwrap_or(parent.dir()), parent.dir());
        for (what, own) in [(Limited::Filesystems, 1), (Limited::Snapshots, 0)] {
            let moved = counted(context, id, what.field()).await?.map_or(0, |count| count + own);
            check_count(context, what, &[(parent.dir(), moved)], shared).await?;
        }
        move_accounts(context, id, old_parent, new_parent).await?;
    }
    let edit = context.edit();
    let siblings = context.dir_phys(old_parent).await?.child_dirs_zap;
    ZapEdit::new(&edit, siblings).remove(old_own).await?;
    let mut phys = context.dir_phys(id).await?;
    phys.parent = new_parent;
    context.set_dir_phys(id, &phys).await?;
    let siblings = context.dir_phys(new_parent).await?.child_dirs_zap;
    ZapEdit::new(&edit, siblings).add(own, id.0).await?;
    context.note_renamed();
    let head = ObjectId(dataset.id().0);
    context.log_of_dataset((from, head), "rename", &format!("-> {to}")).await?;
    // Inherited properties may differ now.
    context.refresh_policies_below(to).await
}

/// Checks that a new name isn't below the old one: known before anything is unmounted for the renaming.
///
/// # Errors
/// It is.
pub fn check_outside(from: &str, to: &str) -> Result<()> {
    if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
        let why = "New dataset name cannot be a descendant of current dataset name";
        return Err(DatasetError::unsuitable(from, why));
    }
    Ok(())
}

/// Checks that no name below becomes too long.
async fn check_lengths(dataset: &Dataset, from: &str, to: &str) -> Result<()> {
    for below in dataset.descendants().await? {
        let versions = below.snapshot_names().await?;
        let longest = versions.iter().map(|(name, _)| name.len() + 1).max().unwrap_or(0);
        let moved = format!("{to}{}", below.name().strip_prefix(from).unwrap_or_default());
        name::split_child(&moved)?;
        if moved.len() + longest > name::MAX_NAME_BYTES {
            let why = "a snapshot's name would be longer than 255 bytes".into();
            return Err(DatasetError::BadName { name: moved.into(), why });
        }
    }
    Ok(())
}

async fn move_accounts(context: &mut SyncContext, id: ObjectId, from: ObjectId, to: ObjectId) -> Result<()> {
    let phys = context.dir_phys(id).await?;
    for field in [dir_field::FILESYSTEM_COUNT, dir_field::SNAPSHOT_COUNT] {
        let own = i64::from(field == dir_field::FILESYSTEM_COUNT);
        let counted = counted(context, id, field).await?.map_or(0, |count| count as i64 + own);
        count(context, from, field, -counted).await?;
        count(context, to, field, counted).await?;
    }
    let used = SpaceDelta {
        used: phys.used_bytes as i64,
        compressed: phys.compressed_bytes as i64,
        uncompressed: phys.uncompressed_bytes as i64,
    };
    context.use_space(from, -used, Account::Children).await?;
    context.use_space(to, used, Account::Children).await?;
    let unused = phys.reserved_bytes.saturating_sub(phys.used_bytes) as i64;
    let promised = SpaceDelta { used: unused, ..SpaceDelta::default() };
    context.use_space(from, -promised, Account::ChildrenReservation).await?;
    context.use_space(to, promised, Account::ChildrenReservation).await
}

pub(crate) async fn rename_snapshots_sync(
    context: &mut SyncContext,
    renames: &[(String, String)],
) -> Result<()> {
    for (from, to) in renames {
        check_snapshot_rename(context, from, to).await?;
    }
    for (from, to) in renames {
        let ((path, old), (_, new)) = (name::split_at(from, '@')?, name::split_at(to, '@')?);
        let mos = context.mos().await?;
        let (head, snapshot) = (mos.dataset(path).await?, mos.dataset(from).await?);
        let edit = context.edit();
        let names = ZapEdit::new(&edit, head.phys().snapshot_names_zap);
        names.remove(old).await?;
        names.add(new, snapshot.id().0).await?;
        note_snapshots_changed(context, head.dir().id()).await?;
        let id = ObjectId(snapshot.id().0);
        context.log_of_dataset((from, id), "rename", &format!("-> @{new}")).await?;
    }
    Ok(())
}

pub(crate) async fn check_snapshot_rename(context: &SyncContext, from: &str, to: &str) -> Result<()> {
    let ((path, _), (target, new)) = (name::split_at(from, '@')?, name::split_at(to, '@')?);
    if path != target {
        return Err(DatasetError::unsuitable(from, "snapshots must be part of same dataset"));
    }
    let mos = context.mos().await?;
    mos.dataset(from).await?;
    match mos.dataset(path).await?.snapshot(new).await? {
        Some(_) => Err(DatasetError::DatasetExists { name: to.into() }),
        None => Ok(()),
    }
}

/// Room under the quotas of `to` for the space of `from`. Common ancestors' quotas don't matter
/// (`dsl_dir_transfer_possible`).
pub(crate) fn room_for(from: &Dir, to: &Dir) -> u64 {
    let above = |dir: &Dir| std::iter::successors(dir.parent().cloned(), |dir| dir.parent().cloned());
    let shared: Vec<ObjectId> = above(from).map(|dir| dir.id()).collect();
    let own = std::iter::once(to.clone()).chain(above(to)).take_while(|dir| !shared.contains(&dir.id()));
    let limited = own.filter(|dir| dir.phys().quota_bytes != 0);
    limited.map(|dir| dir.phys().quota_bytes.saturating_sub(dir.phys().used_bytes)).min().unwrap_or(u64::MAX)
}

/// A dataset that inherits its key must stay below the same encryption root (`dsl_dir_rename_crypt_check`).
async fn check_root_stays(dataset: &Dataset, parent: &Dataset) -> Result<()> {
    let Some(own) = dataset.dir().encryption().await? else { return Ok(()) };
    let is_root = own.root_dir == dataset.dir().id();
    let above = parent.dir().encryption().await?.map(|above| above.root_dir);
    match is_root || above == Some(own.root_dir) {
        true => Ok(()),
        false => Err(DatasetError::unsuitable(
            dataset.name(),
            "cannot move encrypted child outside of its encryption root",
        )),
    }
}
