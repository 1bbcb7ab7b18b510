//! Destroys snapshots: `zfs destroy pool/a@s`.
//!
//! Idea: the next version's deadlist has the blocks that only this snapshot holds, under keys at or after the
//! previous version: born since then, dead by the next version. They are freed. The snapshot's own deadlist
//! is merged into the next version's; those of a run of adjacent snapshots together, into that of the version
//! after the run.
//!
//! ```text
//!   prev@10 ---- snapshot@40 ---- next          next's deadlist:  key 0 [older: kept]   key 10 [freed]
//!     |  unique: now also blocks born before prev that died between snapshot and next
//! ```
//!
//! Source: OpenZFS `dsl_destroy.c` (`dsl_destroy_snapshot_sync_impl`).

use std::collections::HashSet;

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Mos, name};
use cenote_engine::account::{Account, add};
use cenote_engine::history::NO_DETAILS;
use cenote_engine::store::space_delta::SpaceDelta;
use cenote_engine::{Engine, Reach, SpaceCheck, SyncContext, Withdrawn};
use cenote_format::dsl::names::dir_field;
use cenote_format::dsl::{DS_FLAG_DEFER_DESTROY, DslDatasetPhys};
use cenote_format::features::Since;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::deadlist::Remains;
use cenote_object::{DatasetError, Result, ZapEdit};

use crate::counts::count;
use crate::destroy::{clear_bootfs, drop_features, free_zapified};
use crate::make::{add_number, remove_number};
use crate::mark::leave_bookmarks;
use crate::pool::scan::state as scan;
use crate::remapped::{forget_key, leave_remapped, remove_key_of_clones};
use crate::set::refreservation;
use crate::snapshot::note_snapshots_changed;
use crate::touch::touch;
use crate::whole::readable;

/// How to handle a snapshot with holds or clones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// Refuse.
    Refuse,
    /// Destroy it when the last hold and clone are gone (`zfs destroy -d`).
    Defer,
}

/// Destroys all the snapshots or none. Missing ones are skipped: a deferred one may have gone with its last
/// hold or clone.
///
/// # Errors
/// One is held, has clones or is open.
#[boxed]
pub async fn destroy_snapshots(engine: &Engine, names: &[String], in_use: InUse) -> Result<()> {
    engine
        .run_when_quiet(SpaceCheck::ExtraReserved, || {
            let names = names.to_vec();
            move |context| {
                Box::pin(async move {
                    destroy_snapshots_sync(context, &names, in_use).await?;
                    touch(context, names.iter().map(String::as_str), Reach::Snapshots).await
                })
            }
        })
        .await
}

pub(crate) async fn destroy_snapshots_sync(
    context: &mut SyncContext,
    names: &[String],
    in_use: InUse,
) -> Result<()> {
    let found = find_unused(context, names, in_use).await?;
    context.keep_deadlists();
    let done = match check_deadlists(context, &found).await {
        Ok(()) => destroy_found(context, found).await,
        damaged => damaged,
    };
    context.store_deadlists().await?;
    done
}

/// The snapshots that exist, withdrawn from use.
pub(crate) async fn find_unused<'a>(
    context: &SyncContext,
    names: &'a [String],
    in_use: InUse,
) -> Result<Vec<Found<'a>>> {
    let (mut heads, mut met) = (Heads::of(context.mos().await?), HashSet::new());
    let mut found = Vec::new();
    for name in names {
        let Some(snapshot) = heads.snapshot(name).await? else { continue };
        // Deferred destruction needs pools with holds.
        if in_use == InUse::Refuse || !context.has(Since::Holds) {
            refuse_if_used(&snapshot).await?;
        }
        if met.insert(snapshot.id()) {
            let withdrawn = context.withdraw(&snapshot)?;
            let (dir, phys) = (snapshot.dir().id(), snapshot.phys());
            let (created, next) = (phys.creation_txg, phys.next_snapshot);
            found.push(Found { withdrawn, name, is_used: is_used(&snapshot).await?, dir, created, next });
        }
    }
    // Adjacent ones follow one another.
    found.sort_by_key(|found| (found.dir, found.created));
    Ok(found)
}

/// Deadlists opened ahead, so that they are ready when needed.
const OPENED_AHEAD: usize = 4;

/// A snapshot to destroy. There may be tens of thousands: keep these small.
pub(crate) struct Found<'a> {
    withdrawn: Withdrawn,
    name: &'a str,
    is_used: bool,
    dir: ObjectId,
    created: Txg,
    next: ObjectId,
}

impl Found<'_> {
    fn id(&self) -> ObjectId {
        ObjectId(self.withdrawn.id().0)
    }

    /// Whether the next version is destroyed next.
    fn is_followed_by(&self, next: Option<&Found<'_>>) -> bool {
        !self.is_used && next.is_some_and(|next| next.id() == self.next && !next.is_used)
    }
}

