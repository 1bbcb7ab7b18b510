//! Leaf of a fat ZAP: entries whose hashes share a prefix.
//!
//! Idea: the block is divided into 24-byte chunks: entries, 21-byte pieces of names and values, or free.
//! Chunks link by 16-bit number. Damage can turn a chain into a loop, so every walk is bounded by its
//! expected length or the number of chunks.
//!
//! Layout, for blocks of 2^b bytes:
//!
//! ```text
//!   0 block type (8)  8 zeros (8)  16 hash prefix (8)  24 magic (4)  28 free chunks (2)  30 entries (2)
//!   32 bits of the prefix (2)  34 first free chunk (2)  36 flags (1)  37 zeros (11)
//!   48 hash table: 2^(b-5) chunk numbers (2 each), 0xffff: empty      then the chunks
//!
//!   entry: 252  integer size (1)  next in chain (2)  name chunk (2)  name length (2)
//!          value chunk (2)  value length (2)  collision differentiator (4)  hash (8)     lengths in integers
//!   array: 251  content (21), integers in big-endian  next chunk (2)
//!   free:  253  zeros (21)  next free chunk (2)
//! ```
//!
//! The length of a text name includes its NUL. Source: OpenZFS `zap_leaf.h`, `zap_leaf.c`.

use bytes::Bytes;

use super::ZBT_LEAF;
use super::header::block_shift;
use crate::bytes::{Endian, Reader};
use crate::error::{FormatError, Result, at_most};

/// `ZAP_LEAF_MAGIC`.
pub const ZAP_LEAF_MAGIC: u32 = 0x2AB_1EAF;
pub(super) const WHAT: &str = "ZAP leaf";
pub(super) const HEADER_BYTES: usize = 48;
pub(super) const CHUNK_BYTES: usize = 24;
/// Content bytes per array chunk, `ZAP_LEAF_ARRAY_BYTES`.
pub(super) const ARRAY_BYTES: usize = CHUNK_BYTES - 3;
pub(super) const CHAIN_END: u16 = 0xffff;
pub(super) const CHUNK_ENTRY: u8 = 252;
pub(super) const CHUNK_ARRAY: u8 = 251;
pub(super) const CHUNK_FREE: u8 = 253;

const _: () = {
    // Type, zeros, prefix, magic, free chunks, entries, prefix length, first free chunk, flags, zeros.
    assert!(8 + 8 + 8 + 4 + 2 + 2 + 2 + 2 + 1 + 11 == HEADER_BYTES);
    // Entry: type, integer size, five chunk numbers and lengths, differentiator, hash.
    assert!(1 + 1 + 5 * 2 + 4 + 8 == CHUNK_BYTES);
    // Header, hash table and chunks fit in every block size.
    let mut block_shift = 9;
    while block_shift <= 20 {
        let (buckets, chunks) = geometry(block_shift);
        assert!(HEADER_BYTES + 2 * buckets + chunks * CHUNK_BYTES <= 1 << block_shift);
        block_shift += 1;
    }
};

const OTHER_CHUNK: FormatError =
    FormatError::Corrupt { what: WHAT, why: "has a name or value in a chunk of another type" };

pub(super) const fn geometry(block_shift: u32) -> (usize, usize) {
    let buckets = 1 << (block_shift - 5);
    (buckets, ((1 << block_shift) - 2 * buckets) / CHUNK_BYTES - 2)
}

pub(super) fn bucket_of(hash: u64, prefix_len: u32, buckets: usize) -> usize {
    let below_prefix = hash.checked_shl(prefix_len).unwrap_or(0);
    (below_prefix >> (64 - buckets.ilog2())) as usize
}

/// Leaf block.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// Hash prefix as a number.
    pub prefix: u64,
    /// Bits of the prefix.
    pub prefix_len: u32,
    /// Entries per the header.
    pub entry_count: u16,
    /// Free chunks per the header.
    pub free_count: u16,
    /// `ZLF_ENTRIES_CDSORTED` (1): equal hashes are sorted by differentiator.
    pub flags: u8,
    buckets: usize,
    chunk_count: usize,
    endian: Endian,
    block: Bytes,
}

/// Entry of a leaf.
#[derive(Debug, Clone, Copy)]
pub struct LeafEntry<'a> {
    /// Name's hash.
    pub hash: u64,
    /// Differentiator of equal hashes.
    pub cd: u32,
    /// Size of an integer: 1, 2, 4 or 8.
    pub int_bytes: u8,
    /// Integers in the value.
    pub int_count: u16,
    /// Name length: bytes with NUL, or words.
    pub name_len: u16,
    name_chunk: u16,
    value_chunk: u16,
    next: u16,
    leaf: &'a Leaf,
}

