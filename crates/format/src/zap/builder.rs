//! Builds a leaf as OpenZFS would by adding its entries one by one.

use super::leaf::{
    ARRAY_BYTES, CHAIN_END, CHUNK_ARRAY, CHUNK_BYTES, CHUNK_ENTRY, CHUNK_FREE, HEADER_BYTES, ZAP_LEAF_MAGIC,
    bucket_of, geometry,
};
use super::{Leaf, ZBT_LEAF};
use crate::bytes::{Endian, Writer};
use crate::error::{FormatError, Result, at_most};

/// `ZLF_ENTRIES_CDSORTED`, set on every leaf since pool version 11.
const ZLF_ENTRIES_CDSORTED: u8 = 1;

/// Leaf being built.
#[derive(Debug, Clone)]
pub struct LeafBuilder {
    block_shift: u32,
    prefix: u64,
    prefix_len: u32,
    endian: Endian,
    /// First chunk and (hash, differentiator) of each chain's entries, in chain order.
    buckets: Vec<Vec<(u16, u64, u32)>>,
    chunks: Vec<[u8; CHUNK_BYTES]>,
    chunk_limit: usize,
    entry_count: u16,
}

impl LeafBuilder {
    /// Starts an empty leaf of `1 << block_shift` bytes for a hash prefix.
    ///
    /// # Errors
    /// The block size is invalid.
    pub fn new(block_shift: u32, prefix: u64, prefix_len: u32, endian: Endian) -> Result<Self> {
        at_most("ZAP leaf prefix bits", prefix_len.into(), 64)?;
        if !(9..=20).contains(&block_shift) {
            return Err(FormatError::OutOfRange {
                what: "ZAP block shift",
                value: block_shift.into(),
                bound: 20,
            });
        }
        let (buckets, chunk_limit) = geometry(block_shift);
        Ok(LeafBuilder {
            block_shift,
            prefix,
            prefix_len,
            endian,
            buckets: vec![Vec::new(); buckets],
            chunks: Vec::new(),
            chunk_limit,
            entry_count: 0,
        })
    }

    /// Adds an entry and its name's NUL. `value` holds big-endian integers of `int_bytes` each. `false` if
    /// full, with nothing changed.
    ///
    /// # Errors
    /// A name or value longer than the format allows.
    pub fn add(&mut self, hash: u64, cd: u32, name: &[u8], int_bytes: u8, value: &[u8]) -> Result<bool> {
        let name: Vec<u8> = name.iter().copied().chain([0]).collect();
        let len = name.len();
        self.add_raw(hash, cd, &name, len, int_bytes, value)
    }

    /// Like `add`, with a name of words.
    ///
    /// # Errors
    /// A name or value longer than the format allows.
    pub fn add_words(
        &mut self,
        hash: u64,
        cd: u32,
        name: &[u64],
        int_bytes: u8,
        value: &[u8],
    ) -> Result<bool> {
        let bytes: Vec<u8> = name.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.add_raw(hash, cd, &bytes, name.len(), int_bytes, value)
    }

