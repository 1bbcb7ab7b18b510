//! Capacity of a pool and space available to a dataset.
//!
//! Idea: available space is a promise. It starts from the deflated size of the data vdevs (the part that a
//! 128 KiB block leaves after parity; none of a vdev being removed) plus the savings of shared blocks. It
//! excludes slop, so that deletion always works, and blocks held by the checkpoint alone. Quotas and others'
//! reservations on the path from the root reduce it further.
//!
//! Source: OpenZFS `spa_update_dspace`, `spa_get_slop_space`, `dsl_pool_adjustedsize`,
//! `dsl_dir_space_available`.

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::names::pool as names;
use cenote_format::units::{ObjectId, VdevId};
use cenote_object::deadlist::Bpobj;
use cenote_object::{Result, Zap};
use cenote_pool::VdevClass;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::mos::Mos;
use crate::spacemaps::{has_embedded_log, metaslabs_bytes};

/// `spa_slop_shift`: slop is a 32nd of the pool.
const SLOP_SHIFT: u32 = 5;
/// `spa_min_slop`: minimum, unless above half of the pool.
const MIN_SLOP_BYTES: u64 = 128 << 20;
/// `spa_max_slop`: maximum.
const MAX_SLOP_BYTES: u64 = 128 << 30;

impl Mos {
    /// Bytes that the pool can hold, net of parity and slop.
    ///
    /// # Errors
    /// A table of shared blocks is damaged.
    #[boxed]
    pub async fn usable_bytes(&self) -> Result<u64> {
        self.usable_bytes_cell().get_or_try_init(|| self.count_usable_bytes()).await.copied()
    }

    /// Slop bytes (`spa_get_slop_space`).
    pub fn slop_bytes(&self) -> u64 {
        let (normal, embedded_log) = self.class_bytes();
        let slop = (normal >> SLOP_SHIFT).min(MAX_SLOP_BYTES);
        let slop = slop - embedded_log.min(slop >> 1);
        slop.max(MIN_SLOP_BYTES.min(normal >> 1))
    }

    /// Net bytes of data vdevs: for data, and for embedded logs.
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
            let deflated = |count: u64| {
                self.pool().tree().vdevs().deflate(VdevId(vdev.id), metaslabs_bytes(vdev, count))
            };
            // Data on a non-allocating vdev may have to move to the others, so its space does not count.
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
            // Raw, unlike the rest: OpenZFS sums it this way on import.
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

    /// Accounted bytes of a block: all copies, deflated (`bp_get_dsize`).
    pub fn dsize(&self, bp: &Blkptr) -> u64 {
        self.pool().tree().vdevs().dsize(bp)
    }
}

impl Dataset {
    /// Bytes that can still be written here, property `available`.
    ///
    /// # Errors
    /// An input is damaged.
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

    /// Number set or received here, else 0.
    #[boxed]
    pub async fn setting(&self, name: &str) -> Result<u64> {
        match self.dir().props().await? {
            Some(props) => setting_in(&props, name).await,
            None => Ok(0),
        }
    }
}

/// [`Dataset::setting`] in the table of a directory's properties.
///
/// # Errors
/// The table is damaged.
#[boxed]
pub async fn setting_in(props: &Zap, name: &str) -> Result<u64> {
    let received = format!("{name}{}", cenote_format::props::ZPROP_RECVD_SUFFIX);
    match props.get_u64(name).await? {
        Some(number) => Ok(number),
        None => Ok(props.get_u64(&received).await?.unwrap_or(0)),
    }
}

impl Dir {
    /// Bytes left for this directory (`dsl_dir_space_available`).
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

fn left_below(dir: &Dir, above: u64, pool: u64) -> u64 {
    let phys = dir.phys();
    let mut quota = if phys.quota_bytes != 0 { phys.quota_bytes } else { u64::MAX };
    let mut above = above;
    if dir.parent().is_none() {
        quota = quota.min(pool);
    } else {
        // The directory's unused reservation is its own, so add it.
        above = above.saturating_add(phys.reserved_bytes.saturating_sub(phys.used_bytes));
    }
    above.min(quota.saturating_sub(phys.used_bytes))
}
