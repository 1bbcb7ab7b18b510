//! Changing a micro ZAP: one block of slots, which are searched by an index in memory.
//!
//! Idea: the block itself tells nothing but by reading all of it, and a name's differentiator depends on all others of its hash.
//! So the layer keeps, beside the block, which hash is in which slot. A change touches one slot.
//!
//! Source: OpenZFS `zap_micro.c`.

use std::sync::Arc;

use bytes::BytesMut;
use cenote_format::bytes::Endian;
use cenote_format::units::BlockId;
use cenote_format::zap::{LeafKey, LeafValue, ZBT_MICRO, ZapHasher};

use super::fat::{DEFAULT_BLOCK_SHIFT, Fat};
use super::key::{StoredKey, hash_name};
use super::{Outcome, Put, ZapValue, fat};
use crate::live::{Blocks, Step};

/// `MZAP_ENT_LEN`.
const SLOT_BYTES: usize = 64;
/// `zap_micro_max_size`, which is `MZAP_MAX_BLKSZ`: larger ones need a feature that we don't activate.
const MAX_BLOCK_BYTES: usize = 128 << 10;
/// `SPA_MINBLOCKSIZE`: what it grows by.
const GROWTH_BYTES: usize = 512;
/// All names of one hash must fit into one leaf if the ZAP is made fat, at five chunks each (`mze_canfit_fzap_leaf`).
const MAX_SAME_HASH: usize = 127;
const BLOCK: BlockId = BlockId(0);

/// Which hash is in which slot.
#[derive(Debug, Clone)]
pub(crate) struct MicroIndex {
    /// Upper half of the hash, differentiator (16 bits) and slot (16 bits), in order.
    order: Vec<u64>,
    /// Where the search for a free slot goes on, so that a new name is not before one that a reader has passed.
    next: usize,
    hasher: ZapHasher,
    normflags: u64,
}

/// The fields of a slot of the index.
fn place(hash: u64, cd: u32, slot: usize) -> u64 {
    hash >> 32 << 32 | u64::from(cd.min(0xffff)) << 16 | slot as u64
}

fn slot_of(place: u64) -> usize {
    (place & 0xffff) as usize
}

fn cd_of(place: u64) -> u32 {
    (place >> 16 & 0xffff) as u32
}

/// Whether block 0 is a whole micro ZAP.
pub(super) fn is_micro(blocks: &Blocks<'_>) -> Step<bool> {
    Ok(word(blocks.get(BLOCK)?, 0) == ZBT_MICRO)
}

/// The block of an empty one.
pub(super) fn empty(block_bytes: usize, salt: u64, normflags: u64) -> BytesMut {
    let mut block = BytesMut::zeroed(block_bytes.max(GROWTH_BYTES));
    for (place, number) in block.as_chunks_mut::<8>().0.iter_mut().zip([ZBT_MICRO, salt, normflags]) {
        *place = number.to_ne_bytes();
    }
    block
}

/// Sets a value. `None`: it takes a fat ZAP to hold it.
pub(super) fn put(
    blocks: &mut Blocks<'_>,
    key: &StoredKey<'_>,
    value: &ZapValue,
    put: Put,
) -> Step<Option<Outcome>> {
    let Some(name) = key.micro_name() else { return Ok(None) };
    let number = value.as_u64().filter(|_| value.integer_bytes() == 8);
    with_index(blocks, |blocks, index| {
        let hash = hash_name(index.hasher, index.normflags, name);
        if let Some(found) = index.find(blocks.get(BLOCK)?, hash, name) {
            return Ok(match (put, number) {
                (Put::Add, _) => Some(Outcome::Exists),
                (Put::Update, None) => None,
                (Put::Update, Some(number)) => {
                    let slot = slot_mut(blocks.get_mut(BLOCK)?, slot_of(found));
                    slot[..8].copy_from_slice(&number.to_ne_bytes());
                    Some(Outcome::Done)
                }
            });
        }
        let Some(number) = number else { return Ok(None) };
        if index.of_hash(hash).len() >= MAX_SAME_HASH {
            return Ok(None);
        }
        if index.order.len() == slots(blocks.get(BLOCK)?) && !grow(blocks)? {
            return Ok(None);
        }
        let cd = index.unused_cd(hash);
        let block = blocks.get_mut(BLOCK)?;
        let slot = index.take_slot(block);
        write_slot(slot_mut(block, slot), number, cd, name);
        index.insert(place(hash, cd, slot));
        Ok(Some(Outcome::Done))
    })
}

/// Removes a name.
pub(super) fn remove(blocks: &mut Blocks<'_>, key: &StoredKey<'_>) -> Step<Outcome> {
    let Some(name) = key.micro_name() else { return Ok(Outcome::Absent) };
    with_index(blocks, |blocks, index| {
        let hash = hash_name(index.hasher, index.normflags, name);
        let Some(found) = index.find(blocks.get(BLOCK)?, hash, name) else { return Ok(Outcome::Absent) };
        slot_mut(blocks.get_mut(BLOCK)?, slot_of(found)).fill(0);
        index.remove(found);
        Ok(Outcome::Done)
    })
}

/// The value of a name. Without an index it is looked for from end to end, which is quicker than making one.
pub(super) fn get(blocks: &mut Blocks<'_>, key: &StoredKey<'_>) -> Step<Option<ZapValue>> {
    let Some(name) = key.micro_name() else { return Ok(None) };
    let index = blocks.index().clone();
    let block = blocks.get(BLOCK)?;
    let found = match index {
        Some(index) => {
            let hash = hash_name(index.hasher, index.normflags, name);
            index.find(block, hash, name).map(slot_of)
        }
        None => (0..slots(block)).find(|number| name_of(slot(block, *number)) == Some(name)),
    };
    Ok(found.map(|number| ZapValue::from_u64(word(slot(block, number), 0))))
}

