//! Changes to deduplication tables.
//!
//! ```text
//!   find: entries of this pass -> ZAPs by class
//!   write: class by references -> one ZAP, out of the other
//! ```
//!
//! Idea: an entry looked up moves into memory and out of the statistics. At the end of the pass it goes to
//! the ZAP for its count, unique or duplicate; without references, its block is free. So an entry is written
//! once a pass.
//!
//! Tables of feature `fast_dedup` collect changes in a log before the ZAPs. This module starts no log, and
//! empties an existing one with the first change.
//!
//! A missing entry was pruned ([`DedupTables::prune`]): its block has one owner. In memory it stands without
//! references, so that it is looked up once, and is dropped at the end of the pass.
//!
//! Only `write` changes ZAPs, so an earlier [`Lookup`] stays valid until then.
//!
//! Memory: the entries of a pass, and of the logs.
//!
//! A block known with too few copies is stored again outside the table; OpenZFS would add copies to the
//! entry.
//!
//! Source: OpenZFS `ddt.c` (`ddt_lookup`, `ddt_sync_flush_entry`, `ddt_sync_update_stats`), `ddt_zap.c`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_dataset::Mos;
use cenote_dataset::sharing::ddt::{statistics, unpack};
use cenote_format::blkptr::{Blkptr, Dva, SPA_DVAS_PER_BP};
use cenote_format::bytes::Endian;
use cenote_format::ddt::{
    DDT_CHECKSUMS, DDT_DIR_FLAGS, DDT_DIR_VERSION, DDT_FLAG_FLAT, DDT_FLAG_LOG, DdtClass, DdtHistogram,
    DdtKey, DdtPhys, DdtStat, DdtValue, ddt_blkptr, ddt_dir_name, ddt_log_name, ddt_object_name,
};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::units::ObjectId;
use cenote_format::words::{Phys, Words};
use cenote_format::zap::{ZAP_FLAG_HASH64, ZAP_FLAG_PRE_HASHED_KEY, ZAP_FLAG_UINT64_KEY};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{Edit, NewObject, NewZap, Result, Zap, ZapEdit, ZapValue};
use cenote_pool::Pool;

/// `ddt_zap_default_bs`, `ddt_zap_default_ibs`.
const BLOCK_SHIFT: u8 = 15;
const FEATURE: &str = "fast_dedup";
/// `DDT_VERSION_FDT`.
const DDT_VERSION_FDT: u64 = 1;
/// Obsolete set of a traditional entry for extra copies (`DDT_PHYS_DITTO`).
const DITTO_SET: usize = 0;

#[derive(Debug, Default)]
pub(crate) struct DedupTables(BTreeMap<u8, Table>);

#[derive(Debug)]
struct Table {
    checksum_id: u8,
    checksum: &'static str,
    flat: bool,
    /// Lists the ZAPs and logs: its own directory, or the pool's.
    directory: ObjectId,
    zaps: [Option<ObjectId>; DdtClass::ALL.len()],
    histograms: [DdtHistogram; DdtClass::ALL.len()],
    /// In memory and not in the statistics.
    live: BTreeMap<DdtWords, Live>,
    /// Their entries are in memory.
    logs: Vec<(String, ObjectId)>,
    is_changed: bool,
}

type DdtWords = Vec<u64>;

#[derive(Debug)]
struct Live {
    key: DdtKey,
    value: DdtValue,
    /// The class whose ZAP holds it.
    stored: Option<DdtClass>,
    /// Its references have changed since it was stored.
    is_changed: bool,
}

impl DedupTables {
    pub(crate) fn saved_bytes(&self, pool: &Pool) -> u64 {
        let mut sum = DdtStat::default();
        for table in self.0.values() {
            table.histograms.iter().flat_map(|histogram| &histogram.buckets).for_each(|bucket| sum += bucket);
            table.live.values().for_each(|live| sum += &statistics(pool, &live.key, &live.value));
        }
        sum.referenced_dsize_bytes.saturating_sub(sum.dsize_bytes)
    }

