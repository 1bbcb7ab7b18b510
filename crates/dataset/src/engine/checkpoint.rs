//! Checkpoints: a state of the whole pool that can be gone back to.
//!
//! ```text
//!   take      the uberblock of the group before goes into the object directory; from this group on
//!   free      what was born up to then stays allocated, and is noted in a map of its vdev    (pool/alloc keeps it apart)
//!   discard   what these maps hold is freed
//! ```
//!
//! Idea: the checkpoint is the state that an uberblock leads to, so nothing of it may be overwritten: a block that it has can only
//! be *unused* by the current state. That is known by the birth of the block, no list of what the checkpoint has is needed.
//!
//! A checkpoint is taken as the first thing of a group, before anything is freed in it.
//!
//! Source: OpenZFS `spa_checkpoint.c`, `metaslab.c` (`metaslab_sync`).

use cenote_format::bytes::Endian;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names, vdev_zap};
use cenote_format::space_map::MapType;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{ObjectId, Txg, VdevId};
use cenote_pool::alloc::Allocator;
use cenote_pool::ranges::Ranges;

use super::space::changes;
use super::{Engine, SpaceCheck, SyncContext};
use crate::error::{DatasetError, Result};
use crate::features::FeatureCounts;
use crate::mos::Mos;
use crate::spacemaps::{SpaceMapEdit, read_space_map};
use crate::zap::{ZapEdit, ZapValue};

const FEATURE: &str = "zpool_checkpoint";
/// `zfs_vdev_standard_sm_blksz`.
const MAP_BLOCK_BYTES: u32 = 128 << 10;

/// What a checkpoint has stays allocated.
pub(super) async fn keep(mos: &Mos, allocator: &Allocator) -> Result<()> {
    let checkpoint = mos.checkpoint().await?;
    allocator.keep_for_checkpoint(checkpoint.map_or(Txg(0), |uberblock| uberblock.checkpoint_txg));
    Ok(())
}

impl Engine {
    /// Keeps the pool as it is now, to be gone back to (`zpool checkpoint`).
    ///
    /// # Errors
    /// There is one already, the pool can't have one, or a vdev is being removed.
    pub async fn take_checkpoint(&self) -> Result<()> {
        self.sync_all().await?;
        self.run_first(SpaceCheck::Normal, |context| Box::pin(async move { context.take_checkpoint().await }))
            .await
    }

    /// Gives the checkpoint up, and with it the space that only it has (`zpool checkpoint -d`).
    ///
    /// # Errors
    /// There is none; a map of what it has is damaged.
    pub async fn discard_checkpoint(&self) -> Result<()> {
        self.run_first(SpaceCheck::ExtraReserved, |context| {
            Box::pin(async move { context.discard_checkpoint().await })
        })
        .await
    }
}

impl SyncContext {
    async fn take_checkpoint(&mut self) -> Result<()> {
        let refused = |why: &str| Err(DatasetError::unsuitable(self.group.pool.name(), why));
        match FeatureCounts::of(&self.edit()).count(FEATURE).await? {
            None => return refused("pool must be upgraded to support this (feature@zpool_checkpoint)"),
            Some(0) => {}
            Some(_) => return refused("checkpoint exists"),
        }
        if self.group.pool.vdevs().tops().any(|vdev| vdev.removing) {
            return refused("device removal in progress");
        }
        if self.group.pool.vdevs().tops().any(|vdev| vdev.raidz_expanding) {
            return refused("raidz expansion in progress");
        }
        let uberblock = *self.group.pool.uberblock();
        let uberblock = Uberblock { checkpoint_txg: uberblock.txg, ..uberblock };
        let raw = Uberblock { endian: Endian::NATIVE, ..uberblock }.encode();
        let words: Vec<u64> = raw.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let directory = self.edit();
        let directory = ZapEdit::new(&directory, DMU_POOL_DIRECTORY_OBJECT);
        directory.add(names::ZPOOL_CHECKPOINT, &ZapValue::from_words(&words)).await?;
        self.use_feature(FEATURE, 1).await?;
        self.group.allocator.keep_for_checkpoint(uberblock.txg);
        self.log_event("spa checkpoint", &format!("checkpointed uberblock txg={}", uberblock.txg)).await
    }