impl Leaf {
    /// Decodes the header.
    ///
    /// # Errors
    /// A wrong magic number, a block size not a power of two, a prefix longer than a hash.
    pub fn decode(block: Bytes, endian: Endian) -> Result<Leaf> {
        let (buckets, chunk_count) = geometry(block_shift(&block)?);
        let mut r = Reader::new(WHAT, &block, endian);
        let block_type = r.u64()?;
        r.skip(8)?;
        let prefix = r.u64()?;
        let magic = r.u32()?;
        if block_type != ZBT_LEAF || magic != ZAP_LEAF_MAGIC {
            return Err(FormatError::BadMagic { what: WHAT, found: magic.into() });
        }
        let (free_count, entry_count) = (r.u16()?, r.u16()?);
        let prefix_len = u32::from(r.u16()?);
        at_most("ZAP leaf prefix bits", prefix_len.into(), 64)?;
        r.skip(2)?;
        let flags = r.u8()?;
        Ok(Leaf { prefix, prefix_len, entry_count, free_count, flags, buckets, chunk_count, endian, block })
    }

    /// Entries in chunk order. A malformed entry yields an error in its place.
    pub fn entries(&self) -> impl Iterator<Item = Result<LeafEntry<'_>>> {
        let is_entry = |chunk: &&[u8; CHUNK_BYTES]| chunk[0] == CHUNK_ENTRY;
        self.chunks().iter().filter(is_entry).map(|chunk| self.decode_entry(chunk))
    }

    /// Entries in ZAP cursor order: by hash, then differentiator.
    ///
    /// # Errors
    /// As `entries`.
    pub fn entries_in_order(&self) -> Result<Vec<LeafEntry<'_>>> {
        let mut entries = self.entries().collect::<Result<Vec<_>>>()?;
        entries.sort_by_key(|entry| (entry.hash, entry.cd));
        Ok(entries)
    }

    /// Looks up a text name without NUL.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn lookup(&self, hash: u64, name: &[u8]) -> Result<Option<LeafEntry<'_>>> {
        self.find(hash, |entry| entry.is_named(name))
    }

    /// Looks up a name of words.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn lookup_words(&self, hash: u64, name: &[u64]) -> Result<Option<LeafEntry<'_>>> {
        self.find(hash, |entry| Ok(usize::from(entry.name_len) == name.len() && entry.name_words()? == name))
    }

    /// First entry of this hash that `wanted` accepts; used for normalized names.
    ///
    /// # Errors
    /// A damaged chain, or the error of `wanted`.
    pub fn find(
        &self,
        hash: u64,
        mut wanted: impl FnMut(&LeafEntry<'_>) -> Result<bool>,
    ) -> Result<Option<LeafEntry<'_>>> {
        let at = HEADER_BYTES + 2 * bucket_of(hash, self.prefix_len, self.buckets);
        let mut r = Reader::new(WHAT, &self.block, self.endian);
        r.skip(at)?;
        let mut next = r.u16()?;
        for _ in 0..=self.chunk_count {
            if next == CHAIN_END {
                return Ok(None);
            }
            let entry = self.decode_entry(self.chunk(next)?)?;
            if entry.hash == hash && wanted(&entry)? {
                return Ok(Some(entry));
            }
            next = entry.next;
        }
        Err(FormatError::Corrupt { what: WHAT, why: "has a hash chain with a loop" })
    }

    fn chunks(&self) -> &[[u8; CHUNK_BYTES]] {
        let start = HEADER_BYTES + 2 * self.buckets;
        let chunks = self.block.get(start..).unwrap_or_default().as_chunks().0;
        &chunks[..self.chunk_count.min(chunks.len())]
    }

    fn chunk(&self, number: u16) -> Result<&[u8; CHUNK_BYTES]> {
        self.chunks().get(usize::from(number)).ok_or(FormatError::OutOfRange {
            what: "ZAP leaf chunk",
            value: number.into(),
            bound: self.chunk_count as u64,
        })
    }

    fn decode_entry(&self, chunk: &[u8; CHUNK_BYTES]) -> Result<LeafEntry<'_>> {
        if chunk[0] != CHUNK_ENTRY {
            return Err(FormatError::Corrupt {
                what: WHAT,
                why: "has a hash chain through a chunk of another type",
            });
        }
        let [_, int_bytes, fields @ .., c0, c1, c2, c3, h0, h1, h2, h3, h4, h5, h6, h7] = *chunk;
        if !matches!(int_bytes, 1 | 2 | 4 | 8) {
            return Err(FormatError::OutOfRange {
                what: "ZAP integer bytes",
                value: int_bytes.into(),
                bound: 8,
            });
        }
        let [n0, n1, a0, a1, l0, l1, v0, v1, i0, i1] = fields;
        Ok(LeafEntry {
            int_bytes,
            next: self.endian.u16([n0, n1]),
            name_chunk: self.endian.u16([a0, a1]),
            name_len: self.endian.u16([l0, l1]),
            value_chunk: self.endian.u16([v0, v1]),
            int_count: self.endian.u16([i0, i1]),
            cd: self.endian.u32([c0, c1, c2, c3]),
            hash: self.endian.u64([h0, h1, h2, h3, h4, h5, h6, h7]),
            leaf: self,
        })
    }

    fn pieces(&self, first: u16, len: usize) -> Result<impl Iterator<Item = Result<&[u8]>>> {
        // Reject lengths beyond the chunks before any allocation.
        at_most("ZAP leaf array bytes", len as u64, (self.chunk_count * ARRAY_BYTES) as u64)?;
        let (mut next, mut left) = (first, len);
        Ok(std::iter::from_fn(move || {
            (left > 0).then(|| {
                let here = left.min(ARRAY_BYTES);
                left -= here;
                let chunk = self.chunk(next).inspect_err(|_| left = 0)?;
                let [kind, content @ .., a, b] = chunk;
                if *kind != CHUNK_ARRAY {
                    left = 0;
                    return Err(OTHER_CHUNK);
                }
                next = self.endian.u16([*a, *b]);
                Ok(&content[..here])
            })
        }))
    }

    /// An array of one chunk; `None`: of several.
    fn short(&self, chunk: u16, len: usize) -> Result<Option<&[u8]>> {
        let [kind, content @ .., _, _] = self.chunk(chunk)?;
        match content.get(..len) {
            Some(_) if *kind != CHUNK_ARRAY => Err(OTHER_CHUNK),
            short => Ok(short),
        }
    }

    /// Passes on the text name, without NUL, and the single number of each entry whose number is wanted.
    ///
    /// # Errors
    /// Damage; other values; those of `each`.
    pub fn each_number(
        &self,
        mut is_wanted: impl FnMut(u64) -> bool,
        mut each: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<()> {
        let mut long = Vec::new();
        for entry in self.entries() {
            let entry = entry?;
            let number = match (entry.int_bytes, entry.int_count, self.short(entry.value_chunk, 8)?) {
                (8, 1, Some(value)) => value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
                _ => entry.value_u64()?,
            };
            if !is_wanted(number) {
                continue;
            }
            match self.short(entry.name_chunk, entry.name_len.into())? {
                Some(name) => each(name.strip_suffix(&[0]).unwrap_or(name), number)?,
                None => {
                    entry.read_name(&mut long)?;
                    each(&long, number)?;
                }
            }
        }
        Ok(())
    }

    fn read_into(&self, first: u16, len: usize, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        for piece in self.pieces(first, len)? {
            out.extend_from_slice(piece?);
        }
        Ok(())
    }
}

