//! In-place changes of a ZAP leaf: add, set and remove entries; split a full leaf.
//!
//! Idea: free chunks form a list; an entry takes chunks from its head and returns them there. A change thus
//! costs the length of the entry, not of the leaf.
//!
//! Invariants: every chain and chunk is checked before the first change, so an error leaves the leaf intact.
//! The block is in native byte order.
//!
//! Source: OpenZFS `zap_leaf.c`, with the same placement of entries.

mod chunks;

use super::ZBT_LEAF;
use super::header::block_shift;
use super::leaf::{
    ARRAY_BYTES, CHAIN_END, CHUNK_ARRAY, CHUNK_BYTES, CHUNK_ENTRY, CHUNK_FREE, HEADER_BYTES, WHAT,
    ZAP_LEAF_MAGIC, geometry,
};
use crate::bytes::{Endian, Reader};
use crate::error::{FormatError, Result, at_most};

/// Header offsets.
const PREFIX: usize = 16;
const MAGIC: usize = 24;
const FREE_COUNT: usize = 28;
const ENTRY_COUNT: usize = 30;
const PREFIX_LEN: usize = 32;
const FREE_HEAD: usize = 34;
const FLAGS: usize = 36;
/// `ZLF_ENTRIES_CDSORTED`: equal hashes are sorted by differentiator.
const ZLF_ENTRIES_CDSORTED: u8 = 1;

/// Entry offsets.
const INT_BYTES: usize = 1;
const NEXT: usize = 2;
const NAME_CHUNK: usize = 4;
const NAME_LEN: usize = 6;
const VALUE_CHUNK: usize = 8;
const VALUE_LEN: usize = 10;
const CD: usize = 12;
const HASH: usize = 16;
/// Offset of the next chunk's number in an array or free chunk.
const ARRAY_NEXT: usize = CHUNK_BYTES - 2;

const _: () = {
    assert!(HASH + 8 == CHUNK_BYTES && 1 + ARRAY_BYTES == ARRAY_NEXT);
    assert!(FLAGS < HEADER_BYTES);
};

/// Stored name.
#[derive(Debug, Clone, Copy)]
pub struct LeafKey<'a> {
    /// Hash.
    pub hash: u64,
    /// Text with its NUL, or big-endian words.
    pub bytes: &'a [u8],
    /// Length in bytes or words.
    pub len: u16,
}

/// Stored value.
#[derive(Debug, Clone, Copy)]
pub struct LeafValue<'a> {
    /// Integer size: 1, 2, 4 or 8.
    pub int_bytes: u8,
    /// Big-endian integers.
    pub raw: &'a [u8],
}

/// Position of a found entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafSlot {
    entry: u16,
    /// Offset of the link to it: in the hash table or the previous entry.
    link: usize,
}

/// Leaf opened for changes.
#[derive(Debug)]
pub struct LeafMut<'a> {
    block: &'a mut [u8],
    buckets: usize,
    chunk_count: usize,
}

