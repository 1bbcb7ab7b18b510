//! References of cloned blocks, changed.
//!
//! A block that is not in the table has one owner. Counts of entries by range of the vdev are in memory, 2 bytes for each 16 MiB.
//!
//! Source: OpenZFS `brt.c` (`brt_entry_decref`, `brt_vdev_decref`, `brt_vdev_sync`, `brt_vdev_destroy`).

use std::collections::BTreeMap;

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use cenote_format::brt::{BRT_OBJECT_VDEV_PREFIX, BrtEntry, BrtVdevPhys, decode_entry_counts};
use cenote_format::bytes::Endian;
use cenote_format::dsl::names::DMU_POOL_DIRECTORY_OBJECT;
use cenote_format::units::{ObjectId, VdevId};
use cenote_format::words::Phys;
use cenote_pool::Pool;

use crate::error::Result;
use crate::features::FeatureCounts;
use crate::live::Edit;
use crate::mos::Mos;
use crate::zap::{ZapEdit, ZapValue};

const FEATURE: &str = "block_cloning";

/// The tables of cloned blocks.
#[derive(Debug, Default)]
pub(super) struct Clones(BTreeMap<VdevId, Table>);

/// That of a vdev.
#[derive(Debug)]
struct Table {
    object: ObjectId,
    phys: BrtVdevPhys,
    /// Entries in each range.
    counts: Vec<u16>,
    is_changed: bool,
}

impl Clones {
    pub(super) async fn load(mos: &Mos) -> Result<Clones> {
        let mut tables = BTreeMap::new();
        for brt in mos.cloned_blocks().await? {
            let name = format!("{BRT_OBJECT_VDEV_PREFIX}{}", brt.vdev.0);
            let Some(object) = mos.directory_u64(&name).await?.map(ObjectId) else { continue };
            let array = mos.objset().object(object).await?;
            if brt.phys.range_count > array.capacity_bytes() / 2 {
                return Err(array.damaged("counts more ranges than it has room for"));
            }
            let raw = array.read(0, brt.phys.range_count as usize * 2).await?;
            let counts = decode_entry_counts(&raw, brt.phys.endian()).collect();
            tables.insert(brt.vdev, Table { object, phys: brt.phys, counts, is_changed: false });
        }
        Ok(Clones(tables))
    }

    /// One reference less to a block. Answers whether that was the last.
    pub(super) async fn release(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<bool> {
        let Some(dva) = bp.dvas().next() else { return Ok(true) };
        let Some(table) = self.0.get_mut(&dva.vdev) else { return Ok(true) };
        let Some(range) = table.phys.range_of(dva.offset_bytes) else { return Ok(true) };
        let in_range = table.counts.get_mut(range as usize).filter(|count| **count > 0);
        let Some(in_range) = in_range else { return Ok(true) };
        let entries = ZapEdit::new(mos, table.phys.entries_zap);
        let key = &[dva.offset_bytes][..];
        let endian = table.phys.endian();
        let Some(count) = entries.get(key).await?.and_then(|value| number(&value, endian)) else {
            return Ok(true);
        };
        let dsize = pool.vdevs().dsize(bp);
        let phys = &mut table.phys;
        phys.saved_bytes = phys.saved_bytes.saturating_sub(dsize);
        if count > 1 {
            let entry = BrtEntry { offset_bytes: dva.offset_bytes, count: count - 1 };
            let value = Bytes::copy_from_slice(&entry.to_zap(endian).1);
            entries.update(key, ZapValue::new(1, value)).await?;
        } else {
            entries.remove(key).await?;
            *in_range -= 1;
            phys.used_bytes = phys.used_bytes.saturating_sub(dsize);
            phys.total_count = phys.total_count.saturating_sub(1);
        }
        table.is_changed = true;
        Ok(false)
    }

    /// Writes heads and counts that have changed. Tables without entries are given up.
    pub(super) async fn write(&mut self, mos: &Edit) -> Result<()> {
        for table in self.0.values_mut().filter(|table| table.is_changed) {
            table.is_changed = false;
            let endian = table.phys.endian();
            let bytes = |count: &u16| match endian {
                Endian::Little => count.to_le_bytes(),
                Endian::Big => count.to_be_bytes(),
            };
            let counts: Bytes = table.counts.iter().flat_map(bytes).collect();
            mos.write(table.object, 0, counts).await?;
            mos.set_bonus_words(table.object, &table.phys.to_words()).await?;
        }
        let is_empty = |(_, table): &(&VdevId, &Table)| table.phys.total_count == 0;
        let empty: Vec<VdevId> = self.0.iter().filter(is_empty).map(|(vdev, _)| *vdev).collect();
        for vdev in empty {
            let Some(table) = self.0.remove(&vdev) else { continue };
            mos.destroy(table.phys.entries_zap).await?;
            mos.destroy(table.object).await?;
            let name = format!("{BRT_OBJECT_VDEV_PREFIX}{}", vdev.0);
            ZapEdit::new(mos, DMU_POOL_DIRECTORY_OBJECT).remove(&name).await?;
            FeatureCounts::of(mos).change(FEATURE, -1).await?;
        }
        Ok(())
    }
}

/// An entry's count: eight bytes of the table's order, or one number.
fn number(value: &ZapValue, endian: Endian) -> Option<u64> {
    match value.as_bytes() {
        Some(raw) => raw.first_chunk::<8>().map(|raw| endian.u64(*raw)),
        None => value.as_u64(),
    }
}
