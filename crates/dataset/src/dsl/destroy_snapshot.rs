//! Snapshots destroyed: `zfs destroy pool/a@s`.
//!
//! Idea: what only a snapshot holds is on the deadlist of the version after it, under the keys of births after the version before it:
//! born since then, dead by the next version. That is freed; its own deadlist is merged into the next one's.
//!
//! ```text
//!   prev@10 ---- snapshot@40 ---- next          next's deadlist:  key 0 [older: kept]   key 10 [freed]
//!     |  unique: now also what died between snapshot and next and was born before prev
//! ```
//!
//! Source: OpenZFS `dsl_destroy.c` (`dsl_destroy_snapshot_sync_impl`).

use cenote_format::dsl::names::dir_field;
use cenote_format::dsl::{DS_FLAG_DEFER_DESTROY, DslDatasetPhys};
use cenote_format::features::Since;
use cenote_format::units::{ObjectId, Txg};

use super::Dataset;
use super::account::{Account, add};
use super::make::{add_number, remove_number};
use super::name;
use crate::engine::{Engine, NO_DETAILS, SpaceCheck, SyncContext};
use crate::error::{DatasetError, Result};
use crate::sync::blocks::Space;
use crate::zap::ZapEdit;

/// What to do with a snapshot that is held or has clones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// Refuse.
    Refuse,
    /// Destroy it when the last hold and clone are gone (`zfs destroy -d`).
    Defer,
}

impl Engine {
    /// Destroys snapshots, all or none of them. One that there is not is passed over: deferred, it went with its last hold or clone.
    ///
    /// # Errors
    /// One is held or has clones.
    pub async fn destroy_snapshots(&self, names: &[String], in_use: InUse) -> Result<()> {
        let names = names.to_vec();
        self.run_within(SpaceCheck::ExtraReserved, move |context| {
            Box::pin(async move { context.destroy_snapshots(&names, in_use).await })
        })
        .await
    }
}

impl SyncContext {
    async fn destroy_snapshots(&mut self, names: &[String], in_use: InUse) -> Result<()> {
        let mos = self.mos().await?;
        let mut found: Vec<Dataset> = Vec::new();
        for name in names {
            name::split_at(name, '@')?;
            let snapshot = match mos.dataset(name).await {
                Err(DatasetError::NoDataset { .. }) => continue,
                other => other?,
            };
            // Only what can be held can wait for it.
            if in_use == InUse::Refuse || !self.has(Since::Holds) {
                refuse_if_used(&snapshot).await?;
            }
            if found.iter().all(|other| other.id() != snapshot.id()) {
                found.push(snapshot);
            }
        }
        for snapshot in found {
            let id = ObjectId(snapshot.id().0);
            let mut phys = self.dataset_phys(id).await?;
            if phys.num_children > 1 || !snapshot.holds().await?.is_empty() {
                phys.flags |= DS_FLAG_DEFER_DESTROY;
                self.set_dataset_phys(id, &phys).await?;
                self.log_of_dataset((snapshot.name(), id), "defer_destroy", NO_DETAILS).await?;
            } else {
                self.remove_snapshot(id, snapshot.name()).await?;
            }
        }
        Ok(())
    }

    /// Destroys a snapshot that was to go with its last hold or clone, if that is gone now.
    pub(super) async fn remove_if_deferred(&mut self, snapshot: &Dataset) -> Result<()> {
        let snapshot = self.mos().await?.dataset(snapshot.name()).await?;
        let is_used = snapshot.phys().num_children > 1 || !snapshot.holds().await?.is_empty();
        if !snapshot.is_deferred_destroy() || is_used {
            return Ok(());
        }
        self.remove_snapshot(ObjectId(snapshot.id().0), snapshot.name()).await
    }

