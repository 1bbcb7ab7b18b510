//! Lists of block pointers: bpobjs, and the deadlists and livelists made of them.
//!
//! Idea: a bpobj is an object of block pointers, and may name others whose blocks belong to it too. A
//! deadlist is a table of bpobjs by birth, so that blocks born before a snapshot are found without reading
//! the rest. Pools before version 26 have a plain bpobj instead.
//!
//! Invariants: subobjects are visited to a bounded depth; counts are checked against the size of their
//! object.
//!
//! Source: OpenZFS `bpobj.c`, `dsl_deadlist.c`.

mod append;
mod edit;
mod keys;
mod remains;

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_format::Phys;
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::bpobj::{BpobjEntry, BpobjPhys};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::deadlist::{DeadlistPhys, parse_deadlist_key};
use cenote_format::units::{ObjectId, Txg};

use crate::error::Result;
use crate::object::Object;
use crate::objset::Objset;
use crate::trail::Trail;
use crate::zap::Zap;

pub use append::{BlockLists, BlockSpace};
pub use edit::{DeadlistEdit, PutAside};
pub use remains::Remains;

/// Depth of subobjects; OpenZFS makes two levels.
const MAX_DEPTH: usize = 8;
/// Block pointers read at once: 1 MiB.
const WINDOW: u64 = 8192;
/// Words of a block pointer.
const WORDS: u64 = 16;

/// A list of block pointers.
#[derive(Debug, Clone)]
pub struct Bpobj {
    object: Object,
    phys: BpobjPhys,
}

impl Bpobj {
    /// Opens an object that must be a bpobj.
    ///
    /// # Errors
    /// No bpobj; damage.
    #[boxed]
    pub async fn open(objset: &Objset, id: ObjectId) -> Result<Bpobj> {
        let object = objset.object(id).await?;
        let phys = BpobjPhys::decode(object.dnode().bonus(), object.dnode().endian());
        let phys = phys.map_err(|e| object.format(e))?;
        if phys.blkptr_count > object.capacity_bytes() / (WORDS * 8) {
            return Err(object.damaged("claims more block pointers than it has room for"));
        }
        Ok(Bpobj { object, phys })
    }

    /// Counts and space, with subobjects.
    pub fn phys(&self) -> &BpobjPhys {
        &self.phys
    }

    /// All entries, with subobjects.
    pub fn entries(&self) -> BpobjEntries {
        let trail = Trail::new(self.object.objset(), "lists within one another");
        BpobjEntries { pending: vec![(self.clone(), 0)], next: 0, trail }
    }

    /// Live blocks of a livelist's list.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn live_blocks(&self) -> Result<Vec<Blkptr>> {
        let mut live = LiveBlocks::default();
        let mut entries = self.entries();
        while let Some(batch) = entries.next_batch().await {
            batch?.into_iter().for_each(|entry| live.note(entry));
        }
        Ok(live.into_sorted())
    }

    async fn subobjects(&self) -> Result<Vec<ObjectId>> {
        if self.phys.subobj_count == 0 || self.phys.subobjs.0 == 0 {
            return Ok(Vec::new());
        }
        let list = self.object.objset().object(self.phys.subobjs).await?;
        if self.phys.subobj_count > list.capacity_bytes() / 8 {
            return Err(self.object.damaged("claims more lists within it than it has room for"));
        }
        let words = list.read_table(0, self.phys.subobj_count).await?;
        Ok(words.into_iter().map(ObjectId).collect())
    }
}

/// Blocks listed more often as written than as dead; by address, for a reproducible order of frees.
#[derive(Default)]
struct LiveBlocks(BTreeMap<(Option<Dva>, Txg), (i64, Blkptr)>);

impl LiveBlocks {
    fn note(&mut self, BpobjEntry { bp, freed }: BpobjEntry) {
        let key = (bp.dvas().next(), bp.allocation_birth());
        let (count, _) = self.0.entry(key).or_insert((0, bp));
        *count += if freed { -1 } else { 1 };
        if *count == 0 {
            self.0.remove(&key);
        }
    }

    fn into_sorted(self) -> Vec<Blkptr> {
        // Cloned and deduplicated blocks may occur several times.
        let times = |(count, bp): (i64, Blkptr)| std::iter::repeat_n(bp, count.max(0) as usize);
        self.0.into_values().flat_map(times).collect()
    }
}

/// An iteration over the entries of a bpobj.
#[derive(Debug)]
pub struct BpobjEntries {
    /// Lists to read, with their depth; the last is being read.
    pending: Vec<(Bpobj, usize)>,
    next: u64,
    trail: Trail,
}

impl BpobjEntries {
    /// `None` after the last; an error ends it.
    #[boxed]
    pub async fn next_batch(&mut self) -> Option<Result<Vec<BpobjEntry>>> {
        let batch = self.read().await;
        if batch.is_err() {
            self.pending.clear();
        }
        batch.transpose()
    }

    async fn read(&mut self) -> Result<Option<Vec<BpobjEntry>>> {
        let Some((list, depth)) = self.pending.last().cloned() else { return Ok(None) };
        let count = WINDOW.min(list.phys.blkptr_count - self.next);
        if count == 0 {
            self.pending.pop();
            self.next = 0;
            for id in list.subobjects().await? {
                if depth >= MAX_DEPTH {
                    return Err(list.object.damaged("lists within lists, deeper than can be"));
                }
                self.trail.enter(id)?;
                self.pending.push((Bpobj::open(list.object.objset(), id).await?, depth + 1));
            }
            return Ok(Some(Vec::new()));
        }
        let words = list.object.read_table(self.next * WORDS, count * WORDS).await?;
        self.next += count;
        let (pointers, _) = words.as_chunks::<{ WORDS as usize }>();
        Ok(Some(pointers.iter().map(|w| BpobjEntry::from_blkptr(Blkptr::from_words(*w))).collect()))
    }
}

