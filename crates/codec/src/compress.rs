//! Compressors of block pointers.
//!
//! Idea: a compressed block is padded to whole sectors, and its pointer records only padded and logical size.
//! So each format marks its own end or starts with a length, and decompression fills exactly `dst` and
//! ignores the rest.
//!
//! ```text
//! lzjb   tokens until dst is full                        (own code, `lzjb`)
//! zle    runs of zeros and of literals until dst is full (own code, `zle`)
//! gzip   a zlib stream; 1 to 9 differ only in the effort of compression
//! lz4    length u32 BE | one LZ4 block          (decompressed here if it is mostly runs, `lz4`)
//! zstd   length u32 BE | level u8, version u24 BE | one Zstandard frame without its magic
//! ```
//!
//! Robustness: the source is untrusted. Output never passes the end of `dst`. Less is an error: the rest
//! would be stale bytes.
//!
//! Locking: none. gzip, lz4 and zstd keep tables and memory in thread-local variables, borrowed only within
//! one call.
//!
//! Source: OpenZFS `zio_compress.c`, `lzjb.c`, `zle.c`, `gzip.c`, `lz4_zfs.c`, `zfs_zstd.c`.

mod lz4;
mod lzjb;
mod zle;
mod zstd;

pub use zstd::ZstdLevel;

use std::cell::RefCell;

/// `SPA_MAXBLOCKSIZE`, the largest block.
pub const MAX_BLOCK_BYTES: usize = 16 << 20;

/// Compression algorithm by on-disk number (`enum zio_compress`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // gzip-1 to gzip-9 speak for themselves
pub enum Compression {
    /// Property value, never in a pointer.
    Inherit = 0,
    /// Property value, never in a pointer.
    On = 1,
    /// Uncompressed.
    Off = 2,
    /// Jeff Bonwick's Lempel-Ziv: metadata of old pools.
    Lzjb = 3,
    /// All zeros: a hole, not stored.
    Empty = 4,
    Gzip1 = 5,
    Gzip2 = 6,
    Gzip3 = 7,
    Gzip4 = 8,
    Gzip5 = 9,
    Gzip6 = 10,
    Gzip7 = 11,
    Gzip8 = 12,
    Gzip9 = 13,
    /// Zero-length encoding: runs of zeros.
    Zle = 14,
    /// LZ4, the value of `on`.
    Lz4 = 15,
    /// Zstandard.
    Zstd = 16,
}

/// Compression or decompression error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompressError {
    /// Unknown algorithm number.
    #[error("unknown compression algorithm {0}: made by a newer OpenZFS, or the block pointer is damaged")]
    Unknown(u8),
    /// Property value, or "empty", instead of an algorithm.
    #[error("no block is stored with compression \"{}\"", .0.name())]
    NotStored(Compression),
    /// Longer than any block.
    #[error("a block of {0} bytes is longer than the maximum of 16 MiB")]
    TooLong(usize),
    /// Not a compressor's output. If the checksum matched, the writer is at fault.
    #[error("the {} data is damaged: {problem}", .compression.name())]
    Corrupt {
        /// Algorithm.
        compression: Compression,
        /// Defect.
        problem: &'static str,
    },
}

type Problem = &'static str;
const CUT_SHORT: Problem = "it ends before the block is full";
const TOO_LONG: Problem = "it holds more than the block";
const BAD_LENGTH: Problem = "its length field is beyond the block";
const BAD_OFFSET: Problem = "it copies from outside the block";
const BAD_STREAM: Problem = "the stream is malformed";

impl Compression {
    /// Decompresses `src` to fill `dst`, which has the block's logical size.
    ///
    /// On an error `dst` holds unspecified bytes.
    pub fn decompress_into(self, src: &[u8], dst: &mut [u8]) -> Result<(), CompressError> {
        use Compression::*;
        let result = match self {
            Inherit | On | Empty => return Err(CompressError::NotStored(self)),
            Off => copy(src, dst),
            Lzjb => lzjb::decompress(src, dst),
            Zle => zle::decompress(src, dst),
            Lz4 => lz4::decompress(src, dst),
            Zstd => zstd::decompress(src, dst),
            Gzip1 | Gzip2 | Gzip3 | Gzip4 | Gzip5 | Gzip6 | Gzip7 | Gzip8 | Gzip9 => {
                gzip_decompress(src, dst)
            }
        };
        result.map_err(|problem| CompressError::Corrupt { compression: self, problem })
    }

    /// Decompresses `src` to a new buffer of the block's logical size.
    pub fn decompress(self, src: &[u8], dst_bytes: usize) -> Result<Vec<u8>, CompressError> {
        if dst_bytes > MAX_BLOCK_BYTES {
            return Err(CompressError::TooLong(dst_bytes));
        }
        let mut dst = vec![0; dst_bytes];
        self.decompress_into(src, &mut dst)?;
        Ok(dst)
    }

