//! Back to the last snapshot: `zfs rollback`.
//!
//! What the head has written since is freed, and it begins anew with the snapshot's tree. Nothing of the snapshot is dead any more.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_rollback_sync`, `dsl_dataset_clone_swap_sync_impl`).

use cenote_format::units::{ObjectId, Txg};

use super::account::Account;
use super::{Dataset, name};
use crate::engine::{Engine, SpaceCheck, SyncContext};
use crate::error::{DatasetError, Result};
use crate::sync::blocks::Space;

impl Engine {
    /// Brings a dataset, which nobody has open, back to its last snapshot, `pool/a@s`.
    ///
    /// # Errors
    /// That is not the last one, the dataset is open, or what is to be freed can't be found.
    pub async fn rollback(&self, snapshot: &str) -> Result<()> {
        let snapshot = snapshot.to_owned();
        self.run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move { context.rollback(&snapshot).await })
        })
        .await
    }
}

impl SyncContext {
    async fn rollback(&mut self, full: &str) -> Result<()> {
        let (path, _) = name::split_at(full, '@')?;
        let mos = self.mos().await?;
        let (snapshot, head) = (mos.dataset(full).await?, mos.dataset(path).await?);
        if head.phys().prev_snapshot.0 != snapshot.id().0 {
            let why = "is not the last snapshot; destroy the later ones first (-r does that)";
            return Err(DatasetError::unsuitable(full, why));
        }
        self.refuse_if_open(&head)?;
        self.survey_blocks(&head, snapshot.creation_txg()).await?;
        let dead = self.all_dead_space(head.phys().deadlist).await?;
        self.free_log(&head).await?;
        self.free_blocks(&head, snapshot.creation_txg()).await?;
        self.return_to(&head, &snapshot, dead).await?;
        self.drop_livelist(head.dir().id()).await?;
        self.drop_remapped(ObjectId(head.id().0)).await?;
        self.close(head.id());
        self.without_log(head.id()).await?;
        let details = format!("parent={}", head.name().rsplit('/').next().unwrap_or_default());
        self.log_of_dataset((path, ObjectId(head.id().0)), "clone swap", &details).await
    }

    async fn return_to(&mut self, head: &Dataset, snapshot: &Dataset, dead: Space) -> Result<()> {
        let id = ObjectId(head.id().0);
        let reserved = self.refreservation(id).await?;
        let (mut phys, to) = (self.dataset_phys(id).await?, *snapshot.phys());
        // Referenced now and dead since, less what was referenced then, is what was written since.
        let change = |now: u64, then: u64, dead: i64| then as i64 - now as i64 - dead;
        let freed = Space {
            used: change(phys.referenced_bytes, to.referenced_bytes, dead.used),
            compressed: change(phys.compressed_bytes, to.compressed_bytes, dead.compressed),
            uncompressed: change(phys.uncompressed_bytes, to.uncompressed_bytes, dead.uncompressed),
        };
        let origin_txg = self.origin_txg(phys.dir).await?;
        let in_snapshots = self.dead_space(phys.deadlist, origin_txg, Txg(u64::MAX)).await?;
        self.use_space(phys.dir, freed, Account::Head).await?;
        self.transfer(phys.dir, -in_snapshots.used, Account::Head, Account::Snapshots).await?;
        let held_back = Space { used: phys.unique_bytes.min(reserved) as i64, ..Space::default() };
        self.use_space(phys.dir, held_back, Account::Refreservation).await?;

        let keys_of = phys.deadlist;
        phys.deadlist = self.clone_deadlist(keys_of, Txg(u64::MAX)).await?;
        self.free_deadlist(keys_of).await?;
        phys.bp = to.bp;
        phys.referenced_bytes = to.referenced_bytes;
        phys.compressed_bytes = to.compressed_bytes;
        phys.uncompressed_bytes = to.uncompressed_bytes;
        phys.unique_bytes = 0;
        self.set_dataset_phys(id, &phys).await?;
        self.drop_features(id).await?;
        self.copy_features(ObjectId(snapshot.id().0), id).await?;
        // The head has again all that the snapshot has.
        let mut shared = self.dataset_phys(phys.prev_snapshot).await?;
        shared.unique_bytes = 0;
        self.set_dataset_phys(phys.prev_snapshot, &shared).await
    }
}
