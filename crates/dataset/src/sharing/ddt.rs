//! Deduplication tables: ZAPs and logs.

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_codec::compress::Compression;
use cenote_format::ddt::log::{DdtLogHeader, records};
use cenote_format::ddt::{
    DDT_CHECKSUMS, DDT_DIR_FLAGS, DDT_FLAG_FLAT, DdtClass, DdtHistogram, DdtKey, DdtStat, DdtValue,
    ddt_dir_name, ddt_log_name, ddt_object_name,
};
use cenote_format::dsl::names::pool as names;
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::words::Phys;
use cenote_object::zap::Entries;
use cenote_object::{Object, Result, Zap, ZapEntry, ZapValue};
use cenote_pool::Pool;

use crate::mos::Mos;

/// Bound on a log; OpenZFS flushes long before.
const MAX_LOG_BYTES: u64 = 1 << 30;

/// Sum of all tables' statistics.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DedupSummary {
    /// Blocks in the tables.
    pub blocks: u64,
    /// Space used.
    pub stored_bytes: u64,
    /// Space without deduplication.
    pub referenced_bytes: u64,
}

impl DedupSummary {
    /// Space saved.
    pub fn saved_bytes(&self) -> u64 {
        self.referenced_bytes.saturating_sub(self.stored_bytes)
    }

    /// `dedupratio` in hundredths.
    pub fn ratio_percent(&self) -> u64 {
        let percent = (u128::from(self.referenced_bytes) * 100).checked_div(u128::from(self.stored_bytes));
        u64::try_from(percent.unwrap_or(100)).unwrap_or(u64::MAX)
    }
}

/// Table of one checksum algorithm.
#[derive(Debug, Clone)]
pub struct Ddt {
    /// `enum zio_checksum`.
    pub checksum_id: u8,
    flat: bool,
    zaps: Vec<(DdtClass, Zap)>,
    logs: Vec<Object>,
}

/// Log of a table: its newest entries, which override the ZAPs.
#[derive(Debug)]
pub struct DdtLog {
    /// Object.
    pub object: ObjectId,
    /// Header.
    pub header: DdtLogHeader,
    /// Unflushed entries, oldest first.
    pub items: Vec<DdtItem>,
}

/// Deduplicated block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdtItem {
    /// Class of the table with the entry; `None` if only a log has it.
    pub class: Option<DdtClass>,
    /// Content.
    pub key: DdtKey,
    /// Addresses and references.
    pub value: DdtValue,
}

impl Mos {
    /// Sum of all tables and logs.
    ///
    /// # Errors
    /// The statistics or a log are damaged.
    #[boxed]
    pub async fn dedup_summary(&self) -> Result<DedupSummary> {
        let mut total = DdtStat::default();
        self.dedup_histogram().await?.buckets.iter().for_each(|bucket| total += bucket);
        Ok(DedupSummary {
            blocks: total.blocks,
            stored_bytes: total.dsize_bytes,
            referenced_bytes: total.referenced_dsize_bytes,
        })
    }

    /// Statistics of all tables by reference count. The stored statistics omit logged entries, which are
    /// added here.
    ///
    /// # Errors
    /// The statistics or a log are damaged.
    #[boxed]
    pub async fn dedup_histogram(&self) -> Result<DdtHistogram> {
        let mut sum = DdtHistogram::default();
        for table in self.dedup_tables().await? {
            for item in table.logged().await?.values() {
                let statistics = statistics(self.pool(), &item.key, &item.value);
                if let Some(bucket) = sum.bucket(&statistics) {
                    *bucket += &statistics;
                }
            }
        }
        let Some(statistics) = self.directory_zap(names::DDT_STATS).await? else { return Ok(sum) };
        for entry in statistics.to_vec().await? {
            let words: Vec<u64> = entry.value.words().collect();
            let histogram = DdtHistogram::from_words(&words).map_err(|e| statistics.object().format(e))?;
            sum.buckets.iter_mut().zip(&histogram.buckets).for_each(|(sum, bucket)| *sum += bucket);
        }
        Ok(sum)
    }

