//! Swaps a clone and the dataset it was cloned from: `zfs promote`.
//!
//! Idea: the snapshots up to the origin, and their space, move to the clone's directory; the former owner
//! becomes the clone.
//!
//! ```text
//!   before   a@1 -- a@2 -- a@3 -- a            after   c@1 -- c@2 -- c@4 -- c
//!                     `--- c@4 -- c                             `--- a@3 -- a
//! ```
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_promote_check`, `dsl_dataset_promote_sync`).

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, name};
use cenote_engine::account::Account;
use cenote_engine::history::NO_DETAILS;
use cenote_engine::livelist::drop_livelist;
use cenote_engine::store::space_delta::SpaceDelta;
use cenote_engine::{Engine, Reach, SpaceCheck, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{dataset_field, dir_field};
use cenote_format::features::Since;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::{DatasetError, NewZap, Result, Zap, ZapEdit};

use crate::change_key::{check_key_stays, move_root};
use crate::counts::{Limited, check_count, common_ancestor, count};
use crate::make::{add_number, remove_number};
use crate::mark::bookmark_table;
use crate::rename::room_for;
use crate::touch::touch_heads;
use crate::whole::readable;

/// The datasets involved.
pub(crate) struct Parties {
    clone: Dataset,
    /// The clone's own versions, oldest first, its head last.
    of_clone: Vec<Dataset>,
    origin: Dataset,
    /// The origin's current head.
    owner: Dataset,
    /// The owner's versions after the origin, its head last.
    of_owner: Vec<Dataset>,
    /// Snapshots that move: the origin and all before it.
    moving: Vec<Dataset>,
}

/// Space that moves to the clone, and the snapshots' shares afterwards.
pub(crate) struct PromotedSpace {
    moved: SpaceDelta,
    by_clones_snapshots: i64,
    by_owners_snapshots: i64,
    unique_of_origin: u64,
}

/// Makes a clone the owner of the snapshots it depends on. It may be open.
///
/// # Errors
/// It is no clone, has snapshots of the same names, or lacks room under its quotas.
#[boxed]
pub async fn promote(engine: &Engine, clone: &str) -> Result<()> {
    let clone = clone.to_owned();
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                let changed = promote_sync(context, &clone).await?;
                touch_heads(context, &changed, Reach::Snapshots);
                Ok(())
            })
        })
        .await
}

/// Returns the heads whose snapshots have changed.
pub(crate) async fn promote_sync(context: &mut SyncContext, clone: &str) -> Result<[Dataset; 2]> {
    let (parties, accounts) = check_promote(context, clone).await?;
    // Livelists start at the origin, which changes.
    drop_livelist(context, parties.clone.dir().id()).await?;
    drop_livelist(context, parties.owner.dir().id()).await?;
    swap_origins(context, &parties).await?;
    for snapshot in &parties.moving {
        move_snapshot(context, snapshot, &parties).await?;
    }
    move_bookmarks(context, &parties).await?;
    move_space(context, &parties, &accounts).await?;
    move_root(context, &parties.owner, &parties.clone).await?;
    context.log_of_dataset((clone, id(&parties.clone)), "promote", NO_DETAILS).await?;
    Ok([parties.clone, parties.owner])
}

/// Names of snapshots (after the `@`) that a promotion would give to a clone that has such names already.
pub(crate) async fn conflicts(context: &SyncContext, clone: &str) -> Result<Vec<String>> {
    let parties = parties(context, clone).await?;
    let mut names = Vec::new();
    for snapshot in &parties.moving {
        let own = snapshot.snapshot_name().unwrap_or_default();
        if parties.clone.snapshot(own).await?.is_some() {
            names.push(own.to_owned());
        }
    }
    Ok(names)
}

/// Checks a promotion; returns what takes part in it, and the space that moves.
pub(crate) async fn check_promote(context: &SyncContext, clone: &str) -> Result<(Parties, PromotedSpace)> {
    context.require(Since::Deadlists, clone)?;
    let parties = parties(context, clone).await?;
    check_promotion(&parties).await?;
    check_key_stays(&parties.owner, &parties.clone).await?;
    let accounts = accounts_of(context, &parties).await?;
    let needed_bytes = accounts.moved.used.max(0) as u64;
    let available_bytes = room_for(parties.owner.dir(), parties.clone.dir());
    if needed_bytes > available_bytes {
        return Err(DatasetError::NoSpace { name: clone.into(), needed_bytes, available_bytes });
    }
    let moved = [(parties.clone.dir(), parties.moving.len() as u64)];
    let shared = common_ancestor(parties.owner.dir(), parties.clone.dir());
    check_count(context, Limited::Snapshots, &moved, shared).await?;
    Ok((parties, accounts))
}

async fn parties(context: &SyncContext, clone: &str) -> Result<Parties> {
    name::check(clone, None)?;
    let mos = context.mos().await?;
    let clone = readable(mos.dataset(clone).await?).await?;
    let no_clone = || DatasetError::unsuitable(clone.name(), "not a cloned filesystem");
    let origin = clone.origin().await?.ok_or_else(no_clone)?;
    let owner = origin.dir().head().await?;
    let mut of_clone = clone.snapshots().await?;
    of_clone.push(clone.clone());
    let is_shared = |snapshot: &Dataset| snapshot.creation_txg() <= origin.creation_txg();
    let (moving, mut of_owner): (Vec<_>, Vec<_>) = owner.snapshots().await?.into_iter().partition(is_shared);
    of_owner.push(owner.clone());
    Ok(Parties { clone, of_clone, origin, owner, of_owner, moving })
}

async fn check_promotion(parties: &Parties) -> Result<()> {
    let clone = &parties.clone;
    for snapshot in &parties.moving {
        let own = snapshot.snapshot_name().unwrap_or_default();
        let name = format!("{}@{own}", clone.name());
        if clone.snapshot(own).await?.is_some() {
            return Err(DatasetError::DatasetExists { name: name.into() });
        }
        name::split_at(&name, '@')?;
    }
    let taken = clone.bookmarks().await?;
    for mark in parties.moving_bookmarks().await? {
        let name = format!("{}#{mark}", clone.name());
        if taken.iter().any(|other| other.name == name) {
            return Err(DatasetError::DatasetExists { name: name.into() });
        }
    }
    Ok(())
}

/// The space that moves: everything born before the origin, in this directory, and still referenced by a
/// version that moves.
async fn accounts_of(context: &SyncContext, parties: &Parties) -> Result<PromotedSpace> {
    let (origin, all) = (parties.origin.phys(), Txg(u64::MAX));
    let mut moved = SpaceDelta {
        used: origin.referenced_bytes as i64,
        compressed: origin.compressed_bytes as i64,
        uncompressed: origin.uncompressed_bytes as i64,
    };
    let before = context.origin_txg(origin.dir).await?;
    let mut by_clones_snapshots = 0;
    for snapshot in &parties.moving {
        let deadlist = snapshot.phys().deadlist;
        if snapshot.phys().prev_snapshot.0 != 0 {
            moved = moved + context.all_dead_space(deadlist).await?;
        }
        by_clones_snapshots += context.dead_space(deadlist, before, all).await?.used;
    }
    let older = context.dir_phys(origin.dir).await?.origin;
    if older.0 != 0 {
        let older = context.dataset_phys(older).await?;
        let had = SpaceDelta {
            used: older.referenced_bytes as i64,
            compressed: older.compressed_bytes as i64,
            uncompressed: older.uncompressed_bytes as i64,
        };
        moved = moved + -had;
    }
    for version in &parties.of_clone {
        by_clones_snapshots += context.dead_space(version.phys().deadlist, before, all).await?.used;
    }
    let mut by_owners_snapshots = 0;
    for version in &parties.of_owner {
        let dead = context.dead_space(version.phys().deadlist, origin.creation_txg, all).await?;
        by_owners_snapshots += dead.used;
    }
    let next = parties.first_of_clone().phys().deadlist;
    let unique_of_origin = context.dead_space(next, origin.prev_snapshot_txg, all).await?.used as u64;
    Ok(PromotedSpace { moved, by_clones_snapshots, by_owners_snapshots, unique_of_origin })
}

/// Makes the clone the origin's successor, and swaps the origins of both directories.
async fn swap_origins(context: &mut SyncContext, parties: &Parties) -> Result<()> {
    let edit = context.edit();
    let (origin_id, first) = (id(&parties.origin), id(parties.first_of_clone()));
    let mut origin = context.dataset_phys(origin_id).await?;
    let former_next = std::mem::replace(&mut origin.next_snapshot, first);
    if origin.next_clones_zap.0 != 0 {
        let clones = ZapEdit::new(&edit, origin.next_clones_zap);
        remove_number(&clones, first).await?;
        add_number(&clones, former_next).await?;
    }
    context.set_dataset_phys(origin_id, &origin).await?;

    let (dir_id, owner_id) = (parties.clone.dir().id(), parties.owner.dir().id());
    let (mut dir, mut owner) = (context.dir_phys(dir_id).await?, context.dir_phys(owner_id).await?);
    dir.origin = std::mem::replace(&mut owner.origin, origin_id);
    if dir.clones_zap.0 == 0 {
        dir.clones_zap = NewZap::of(ObjectType::DSL_CLONES).create(&edit).await?;
    }
    context.set_dir_phys(dir_id, &dir).await?;
    context.set_dir_phys(owner_id, &owner).await?;
    remove_number(&ZapEdit::new(&edit, owner.clones_zap), id(&parties.clone)).await?;
    add_number(&ZapEdit::new(&edit, dir.clones_zap), id(&parties.owner)).await?;
    if dir.origin.0 != 0 {
        let older = context.dataset_phys(dir.origin).await?.dir;
        let clones = context.dir_phys(older).await?.clones_zap;
        let clones = ZapEdit::new(&edit, clones);
        remove_number(&clones, id(&parties.owner)).await?;
        add_number(&clones, id(&parties.clone)).await?;
    }
    Ok(())
}

async fn move_snapshot(context: &mut SyncContext, snapshot: &Dataset, parties: &Parties) -> Result<()> {
    let edit = context.edit();
    let name = snapshot.snapshot_name().unwrap_or_default();
    ZapEdit::new(&edit, parties.owner.phys().snapshot_names_zap).remove(name).await?;
    ZapEdit::new(&edit, parties.clone.phys().snapshot_names_zap).add(name, snapshot.id().0).await?;
    let (dir, owner) = (parties.clone.dir().id(), parties.owner.dir().id());
    count(context, owner, dir_field::SNAPSHOT_COUNT, -1).await?;
    count(context, dir, dir_field::SNAPSHOT_COUNT, 1).await?;
    let mut phys = context.dataset_phys(id(snapshot)).await?;
    phys.dir = dir;
    context.set_dataset_phys(id(snapshot), &phys).await?;
    if phys.next_clones_zap.0 == 0 {
        return Ok(());
    }
    // The snapshot's other clones are this directory's now.
    let from = context.dir_phys(owner).await?.clones_zap;
    let to = context.dir_phys(dir).await?.clones_zap;
    for entry in Zap::open_id(&edit.view(), phys.next_clones_zap).await?.to_vec().await? {
        let Some(next) = entry.value.as_u64().map(ObjectId) else { continue };
        let head = context.dir_phys(context.dataset_phys(next).await?.dir).await?.head_dataset;
        if head != id(&parties.owner) {
            remove_number(&ZapEdit::new(&edit, from), head).await?;
            add_number(&ZapEdit::new(&edit, to), head).await?;
        }
    }
    Ok(())
}

async fn move_bookmarks(context: &mut SyncContext, parties: &Parties) -> Result<()> {
    let names = parties.moving_bookmarks().await?;
    let table = context.dataset_field(id(&parties.owner), dataset_field::BOOKMARK_NAMES).await?;
    let Some(from) = table.filter(|_| !names.is_empty()) else { return Ok(()) };
    let to = bookmark_table(context, id(&parties.clone)).await?;
    let edit = context.edit();
    let (from, to) = (ZapEdit::new(&edit, from), ZapEdit::new(&edit, to));
    for name in names {
        if let Some(value) = from.get(name.as_str()).await? {
            to.add(name.as_str(), &value).await?;
            from.remove(name.as_str()).await?;
        }
    }
    Ok(())
}

async fn move_space(context: &mut SyncContext, parties: &Parties, accounts: &PromotedSpace) -> Result<()> {
    let sides = [
        (parties.clone.dir().id(), accounts.moved, accounts.by_clones_snapshots),
        (parties.owner.dir().id(), -accounts.moved, accounts.by_owners_snapshots),
    ];
    for (dir, moved, by_snapshots) in sides {
        let more = by_snapshots - context.dir_phys(dir).await?.used_breakdown.snapshots_bytes as i64;
        let in_snapshots = SpaceDelta { used: more, ..SpaceDelta::default() };
        context.use_space(dir, in_snapshots, Account::Snapshots).await?;
        context.use_space(dir, moved + -in_snapshots, Account::Head).await?;
    }
    let mut origin = context.dataset_phys(id(&parties.origin)).await?;
    origin.unique_bytes = accounts.unique_of_origin;
    context.set_dataset_phys(id(&parties.origin), &origin).await
}

impl Parties {
    /// The version right after the origin.
    fn first_of_clone(&self) -> &Dataset {
        self.of_clone.first().unwrap_or(&self.clone)
    }

    /// Names (after the `#`) of bookmarks up to the origin.
    async fn moving_bookmarks(&self) -> Result<Vec<String>> {
        let marks = self.owner.bookmarks().await?.into_iter();
        let moving = marks.filter(|mark| mark.phys.creation_txg <= self.origin.creation_txg());
        Ok(moving.filter_map(|mark| Some(mark.name.split_once('#')?.1.to_owned())).collect())
    }
}

fn id(dataset: &Dataset) -> ObjectId {
    ObjectId(dataset.id().0)
}