    fn add_raw(
        &mut self,
        hash: u64,
        cd: u32,
        name: &[u8],
        name_len: usize,
        int_bytes: u8,
        value: &[u8],
    ) -> Result<bool> {
        let int_size = usize::from(int_bytes);
        if !matches!(int_bytes, 1 | 2 | 4 | 8) || !value.len().is_multiple_of(int_size) {
            return Err(FormatError::Corrupt { what: "ZAP value", why: "ends within an integer" });
        }
        let int_count =
            at_most("ZAP value integers", (value.len() / int_size) as u64, u16::MAX.into())? as u16;
        let name_len = at_most("ZAP name length", name_len as u64, u16::MAX.into())? as u16;
        let need = 1 + name.len().div_ceil(ARRAY_BYTES) + value.len().div_ceil(ARRAY_BYTES);
        if self.chunks.len() + need > self.chunk_limit {
            return Ok(false);
        }
        let number = self.chunks.len() as u16;
        self.chunks.push([0; CHUNK_BYTES]);
        let name_chunk = self.add_array(name);
        let value_chunk = self.add_array(value);
        let mut w = Writer::new(self.endian);
        w.u8(CHUNK_ENTRY).u8(int_bytes).u16(CHAIN_END).u16(name_chunk).u16(name_len);
        w.u16(value_chunk).u16(int_count).u32(cd).u64(hash);
        self.chunks[usize::from(number)].copy_from_slice(&w.finish());

        // New entries go to the head of their chain, but after equal hashes with a smaller cd.
        let buckets = self.buckets.len();
        let chain = &mut self.buckets[bucket_of(hash, self.prefix_len, buckets)];
        let at = chain.iter().rposition(|(_, h, c)| *h == hash && *c < cd).map_or(0, |i| i + 1);
        chain.insert(at, (number, hash, cd));
        self.entry_count += 1;
        Ok(true)
    }

    /// Appends array chunks; returns the first.
    fn add_array(&mut self, content: &[u8]) -> u16 {
        if content.is_empty() {
            return CHAIN_END;
        }
        let first = self.chunks.len();
        let last = first + content.len().div_ceil(ARRAY_BYTES) - 1;
        for (i, piece) in content.chunks(ARRAY_BYTES).enumerate() {
            let next = if first + i == last { CHAIN_END } else { (first + i + 1) as u16 };
            self.chunks.push(linked_chunk(CHUNK_ARRAY, piece, next, self.endian));
        }
        first as u16
    }

    /// Returns the block.
    pub fn finish(mut self) -> Vec<u8> {
        let used = self.chunks.len();
        for chain in &self.buckets {
            for pair in chain.windows(2) {
                let next = endian_bytes(self.endian, pair[1].0);
                self.chunks[usize::from(pair[0].0)][2..4].copy_from_slice(&next);
            }
        }
        for number in used..self.chunk_limit {
            let next = if number + 1 == self.chunk_limit { CHAIN_END } else { number as u16 + 1 };
            self.chunks.push(linked_chunk(CHUNK_FREE, &[], next, self.endian));
        }
        let free_head = if used == self.chunk_limit { CHAIN_END } else { used as u16 };
        let mut w = Writer::new(self.endian);
        w.words(&[ZBT_LEAF, 0, self.prefix]).u32(ZAP_LEAF_MAGIC);
        w.u16((self.chunk_limit - used) as u16).u16(self.entry_count).u16(self.prefix_len as u16);
        w.u16(free_head).u8(ZLF_ENTRIES_CDSORTED).pad_to(HEADER_BYTES);
        assert_eq!(self.chunks.len(), self.chunk_limit);
        for chain in &self.buckets {
            w.u16(chain.first().map_or(CHAIN_END, |(number, ..)| *number));
        }
        self.chunks.iter().for_each(|chunk| _ = w.bytes(chunk));
        w.pad_to(1 << self.block_shift);
        w.finish()
    }

    /// Decodes the block.
    ///
    /// # Errors
    /// None in practice: a leaf built here is readable.
    pub fn into_leaf(self) -> Result<Leaf> {
        let endian = self.endian;
        Leaf::decode(self.finish().into(), endian)
    }
}

fn endian_bytes(endian: Endian, number: u16) -> [u8; 2] {
    match endian {
        Endian::Little => number.to_le_bytes(),
        Endian::Big => number.to_be_bytes(),
    }
}

fn linked_chunk(kind: u8, content: &[u8], next: u16, endian: Endian) -> [u8; CHUNK_BYTES] {
    let mut chunk = [0; CHUNK_BYTES];
    chunk[0] = kind;
    chunk[1..1 + content.len()].copy_from_slice(content);
    chunk[CHUNK_BYTES - 2..].copy_from_slice(&endian_bytes(endian, next));
    chunk
}
