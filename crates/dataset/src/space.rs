//! Space accounting of `zfs list` and `zfs get`.
//!
//! Source: OpenZFS `dsl_dataset_stats`, `dsl_dir_stats`, `dsl_dataset_space_written`.

use cenote_boxed::boxed;
use cenote_format::dsl::bookmark::{Bookmark as BookmarkPhys, ZBM_FLAG_HAS_FBN};
use cenote_format::dsl::{DD_FLAG_USED_BREAKDOWN, DslDatasetPhys, UsedBreakdown, compress_ratio_percent};
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::Result;
use cenote_object::deadlist::Deadlist;
use cenote_object::trail::Trail;

use crate::dataset::{Dataset, read_phys};

/// Name of a chain of versions in errors.
pub(super) const EARLIER: &str = "the snapshots before one another";

/// Space of a dataset, in bytes. `None` where a snapshot lacks the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Used here and below; for a snapshot, freed by its destruction.
    pub used: u64,
    /// Referenced by this version, shared or not.
    pub referenced: u64,
    /// Written since the previous snapshot.
    pub written: u64,
    /// Uncompressed, here and below.
    pub logical_used: Option<u64>,
    /// Uncompressed, referenced.
    pub logical_referenced: u64,
    /// Hundredths: 100 is 1.00x.
    pub compress_ratio_percent: u64,
    /// Likewise, of referenced blocks.
    pub ref_compress_ratio_percent: u64,
    /// Parts of `used`; `None` in old pool versions.
    pub breakdown: Option<UsedBreakdown>,
}

impl Dataset {
    /// Space accounting.
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
            id => self.written_after(Older::of(&read_phys(self.mos(), DatasetId(id.0)).await?.0)).await?,
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

    /// Space referenced now but not in snapshot `older` (property `written@older`). `None` unless that is an
    /// earlier version of this dataset or of its origin.
    ///
    /// # Errors
    /// A deadlist is damaged.
    #[boxed]
    pub async fn written_since(&self, older: &Dataset) -> Result<Option<u64>> {
        let (dir, older) = (older.dir().id(), Older::of(older.phys()));
        match self.is_after(dir, older.creation_txg).await? {
            true => self.written_after(older).await.map(Some),
            false => Ok(None),
        }
    }

    /// Space written since a bookmark of `head`; `None` if the bookmark has no sizes.
    ///
    /// # Errors
    /// A deadlist is damaged.
    #[boxed]
    pub async fn written_since_bookmark(&self, head: &Dataset, mark: &BookmarkPhys) -> Result<Option<u64>> {
        let older = Older {
            creation_txg: mark.creation_txg,
            referenced_bytes: mark.referenced_bytes,
            freed_bytes: Some(mark.referenced_freed_bytes),
        };
        let is_known = mark.flags & ZBM_FLAG_HAS_FBN != 0;
        match is_known && self.is_after(head.dir().id(), older.creation_txg).await? {
            true => self.written_after(older).await.map(Some),
            false => Ok(None),
        }
    }

    /// Whether that directory's version of `txg` precedes this dataset, directly or through origins. Source:
    /// `dsl_dataset_is_before`.
    async fn is_after(&self, dir: ObjectId, txg: Txg) -> Result<bool> {
        if self.is_snapshot() && self.creation_txg() <= txg {
            return Ok(false);
        }
        let mut at = self.clone();
        let mut trail = Trail::new(self.mos().objset(), EARLIER);
        while at.dir().id() != dir {
            trail.enter(at.dir().id())?;
            match at.version(at.dir().phys().origin).await? {
                Some(origin) if origin.creation_txg() >= txg => at = origin,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Space referenced now but not in `older`.
    async fn written_after(&self, older: Older) -> Result<u64> {
        let mos = self.mos();
        let mut bytes = self.phys().referenced_bytes.wrapping_sub(older.referenced_bytes);
        let (mut id, mut at) = (self.id(), *self.phys());
        let mut trail = Trail::new(mos.objset(), EARLIER);
        // Blocks of `older` that died since are not referenced now, so add them back.
        loop {
            trail.enter(ObjectId(id.0))?;
            let is_last = at.prev_snapshot_txg <= older.creation_txg;
            if let (true, Some(freed_bytes)) = (is_last, older.freed_bytes) {
                return Ok(bytes.wrapping_add(freed_bytes));
            }
            let deadlist = Deadlist::open(mos.objset(), at.deadlist).await?;
            if is_last {
                if at.prev_snapshot_txg != older.creation_txg {
                    let why = format!("has no snapshot of txg {} before it", older.creation_txg);
                    return Err(mos.objset().damaged(ObjectId(id.0), why));
                }
                return Ok(bytes.wrapping_add(deadlist.bytes()));
            }
            bytes = bytes.wrapping_add(deadlist.bytes_born_up_to(older.creation_txg).await?);
            id = DatasetId(at.prev_snapshot.0);
            at = read_phys(mos, id).await?.0;
        }
    }
}

/// Facts about an earlier version needed to compute the space written since.
#[derive(Debug, Clone, Copy)]
struct Older {
    creation_txg: Txg,
    referenced_bytes: u64,
    /// Space freed before the next snapshot; `None`: see the deadlist after it.
    freed_bytes: Option<u64>,
}

impl Older {
    fn of(snapshot: &DslDatasetPhys) -> Older {
        let (creation_txg, referenced_bytes) = (snapshot.creation_txg, snapshot.referenced_bytes);
        Older { creation_txg, referenced_bytes, freed_bytes: None }
    }
}