/// Makes it fat.
pub(super) fn upgrade(blocks: &mut Blocks<'_>) -> Step<()> {
    let old = BytesMut::from(blocks.get(BLOCK)?);
    let (hasher, normflags) = hashing(&old);
    *blocks.index() = None;
    fat::create(blocks, DEFAULT_BLOCK_SHIFT, hasher, normflags)?;
    for number in 0..slots(&old) {
        let entry = slot(&old, number);
        let Some(name) = name_of(entry) else { continue };
        let stored = [name, &[0]].concat();
        let hash = hash_name(hasher, normflags, name);
        let key = LeafKey { hash, bytes: &stored, len: stored.len() as u16 };
        let value = LeafValue { int_bytes: 8, raw: &word(entry, 0).to_be_bytes() };
        Fat::open(blocks)?.put(blocks, key, Some(cd_in(entry)), value, Put::Add)?;
    }
    Ok(())
}

/// Lends the index of the block, made if there is none yet. The layer keeps it.
fn with_index<T>(
    blocks: &mut Blocks<'_>,
    change: impl FnOnce(&mut Blocks<'_>, &mut MicroIndex) -> Step<T>,
) -> Step<T> {
    let mut index = match blocks.index().take() {
        Some(index) => index,
        None => Arc::new(MicroIndex::of(blocks.get(BLOCK)?)),
    };
    let answer = change(blocks, Arc::make_mut(&mut index));
    *blocks.index() = Some(index);
    answer
}

impl MicroIndex {
    fn of(block: &[u8]) -> MicroIndex {
        let (hasher, normflags) = hashing(block);
        let entries = (0..slots(block)).filter_map(|number| {
            let entry = slot(block, number);
            Some(place(hash_name(hasher, normflags, name_of(entry)?), cd_in(entry), number))
        });
        let mut order: Vec<u64> = entries.collect();
        order.sort_unstable();
        MicroIndex { order, next: 0, hasher, normflags }
    }

    /// What has that hash.
    fn of_hash(&self, hash: u64) -> &[u64] {
        let start = self.order.partition_point(|place| place >> 32 < hash >> 32);
        let same = self.order[start..].iter().take_while(|place| **place >> 32 == hash >> 32).count();
        &self.order[start..start + same]
    }

    fn find(&self, block: &[u8], hash: u64, name: &[u8]) -> Option<u64> {
        let is_it = |place: &&u64| name_of(slot(block, slot_of(**place))) == Some(name);
        self.of_hash(hash).iter().find(is_it).copied()
    }

    fn unused_cd(&self, hash: u64) -> u32 {
        let in_use = self.of_hash(hash).iter().map(|place| cd_of(*place));
        in_use.fold(0, |cd, used| if used == cd { cd + 1 } else { cd })
    }

    /// A free slot; there must be one.
    fn take_slot(&mut self, block: &[u8]) -> usize {
        let count = slots(block);
        let is_free = |number: &usize| name_of(slot(block, *number)).is_none();
        let found = (self.next..count).find(is_free).or_else(|| (0..count).find(is_free)).unwrap_or(0);
        self.next = if found + 1 < count { found + 1 } else { 0 };
        found
    }

    fn insert(&mut self, place: u64) {
        let at = self.order.partition_point(|other| *other < place);
        self.order.insert(at, place);
    }

    fn remove(&mut self, place: u64) {
        let at = self.order.partition_point(|other| *other < place);
        self.order.remove(at);
    }
}

/// Gives the block more slots; `false`: it is as large as it can be.
fn grow(blocks: &mut Blocks<'_>) -> Step<bool> {
    let old = blocks.get(BLOCK)?;
    let size = old.len() + GROWTH_BYTES;
    if size > MAX_BLOCK_BYTES {
        return Ok(false);
    }
    let mut grown = BytesMut::zeroed(size);
    grown[..old.len()].copy_from_slice(old);
    blocks.put(BLOCK, grown);
    if let Some(head) = blocks.head() {
        head.data_block_bytes = size as u32;
    }
    Ok(true)
}

/// How the names of a block are hashed.
fn hashing(block: &[u8]) -> (ZapHasher, u64) {
    (ZapHasher { salt: word(block, 1), flags: 0 }, word(block, 2))
}

fn slots(block: &[u8]) -> usize {
    (block.len() / SLOT_BYTES).saturating_sub(1)
}

fn slot(block: &[u8], number: usize) -> &[u8] {
    &block[(number + 1) * SLOT_BYTES..][..SLOT_BYTES]
}

fn slot_mut(block: &mut [u8], number: usize) -> &mut [u8] {
    &mut block[(number + 1) * SLOT_BYTES..][..SLOT_BYTES]
}

fn write_slot(slot: &mut [u8], value: u64, cd: u32, name: &[u8]) {
    slot.fill(0);
    slot[..8].copy_from_slice(&value.to_ne_bytes());
    slot[8..12].copy_from_slice(&cd.to_ne_bytes());
    slot[14..14 + name.len()].copy_from_slice(name);
}

/// The name in a slot; `None`: it is free.
fn name_of(slot: &[u8]) -> Option<&[u8]> {
    let name = &slot[14..];
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    (len > 0).then(|| &name[..len])
}

fn cd_in(slot: &[u8]) -> u32 {
    slot[8..].first_chunk::<4>().map_or(0, |bytes| Endian::NATIVE.u32(*bytes))
}

/// The word at an index; 0 beyond the end.
fn word(block: &[u8], index: usize) -> u64 {
    block.as_chunks::<8>().0.get(index).map_or(0, |bytes| Endian::NATIVE.u64(*bytes))
}
