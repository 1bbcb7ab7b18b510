//! A bounded, endian-aware cursor over untrusted bytes, and its counterpart for writing.
//!
//! Idea: OpenZFS stores most structures in the byte order of the machine that wrote them, records that
//! order beside them (in the block pointer, a magic number or a header byte) and byte-swaps whole buffers
//! after reading. Here nothing is swapped in place: every decoder takes the `Endian` of its block and reads
//! fields through `Reader`, which checks each access against the end.

use crate::error::{FormatError, Result};

/// The byte order that a block was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first; bit 63 of the block pointer's property word is set.
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// The order of the machine that runs this program.
    pub const NATIVE: Endian = if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big };

    /// The other order.
    pub fn swapped(self) -> Endian {
        match self {
            Endian::Little => Endian::Big,
            Endian::Big => Endian::Little,
        }
    }

    /// Reads a 16-bit number.
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Reads a 32-bit number.
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Reads a word.
    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Endian::Little => u64::from_le_bytes(bytes),
            Endian::Big => u64::from_be_bytes(bytes),
        }
    }

    /// Finds the order in which `bytes` spell `magic`, if there is one.
    pub fn of_magic(magic: u64, bytes: [u8; 8]) -> Option<Endian> {
        [Endian::Little, Endian::Big].into_iter().find(|e| e.u64(bytes) == magic)
    }
}

/// A cursor that never reads past the end of its bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    what: &'static str,
    data: &'a [u8],
    at: usize,
    endian: Endian,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `data`; `what` names the structure in errors.
    pub fn new(what: &'static str, data: &'a [u8], endian: Endian) -> Self {
        Reader { what, data, at: 0, endian }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.data.len() - self.at
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The byte order that fields are read in.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The next `len` bytes as they are.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = &self.data[self.at..];
        if len > rest.len() {
            return Err(FormatError::Truncated { what: self.what, need: len, have: rest.len() });
        }
        self.at += len;
        Ok(&rest[..len])
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    /// Skips `len` bytes.
    pub fn skip(&mut self, len: usize) -> Result<()> {
        self.bytes(len).map(|_| ())
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// The next 16-bit number.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(self.endian.u16(self.array()?))
    }

    /// The next 32-bit number.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(self.endian.u32(self.array()?))
    }

    /// The next 64-bit number.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(self.endian.u64(self.array()?))
    }

    /// The next 64-bit two's-complement number.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(self.u64()?.cast_signed())
    }

    /// The next `N` words.
    pub fn words<const N: usize>(&mut self) -> Result<[u64; N]> {
        let mut out = [0; N];
        let raw = self.bytes(N * 8)?;
        for (word, chunk) in out.iter_mut().zip(raw.as_chunks::<8>().0) {
            *word = self.endian.u64(*chunk);
        }
        Ok(out)
    }
}

/// Appends fields to a buffer in one byte order.
#[derive(Debug, Clone)]
pub struct Writer {
    out: Vec<u8>,
    endian: Endian,
}

impl Writer {
    /// An empty buffer.
    pub fn new(endian: Endian) -> Self {
        Writer { out: Vec::new(), endian }
    }

    /// The byte order that fields are written in.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Bytes written so far.
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends zeros up to position `end`.
    ///
    /// # Panics
    /// If more was written already: the structure would overwrite what follows it.
    pub fn pad_to(&mut self, end: usize) -> &mut Self {
        assert!(self.out.len() <= end, "{} bytes written where {end} are reserved", self.out.len());
        self.out.resize(end, 0);
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Appends a 16-bit number.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        match self.endian {
            Endian::Little => self.bytes(&value.to_le_bytes()),
            Endian::Big => self.bytes(&value.to_be_bytes()),
        }
    }

    /// Appends a 32-bit number.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        match self.endian {
            Endian::Little => self.bytes(&value.to_le_bytes()),
            Endian::Big => self.bytes(&value.to_be_bytes()),
        }
    }

    /// Appends a 64-bit number.
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

    /// The buffer.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}