    /// Tables, one per checksum algorithm in use.
    ///
    /// # Errors
    /// A table's directory is damaged.
    #[boxed]
    pub async fn dedup_tables(&self) -> Result<Vec<Ddt>> {
        let mut tables = Vec::new();
        for (checksum_id, checksum) in DDT_CHECKSUMS {
            let own = self.directory_zap(&ddt_dir_name(checksum)).await?;
            let flags = match &own {
                Some(zap) => zap.get_u64(DDT_DIR_FLAGS).await?.unwrap_or(0),
                None => 0,
            };
            let directory = match &own {
                Some(own) => own,
                None => self.directory()?,
            };
            let mut table =
                Ddt { checksum_id, flat: flags & DDT_FLAG_FLAT != 0, zaps: Vec::new(), logs: Vec::new() };
            for class in DdtClass::ALL {
                if let Some(id) = directory.get_u64(&ddt_object_name(checksum, class)).await? {
                    table.zaps.push((class, Zap::open_id(self.objset(), ObjectId(id)).await?));
                }
            }
            for index in 0..2 {
                if let Some(id) = directory.get_u64(&ddt_log_name(checksum, index)).await? {
                    table.logs.push(self.objset().object(ObjectId(id)).await?);
                }
            }
            if !table.zaps.is_empty() || !table.logs.is_empty() {
                tables.push(table);
            }
        }
        Ok(tables)
    }

    /// Vdev bytes of all tables and logs: property `dedup_table_size`.
    ///
    /// # Errors
    /// A table's directory is damaged.
    #[boxed]
    pub async fn dedup_table_bytes(&self) -> Result<u64> {
        let tables = self.dedup_tables().await?;
        Ok(tables.iter().map(Ddt::stored_bytes).fold(0, u64::saturating_add))
    }
}

impl Ddt {
    fn stored_bytes(&self) -> u64 {
        // In whole sectors, as in `dmu_object_info`.
        let sectors = |object: &Object| (object.dnode().used_bytes.saturating_add(256)) >> 9;
        let objects = self.zaps.iter().map(|(_, zap)| zap.object()).chain(&self.logs);
        objects.map(|object| sectors(object) << 9).fold(0, u64::saturating_add)
    }

    /// Whether entries have one set of addresses.
    pub fn is_flat(&self) -> bool {
        self.flat
    }

    /// Blocks of the table, logged ones first.
    ///
    /// # Errors
    /// A log is damaged.
    #[boxed]
    pub async fn entries(&self) -> Result<DdtEntries> {
        let newest = self.logged().await?;
        Ok(DdtEntries {
            flat: self.flat,
            logged: Some(newest.values().cloned().collect()),
            overridden: newest,
            zaps: self.zaps.iter().map(|(class, zap)| (*class, zap.entries())).collect(),
        })
    }

    /// Logged blocks by key.
    #[boxed]
    pub async fn logged(&self) -> Result<BTreeMap<Vec<u64>, DdtItem>> {
        Ok(newest(self.logs().await?))
    }

    /// Logs; none without feature `fast_dedup`.
    ///
    /// # Errors
    /// A log is damaged.
    #[boxed]
    pub async fn logs(&self) -> Result<Vec<DdtLog>> {
        let mut logs = Vec::new();
        for log in &self.logs {
            logs.push(self.read_log(log).await?);
        }
        Ok(logs)
    }

    async fn read_log(&self, object: &Object) -> Result<DdtLog> {
        let dnode = object.dnode();
        let header = DdtLogHeader::decode(dnode.bonus(), dnode.endian()).map_err(|e| object.format(e))?;
        if header.length_bytes > MAX_LOG_BYTES.min(object.capacity_bytes()) {
            return Err(object.damaged("claims a longer log than it has room for"));
        }
        let mut items = Vec::new();
        for block in 0..header.length_bytes.div_ceil(object.block_bytes().max(1)) {
            let (bytes, endian) = object.read_block(BlockId(block)).await?;
            for record in records(&bytes, self.flat, endian) {
                let record = record.map_err(|e| object.format(e))?;
                let flushed =
                    header.checkpoint().is_some_and(|upto| record.key.to_words() <= upto.to_words());
                if !flushed {
                    items.push(DdtItem { class: record.class, key: record.key, value: record.value });
                }
            }
        }
        Ok(DdtLog { object: object.id(), header, items })
    }
}

/// Valid entries: the last of each log, with the active log before the flushing one.
fn newest(mut logs: Vec<DdtLog>) -> BTreeMap<Vec<u64>, DdtItem> {
    // Both logs may have become active in one txg, so their txg does not order them.
    logs.sort_by_key(|log| log.header.is_active());
    let items = logs.into_iter().flat_map(|log| log.items);
    items.map(|item| (item.key.to_words(), item)).collect()
}

