//! Chunks of a leaf: free list, chains of names and values, numbers at offsets.

use super::super::leaf::{
    ARRAY_BYTES, CHAIN_END, CHUNK_ARRAY, CHUNK_BYTES, CHUNK_ENTRY, CHUNK_FREE, HEADER_BYTES, WHAT, bucket_of,
};
use super::{
    ARRAY_NEXT, FREE_COUNT, FREE_HEAD, INT_BYTES, LeafMut, LeafValue, PREFIX_LEN, VALUE_CHUNK, VALUE_LEN,
};
use crate::bytes::Endian;
use crate::error::{FormatError, Result, at_most};

const E: Endian = Endian::NATIVE;

impl LeafMut<'_> {
    /// First `count` free chunks; `None` if there are fewer.
    pub(super) fn free(&self, count: usize) -> Result<Option<Vec<u16>>> {
        if usize::from(self.u16(FREE_COUNT)) < count {
            return Ok(None);
        }
        let mut chunks = Vec::with_capacity(count);
        let mut next = self.u16(FREE_HEAD);
        while chunks.len() < count {
            let at = self.chunk_of(next, CHUNK_FREE, "counts more free chunks than hang together")?;
            chunks.push(next);
            next = self.u16(at + ARRAY_NEXT);
        }
        Ok(Some(chunks))
    }

    pub(super) fn take(&mut self, chunks: &[u16]) {
        let Some(&last) = chunks.last() else { return };
        let next = self.u16(self.chunk_at(last.into()) + ARRAY_NEXT);
        self.set_u16(FREE_HEAD, next);
        self.set_u16(FREE_COUNT, self.u16(FREE_COUNT) - chunks.len() as u16);
    }

    pub(super) fn give_back(&mut self, chunk: u16) {
        let at = self.chunk_at(chunk.into());
        // Zeros compress well.
        self.block[at..at + CHUNK_BYTES].fill(0);
        self.block[at] = CHUNK_FREE;
        self.set_u16(at + ARRAY_NEXT, self.u16(FREE_HEAD));
        self.set_u16(FREE_HEAD, chunk);
        self.set_u16(FREE_COUNT, self.u16(FREE_COUNT).saturating_add(1));
    }

    pub(super) fn array(&self, first: u16) -> Result<Vec<u16>> {
        let mut chunks = Vec::new();
        let mut next = first;
        while next != CHAIN_END {
            let at = self.chunk_of(next, CHUNK_ARRAY, "has a name or value in a chunk of another type")?;
            if chunks.len() > self.chunk_count {
                return Err(FormatError::Corrupt {
                    what: WHAT,
                    why: "has a name or value whose chunks form a loop",
                });
            }
            chunks.push(next);
            next = self.u16(at + ARRAY_NEXT);
        }
        Ok(chunks)
    }

    pub(super) fn array_is(&self, first: u16, wanted: &[u8]) -> Result<bool> {
        let mut next = first;
        for piece in wanted.chunks(ARRAY_BYTES) {
            let at = self.chunk_of(next, CHUNK_ARRAY, "has a name in a chunk of another type")?;
            if self.block[at + 1..at + 1 + piece.len()] != *piece {
                return Ok(false);
            }
            next = self.u16(at + ARRAY_NEXT);
        }
        Ok(true)
    }

    /// Writes an array to exactly the chunks it needs; returns the first.
    pub(super) fn write_array(&mut self, chunks: &[u16], content: &[u8]) -> u16 {
        for (i, piece) in content.chunks(ARRAY_BYTES).enumerate() {
            let at = self.chunk_at(chunks[i].into());
            self.block[at..at + CHUNK_BYTES].fill(0);
            self.block[at] = CHUNK_ARRAY;
            self.block[at + 1..at + 1 + piece.len()].copy_from_slice(piece);
            self.set_u16(at + ARRAY_NEXT, chunks.get(i + 1).copied().unwrap_or(CHAIN_END));
        }
        chunks.first().copied().unwrap_or(CHAIN_END)
    }

    pub(super) fn set_value_fields(&mut self, at: usize, chunk: u16, value: LeafValue<'_>) {
        self.block[at + INT_BYTES] = value.int_bytes;
        self.set_u16(at + VALUE_CHUNK, chunk);
        self.set_u16(at + VALUE_LEN, (value.raw.len() / usize::from(value.int_bytes.max(1))) as u16);
    }

    pub(super) fn clear_table(&mut self) {
        self.block[HEADER_BYTES..HEADER_BYTES + 2 * self.buckets].fill(0xff);
    }

    pub(super) fn bucket_at(&self, hash: u64) -> usize {
        HEADER_BYTES + 2 * bucket_of(hash, self.u16(PREFIX_LEN).into(), self.buckets)
    }

    pub(super) fn chunk_at(&self, chunk: usize) -> usize {
        HEADER_BYTES + 2 * self.buckets + chunk * CHUNK_BYTES
    }

    /// Offset of an entry, with a number from disk.
    pub(super) fn entry_at(&self, entry: u16) -> Result<usize> {
        self.chunk_of(entry, CHUNK_ENTRY, "has a hash chain through a chunk of another type")
    }

    pub(super) fn chunk_of(&self, chunk: u16, kind: u8, why: &'static str) -> Result<usize> {
        at_most("ZAP leaf chunk", chunk.into(), self.chunk_count as u64 - 1)?;
        let at = self.chunk_at(chunk.into());
        if self.block[at] == kind { Ok(at) } else { Err(FormatError::Corrupt { what: WHAT, why }) }
    }

    pub(super) fn content(&self, chunk: u16) -> &[u8] {
        let at = self.chunk_at(chunk.into());
        &self.block[at + 1..at + 1 + ARRAY_BYTES]
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.block[at..at + N]);
        bytes
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        E.u16(self.bytes(at))
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        E.u32(self.bytes(at))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        E.u64(self.bytes(at))
    }

    pub(super) fn set_u16(&mut self, at: usize, number: u16) {
        self.block[at..at + 2].copy_from_slice(&number.to_ne_bytes());
    }

    pub(super) fn set_u32(&mut self, at: usize, number: u32) {
        self.block[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }

    pub(super) fn set_u64(&mut self, at: usize, number: u64) {
        self.block[at..at + 8].copy_from_slice(&number.to_ne_bytes());
    }
}