/// Blocks of the previous snapshot that died before this version; or a livelist.
#[derive(Debug, Clone)]
pub enum Deadlist {
    /// One list (pools before version 26).
    Flat(Option<Bpobj>),
    /// Lists by birth.
    ByBirth {
        /// The sum.
        phys: DeadlistPhys,
        /// One list per snapshot: read only when needed.
        table: Object,
    },
}

impl Deadlist {
    /// Opens a deadlist of either form; number 0 is empty.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn open(objset: &Objset, id: ObjectId) -> Result<Deadlist> {
        if id.0 == 0 {
            return Ok(Deadlist::Flat(None));
        }
        let object = objset.object(id).await?;
        if object.dnode().object_type != ObjectType::DEADLIST {
            return Ok(Deadlist::Flat(Some(Bpobj::open(objset, id).await?)));
        }
        let phys = DeadlistPhys::decode(object.dnode().bonus(), object.dnode().endian());
        let phys = phys.map_err(|e| object.format(e))?;
        Ok(Deadlist::ByBirth { phys, table: object })
    }

    /// Lists by the txg after which their blocks were born; none in a plain list.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn by_birth(&self) -> Result<Vec<(Txg, ObjectId)>> {
        let mut lists = Vec::new();
        self.each_key(|_| true, |key, list| lists.push((key, list))).await?;
        lists.sort_unstable();
        Ok(lists)
    }

    async fn each_key(
        &self,
        mut is_wanted: impl FnMut(ObjectId) -> bool,
        mut each: impl FnMut(Txg, ObjectId),
    ) -> Result<()> {
        let Deadlist::ByBirth { table, .. } = self else { return Ok(()) };
        let pass_on = |name: &[u8], list| {
            each(parse_deadlist_key(name)?, ObjectId(list));
            Ok(())
        };
        // Destroying snapshots reads thousands of such tables, each once.
        let table = Zap::open(table.uncached()).await?;
        table.each_number(|list| is_wanted(ObjectId(list)), pass_on).await
    }

    /// Space of all its blocks.
    pub fn bytes(&self) -> u64 {
        match self {
            Deadlist::Flat(list) => list.as_ref().map_or(0, |list| list.phys.bytes),
            Deadlist::ByBirth { phys, .. } => phys.used_bytes,
        }
    }

    /// Space of blocks born in this txg or before. Exact if a snapshot was taken then.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn bytes_born_up_to(&self, txg: Txg) -> Result<u64> {
        // The list under key T has blocks born after T: `mintxg` is the snapshot before.
        self.bytes_of(|from| from < txg, |birth| birth <= txg).await
    }

    /// Space of blocks born after this txg. Exact if a snapshot was taken then.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn bytes_born_after(&self, txg: Txg) -> Result<u64> {
        self.bytes_of(|from| from >= txg, |birth| birth > txg).await
    }

    /// Selects lists by key, or blocks of a plain list by birth.
    async fn bytes_of(&self, is_key: impl Fn(Txg) -> bool, is_birth: impl Fn(Txg) -> bool) -> Result<u64> {
        let mut bytes = 0u64;
        match self {
            Deadlist::Flat(None) => {}
            Deadlist::Flat(Some(list)) => {
                let mut entries = list.entries();
                while let Some(batch) = entries.next_batch().await {
                    let counted = batch?.into_iter().filter(|e| is_birth(e.bp.allocation_birth()));
                    bytes = counted.fold(bytes, |sum, e| sum.saturating_add(e.bp.asize().0));
                }
            }
            Deadlist::ByBirth { phys, .. } if phys.used_bytes == 0 => {}
            Deadlist::ByBirth { table, .. } => {
                // Most are the same empty list.
                let mut empty = None;
                for (_, list) in self.by_birth().await?.into_iter().filter(|(from, _)| is_key(*from)) {
                    if empty == Some(list) {
                        continue;
                    }
                    let opened = Bpobj::open(table.objset(), list).await?;
                    empty = if opened.phys.bytes == 0 { Some(list) } else { empty };
                    bytes = bytes.saturating_add(opened.phys.bytes);
                }
            }
        }
        Ok(bytes)
    }

    /// Its lists: one, or one for each span of births.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn lists(&self) -> Result<Vec<Bpobj>> {
        match self {
            Deadlist::Flat(list) => Ok(list.iter().cloned().collect()),
            Deadlist::ByBirth { table, .. } => {
                let mut opened = Vec::new();
                for (_, list) in self.by_birth().await? {
                    opened.push(Bpobj::open(table.objset(), list).await?);
                }
                Ok(opened)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_livelist_come_by_address_whatever_the_order_of_writing() {
        let block = |n: u64| {
            let mut words = [0; 16];
            // One sector each at scattered addresses, born in txg 7.
            (words[0], words[1], words[6], words[10]) = (1, n * 37 % 64, 7 << 40, 7);
            Blkptr::from_words(words)
        };
        let mut live = LiveBlocks::default();
        for n in 0..64 {
            live.note(BpobjEntry { bp: block(n), freed: false });
        }
        live.note(BpobjEntry { bp: block(5), freed: false });
        live.note(BpobjEntry { bp: block(9), freed: true });
        let sorted = live.into_sorted();
        assert_eq!(sorted.len(), 64);
        assert!(sorted.is_sorted_by_key(|bp| bp.dvas().next()), "{sorted:?}");
    }
}