impl<'a> LeafEntry<'a> {
    fn name_pieces(&self) -> Result<impl Iterator<Item = Result<&'a [u8]>>> {
        self.leaf.pieces(self.name_chunk, self.name_len.into())
    }

    fn is_named(&self, name: &[u8]) -> Result<bool> {
        if usize::from(self.name_len) != name.len() + 1 {
            return Ok(false);
        }
        let mut rest = name;
        for piece in self.name_pieces()? {
            let piece = piece?;
            let (part, later) = rest.split_at(rest.len().min(piece.len()));
            if !piece.starts_with(part) {
                return Ok(false);
            }
            rest = later;
        }
        Ok(true)
    }

    /// Reads a text name without NUL into `out`, replacing its content.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn read_name(&self, out: &mut Vec<u8>) -> Result<()> {
        self.leaf.read_into(self.name_chunk, self.name_len.into(), out)?;
        if out.last() == Some(&0) {
            out.pop();
        }
        Ok(())
    }

    /// Text name without NUL.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn name(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.read_name(&mut out)?;
        Ok(out)
    }

    /// Name of words.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn name_words(&self) -> Result<Vec<u64>> {
        let mut bytes = Vec::new();
        self.leaf.read_into(self.name_chunk, usize::from(self.name_len) * 8, &mut bytes)?;
        Ok(integers(&bytes, 8))
    }

    /// Value as a single integer of any size.
    ///
    /// # Errors
    /// More or fewer integers; a damaged chain.
    pub fn value_u64(&self) -> Result<u64> {
        if self.int_count != 1 {
            return Err(FormatError::Corrupt { what: "ZAP value", why: "is not a single integer" });
        }
        let mut pieces = self.leaf.pieces(self.value_chunk, self.int_bytes.into())?;
        let piece = pieces.next().unwrap_or(Ok(&[]))?;
        Ok(piece.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Integers of the value, widened.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn value_words(&self) -> Result<Vec<u64>> {
        Ok(integers(&self.value_bytes()?, self.int_bytes.into()))
    }

    /// Bytes of the value; wide integers are big-endian.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn value_bytes(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let len = usize::from(self.int_count) * usize::from(self.int_bytes);
        self.leaf.read_into(self.value_chunk, len, &mut out)?;
        Ok(out)
    }
}

fn integers(big_endian: &[u8], int_bytes: usize) -> Vec<u64> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    big_endian.chunks_exact(int_bytes).map(number).collect()
}
