//! Blocks with several owners: deduplication tables (DDT) and block references of clones (BRT).
//!
//! Idea: a deduplicated block's pointer has the dedup bit, and a table by checksum counts its references. A
//! block cloned by `copy_file_range` has plain pointers, and a table by address counts references beyond the
//! first. A traversal that sums space counts shared blocks once by these tables.
//!
//! With feature `fast_dedup`, a dedup table's newest entries are in its logs, which override the ZAPs.
//!
//! Memory: the logs of one table while listed (OpenZFS holds all); ZAPs are streamed.
//!
//! Source: OpenZFS `ddt.c`, `ddt_log.c`, `brt.c`.

pub mod ddt;

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::brt::{BRT_OBJECT_VDEV_PREFIX, BrtEntry, BrtVdevPhys};
use cenote_format::bytes::Endian;
use cenote_format::units::{ObjectId, VdevId};
use cenote_format::words::Phys;
use cenote_object::{Result, Zap, ZapEntry, ZapValue};

use crate::mos::Mos;

pub use ddt::{Ddt, DdtEntries, DdtItem, DdtLog, DedupSummary};

/// Totals of cloned blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ClonedSummary {
    /// Space of cloned blocks, each once: `bcloneused`.
    pub used_bytes: u64,
    /// Space saved by further references: `bclonesaved`.
    pub saved_bytes: u64,
}

impl ClonedSummary {
    /// `bcloneratio` in hundredths.
    pub fn ratio_percent(&self) -> u64 {
        let all = u128::from(self.used_bytes) + u128::from(self.saved_bytes);
        let percent = (all * 100).checked_div(u128::from(self.used_bytes)).unwrap_or(100);
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

/// Cloned blocks of one vdev.
#[derive(Debug, Clone)]
pub struct Brt {
    /// Vdev.
    pub vdev: VdevId,
    /// Header with totals.
    pub phys: BrtVdevPhys,
    zap: Option<Zap>,
}

impl Mos {
    /// Tables of cloned blocks, one per vdev with any.
    ///
    /// # Errors
    /// A table is damaged.
    #[boxed]
    pub async fn cloned_blocks(&self) -> Result<Vec<Brt>> {
        let mut tables = Vec::new();
        for entry in self.directory()?.to_vec().await? {
            let name = entry.name_text();
            let vdev = name.strip_prefix(BRT_OBJECT_VDEV_PREFIX).and_then(|vdev| vdev.parse().ok());
            let (Some(vdev), Some(id)) = (vdev, entry.value.as_u64()) else { continue };
            let object = self.objset().object(ObjectId(id)).await?;
            let dnode = object.dnode();
            let phys = BrtVdevPhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| object.format(e))?;
            let zap = match phys.entries_zap {
                ObjectId(0) => None,
                id => Some(Zap::open_id(self.objset(), id).await?),
            };
            tables.push(Brt { vdev: VdevId(vdev), phys, zap });
        }
        tables.sort_by_key(|table| table.vdev);
        Ok(tables)
    }

    /// Totals of all tables.
    ///
    /// # Errors
    /// A table is damaged.
    #[boxed]
    pub async fn cloned_summary(&self) -> Result<ClonedSummary> {
        let mut sum = ClonedSummary::default();
        for table in self.cloned_blocks().await? {
            sum.used_bytes = sum.used_bytes.saturating_add(table.phys.used_bytes);
            sum.saved_bytes = sum.saved_bytes.saturating_add(table.phys.saved_bytes);
        }
        Ok(sum)
    }
}

impl Brt {
    /// Whether the block at an offset of its vdev has been cloned.
    ///
    /// # Errors
    /// A damaged table.
    pub async fn has(&self, offset_bytes: u64) -> Result<bool> {
        match &self.zap {
            Some(zap) => Ok(zap.lookup_words(&[offset_bytes]).await?.is_some()),
            None => Ok(false),
        }
    }

    /// Whether a block has been cloned, by the tables of all vdevs.
    ///
    /// # Errors
    /// A damaged table.
    pub async fn any_has(tables: &[Brt], bp: &Blkptr) -> Result<bool> {
        let Some(dva) = bp.dvas().next() else { return Ok(false) };
        for table in tables.iter().filter(|table| table.vdev == dva.vdev) {
            if table.has(dva.offset_bytes).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// All entries in unordered batches.
    pub fn entries(&self) -> BrtEntries {
        BrtEntries { entries: self.zap.as_ref().map(Zap::entries), endian: self.phys.endian() }
    }
}

/// Count in an entry: eight bytes in the table's byte order or, with feature `block_cloning_endian`, a
/// number. `None` if damaged.
pub fn brt_count(value: &ZapValue, endian: Endian) -> Option<u64> {
    match value.as_bytes() {
        Some(raw) => <[u8; 8]>::try_from(&raw[..]).ok().map(|raw| endian.u64(raw)),
        None => value.as_u64(),
    }
}

/// Decodes an entry of a table with this byte order.
pub fn brt_entry(entry: &ZapEntry, endian: Endian) -> Option<BrtEntry> {
    let &[offset_bytes] = &entry.name_words()[..] else { return None };
    Some(BrtEntry { offset_bytes, count: brt_count(&entry.value, endian)? })
}

/// Iterator over the cloned blocks of a vdev.
#[derive(Debug)]
pub struct BrtEntries {
    entries: Option<cenote_object::zap::Entries>,
    endian: Endian,
}

impl BrtEntries {
    /// Next entries; `None` at the end.
    #[boxed]
    pub async fn next_batch(&mut self) -> Option<Result<Vec<BrtEntry>>> {
        let batch = self.entries.as_mut()?.next_batch().await?;
        Some(batch.map(|batch| batch.iter().filter_map(|entry| brt_entry(entry, self.endian)).collect()))
    }
}
