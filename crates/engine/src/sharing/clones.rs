//! Changes to the block reference table (BRT), which counts references to cloned blocks.
//!
//! A block without an entry has one owner. A table is made with its first entry and destroyed with its last.
//!
//! Memory: counts of entries by range of a vdev, 2 bytes for each 16 MiB.
//!
//! While feature `block_cloning_endian` is active, all tables store counts as numbers; otherwise as bytes. It
//! becomes active with the pool's first table, if enabled, and counts the tables from then on. A pool with
//! older tables keeps their form until the last is gone.
//!
//! Source: OpenZFS `brt.c` (`brt_pending_apply_vdev`, `brt_vdev_addref`, `brt_entry_decref`,
//! `brt_vdev_decref`, `brt_vdev_sync`, `brt_vdev_create`, `brt_vdev_destroy`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;
use cenote_dataset::sharing::brt_count;
use cenote_dataset::{FeatureState, Mos};
use cenote_format::blkptr::Blkptr;
use cenote_format::brt::{BRT_OBJECT_VDEV_PREFIX, BRT_RANGE_BYTES, BrtVdevPhys, decode_entry_counts};
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::DMU_POOL_DIRECTORY_OBJECT;
use cenote_format::units::{ObjectId, VdevId};
use cenote_format::words::Phys;
use cenote_format::zap::{ZAP_FLAG_HASH64, ZAP_FLAG_UINT64_KEY};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{Edit, NewObject, NewZap, Result, ZapEdit, ZapValue};
use cenote_pool::{Pool, VdevConfig};

const FEATURE: &str = "block_cloning";
/// Active: counts are numbers.
const NUMBERS_FEATURE: &str = "block_cloning_endian";
/// `BRT_BLOCKSIZE`.
const COUNTS_BLOCK_BYTES: u32 = 32 << 10;
/// `brt_zap_default_bs`, `brt_zap_default_ibs`.
const ENTRIES_BLOCK_SHIFT: u8 = 12;

#[derive(Debug, Default)]
pub(crate) struct Clones {
    tables: BTreeMap<VdevId, Table>,
    form: Form,
}

/// How tables store counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Eight integers of one byte, in the table's byte order.
    #[default]
    Bytes,
    /// One integer of eight bytes.
    Number,
}

#[derive(Debug)]
struct Table {
    object: ObjectId,
    phys: BrtVdevPhys,
    counts: Vec<u16>,
    is_changed: bool,
}

impl Clones {
    pub(crate) async fn load(mos: &Mos) -> Result<Clones> {
        let mut tables = BTreeMap::new();
        for brt in mos.cloned_blocks().await? {
            let name = format!("{BRT_OBJECT_VDEV_PREFIX}{}", brt.vdev.0);
            let Some(object) = mos.directory_u64(&name).await?.map(ObjectId) else { continue };
            let array = mos.objset().object(object).await?;
            let vdev_bytes = mos.pool().tree().vdevs().top(brt.vdev).map_or(0, |top| top.asize_bytes);
            let ranges_of_vdev = vdev_bytes.div_ceil(BRT_RANGE_BYTES);
            if brt.phys.range_count > ranges_of_vdev.min(array.capacity_bytes() / 2) {
                return Err(array.damaged("counts more ranges than it has room for"));
            }
            let raw = array.read(0, brt.phys.range_count as usize * 2).await?;
            let counts = decode_entry_counts(&raw, brt.phys.endian()).collect();
            tables.insert(brt.vdev, Table { object, phys: brt.phys, counts, is_changed: false });
        }
        let features = mos.features().await?;
        let has_numbers = features
            .iter()
            .any(|(feature, state)| feature.name == NUMBERS_FEATURE && *state == FeatureState::Active);
        Ok(Clones { tables, form: if has_numbers { Form::Number } else { Form::Bytes } })
    }

    pub(crate) fn saved_bytes(&self) -> u64 {
        self.tables.values().map(|table| table.phys.saved_bytes).fold(0, u64::saturating_add)
    }

