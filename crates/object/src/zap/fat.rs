//! Changing a fat ZAP in place: the header, the pointer to a leaf, and the leaf.
//!
//! Source: OpenZFS `zap.c`.

use bytes::BytesMut;
use cenote_format::FormatError;
use cenote_format::bytes::Endian;
use cenote_format::units::BlockId;
use cenote_format::zap::{FatHeader, Leaf, LeafKey, LeafMut, LeafValue, ZapHasher, read_pointer};

use crate::live::in_place::{Blocks, Step};
use crate::zap::key::{StoredKey, ZapKey};
use crate::zap::outcome::{Outcome, Put};
use crate::zap::value::ZapValue;

/// `fzap_default_block_shift`: blocks of 16 KiB.
pub(super) const DEFAULT_BLOCK_SHIFT: u32 = 14;
pub(super) const HEADER: BlockId = BlockId(0);
const FIRST_LEAF: BlockId = BlockId(1);

#[derive(Debug)]
pub(super) struct Fat {
    pub(super) head: FatHeader,
}

pub(super) fn create(blocks: &mut Blocks<'_>, shift: u32, hasher: ZapHasher, normflags: u64) -> Step<()> {
    let mut leaf = BytesMut::zeroed(1 << shift);
    LeafMut::init(&mut leaf, 0, 0, normflags != 0)?;
    let mut header = BytesMut::zeroed(1 << shift);
    FatHeader::empty(shift, hasher, normflags).store(&mut header);
    for pointer in header[1 << (shift - 1)..].as_chunks_mut::<8>().0 {
        *pointer = FIRST_LEAF.0.to_ne_bytes();
    }
    if let Some(head) = blocks.head() {
        head.data_block_bytes = 1 << shift;
    }
    blocks.put(HEADER, header);
    blocks.put(FIRST_LEAF, leaf);
    Ok(())
}

impl Fat {
    pub(super) fn open(blocks: &Blocks<'_>) -> Step<Fat> {
        Ok(Fat { head: FatHeader::decode_fields(blocks.get(HEADER)?, Endian::NATIVE)? })
    }

    /// `cd` keeps the differentiator of an entry moved from a micro ZAP.
    pub(super) fn put(
        &mut self,
        blocks: &mut Blocks<'_>,
        key: LeafKey<'_>,
        cd: Option<u32>,
        value: LeafValue<'_>,
        put: Put,
    ) -> Step<Outcome> {
        if !LeafMut::fits(self.head.block_bytes(), key, value) {
            return Ok(Outcome::Refused("is longer than a leaf"));
        }
        loop {
            let id = self.leaf_of(blocks, key.hash)?;
            let mut leaf = open_leaf(blocks, id, key.hash)?;
            let has_room = match leaf.find(key)? {
                Some(_) if put == Put::Add => return Ok(Outcome::Exists),
                Some(slot) => leaf.set_value(slot, value)?,
                None => {
                    let is_added = leaf.add(key, cd, value)?;
                    self.head.entry_count = self.head.entry_count.saturating_add(is_added.into());
                    is_added
                }
            };
            if has_room {
                self.head.store(blocks.get_mut(HEADER)?);
                return Ok(Outcome::Done);
            }
            if !self.split(blocks, id)? {
                return Ok(Outcome::Refused("has the hash of too many others"));
            }
        }
    }

    pub(super) fn remove(&mut self, blocks: &mut Blocks<'_>, key: LeafKey<'_>) -> Step<Outcome> {
        let id = self.leaf_of(blocks, key.hash)?;
        let mut leaf = open_leaf(blocks, id, key.hash)?;
        let Some(slot) = leaf.find(key)? else { return Ok(Outcome::Absent) };
        let left = leaf.remove(slot)?;
        self.head.entry_count = self.head.entry_count.saturating_sub(1);
        self.head.store(blocks.get_mut(HEADER)?);
        Ok(if left == 0 { Outcome::Emptied(key.hash) } else { Outcome::Done })
    }

    pub(super) fn get(&self, blocks: &Blocks<'_>, key: &StoredKey<'_>) -> Step<Option<ZapValue>> {
        let hash = key.hash(self.head.hasher(), self.head.normflags);
        let leaf = Leaf::decode(blocks.bytes(self.leaf_of(blocks, hash)?)?, Endian::NATIVE)?;
        let found = match key.key {
            ZapKey::Name(name) => leaf.lookup(hash, name)?,
            ZapKey::Words(words) => leaf.lookup_words(hash, words)?,
        };
        let Some(entry) = found else { return Ok(None) };
        Ok(Some(ZapValue::new(entry.int_bytes, entry.value_bytes()?.into())))
    }

    pub(super) fn leaf_of(&self, blocks: &Blocks<'_>, hash: u64) -> Step<BlockId> {
        let (block, offset_bytes) = self.head.pointer_place(self.head.table_index(hash));
        let leaf = read_pointer(blocks.get(block)?, offset_bytes, Endian::NATIVE)?;
        if leaf == HEADER || leaf >= self.head.free_block {
            return Err(damaged("a pointer of the table leads outside").into());
        }
        Ok(leaf)
    }
}

fn open_leaf<'a>(blocks: &'a mut Blocks<'_>, id: BlockId, hash: u64) -> Step<LeafMut<'a>> {
    let leaf = LeafMut::open(blocks.get_mut(id)?)?;
    let (prefix, prefix_len) = leaf.prefix();
    if hash.checked_shr(64 - prefix_len).unwrap_or(0) != prefix {
        return Err(damaged("a pointer of the table leads to another leaf").into());
    }
    Ok(leaf)
}

pub(super) fn damaged(why: &'static str) -> FormatError {
    FormatError::Corrupt { what: "fat ZAP", why }
}