    /// Compresses `src` into at most `limit_bytes`; `None` means that the block is stored uncompressed.
    /// OpenZFS's limit is the logical size less an eighth. Only zstd uses `level`. The result takes no more
    /// memory than its length: a txg keeps thousands.
    pub fn compress(
        self,
        src: &[u8],
        limit_bytes: usize,
        level: ZstdLevel,
    ) -> Result<Option<Vec<u8>>, CompressError> {
        use Compression::*;
        if src.len() > MAX_BLOCK_BYTES {
            return Err(CompressError::TooLong(src.len()));
        }
        let limit_bytes = limit_bytes.min(src.len());
        let mut compressed = match self {
            Inherit | On | Empty => return Err(CompressError::NotStored(self)),
            Off => (src.len() <= limit_bytes).then(|| src.to_vec()),
            Lzjb => lzjb::compress(src, limit_bytes),
            Zle => zle::compress(src, limit_bytes),
            Lz4 => lz4::compress(src, limit_bytes),
            Zstd => zstd::compress(src, limit_bytes, level),
            Gzip1 | Gzip2 | Gzip3 | Gzip4 | Gzip5 | Gzip6 | Gzip7 | Gzip8 | Gzip9 => {
                gzip_compress(src, limit_bytes, self as i32 - Gzip1 as i32 + 1)
            }
        };
        compressed.iter_mut().for_each(Vec::shrink_to_fit);
        Ok(compressed)
    }

    /// Name in `zfs get compression` and zdb.
    #[must_use]
    pub fn name(self) -> &'static str {
        use Compression::*;
        match self {
            Inherit => "inherit",
            On => "on",
            Off => "uncompressed",
            Lzjb => "lzjb",
            Empty => "empty",
            Gzip1 => "gzip-1",
            Gzip2 => "gzip-2",
            Gzip3 => "gzip-3",
            Gzip4 => "gzip-4",
            Gzip5 => "gzip-5",
            Gzip6 => "gzip-6",
            Gzip7 => "gzip-7",
            Gzip8 => "gzip-8",
            Gzip9 => "gzip-9",
            Zle => "zle",
            Lz4 => "lz4",
            Zstd => "zstd",
        }
    }

    /// Algorithms by on-disk number.
    pub const ALL: [Compression; 17] = {
        use Compression::*;
        [
            Inherit, On, Off, Lzjb, Empty, Gzip1, Gzip2, Gzip3, Gzip4, Gzip5, Gzip6, Gzip7, Gzip8, Gzip9,
            Zle, Lz4, Zstd,
        ]
    };
}

impl TryFrom<u8> for Compression {
    type Error = CompressError;

    fn try_from(number: u8) -> Result<Self, CompressError> {
        Self::ALL.get(usize::from(number)).copied().ok_or(CompressError::Unknown(number))
    }
}

fn copy(src: &[u8], dst: &mut [u8]) -> Result<(), Problem> {
    dst.copy_from_slice(src.get(..dst.len()).ok_or(CUT_SHORT)?);
    Ok(())
}

/// Reads a big-endian `u32` length; returns that many bytes after it.
fn length_prefixed(src: &[u8]) -> Result<&[u8], Problem> {
    let (length, rest) = src.split_first_chunk::<4>().ok_or(CUT_SHORT)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BAD_LENGTH)?;
    rest.get(..length).ok_or(BAD_LENGTH)
}

fn filled(written: usize, dst: &[u8]) -> Result<(), Problem> {
    if written == dst.len() { Ok(()) } else { Err(CUT_SHORT) }
}

thread_local! {
    /// Keeping the tables between blocks pays (11 KiB per thread).
    static INFLATE: RefCell<libdeflater::Decompressor> = RefCell::new(libdeflater::Decompressor::new());
}

fn gzip_decompress(src: &[u8], dst: &mut [u8]) -> Result<(), Problem> {
    use libdeflater::DecompressionError;
    INFLATE.with_borrow_mut(|inflate| match inflate.zlib_decompress(src, dst) {
        Ok(written) => filled(written, dst),
        Err(DecompressionError::InsufficientSpace) => Err(TOO_LONG),
        Err(DecompressionError::BadData) => Err(BAD_STREAM),
    })
}

fn gzip_compress(src: &[u8], limit_bytes: usize, level: i32) -> Option<Vec<u8>> {
    let level = libdeflater::CompressionLvl::new(level).ok()?;
    let mut out = vec![0; limit_bytes];
    let length = libdeflater::Compressor::new(level).zlib_compress(src, &mut out).ok()?;
    out.truncate(length);
    Some(out)
}

#[cfg(test)]
mod tests;
