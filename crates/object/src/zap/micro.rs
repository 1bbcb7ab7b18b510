//! Changing a micro ZAP: one block of slots, with an index in memory.
//!
//! Idea: without an index each lookup would read the whole block, and a name's differentiator depends on all
//! others with its hash. So the layer keeps an index of hashes to slots beside the block. A change touches
//! one slot.
//!
//! Source: OpenZFS `zap_micro.c`.

use std::sync::Arc;

use bytes::BytesMut;
use cenote_format::units::BlockId;
use cenote_format::zap::{LeafKey, LeafValue, ZBT_MICRO};

use crate::live::in_place::{Blocks, Step};
use crate::zap::fat::{self, DEFAULT_BLOCK_SHIFT, Fat};
use crate::zap::key::{StoredKey, hash_name};
use crate::zap::micro_index::{
    MicroIndex, cd_in, hashing, name_of, place, slot, slot_mut, slot_of, slots, word, write_slot,
};
use crate::zap::outcome::{Outcome, Put};
use crate::zap::value::ZapValue;

/// `zap_micro_max_size`: larger blocks need a feature not activated here.
const MAX_BLOCK_BYTES: usize = 128 << 10;
/// `SPA_MINBLOCKSIZE`.
const GROWTH_BYTES: usize = 512;
/// Names of one hash must fit into one fat leaf, at five chunks each (`mze_canfit_fzap_leaf`).
const MAX_SAME_HASH: usize = 127;
const BLOCK: BlockId = BlockId(0);

pub(super) fn is_micro(blocks: &Blocks<'_>) -> Step<bool> {
    Ok(word(blocks.get(BLOCK)?, 0) == ZBT_MICRO)
}

pub(super) fn empty(block_bytes: usize, salt: u64, normflags: u64) -> BytesMut {
    let mut block = BytesMut::zeroed(block_bytes.max(GROWTH_BYTES));
    for (place, number) in block.as_chunks_mut::<8>().0.iter_mut().zip([ZBT_MICRO, salt, normflags]) {
        *place = number.to_ne_bytes();
    }
    block
}

/// `None`: only a fat ZAP can hold it.
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

/// Without an index it scans the block, which is faster than making one.
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

/// The index is made on first use and kept by the layer.
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

/// `false`: the block has its largest size.
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
