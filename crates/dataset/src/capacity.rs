//! How much a pool can hold, and what of that a dataset may still take.
//!
//! Idea: what is available is not free space but a promise: the deflated size of the vdevs that hold data
//! (what a 128 KiB block leaves of them after parity; none of a vdev that is being removed), more for blocks
//! that are shared, less slop kept back so that deleting always works and what only a checkpoint holds, less
//! quotas and others' reservations on the way from the root.
//!
//! Source: OpenZFS `spa_update_dspace`, `spa_get_slop_space`, `dsl_pool_adjustedsize`,
//! `dsl_dir_space_available`.

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::names::pool as names;
use cenote_format::units::{ObjectId, VdevId};
use cenote_object::Result;
use cenote_object::deadlist::Bpobj;
use cenote_pool::VdevClass;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::mos::Mos;
use crate::spacemaps::{has_embedded_log, metaslabs_bytes};

/// `spa_slop_shift`: a 32nd is kept back...
const SLOP_SHIFT: u32 = 5;
/// `spa_min_slop`: ...at least this much, if that is not more than half...
const MIN_SLOP_BYTES: u64 = 128 << 20;
/// `spa_max_slop`: ...and at most this much.
const MAX_SLOP_BYTES: u64 = 128 << 30;

impl Mos {
    /// Bytes that the pool can hold, net of parity and slop.
    ///
    /// # Errors
    /// A table that counts shared blocks is damaged.
    #[boxed]
    pub async fn usable_bytes(&self) -> Result<u64> {
        self.usable_bytes_cell().get_or_try_init(|| self.count_usable_bytes()).await.copied()
    }

    /// Bytes that are kept back (`spa_get_slop_space`).
    pub fn slop_bytes(&self) -> u64 {
        let (normal, embedded_log) = self.class_bytes();
        let slop = (normal >> SLOP_SHIFT).min(MAX_SLOP_BYTES);
        let slop = slop - embedded_log.min(slop >> 1);
        slop.max(MIN_SLOP_BYTES.min(normal >> 1))
    }

    /// Of vdevs for data, net: what is for data, and what they set aside for logs.
    fn class_bytes(&self) -> (u64, u64) {
        let (mut normal, mut embedded_log) = (0u64, 0u64);
        for vdev in &self.pool_config().vdevs {
            if vdev.class != VdevClass::Normal
                || !vdev.kind.holds_data()
                || !(1..64).contains(&vdev.metaslab_shift)
            {
                continue;
            }
            let metaslabs = vdev.asize_bytes >> vdev.metaslab_shift;
            let for_log = u64::from(has_embedded_log(vdev));
            let deflated =
                |count: u64| self.pool().vdevs().deflate(VdevId(vdev.id), metaslabs_bytes(vdev, count));
            // What is on such a vdev may have to move to the others, which must have room for it.
            if !vdev.non_allocating {
                normal = normal.saturating_add(deflated(metaslabs - for_log));
            }
            embedded_log = embedded_log.saturating_add(deflated(for_log));
        }
        (normal, embedded_log)
    }

    async fn count_usable_bytes(&self) -> Result<u64> {
        let mut checkpointed = 0u64;
        for vdev in &self.pool_config().vdevs {
            // Raw, although all else is net: so OpenZFS adds it up when it imports a pool.
            checkpointed = checkpointed.saturating_add(self.checkpoint_bytes(vdev).await?);
        }
        let (normal, _) = self.class_bytes();
        let slop = self.slop_bytes();
        let waiting = match self.directory_u64(names::SYNC_BPOBJ).await? {
            Some(id) => Bpobj::open(self.objset(), ObjectId(id)).await?.phys().bytes,
            None => 0,
        };
        let shared = self
            .dedup_summary()
            .await?
            .saved_bytes()
            .saturating_add(self.cloned_summary().await?.saved_bytes);
        let kept_back = waiting.saturating_add(slop).saturating_add(checkpointed);
        Ok(normal.saturating_add(shared).saturating_sub(kept_back))
    }

    /// Bytes that a block is accounted with: all its copies, deflated (`bp_get_dsize`).
    pub fn dsize(&self, bp: &Blkptr) -> u64 {
        self.pool().vdevs().dsize(bp)
    }
}

impl Dataset {
    /// Bytes that could still be written here: property `available`.
    ///
    /// # Errors
    /// Something it is computed from is damaged.
    #[boxed]
    pub async fn available(&self) -> Result<u64> {
        let mut available = self.dir().available().await?;
        let refreservation = self.setting("refreservation").await?;
        let refquota = self.setting("refquota").await?;
        let phys = self.phys();
        available = available.saturating_add(refreservation.saturating_sub(phys.unique_bytes));
        if refquota != 0 {
            available = available.min(refquota.saturating_sub(phys.referenced_bytes));
        }
        Ok(available)
    }

    /// A number set here (set or received), 0 if none.
    #[boxed]
    pub async fn setting(&self, name: &str) -> Result<u64> {
        let Some(props) = self.dir().props().await? else { return Ok(0) };
        let received = format!("{name}{}", cenote_format::props::ZPROP_RECVD_SUFFIX);
        match props.get_u64(name).await? {
            Some(number) => Ok(number),
            None => Ok(props.get_u64(&received).await?.unwrap_or(0)),
        }
    }
}

impl Dir {
    /// Bytes that this directory may still take (`dsl_dir_space_available`).
    #[boxed]
    pub async fn available(&self) -> Result<u64> {
        let pool = self.mos().usable_bytes().await?;
        let mut chain: Vec<&Dir> = std::iter::successors(Some(self), |dir| dir.parent()).collect();
        let mut available = u64::MAX;
        while let Some(dir) = chain.pop() {
            available = left_below(dir, available, pool);
        }
        Ok(available)
    }
}

/// What a directory may take, given what the one above may.
fn left_below(dir: &Dir, above: u64, pool: u64) -> u64 {
    let phys = dir.phys();
    let mut quota = if phys.quota_bytes != 0 { phys.quota_bytes } else { u64::MAX };
    let mut above = above;
    if dir.parent().is_none() {
        quota = quota.min(pool);
    } else {
        // What is reserved here is not shared with others above.
        above = above.saturating_add(phys.reserved_bytes.saturating_sub(phys.used_bytes));
    }
    above.min(quota.saturating_sub(phys.used_bytes))
}