    pub(crate) async fn add(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<()> {
        let Some(dva) = bp.dvas().next() else { return Ok(()) };
        if pool.tree().vdevs().top(dva.vdev).is_none_or(|top| dva.offset_bytes >= top.asize_bytes) {
            return Err(
                mos.damaged(DMU_POOL_DIRECTORY_OBJECT, "would count a cloned block beyond a vdev's end")
            );
        }
        if !self.tables.contains_key(&dva.vdev) {
            self.form = self.form_of_new_table(mos).await?;
        }
        let form = self.form;
        let table = match self.tables.entry(dva.vdev) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Table::create(mos, pool, dva.vdev).await?),
        };
        let (endian, dsize) = (table.phys.endian(), pool.tree().vdevs().dsize(bp));
        let entries = ZapEdit::new(mos, table.phys.entries_zap);
        let key = &[dva.offset_bytes][..];
        let in_range = table.count_at(dva.offset_bytes);
        let known = if *in_range > 0 { entries.get(key).await? } else { None };
        let count = match known.map(|value| brt_count(&value, endian)) {
            None => 0,
            Some(Some(count)) => count,
            // The count is unreadable and stays so.
            Some(None) => return Ok(()),
        };
        entries.update(key, form.value(count + 1, endian)).await?;
        let phys = &mut table.phys;
        phys.saved_bytes = phys.saved_bytes.saturating_add(dsize);
        if count == 0 {
            *table.count_at(dva.offset_bytes) += 1;
            table.phys.used_bytes = table.phys.used_bytes.saturating_add(dsize);
            table.phys.total_count += 1;
        }
        table.is_changed = true;
        Ok(())
    }

    /// The entry to read, if the block may have one.
    pub(crate) fn lookup(&self, bp: &Blkptr) -> Option<Lookup> {
        let dva = bp.dvas().next()?;
        let table = self.tables.get(&dva.vdev)?;
        let count = table.counts.get(table.phys.range_of(dva.offset_bytes)? as usize)?;
        (*count > 0).then_some(Lookup { zap: table.phys.entries_zap, offset_bytes: dva.offset_bytes })
    }

    /// Drops a reference to a block. Returns whether that was the last.
    pub(crate) async fn release(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<bool> {
        let Some(dva) = bp.dvas().next() else { return Ok(true) };
        let form = self.form;
        let Some(table) = self.tables.get_mut(&dva.vdev) else { return Ok(true) };
        let Some(range) = table.phys.range_of(dva.offset_bytes) else { return Ok(true) };
        let in_range = table.counts.get_mut(range as usize).filter(|count| **count > 0);
        let Some(in_range) = in_range else { return Ok(true) };
        let entries = ZapEdit::new(mos, table.phys.entries_zap);
        let key = &[dva.offset_bytes][..];
        let endian = table.phys.endian();
        let Some(value) = entries.get(key).await? else { return Ok(true) };
        // Better a leak than a free under another owner.
        let Some(count) = brt_count(&value, endian) else {
            pool.read_errors()
                .note_leak(pool.tree().vdevs().dsize(bp), &"nobody knows how many files share it");
            return Ok(false);
        };
        let dsize = pool.tree().vdevs().dsize(bp);
        let phys = &mut table.phys;
        phys.saved_bytes = phys.saved_bytes.saturating_sub(dsize);
        if count > 1 {
            entries.update(key, form.value(count - 1, endian)).await?;
        } else {
            entries.remove(key).await?;
            *in_range -= 1;
            phys.used_bytes = phys.used_bytes.saturating_sub(dsize);
            phys.total_count = phys.total_count.saturating_sub(1);
        }
        table.is_changed = true;
        Ok(false)
    }

    pub(crate) async fn write(&mut self, mos: &Edit) -> Result<()> {
        for table in self.tables.values_mut().filter(|table| table.is_changed) {
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
        let empty: Vec<VdevId> = self.tables.iter().filter(is_empty).map(|(vdev, _)| *vdev).collect();
        for vdev in empty {
            let Some(table) = self.tables.remove(&vdev) else { continue };
            mos.destroy(table.phys.entries_zap).await?;
            mos.destroy(table.object).await?;
            let name = format!("{BRT_OBJECT_VDEV_PREFIX}{}", vdev.0);
            ZapEdit::new(mos, DMU_POOL_DIRECTORY_OBJECT).remove(&name).await?;
            FeatureCounts::of(mos).change(FEATURE, -1).await?;
            if self.form == Form::Number {
                FeatureCounts::of(mos).change(NUMBERS_FEATURE, -1).await?;
            }
        }
        Ok(())
    }

    /// The form of all tables once another is made (`brt_vdev_create`).
    async fn form_of_new_table(&self, mos: &Edit) -> Result<Form> {
        let counts = FeatureCounts::of(mos);
        let has_older = !self.tables.is_empty() || counts.count(FEATURE).await?.unwrap_or(0) > 0;
        let form = match counts.count(NUMBERS_FEATURE).await? {
            None => Form::Bytes,
            Some(0) if has_older => Form::Bytes,
            Some(_) => Form::Number,
        };
        if form == Form::Number {
            counts.change(NUMBERS_FEATURE, 1).await?;
        }
        Ok(form)
    }
}

impl Form {
    fn value(self, count: u64, endian: Endian) -> ZapValue {
        match (self, endian) {
            (Form::Number, _) => ZapValue::from(count),
            (Form::Bytes, Endian::Little) => ZapValue::new(1, count.to_le_bytes().to_vec().into()),
            (Form::Bytes, Endian::Big) => ZapValue::new(1, count.to_be_bytes().to_vec().into()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Lookup {
    zap: ObjectId,
    offset_bytes: u64,
}

impl Lookup {
    /// Reads the entry into the cache; needs no lock. Errors surface at the later read.
    pub(crate) async fn read_ahead(self, mos: &Edit) {
        let _ = ZapEdit::new(mos, self.zap).get(&[self.offset_bytes][..]).await;
    }
}

impl Table {
    async fn create(mos: &Edit, pool: &Pool, vdev: VdevId) -> Result<Table> {
        let object = NewObject::of(ObjectType::ZAP_METADATA).indirect_block_shift(ENTRIES_BLOCK_SHIFT);
        let entries = NewZap::in_object(object)
            .with_flags(ZAP_FLAG_HASH64 | ZAP_FLAG_UINT64_KEY, ENTRIES_BLOCK_SHIFT.into())
            .create(mos)
            .await?;
        // OpenZFS rejects a table beyond whole metaslabs.
        let whole = |top: &VdevConfig| top.asize_bytes & (u64::MAX << top.metaslab_shift.min(63));
        let bytes = pool.tree().vdevs().top(vdev).map_or(0, whole);
        let range_count = bytes.div_ceil(BRT_RANGE_BYTES).max(1);
        let phys = BrtVdevPhys {
            entries_zap: entries,
            range_count,
            byteorder: u64::from(Endian::NATIVE == Endian::Big),
            total_count: 0,
            range_bytes: BRT_RANGE_BYTES,
            used_bytes: 0,
            saved_bytes: 0,
        };
        let array = NewObject::of(ObjectType::UINT64_METADATA)
            .block_bytes(COUNTS_BLOCK_BYTES)
            .bonus(ObjectType::UINT64_METADATA, phys.encode(Endian::NATIVE));
        let object = mos.create(&array).await?;
        let name = format!("{BRT_OBJECT_VDEV_PREFIX}{}", vdev.0);
        ZapEdit::new(mos, DMU_POOL_DIRECTORY_OBJECT).add(&name, object.0).await?;
        FeatureCounts::of(mos).change(FEATURE, 1).await?;
        Ok(Table { object, phys, counts: vec![0; range_count as usize], is_changed: true })
    }

    /// The vdev may have grown.
    fn count_at(&mut self, offset_bytes: u64) -> &mut u16 {
        let range = (offset_bytes / self.phys.range_bytes.max(1)) as usize;
        if range >= self.counts.len() {
            self.counts.resize(range + 1, 0);
            self.phys.range_count = self.counts.len() as u64;
        }
        &mut self.counts[range]
    }
}