    async fn remove_snapshot(&mut self, id: ObjectId, full: &str) -> Result<()> {
        let (_, name) = name::split_at(full, '@')?;
        self.log_of_dataset((full, id), "destroy", NO_DETAILS).await?;
        let snapshot = self.dataset_phys(id).await?;
        let keeps_key = self.leave_bookmarks(&snapshot).await?;
        self.drop_features(id).await?;
        self.unlink_from_previous(id, &snapshot).await?;

        let next_id = snapshot.next_snapshot;
        let mut next = self.dataset_phys(next_id).await?;
        let unique_before = next.unique_bytes;
        next.prev_snapshot = snapshot.prev_snapshot;
        next.prev_snapshot_txg = snapshot.prev_snapshot_txg;
        let freed = self.dead_space(next.deadlist, snapshot.prev_snapshot_txg, Txg(u64::MAX)).await?;
        self.use_space(snapshot.dir, -freed, Account::Snapshots).await?;
        self.free_dead_from(next.deadlist, snapshot.prev_snapshot_txg).await?;
        self.merge_deadlist(next.deadlist, snapshot.deadlist).await?;
        self.leave_remapped(id, &snapshot).await?;
        if !keeps_key {
            self.remove_key_of_clones(snapshot.dir, snapshot.creation_txg).await?;
        }

        let head = self.dir_phys(snapshot.dir).await?.head_dataset;
        if next.is_snapshot() {
            // Blocks that only the two had, and that died right after the next one, are now the next one's alone.
            let after_next = self.dataset_phys(next.next_snapshot).await?.deadlist;
            let (from, to) = (snapshot.prev_snapshot_txg, snapshot.creation_txg);
            add(&mut next.unique_bytes, self.dead_space(after_next, from, to).await?.used);
            self.set_dataset_phys(next_id, &next).await?;
            if !keeps_key {
                self.forget_key(head, snapshot.creation_txg).await?;
            }
        } else {
            next.unique_bytes = self.unique_of_head(&next).await?;
            self.set_dataset_phys(next_id, &next).await?;
            self.release_reserved(&next, next_id, unique_before).await?;
        }
        self.forget_snapshot(id, &snapshot, head, name).await
    }

    /// The version before a snapshot that goes is followed by the one after it.
    async fn unlink_from_previous(&mut self, id: ObjectId, snapshot: &DslDatasetPhys) -> Result<()> {
        if snapshot.prev_snapshot.0 == 0 {
            return Ok(());
        }
        let mut previous = self.dataset_phys(snapshot.prev_snapshot).await?;
        if previous.next_snapshot != id {
            // It is the first of a clone.
            if previous.next_clones_zap.0 != 0 {
                let edit = self.edit();
                let clones = ZapEdit::new(&edit, previous.next_clones_zap);
                remove_number(&clones, id).await?;
                add_number(&clones, snapshot.next_snapshot).await?;
            }
            return Ok(());
        }
        previous.next_snapshot = snapshot.next_snapshot;
        let next = self.dataset_phys(snapshot.next_snapshot).await?;
        let (from, to) = (previous.prev_snapshot_txg, snapshot.prev_snapshot_txg);
        add(&mut previous.unique_bytes, self.dead_space(next.deadlist, from, to).await?.used);
        self.set_dataset_phys(snapshot.prev_snapshot, &previous).await
    }

    /// What a head has and its last snapshot has not (`dsl_dataset_recalc_head_uniq`).
    async fn unique_of_head(&self, head: &DslDatasetPhys) -> Result<u64> {
        let before = match head.prev_snapshot {
            ObjectId(0) => 0,
            previous => self.dataset_phys(previous).await?.referenced_bytes,
        };
        let dead = self.all_dead_space(head.deadlist).await?.used as u64;
        Ok(head.referenced_bytes.saturating_sub(before.saturating_sub(dead)))
    }

    /// A head has more to itself than before: so much less is held back for it.
    async fn release_reserved(
        &mut self,
        head: &DslDatasetPhys,
        id: ObjectId,
        unique_before: u64,
    ) -> Result<()> {
        let reserved = self.refreservation(id).await?;
        let held_back = |unique: u64| reserved.saturating_sub(unique) as i64;
        let used = held_back(head.unique_bytes) - held_back(unique_before);
        self.use_space(head.dir, Space { used, ..Space::default() }, Account::Refreservation).await
    }

    async fn forget_snapshot(
        &mut self,
        id: ObjectId,
        snapshot: &DslDatasetPhys,
        head: ObjectId,
        name: &str,
    ) -> Result<()> {
        let edit = self.edit();
        let names = self.dataset_phys(head).await?.snapshot_names_zap;
        ZapEdit::new(&edit, names).remove(name).await?;
        self.count(snapshot.dir, dir_field::SNAPSHOT_COUNT, -1).await?;
        self.note_snapshots_changed(snapshot.dir).await?;
        for zap in [snapshot.next_clones_zap, snapshot.props_zap, snapshot.userrefs_zap] {
            if zap.0 != 0 {
                edit.destroy(zap).await?;
            }
        }
        self.clear_bootfs(id).await?;
        self.free_zapified(id).await
    }
}

async fn refuse_if_used(snapshot: &Dataset) -> Result<()> {
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