    pub(crate) fn are_some(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) async fn load(mos: &Mos) -> Result<DedupTables> {
        let mut tables = BTreeMap::new();
        for ddt in mos.dedup_tables().await? {
            let Some((_, checksum)) = DDT_CHECKSUMS.iter().find(|(id, _)| *id == ddt.checksum_id) else {
                continue;
            };
            let own = mos.directory_u64(&ddt_dir_name(checksum)).await?.map(ObjectId);
            let directory = own.unwrap_or(DMU_POOL_DIRECTORY_OBJECT);
            let names = Zap::open_id(mos.objset(), directory).await?;
            let mut table = Table::new(ddt.checksum_id, checksum, ddt.is_flat(), directory);
            for class in DdtClass::ALL {
                let name = ddt_object_name(checksum, class);
                table.zaps[class as usize] = names.get_u64(&name).await?.map(ObjectId);
                table.histograms[class as usize] = histogram(mos, &name).await?;
            }
            for index in 0..2 {
                let name = ddt_log_name(checksum, index);
                if let Some(log) = names.get_u64(&name).await? {
                    table.logs.push((name, ObjectId(log)));
                }
            }
            for (words, item) in ddt.logged().await? {
                let live = Live { key: item.key, value: item.value, stored: item.class, is_changed: false };
                table.live.insert(words, live);
            }
            tables.insert(ddt.checksum_id, table);
        }
        Ok(DedupTables(tables))
    }

    /// The entry to read first; `None`: it is in memory.
    pub(crate) fn lookup(&self, bp: &Blkptr) -> Option<Lookup> {
        self.0.get(&bp.checksum_id())?.lookup(DdtKey::of(bp))
    }

    pub(crate) fn admit(&mut self, pool: &Pool, found: Found) {
        if let Some(table) = self.0.get_mut(&found.checksum_id) {
            table.admit(pool, found.key, found.stored);
        }
    }

    /// A known block with the content of `bp`, which has no addresses yet, and as many copies.
    pub(crate) async fn find_alike(
        &mut self,
        mos: &Edit,
        pool: &Pool,
        bp: &Blkptr,
        copies: u8,
    ) -> Result<Alike> {
        let Some(table) = self.0.get_mut(&bp.checksum_id()) else { return Ok(Alike::None) };
        let number = table.set_for(copies.into());
        let live = table.find(mos, pool, DdtKey::of(bp)).await?;
        let Some(set) = live.value.sets().get(number).copied() else { return Ok(Alike::None) };
        if set.phys_birth.0 == 0 {
            return Ok(Alike::None);
        }
        let found = bp.with_dvas(&set.dvas).with_births(mos.txg(), set.phys_birth).with_dedup(true);
        match found.dvas().count() >= copies.into() {
            true => Ok(Alike::Block(found)),
            false => Ok(Alike::TooFew),
        }
    }