/// Opens all deadlists that will change. They stay open.
async fn check_deadlists(context: &SyncContext, snapshots: &[Found<'_>]) -> Result<()> {
    let of = async |id| Ok::<_, DatasetError>(context.dataset_phys(id).await?.deadlist);
    let mut to_come = snapshots.iter().filter(|found| !found.is_used);
    let mut more = 1 + OPENED_AHEAD;
    for (at, found) in snapshots.iter().enumerate().filter(|(_, found)| !found.is_used) {
        for later in to_come.by_ref().take(std::mem::replace(&mut more, 1)) {
            context.expect_last_deadlist(of(later.id()).await?);
        }
        context.check_deadlist(of(found.id()).await?).await?;
        if !found.is_followed_by(snapshots.get(at + 1)) {
            let head = context.dir_phys(found.dir).await?.head_dataset;
            for into in [found.next, head] {
                context.check_deadlist(of(into).await?).await?;
            }
        }
    }
    Ok(())
}

async fn destroy_found(context: &mut SyncContext, snapshots: Vec<Found<'_>>) -> Result<()> {
    let mut remains = Remains::default();
    let mut snapshots = snapshots.into_iter().peekable();
    while let Some(found) = snapshots.next() {
        let is_followed = found.is_followed_by(snapshots.peek());
        let Found { withdrawn, name, is_used, .. } = found;
        if !is_used {
            remove_of_run(context, withdrawn, name, &mut remains, is_followed).await?;
            continue;
        }
        let id = ObjectId(withdrawn.id().0);
        let mut phys = context.dataset_phys(id).await?;
        phys.flags |= DS_FLAG_DEFER_DESTROY;
        context.set_dataset_phys(id, &phys).await?;
        context.log_of_dataset((name, id), "defer_destroy", NO_DETAILS).await?;
    }
    Ok(())
}

/// Whether it is held or has clones.
async fn is_used(snapshot: &Dataset) -> Result<bool> {
    Ok(snapshot.phys().num_children > 1 || !snapshot.holds().await?.is_empty())
}

/// The last user of a deferred snapshot: a hold or a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    Hold,
    Clone,
}

/// Withdraws a deferred snapshot if its last hold or clone is `leaving`.
///
/// # Errors
/// The snapshot is open: the hold or clone has to stay.
pub(crate) async fn withdraw_if_last(
    context: &SyncContext,
    snapshot: &Dataset,
    leaving: Leaving,
) -> Result<Option<Withdrawn>> {
    let (holds, children) = (snapshot.holds().await?.len(), snapshot.phys().num_children);
    let is_last = match leaving {
        Leaving::Hold => holds <= 1 && children <= 1,
        Leaving::Clone => holds == 0 && children <= 2,
    };
    match is_last && snapshot.is_deferred_destroy() {
        true => context.withdraw(snapshot).map(Some),
        false => Ok(None),
    }
}

/// Destroys an unused snapshot.
pub(crate) async fn remove_snapshot(
    context: &mut SyncContext,
    withdrawn: Withdrawn,
    full: &str,
) -> Result<()> {
    remove_of_run(context, withdrawn, full, &mut Remains::default(), false).await
}

/// Destroys an unused snapshot. `remains` has lists of the earlier ones of its run. If it `is_followed`, the
/// next version is destroyed next.
async fn remove_of_run(
    context: &mut SyncContext,
    withdrawn: Withdrawn,
    full: &str,
    remains: &mut Remains,
    is_followed: bool,
) -> Result<()> {
    let id = ObjectId(withdrawn.id().0);
    let (_, name) = name::split_at(full, '@')?;
    context.log_of_dataset((full, id), "destroy", NO_DETAILS).await?;
    let snapshot = context.dataset_phys(id).await?;
    let keeps_key = leave_bookmarks(context, &snapshot).await?;
    drop_features(context, id).await?;
    scan::destroyed(context, id, snapshot.next_snapshot).await?;
    unlink_from_previous(context, id, &snapshot).await?;

    let next_id = snapshot.next_snapshot;
    let mut next = context.dataset_phys(next_id).await?;
    let unique_before = next.unique_bytes;
    next.prev_snapshot = snapshot.prev_snapshot;
    next.prev_snapshot_txg = snapshot.prev_snapshot_txg;
    let freed = context.dead_space(next.deadlist, snapshot.prev_snapshot_txg, Txg(u64::MAX)).await?;
    context.use_space(snapshot.dir, -freed, Account::Snapshots).await?;
    context.free_dead_from(next.deadlist, snapshot.prev_snapshot_txg).await?;
    context.dissolve_deadlist(snapshot.deadlist, remains).await?;
    if !is_followed {
        context.absorb_remains(next.deadlist, std::mem::take(remains)).await?;
    }
    leave_remapped(context, id, &snapshot).await?;
    if !keeps_key {
        remove_key_of_clones(context, snapshot.dir, snapshot.creation_txg).await?;
    }

    let head = context.dir_phys(snapshot.dir).await?.head_dataset;
    if next.is_snapshot() {
        // Blocks shared by these two only, that died right after `next`, are unique to `next` now.
        let after_next = context.dataset_phys(next.next_snapshot).await?.deadlist;
        let (from, to) = (snapshot.prev_snapshot_txg, snapshot.creation_txg);
        add(&mut next.unique_bytes, context.dead_space(after_next, from, to).await?.used);
        context.set_dataset_phys(next_id, &next).await?;
        if !keeps_key {
            forget_key(context, head, snapshot.creation_txg).await?;
        }
    } else {
        next.unique_bytes = unique_of_head(context, &next).await?;
        context.set_dataset_phys(next_id, &next).await?;
        release_reserved(context, &next, next_id, unique_before).await?;
    }
    forget_snapshot(context, id, &snapshot, head, name).await?;
    context.forget_snapshot(withdrawn);
    Ok(())
}