    async fn discard_checkpoint(&mut self) -> Result<()> {
        let edit = self.edit();
        if FeatureCounts::of(&edit).count(FEATURE).await?.unwrap_or(0) == 0 {
            return Err(DatasetError::NoCheckpoint { pool: self.group.pool.name().into() });
        }
        // One whose maps OpenZFS has begun to work off has no uberblock any more.
        let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
        if directory.get(names::ZPOOL_CHECKPOINT).await?.is_some() {
            directory.remove(names::ZPOOL_CHECKPOINT).await?;
        }
        self.group.allocator.keep_for_checkpoint(Txg(0));
        for (vdev, top_zap) in self.top_zaps() {
            self.free_kept(vdev, top_zap).await?;
        }
        self.use_feature(FEATURE, -1).await?;
        let details = "finished discarding checkpointed state from the pool";
        self.log_event("spa discard checkpoint", details).await
    }

    /// Refuses what a pool can't be brought back from to its checkpoint: another tree of vdevs.
    pub(super) async fn refuse_checkpoint(&self) -> Result<()> {
        match FeatureCounts::of(&self.edit()).count(FEATURE).await?.unwrap_or(0) {
            0 => Ok(()),
            _ => Err(DatasetError::unsuitable(self.group.pool.name(), "checkpoint exists")),
        }
    }

    /// Frees what a checkpoint alone had of a vdev.
    async fn free_kept(&mut self, vdev: VdevId, top_zap: ObjectId) -> Result<()> {
        let edit = self.edit();
        let fields = ZapEdit::new(&edit, top_zap);
        let map =
            fields.get(vdev_zap::POOL_CHECKPOINT_SM).await?.and_then(|value| value.as_u64()).map(ObjectId);
        let Some(map) = map else { return Ok(()) };
        let ashift = self.ashift(vdev);
        let mut kept = Vec::new();
        read_space_map(&edit.view().object(map).await?, ashift, |change| {
            kept.push((change.offset_bytes, change.run_bytes));
        })
        .await?;
        for (offset_bytes, run_bytes) in kept {
            let freed = self.group.allocator.free_range(vdev, offset_bytes, run_bytes);
            freed.map_err(|error| edit.damaged(map, &error.to_string()))?;
        }
        SpaceMapEdit::new(&edit, map, ashift).free().await?;
        fields.remove(vdev_zap::POOL_CHECKPOINT_SM).await
    }

    /// Notes what was freed and is kept for the checkpoint.
    pub(super) async fn write_kept(&mut self, vdev: VdevId, kept: &Ranges) -> Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        let shift = self.ashift(vdev);
        let map = self.map_of_vdev(vdev, vdev_zap::POOL_CHECKPOINT_SM, shift).await?.0;
        let edit = self.edit();
        let map = SpaceMapEdit::new(&edit, map, shift);
        map.append(&changes(MapType::Free, kept, 0), self.group.pass as u16).await
    }

    /// The map of a vdev that its ZAP names, made when it is needed first; and whether it is new.
    pub(super) async fn map_of_vdev(
        &mut self,
        vdev: VdevId,
        field: &str,
        shift: u32,
    ) -> Result<(ObjectId, bool)> {
        let edit = self.edit();
        let fields = ZapEdit::new(&edit, self.top_zap(vdev)?);
        if let Some(map) = fields.get(field).await?.and_then(|value| value.as_u64()) {
            return Ok((ObjectId(map), false));
        }
        let map = SpaceMapEdit::create(&edit, MAP_BLOCK_BYTES, shift).await?.object();
        fields.add(field, map.0).await?;
        Ok((map, true))
    }

    /// The ZAP of a top-level vdev, which must have one.
    pub(super) fn top_zap(&self, vdev: VdevId) -> Result<ObjectId> {
        let found = self.top_zaps().into_iter().find(|(id, _)| *id == vdev);
        found.map(|(_, zap)| zap).ok_or_else(|| self.damaged("a vdev has no ZAP"))
    }

    /// The ZAP of each top-level vdev that has one.
    pub(super) fn top_zaps(&self) -> Vec<(VdevId, ObjectId)> {
        let config = self.engine.config.lock();
        let tops = config.vdev_tree.children.iter().filter(|top| top.top_zap.0 != 0);
        tops.map(|top| (VdevId(top.id), top.top_zap)).collect()
    }
}
