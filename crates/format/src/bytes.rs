//! A bounded, endian-aware reader of untrusted bytes, and a writer.
//!
//! Idea: OpenZFS stores most structures in the writer's byte order and byte-swaps whole buffers after a read.
//! Here every decoder takes the `Endian` of its block (from the block pointer, a magic number or header byte)
//! and reads fields through `Reader`, which checks each access against the end.

use crate::error::{FormatError, Result};

/// Byte order of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first; sets bit 63 of the block pointer's property word.
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// Byte order of this machine.
    pub const NATIVE: Endian = if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big };

    /// Opposite order.
    pub fn swapped(self) -> Endian {
        match self {
            Endian::Little => Endian::Big,
            Endian::Big => Endian::Little,
        }
    }

    /// Decodes 16 bits.
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Decodes 32 bits.
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Decodes 64 bits.
    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Endian::Little => u64::from_le_bytes(bytes),
            Endian::Big => u64::from_be_bytes(bytes),
        }
    }

    /// Order in which `bytes` spell `magic`, if any.
    pub fn of_magic(magic: u64, bytes: [u8; 8]) -> Option<Endian> {
        [Endian::Little, Endian::Big].into_iter().find(|e| e.u64(bytes) == magic)
    }
}

/// Whether all bytes are zero.
#[inline]
pub fn is_zero(bytes: &[u8]) -> bool {
    // Whole chunks become vector instructions, and words where those are not used. A chunk has a block
    // pointer's size; with half of it, one takes twice the time.
    let (chunks, rest) = bytes.as_chunks::<128>();
    let is_zero = |chunk: &[u8; 128]| {
        let words = chunk.as_chunks::<8>().0.iter();
        words.fold(0, |all, word| all | u64::from_ne_bytes(*word)) == 0
    };
    chunks.iter().all(is_zero) && rest.iter().all(|byte| *byte == 0)
}

/// Cursor that never passes the end of its bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    what: &'static str,
    data: &'a [u8],
    at: usize,
    endian: Endian,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte; `what` names the structure in errors.
    pub fn new(what: &'static str, data: &'a [u8], endian: Endian) -> Self {
        Reader { what, data, at: 0, endian }
    }

    /// Unread bytes.
    pub fn remaining(&self) -> usize {
        self.data.len() - self.at
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Byte order of the fields.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = &self.data[self.at..];
        if len > rest.len() {
            return Err(FormatError::Truncated { what: self.what, need: len, have: rest.len() });
        }
        self.at += len;
        Ok(&rest[..len])
    }

    /// Next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    /// Skips `len` bytes.
    pub fn skip(&mut self, len: usize) -> Result<()> {
        self.bytes(len).map(|_| ())
    }

    /// Next byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Next 16 bits.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(self.endian.u16(self.array()?))
    }

    /// Next 32 bits.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(self.endian.u32(self.array()?))
    }

    /// Next 64 bits.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(self.endian.u64(self.array()?))
    }

    /// Next 64 bits, two's complement.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(self.u64()?.cast_signed())
    }

    /// Next `N` words.
    pub fn words<const N: usize>(&mut self) -> Result<[u64; N]> {
        let mut out = [0; N];
        let raw = self.bytes(N * 8)?;
        for (word, chunk) in out.iter_mut().zip(raw.as_chunks::<8>().0) {
            *word = self.endian.u64(*chunk);
        }
        Ok(out)
    }
}

/// Buffer of fields in one byte order.
#[derive(Debug, Clone)]
pub struct Writer {
    out: Vec<u8>,
    endian: Endian,
}

impl Writer {
    /// Empty buffer.
    pub fn new(endian: Endian) -> Self {
        Writer { out: Vec::new(), endian }
    }

    /// Byte order of the fields.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Bytes written.
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Appends raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends zeros up to position `end`.
    ///
    /// # Panics
    /// If the position is past `end`: the structure would overwrite its successor.
    pub fn pad_to(&mut self, end: usize) -> &mut Self {
        assert!(self.out.len() <= end, "{} bytes written where {end} are reserved", self.out.len());
        self.out.resize(end, 0);
        self
    }

    /// Appends a byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Appends 16 bits.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        match self.endian {
            Endian::Little => self.bytes(&value.to_le_bytes()),
            Endian::Big => self.bytes(&value.to_be_bytes()),
        }
    }

    /// Appends 32 bits.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        match self.endian {
            Endian::Little => self.bytes(&value.to_le_bytes()),
            Endian::Big => self.bytes(&value.to_be_bytes()),
        }
    }

    /// Appends 64 bits.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        match self.endian {
            Endian::Little => self.bytes(&value.to_le_bytes()),
            Endian::Big => self.bytes(&value.to_be_bytes()),
        }
    }

    /// Appends words.
    pub fn words(&mut self, words: &[u64]) -> &mut Self {
        for &word in words {
            self.u64(word);
        }
        self
    }

    /// Returns the buffer.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_enough_not_to_be_zero() {
        assert!(is_zero(&[]));
        for len in [1, 127, 128, 129, 512, 640] {
            let mut data = vec![0; len];
            assert!(is_zero(&data));
            for at in [0, 63, 64, 127, 128, 511, len - 1].into_iter().filter(|at| *at < len) {
                data[at] = 1;
                assert!(!is_zero(&data));
                data[at] = 0;
            }
        }
    }
}