/// Links the previous version to the next one.
async fn unlink_from_previous(
    context: &mut SyncContext,
    id: ObjectId,
    snapshot: &DslDatasetPhys,
) -> Result<()> {
    if snapshot.prev_snapshot.0 == 0 {
        return Ok(());
    }
    let mut previous = context.dataset_phys(snapshot.prev_snapshot).await?;
    if previous.next_snapshot != id {
        // The first version of a clone.
        if previous.next_clones_zap.0 != 0 {
            let edit = context.edit();
            let clones = ZapEdit::new(&edit, previous.next_clones_zap);
            remove_number(&clones, id).await?;
            add_number(&clones, snapshot.next_snapshot).await?;
        }
        return Ok(());
    }
    previous.next_snapshot = snapshot.next_snapshot;
    let next = context.dataset_phys(snapshot.next_snapshot).await?;
    let (from, to) = (previous.prev_snapshot_txg, snapshot.prev_snapshot_txg);
    add(&mut previous.unique_bytes, context.dead_space(next.deadlist, from, to).await?.used);
    context.set_dataset_phys(snapshot.prev_snapshot, &previous).await
}

/// Bytes that a head does not share with its last snapshot (`dsl_dataset_recalc_head_uniq`).
async fn unique_of_head(context: &SyncContext, head: &DslDatasetPhys) -> Result<u64> {
    let before = match head.prev_snapshot {
        ObjectId(0) => 0,
        previous => context.dataset_phys(previous).await?.referenced_bytes,
    };
    let dead = context.all_dead_space(head.deadlist).await?.used as u64;
    Ok(head.referenced_bytes.saturating_sub(before.saturating_sub(dead)))
}

/// Shrinks a head's unused refreservation by the growth of its unique bytes.
async fn release_reserved(
    context: &mut SyncContext,
    head: &DslDatasetPhys,
    id: ObjectId,
    unique_before: u64,
) -> Result<()> {
    let reserved = refreservation(context, id).await?;
    let held_back = |unique: u64| reserved.saturating_sub(unique) as i64;
    let used = held_back(head.unique_bytes) - held_back(unique_before);
    context.use_space(head.dir, SpaceDelta { used, ..SpaceDelta::default() }, Account::Refreservation).await
}

async fn forget_snapshot(
    context: &mut SyncContext,
    id: ObjectId,
    snapshot: &DslDatasetPhys,
    head: ObjectId,
    name: &str,
) -> Result<()> {
    let edit = context.edit();
    let names = context.dataset_phys(head).await?.snapshot_names_zap;
    ZapEdit::new(&edit, names).remove(name).await?;
    count(context, snapshot.dir, dir_field::SNAPSHOT_COUNT, -1).await?;
    note_snapshots_changed(context, snapshot.dir).await?;
    for zap in [snapshot.next_clones_zap, snapshot.props_zap, snapshot.userrefs_zap] {
        if zap.0 != 0 {
            edit.destroy(zap).await?;
        }
    }
    clear_bootfs(context, id).await?;
    free_zapified(context, id).await
}

/// Finds snapshots by name; opens a dataset once for consecutive snapshots.
pub(crate) struct Heads {
    mos: Mos,
    last: Option<Dataset>,
}

impl Heads {
    pub(crate) fn of(mos: Mos) -> Heads {
        Heads { mos, last: None }
    }

    /// The snapshot of that full name, if any.
    pub(crate) async fn snapshot(&mut self, full: &str) -> Result<Option<Dataset>> {
        let (path, own) = name::split_at(full, '@')?;
        let head = match self.last.take().filter(|head| head.name() == path) {
            Some(head) => head,
            None => match self.mos.dataset(path).await {
                Err(DatasetError::NoDataset { .. }) => return Ok(None),
                head => readable(head?).await?,
            },
        };
        let found = head.snapshot(own).await;
        self.last = Some(head);
        found
    }
}

pub(crate) async fn refuse_if_used(snapshot: &Dataset) -> Result<()> {
    let name = snapshot.name();
    if !snapshot.holds().await?.is_empty() {
        let why = format!("it's being held. Run 'zfs holds -r {name}' to see holders.");
        return Err(DatasetError::busy(name, why));
    }
    if let Some(clone) = snapshot.clones().await?.first() {
        let why = format!("'{}' is a clone of it; destroy or promote that first", clone.name());
        return Err(DatasetError::busy(name, why));
    }
    if snapshot.phys().num_children > 1 {
        return Err(DatasetError::busy(name, "it has clones, which pools of this version have no list of"));
    }
    Ok(())
}