/// Contribution of an entry to the statistics.
pub fn statistics(pool: &Pool, key: &DdtKey, value: &DdtValue) -> DdtStat {
    // The third DVA of an encrypted block is no address.
    let places = if key.is_encrypted() { 2 } else { 3 };
    let (lsize_bytes, psize_bytes) = (key.lsize().0, key.psize().0);
    let mut sum = DdtStat::default();
    for set in value.phys() {
        let space =
            set.dvas.iter().take(places).map(|dva| pool.tree().vdevs().deflate(dva.vdev, dva.asize.0));
        let dsize_bytes = space.fold(0, u64::saturating_add);
        sum += &DdtStat {
            blocks: 1,
            lsize_bytes,
            psize_bytes,
            dsize_bytes,
            referenced_blocks: set.refcount,
            referenced_lsize_bytes: lsize_bytes.saturating_mul(set.refcount),
            referenced_psize_bytes: psize_bytes.saturating_mul(set.refcount),
            referenced_dsize_bytes: dsize_bytes.saturating_mul(set.refcount),
        };
    }
    sum
}

/// Iterator over a table's blocks.
#[derive(Debug)]
pub struct DdtEntries {
    flat: bool,
    logged: Option<Vec<DdtItem>>,
    overridden: BTreeMap<Vec<u64>, DdtItem>,
    zaps: Vec<(DdtClass, Entries)>,
}

impl DdtEntries {
    /// Next blocks, unordered; `None` at the end.
    #[boxed]
    pub async fn next_batch(&mut self) -> Option<Result<Vec<DdtItem>>> {
        if let Some(logged) = self.logged.take() {
            return Some(Ok(logged));
        }
        loop {
            let (class, entries) = self.zaps.last_mut()?;
            let class = *class;
            match entries.next_batch().await {
                None => {
                    self.zaps.pop();
                }
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(batch)) => {
                    return Some(Ok(batch.iter().filter_map(|entry| self.item(class, entry)).collect()));
                }
            }
        }
    }

    /// `None` if a log overrides the entry, or it is unreadable, which OpenZFS treats as absent.
    fn item(&self, class: DdtClass, entry: &ZapEntry) -> Option<DdtItem> {
        let words = entry.name_words();
        if self.overridden.contains_key(&words) {
            return None;
        }
        let key = DdtKey::from_words(&words).ok()?;
        let value = unpack(&entry.value, self.flat)?;
        Some(DdtItem { class: Some(class), key, value })
    }
}

/// Decodes the value of a ZAP entry.
pub fn unpack(value: &ZapValue, flat: bool) -> Option<DdtValue> {
    let unpack = |packed: &[u8], len: usize| Compression::Zle.decompress(packed, len).ok();
    DdtValue::decode(value.as_bytes()?, flat, unpack).ok()
}

#[cfg(test)]
mod tests {
    use cenote_format::ddt::DdtFlat;
    use cenote_format::ddt::log::DDL_FLAG_FLUSHING;
    use cenote_format::units::Txg;

    use super::*;

    #[test]
    fn the_log_that_is_appended_to_holds() {
        let item = |refcount| DdtItem {
            class: None,
            key: DdtKey { checksum: [1, 2, 3, 4], prop: 5 },
            value: DdtValue::Flat(DdtFlat::from_words(&[0, 0, 0, 0, 0, 0, refcount, 82, 0]).unwrap()),
        };
        let log = |flags: u8, refcounts: &[u64]| DdtLog {
            object: ObjectId(1),
            header: DdtLogHeader {
                info: u64::from(flags) << 8 | 1,
                length_bytes: 0,
                first_txg: Txg(82),
                checkpoint: item(0).key,
            },
            items: refcounts.iter().map(|&refcount| item(refcount)).collect(),
        };
        for logs in [
            vec![log(0, &[4, 2]), log(DDL_FLAG_FLUSHING, &[7])],
            vec![log(DDL_FLAG_FLUSHING, &[7]), log(0, &[4, 2])],
        ] {
            let held: Vec<DdtItem> = newest(logs).into_values().collect();
            assert_eq!(held, [item(2)]);
        }
    }
}
