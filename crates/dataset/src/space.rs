//! Who uses how much: the numbers of `zfs list` and `zfs get`.
//!
//! Source: OpenZFS `dsl_dataset_stats`, `dsl_dir_stats`, `dsl_dataset_space_written`.

use cenote_boxed::boxed;
use cenote_format::dsl::{DD_FLAG_USED_BREAKDOWN, UsedBreakdown, compress_ratio_percent};
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::Result;
use cenote_object::deadlist::Deadlist;
use cenote_object::trail::Trail;

use crate::dataset::{Dataset, read_phys};

/// What a walk back through a dataset's versions meets.
pub(super) const EARLIER: &str = "the snapshots before one another";

/// Space of a dataset, in bytes. What a snapshot does not have is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Used here and below; of a snapshot, what destroying it would free.
    pub used: u64,
    /// Reachable from this version, shared or not.
    pub referenced: u64,
    /// Written since the previous snapshot.
    pub written: u64,
    /// Before compression, here and below.
    pub logical_used: Option<u64>,
    /// Before compression, reachable.
    pub logical_referenced: u64,
    /// Hundredths: 100 is 1.00x.
    pub compress_ratio_percent: u64,
    /// The same of what is reachable.
    pub ref_compress_ratio_percent: u64,
    /// What `used` is made of; `None` in pools of versions that did not count it.
    pub breakdown: Option<UsedBreakdown>,
}

impl Dataset {
    /// Its space.
    ///
    /// # Errors
    /// The deadlist is damaged.
    #[boxed]
    pub async fn space(&self) -> Result<Space> {
        let (phys, dir) = (self.phys(), self.dir().phys());
        let ref_ratio = phys.compress_ratio_percent();
        let is_snapshot = self.is_snapshot();
        let written = match phys.prev_snapshot {
            ObjectId(0) => phys.referenced_bytes,
            id => self.written_since(DatasetId(id.0)).await?,
        };
        Ok(Space {
            used: if is_snapshot { phys.unique_bytes } else { dir.used_bytes },
            referenced: phys.referenced_bytes,
            written,
            logical_used: (!is_snapshot).then_some(dir.uncompressed_bytes),
            logical_referenced: phys.uncompressed_bytes,
            compress_ratio_percent: if is_snapshot {
                ref_ratio
            } else {
                compress_ratio_percent(dir.uncompressed_bytes, dir.compressed_bytes)
            },
            ref_compress_ratio_percent: ref_ratio,
            breakdown: (!is_snapshot && dir.flags & DD_FLAG_USED_BREAKDOWN != 0)
                .then_some(dir.used_breakdown),
        })
    }

    /// Space reachable now that was not in `older`, an earlier version in the same chain (property
    /// `written@older`).
    ///
    /// # Errors
    /// A deadlist is damaged, or `older` is not in the chain.
    #[boxed]
    pub async fn written_since(&self, older: DatasetId) -> Result<u64> {
        let mos = self.mos();
        let (base, _) = read_phys(mos, older).await?;
        let mut bytes = self.phys().referenced_bytes.wrapping_sub(base.referenced_bytes);
        let (mut id, mut at) = (self.id(), *self.phys());
        let mut trail = Trail::new(mos.objset(), EARLIER);
        while id != older {
            trail.enter(ObjectId(id.0))?;
            // What was in `older` and died on the way is not there any more: it was replaced by as much.
            let deadlist = Deadlist::open(mos.objset(), at.deadlist).await?;
            let freed = if at.prev_snapshot.0 == older.0 {
                deadlist.bytes()
            } else {
                deadlist.bytes_born_up_to(base.creation_txg).await?
            };
            bytes = bytes.wrapping_add(freed);
            let before = at.prev_snapshot_txg;
            id = DatasetId(at.prev_snapshot.0);
            if id.0 == 0 || before < base.creation_txg {
                let why = format!("'{}' is not later in the chain of snapshots", self.name());
                return Err(mos.objset().damaged(ObjectId(older.0), why));
            }
            at = read_phys(mos, id).await?.0;
        }
        Ok(bytes)
    }
}