    /// Adds a reference; `false`: no table has the block.
    pub(crate) async fn share(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<bool> {
        self.count(mos, pool, bp, 1).await
    }

    pub(crate) async fn enter(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<()> {
        if let Entry::Vacant(place) = self.0.entry(bp.checksum_id()) {
            let Some(table) = Table::create(mos, bp.checksum_id()).await? else { return Ok(()) };
            place.insert(table);
        }
        let Some(table) = self.0.get_mut(&bp.checksum_id()) else { return Ok(()) };
        let number = table.set_for(bp.dvas().count());
        let mut dvas = [Dva::default(); SPA_DVAS_PER_BP];
        dvas.iter_mut().zip(bp.dvas()).for_each(|(place, dva)| *place = dva);
        let set = DdtPhys { dvas, refcount: 1, phys_birth: bp.physical_birth() };
        table.find(mos, pool, DdtKey::of(bp)).await?.put_set(number, set);
        table.is_changed = true;
        Ok(())
    }

    /// Drops a reference; `false`: no table has the block.
    pub(crate) async fn release(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<bool> {
        self.count(mos, pool, bp, -1).await
    }

    async fn count(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr, delta: i64) -> Result<bool> {
        let Some(table) = self.0.get_mut(&bp.checksum_id()) else { return Ok(false) };
        let live = table.find(mos, pool, DdtKey::of(bp)).await?;
        let first = bp.dvas().next();
        let is_of = |set: &DdtPhys| first == Some(set.dvas[0]) && set.phys_birth == bp.physical_birth();
        let sets = live.value.sets();
        let Some(number) = sets.iter().position(is_of) else { return Ok(false) };
        let set = sets[number];
        live.put_set(number, DdtPhys { refcount: set.refcount.saturating_add_signed(delta), ..set });
        table.is_changed = true;
        Ok(true)
    }

    /// Forgets a block with one reference, whose entry is that old and was just read. The block stays with
    /// its owner. Returns `false` if the entry has changed meanwhile.
    pub(crate) fn prune(&mut self, pool: &Pool, found: Found, before_s: u64) -> bool {
        let Some(table) = self.0.get_mut(&found.checksum_id) else { return false };
        let is_old = |value: &DdtValue| match value {
            DdtValue::Flat(flat) => flat.refcount == 1 && flat.class_start_s < before_s,
            DdtValue::Traditional(_) => false,
        };
        let is_unique =
            matches!(&found.stored, Some((DdtClass::Unique, value)) if is_old(value) && table.flat);
        if !is_unique || table.lookup(found.key).is_none() {
            return false;
        }
        let live = table.admit(pool, found.key, found.stored);
        // Without a set, no block is freed when the entry goes.
        live.value = DdtValue::empty(true, before_s);
        true
    }

    /// Returns blocks without references.
    pub(crate) async fn write(&mut self, mos: &Edit, pool: &Pool) -> Result<Vec<Blkptr>> {
        let mut free = Vec::new();
        for table in self.0.values_mut() {
            if std::mem::take(&mut table.is_changed) {
                table.write(mos, pool, &mut free).await?;
            }
        }
        self.0.retain(|_, table| table.zaps.iter().any(Option::is_some) || !table.live.is_empty());
        Ok(free)
    }
}

impl Live {
    fn put_set(&mut self, number: usize, set: DdtPhys) {
        self.value.put_set(number, set);
        self.is_changed = true;
    }
}

#[derive(Debug)]
pub(crate) struct Lookup {
    checksum_id: u8,
    key: DdtKey,
    zaps: [Option<ObjectId>; DdtClass::ALL.len()],
    flat: bool,
}

#[derive(Debug)]
pub(crate) struct Found {
    checksum_id: u8,
    key: DdtKey,
    stored: Option<(DdtClass, DdtValue)>,
}

impl Lookup {
    /// Needs no lock.
    pub(crate) async fn read(self, mos: &Edit) -> Result<Found> {
        let Lookup { checksum_id, key, zaps, flat } = self;
        let words = key.to_words();
        for class in DdtClass::ALL {
            let Some(zap) = zaps[class as usize] else { continue };
            if let Some(value) = ZapEdit::new(mos, zap).get(&words[..]).await? {
                let value = unpack(&value, flat);
                let value = value.ok_or_else(|| mos.damaged(zap, "has an entry that is none of a block"))?;
                return Ok(Found { checksum_id, key, stored: Some((class, value)) });
            }
        }
        Ok(Found { checksum_id, key, stored: None })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alike {
    None,
    Block(Blkptr),
    /// The block is known, in fewer copies.
    TooFew,
}

impl Table {
    /// `None`: the algorithm can't identify blocks.
    async fn create(mos: &Edit, checksum_id: u8) -> Result<Option<Table>> {
        let Some((_, checksum)) = DDT_CHECKSUMS.iter().find(|(id, _)| *id == checksum_id) else {
            return Ok(None);
        };
        let pool_directory = ZapEdit::new(mos, DMU_POOL_DIRECTORY_OBJECT);
        if pool_directory.get(names::DDT_STATS).await?.is_none() {
            let all = NewZap::of(ObjectType::DDT_STATS).create(mos).await?;
            pool_directory.add(names::DDT_STATS, all.0).await?;
        }
        if FeatureCounts::of(mos).count(FEATURE).await?.is_none() {
            return Ok(Some(Table::new(checksum_id, checksum, false, DMU_POOL_DIRECTORY_OBJECT)));
        }
        let directory = NewZap::of(ObjectType::ZAP_METADATA).create(mos).await?;
        pool_directory.add(&ddt_dir_name(checksum), directory.0).await?;
        let fields = ZapEdit::new(mos, directory);
        fields.add(DDT_DIR_VERSION, DDT_VERSION_FDT).await?;
        fields.add(DDT_DIR_FLAGS, DDT_FLAG_FLAT | DDT_FLAG_LOG).await?;
        FeatureCounts::of(mos).change(FEATURE, 1).await?;
        Ok(Some(Table::new(checksum_id, checksum, true, directory)))
    }

    fn set_for(&self, copies: usize) -> usize {
        if self.flat { 0 } else { copies }
    }

    fn new(checksum_id: u8, checksum: &'static str, flat: bool, directory: ObjectId) -> Table {
        Table {
            checksum_id,
            checksum,
            flat,
            directory,
            zaps: Default::default(),
            histograms: std::array::from_fn(|_| DdtHistogram::default()),
            live: BTreeMap::new(),
            logs: Vec::new(),
            is_changed: false,
        }
    }

    async fn find(&mut self, mos: &Edit, pool: &Pool, key: DdtKey) -> Result<&mut Live> {
        let stored = match self.lookup(key) {
            Some(lookup) => lookup.read(mos).await?.stored,
            None => None,
        };
        Ok(self.admit(pool, key, stored))
    }

    fn lookup(&self, key: DdtKey) -> Option<Lookup> {
        let is_known = self.live.contains_key(&key.to_words());
        let Table { checksum_id, zaps, flat, .. } = *self;
        (!is_known).then_some(Lookup { checksum_id, key, zaps, flat })
    }

    fn admit(&mut self, pool: &Pool, key: DdtKey, stored: Option<(DdtClass, DdtValue)>) -> &mut Live {
        let place = match self.live.entry(key.to_words()) {
            Entry::Occupied(known) => return known.into_mut(),
            Entry::Vacant(place) => place,
        };
        self.is_changed = true;
        let Some((class, value)) = stored else {
            let value = DdtValue::empty(self.flat, pool.runtime().unix_time_ns() / 1_000_000_000);
            return place.insert(Live { key, value, stored: None, is_changed: false });
        };
        let entry = statistics(pool, &key, &value);
        if let Some(bucket) = self.histograms[class as usize].bucket(&entry) {
            *bucket -= &entry;
        }
        place.insert(Live { key, value, stored: Some(class), is_changed: false })
    }

    async fn write(&mut self, mos: &Edit, pool: &Pool, free: &mut Vec<Blkptr>) -> Result<()> {
        for (words, mut live) in std::mem::take(&mut self.live) {
            self.drop_unused(&mut live, free);
            let references = live.value.refcount();
            let class = match references {
                0 => None,
                1 => Some(DdtClass::Unique),
                _ => Some(DdtClass::Duplicate),
            };
            if let Some(stored) = live.stored.filter(|stored| Some(*stored) != class)
                && let Some(zap) = self.zaps[stored as usize]
            {
                ZapEdit::new(mos, zap).remove(&words[..]).await?;
            }
            let Some(class) = class else { continue };
            if let (DdtValue::Flat(flat), true) = (&mut live.value, live.is_changed) {
                flat.class_start_s = pool.runtime().unix_time_ns() / 1_000_000_000;
            }
            let entry = statistics(pool, &live.key, &live.value);
            if let Some(bucket) = self.histograms[class as usize].bucket(&entry) {
                *bucket += &entry;
            }
            let zap = self.zap(mos, class).await?;
            ZapEdit::new(mos, zap).update(&words[..], pack(&live.value)).await?;
        }
        self.drop_logs(mos).await?;
        self.write_statistics(mos).await
    }

    fn drop_unused(&self, live: &mut Live, free: &mut Vec<Blkptr>) {
        for (number, set) in live.value.sets().into_iter().enumerate() {
            let is_ditto = !self.flat && number == DITTO_SET;
            if set.phys_birth.0 != 0 && (set.refcount == 0 || is_ditto) {
                free.push(ddt_blkptr(self.checksum_id, &live.key, &set));
                live.value.put_set(number, DdtPhys::from_words(&[0; DdtPhys::COUNT]).unwrap_or(set));
            }
        }
    }

    async fn zap(&mut self, mos: &Edit, class: DdtClass) -> Result<ObjectId> {
        if let Some(zap) = self.zaps[class as usize] {
            return Ok(zap);
        }
        let is_hash = Checksum::try_from(self.checksum_id).is_ok_and(|checksum| checksum != Checksum::EdonR);
        let prehashed = if is_hash { ZAP_FLAG_PRE_HASHED_KEY } else { 0 };
        let object = NewObject::of(ObjectType::DDT_ZAP).indirect_block_shift(BLOCK_SHIFT);
        let flags = ZAP_FLAG_HASH64 | ZAP_FLAG_UINT64_KEY | prehashed;
        let zap = NewZap::in_object(object).with_flags(flags, BLOCK_SHIFT.into()).create(mos).await?;
        ZapEdit::new(mos, self.directory).add(&ddt_object_name(self.checksum, class), zap.0).await?;
        self.zaps[class as usize] = Some(zap);
        Ok(zap)
    }

    /// Their entries are in the ZAPs by now.
    async fn drop_logs(&mut self, mos: &Edit) -> Result<()> {
        for (name, log) in std::mem::take(&mut self.logs) {
            mos.destroy(log).await?;
            ZapEdit::new(mos, self.directory).remove(&name).await?;
        }
        Ok(())
    }

    async fn write_statistics(&mut self, mos: &Edit) -> Result<()> {
        let all = ZapEdit::new(mos, DMU_POOL_DIRECTORY_OBJECT).get(names::DDT_STATS).await?;
        let all = all.and_then(|id| id.as_u64()).map(ObjectId);
        let all =
            all.ok_or_else(|| mos.damaged(DMU_POOL_DIRECTORY_OBJECT, "has no statistics of its tables"))?;
        let mut entries = 0;
        for zap in self.zaps.iter().flatten() {
            entries += Zap::open_id(&mos.view(), *zap).await?.count();
        }
        for class in DdtClass::ALL {
            let Some(zap) = self.zaps[class as usize] else { continue };
            let name = ddt_object_name(self.checksum, class);
            if entries > 0 {
                let words = self.histograms[class as usize].to_words();
                ZapEdit::new(mos, all).update(&name, ZapValue::from_words(&words)).await?;
                continue;
            }
            mos.destroy(zap).await?;
            self.zaps[class as usize] = None;
            ZapEdit::new(mos, self.directory).remove(&name).await?;
            ZapEdit::new(mos, all).remove(&name).await?;
        }
        if entries == 0 && self.directory != DMU_POOL_DIRECTORY_OBJECT {
            mos.destroy(self.directory).await?;
            ZapEdit::new(mos, DMU_POOL_DIRECTORY_OBJECT).remove(&ddt_dir_name(self.checksum)).await?;
            FeatureCounts::of(mos).change(FEATURE, -1).await?;
        }
        Ok(())
    }
}

async fn histogram(mos: &Mos, name: &str) -> Result<DdtHistogram> {
    let Some(all) = mos.directory_zap(names::DDT_STATS).await? else { return Ok(DdtHistogram::default()) };
    match all.lookup(name.as_bytes()).await? {
        None => Ok(DdtHistogram::default()),
        Some(value) => {
            let words: Vec<u64> = value.words().collect();
            DdtHistogram::from_words(&words).map_err(|e| all.object().format(e))
        }
    }
}

/// Packed if shorter (`ddt_zap_compress`).
fn pack(value: &DdtValue) -> ZapValue {
    let raw = value.encode_unpacked(Endian::NATIVE);
    let packed = Compression::Zle.compress(&raw, raw.len() - 1, ZstdLevel::DEFAULT).ok().flatten();
    ZapValue::new(1, Bytes::from(value.encode_as(Endian::NATIVE, packed.as_deref())))
}