impl<'a> LeafMut<'a> {
    /// Opens a leaf.
    ///
    /// # Errors
    /// The block is not a leaf.
    pub fn open(block: &'a mut [u8]) -> Result<LeafMut<'a>> {
        let (buckets, chunk_count) = geometry(block_shift(block)?);
        LeafMut::summary(block)?;
        Ok(LeafMut { block, buckets, chunk_count })
    }

    /// Formats a zeroed block as an empty leaf for this hash prefix; `sorted` if the ZAP normalizes names.
    ///
    /// # Errors
    /// The block size is invalid.
    pub fn init(block: &'a mut [u8], prefix: u64, prefix_len: u32, sorted: bool) -> Result<LeafMut<'a>> {
        let (buckets, chunk_count) = geometry(block_shift(block)?);
        let mut leaf = LeafMut { block, buckets, chunk_count };
        leaf.set_u64(0, ZBT_LEAF);
        leaf.set_u64(PREFIX, prefix);
        leaf.set_u32(MAGIC, ZAP_LEAF_MAGIC);
        leaf.set_u16(FREE_COUNT, chunk_count as u16);
        leaf.set_u16(PREFIX_LEN, prefix_len as u16);
        leaf.block[FLAGS] = if sorted { ZLF_ENTRIES_CDSORTED } else { 0 };
        leaf.clear_table();
        for chunk in 0..chunk_count {
            let next = if chunk + 1 == chunk_count { CHAIN_END } else { chunk as u16 + 1 };
            let at = leaf.chunk_at(chunk);
            leaf.block[at] = CHUNK_FREE;
            leaf.set_u16(at + ARRAY_NEXT, next);
        }
        Ok(leaf)
    }

    /// Prefix, prefix length and entry count of a leaf.
    ///
    /// # Errors
    /// The block is not a leaf.
    pub fn summary(block: &[u8]) -> Result<(u64, u32, u16)> {
        let mut r = Reader::new(WHAT, block, Endian::NATIVE);
        let [block_type, _, prefix] = r.words::<3>()?;
        let magic = r.u32()?;
        if block_type != ZBT_LEAF || magic != ZAP_LEAF_MAGIC {
            return Err(FormatError::BadMagic { what: WHAT, found: magic.into() });
        }
        r.skip(2)?;
        let entries = r.u16()?;
        let prefix_len = at_most("ZAP leaf prefix bits", r.u16()?.into(), 63)?;
        Ok((prefix, prefix_len as u32, entries))
    }

    /// Common hash prefix and its number of bits.
    pub fn prefix(&self) -> (u64, u32) {
        (self.u64(PREFIX), self.u16(PREFIX_LEN).into())
    }

    /// Whether the entry fits in an empty leaf of this size.
    pub fn fits(block_bytes: usize, key: LeafKey<'_>, value: LeafValue<'_>) -> bool {
        let chunks = block_bytes.checked_ilog2().filter(|shift| *shift >= 9).map_or(0, |s| geometry(s).1);
        1 + chunks_for(key.bytes.len()) + chunks_for(value.raw.len()) <= chunks
    }

    /// Finds exactly this name.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn find(&self, key: LeafKey<'_>) -> Result<Option<LeafSlot>> {
        self.walk(key.hash, |at, slot| {
            let is_it = self.u64(at + HASH) == key.hash
                && self.u16(at + NAME_LEN) == key.len
                && self.array_is(self.u16(at + NAME_CHUNK), key.bytes)?;
            Ok(is_it.then_some(slot))
        })
    }

    /// Adds a new name, by default with the lowest free differentiator; `false` if full.
    ///
    /// # Errors
    /// A damaged leaf.
    pub fn add(&mut self, key: LeafKey<'_>, cd: Option<u32>, value: LeafValue<'_>) -> Result<bool> {
        let (for_name, for_value) = (chunks_for(key.bytes.len()), chunks_for(value.raw.len()));
        let Some(free) = self.free(1 + for_name + for_value)? else { return Ok(false) };
        let cd = match cd {
            Some(cd) => cd,
            None => self.unused_cd(key.hash)?,
        };
        let link = self.link_for(key.hash, cd)?;
        self.take(&free);
        let (entry, arrays) = (free[0], &free[1..]);
        let name_chunk = self.write_array(&arrays[..for_name], key.bytes);
        let value_chunk = self.write_array(&arrays[for_name..], value.raw);
        let at = self.chunk_at(entry.into());
        self.block[at] = CHUNK_ENTRY;
        self.set_u16(at + NAME_CHUNK, name_chunk);
        self.set_u16(at + NAME_LEN, key.len);
        self.set_value_fields(at, value_chunk, value);
        self.set_u32(at + CD, cd);
        self.set_u64(at + HASH, key.hash);
        self.insert_at(link, entry);
        self.set_u16(ENTRY_COUNT, self.u16(ENTRY_COUNT).saturating_add(1));
        Ok(true)
    }

    /// Replaces a value; `false` if full.
    ///
    /// # Errors
    /// A damaged leaf.
    pub fn set_value(&mut self, slot: LeafSlot, value: LeafValue<'_>) -> Result<bool> {
        let at = self.entry_at(slot.entry)?;
        let old = self.array(self.u16(at + VALUE_CHUNK))?;
        let need = chunks_for(value.raw.len());
        if need == old.len() {
            self.write_array(&old, value.raw);
            self.set_value_fields(at, old.first().copied().unwrap_or(CHAIN_END), value);
            return Ok(true);
        }
        let (kept, spare) = old.split_at(need.min(old.len()));
        let Some(more) = self.free(need - kept.len())? else { return Ok(false) };
        self.take(&more);
        let chunks = [kept, &more].concat();
        let first = self.write_array(&chunks, value.raw);
        self.set_value_fields(at, first, value);
        spare.iter().for_each(|chunk| self.give_back(*chunk));
        Ok(true)
    }

    /// Sets the values of all entries, single 64-bit numbers, to one number. Returns how many there are.
    ///
    /// # Errors
    /// Other values; a damaged leaf. Some may be set.
    pub fn set_numbers(&mut self, number: u64) -> Result<usize> {
        let mut count = 0;
        for chunk in 0..self.chunk_count {
            let at = self.chunk_at(chunk);
            if self.block[at] != CHUNK_ENTRY {
                continue;
            }
            if (self.block[at + INT_BYTES], self.u16(at + VALUE_LEN)) != (8, 1) {
                return Err(FormatError::Corrupt { what: "ZAP value", why: "is not a single number" });
            }
            let why = "has a name or value in a chunk of another type";
            let value = self.chunk_of(self.u16(at + VALUE_CHUNK), CHUNK_ARRAY, why)?;
            self.block[value + 1..value + 9].copy_from_slice(&number.to_be_bytes());
            count += 1;
        }
        Ok(count)
    }

    /// Removes an entry; returns how many remain.
    ///
    /// # Errors
    /// A damaged leaf.
    pub fn remove(&mut self, slot: LeafSlot) -> Result<u16> {
        let at = self.entry_at(slot.entry)?;
        let name = self.array(self.u16(at + NAME_CHUNK))?;
        let value = self.array(self.u16(at + VALUE_CHUNK))?;
        self.set_u16(slot.link, self.u16(at + NEXT));
        name.iter().chain(&value).for_each(|chunk| self.give_back(*chunk));
        self.give_back(slot.entry);
        let left = self.u16(ENTRY_COUNT).saturating_sub(1);
        self.set_u16(ENTRY_COUNT, left);
        Ok(left)
    }

    /// Splits the leaf by the next hash bit: entries with that bit set move to `sibling`, a zeroed block of
    /// the same size.
    ///
    /// # Errors
    /// A damaged leaf.
    pub fn split(&mut self, sibling: &mut [u8]) -> Result<()> {
        let entries = self.checked_entries()?;
        let count = entries.len();
        let (prefix, prefix_len) = self.prefix();
        let (prefix, prefix_len) = (prefix << 1, prefix_len + 1);
        at_most("ZAP leaf prefix bits", prefix_len.into(), 63)?;
        let sorted = self.block[FLAGS] & ZLF_ENTRIES_CDSORTED != 0;
        let mut sibling = LeafMut::init(sibling, prefix | 1, prefix_len, sorted)?;
        self.set_prefix(prefix, prefix_len);
        self.clear_table();
        for entry in entries {
            let at = self.chunk_at(entry.into());
            let (hash, cd) = (self.u64(at + HASH), self.u32(at + CD));
            if hash >> (64 - prefix_len) & 1 == 1 {
                self.move_entry(entry, &mut sibling)?;
            } else {
                let link = self.link_for(hash, cd)?;
                self.insert_at(link, entry);
            }
        }
        if cfg!(debug_assertions) {
            let left = self.checked_entries()?.len() + sibling.checked_entries()?.len();
            assert_eq!(left, count, "a split loses no entry");
        }
        Ok(())
    }

    /// Extends an empty leaf to its sibling's hashes.
    pub fn widen(&mut self) {
        let (prefix, prefix_len) = self.prefix();
        self.set_prefix(prefix >> 1, prefix_len.saturating_sub(1));
    }

    fn set_prefix(&mut self, prefix: u64, prefix_len: u32) {
        self.set_u64(PREFIX, prefix);
        self.set_u16(PREFIX_LEN, prefix_len as u16);
    }

    fn move_entry(&mut self, entry: u16, to: &mut LeafMut<'_>) -> Result<()> {
        let at = self.chunk_at(entry.into());
        let mut bytes = Vec::new();
        let mut arrays = [(NAME_CHUNK, Vec::new()), (VALUE_CHUNK, Vec::new())];
        for (field, chunks) in &mut arrays {
            *chunks = self.array(self.u16(at + *field))?;
        }
        let count = 1 + arrays.iter().map(|(_, chunks)| chunks.len()).sum::<usize>();
        let full = FormatError::Corrupt { what: WHAT, why: "has entries that share chunks" };
        let free = to.free(count)?.ok_or(full)?;
        to.take(&free);
        let copy = to.chunk_at(free[0].into());
        to.block[copy..copy + CHUNK_BYTES].copy_from_slice(&self.block[at..at + CHUNK_BYTES]);
        let mut rest = &free[1..];
        for (field, chunks) in &arrays {
            let (here, others) = rest.split_at(chunks.len());
            bytes.clear();
            chunks.iter().for_each(|chunk| bytes.extend_from_slice(self.content(*chunk)));
            let first = to.write_array(here, &bytes);
            to.set_u16(copy + field, first);
            rest = others;
        }
        let link = to.link_for(to.u64(copy + HASH), to.u32(copy + CD))?;
        to.insert_at(link, free[0]);
        to.set_u16(ENTRY_COUNT, to.u16(ENTRY_COUNT) + 1);
        for (_, chunks) in &arrays {
            chunks.iter().for_each(|chunk| self.give_back(*chunk));
        }
        self.give_back(entry);
        self.set_u16(ENTRY_COUNT, self.u16(ENTRY_COUNT).saturating_sub(1));
        Ok(())
    }

    /// Entries in chunk order, after checking all their chunks.
    fn checked_entries(&self) -> Result<Vec<u16>> {
        let mut is_used = vec![false; self.chunk_count];
        let mut entries = Vec::new();
        for chunk in 0..self.chunk_count {
            let at = self.chunk_at(chunk);
            if self.block[at] != CHUNK_ENTRY {
                continue;
            }
            entries.push(chunk as u16);
            for field in [NAME_CHUNK, VALUE_CHUNK] {
                for piece in self.array(self.u16(at + field))? {
                    if std::mem::replace(&mut is_used[usize::from(piece)], true) {
                        return Err(FormatError::Corrupt {
                            what: WHAT,
                            why: "has entries that share chunks",
                        });
                    }
                }
            }
        }
        Ok(entries)
    }

    /// Walks a hash chain until `look`, given each entry's offset, returns a value.
    fn walk<T>(
        &self,
        hash: u64,
        mut look: impl FnMut(usize, LeafSlot) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut link = self.bucket_at(hash);
        for _ in 0..=self.chunk_count {
            let entry = self.u16(link);
            if entry == CHAIN_END {
                return Ok(None);
            }
            let at = self.entry_at(entry)?;
            if let Some(answer) = look(at, LeafSlot { entry, link })? {
                return Ok(Some(answer));
            }
            link = at + NEXT;
        }
        Err(FormatError::Corrupt { what: WHAT, why: "has a hash chain with a loop" })
    }

    /// Link for a new entry: after equal hashes with a differentiator not above its own.
    fn link_for(&self, hash: u64, cd: u32) -> Result<usize> {
        let mut last = self.bucket_at(hash);
        let before = self.walk(hash, |at, slot| {
            last = at + NEXT;
            Ok((self.u32(at + CD) > cd).then_some(slot.link))
        })?;
        Ok(before.unwrap_or(last))
    }

    fn unused_cd(&self, hash: u64) -> Result<u32> {
        for cd in 0..=self.chunk_count as u32 {
            let is_it = |at: usize| self.u64(at + HASH) == hash && self.u32(at + CD) == cd;
            if self.walk(hash, |at, _| Ok(is_it(at).then_some(())))?.is_none() {
                return Ok(cd);
            }
        }
        Err(FormatError::Corrupt { what: WHAT, why: "has more entries of a hash than chunks" })
    }

    fn insert_at(&mut self, link: usize, entry: u16) {
        let next = self.u16(link);
        let at = self.chunk_at(entry.into());
        self.set_u16(at + NEXT, next);
        self.set_u16(link, entry);
    }
}

fn chunks_for(bytes: usize) -> usize {
    bytes.div_ceil(ARRAY_BYTES)
}
