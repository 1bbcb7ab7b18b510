//! The hash of a file's content, including holes and unreadable parts.
//!
//! A file up to 256 MiB has one hash. A larger one is hashed extent by extent between its holes, so a sparse
//! terabyte costs only as much as its data. Unreadable ranges are listed and hashed as zeros, so a damaged
//! file still has a comparable value.
//!
//! ```text
//!   HASH                                   whole file
//!   EIO:OFFSET+LENGTH;...|HASH             ... with unreadable ranges
//!   extents:OFFSET+LENGTH:HASH;...         over 256 MiB; a HASH may again start with EIO:...|
//! ```

use std::fmt::Write as _;
use std::ops::Range;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::row::append_hex;
use crate::error::{FsError, Result};

/// Files over this size are hashed by extent.
pub const WHOLE_HASH_LIMIT_BYTES: u64 = 256 << 20;
/// Bytes read at a time: the memory used by one hash.
const CHUNK_BYTES: u64 = 1 << 20;
/// The bytes that zero ranges are hashed from.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A source of content: a file or a volume.
pub trait Content: Sync {
    /// Its size.
    fn size_bytes(&self) -> u64;
    /// Its block size: the unit in which reading succeeds or fails.
    fn block_bytes(&self) -> u64;
    /// Reads `len` bytes at `offset`, within the size.
    fn read(&self, offset: u64, len: u64) -> impl Future<Output = Result<Bytes>> + Send;
    /// The first offset at or after this that has data; `None` if only holes follow.
    fn next_data(&self, offset: u64) -> impl Future<Output = Result<Option<u64>>> + Send;
    /// The first offset at or after this that lies in a hole; the size if none.
    fn next_hole(&self, offset: u64) -> impl Future<Output = Result<u64>> + Send;
}

/// The hash of a range, and its unreadable parts (which were hashed as zeros).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeHash {
    /// SHA-256.
    pub sha256: [u8; 32],
    /// Sorted, with gaps between them.
    pub unreadable: Vec<Range<u64>>,
}

/// The hash of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentHash {
    /// The whole file, at most 256 MiB.
    Whole(RangeHash),
    /// Each range of data; the rest is zeros.
    Extents(Vec<(Range<u64>, RangeHash)>),
}

impl ContentHash {
    /// Whether every byte was readable.
    pub fn is_complete(&self) -> bool {
        match self {
            ContentHash::Whole(hash) => hash.unreadable.is_empty(),
            ContentHash::Extents(extents) => extents.iter().all(|(_, hash)| hash.unreadable.is_empty()),
        }
    }

    /// Appends it in the notation above.
    pub fn append_to(&self, out: &mut String) {
        match self {
            ContentHash::Whole(hash) => hash.append_to(out),
            ContentHash::Extents(extents) => {
                out.push_str("extents:");
                for (index, (range, hash)) in extents.iter().enumerate() {
                    let separator = if index > 0 { ";" } else { "" };
                    let _ = write!(out, "{separator}{}+{}:", range.start, range.end - range.start);
                    hash.append_to(out);
                }
            }
        }
    }
}

impl RangeHash {
    fn append_to(&self, out: &mut String) {
        for (index, range) in self.unreadable.iter().enumerate() {
            let before = if index > 0 { ";" } else { "EIO:" };
            let _ = write!(out, "{before}{}+{}", range.start, range.end - range.start);
        }
        if !self.unreadable.is_empty() {
            out.push('|');
        }
        append_hex(&self.sha256, out);
    }
}

/// Hashes a file as manifests do.
///
/// # Errors
/// The holes of a large file could not be found. Unreadable content is not an error.
pub async fn hash_content(content: &impl Content) -> Result<ContentHash> {
    let size = content.size_bytes();
    if size <= WHOLE_HASH_LIMIT_BYTES {
        return Ok(ContentHash::Whole(hash_range(content, 0..size).await));
    }
    let mut extents = Vec::new();
    let mut at = 0;
    while let Some(start) = content.next_data(at).await?.filter(|&start| start < size) {
        let end = content.next_hole(start).await?.min(size);
        if end <= start || start < at {
            return Err(FsError::Attributes { why: "describe holes that overlap data" });
        }
        extents.push((start..end, hash_range(content, start..end).await));
        at = end;
    }
    Ok(ContentHash::Extents(extents))
}

/// Hashes one range, with holes as zeros. Unreadable blocks are listed and count as zeros.
pub async fn hash_range(content: &impl Content, range: Range<u64>) -> RangeHash {
    let mut hash = Sha256::new();
    let mut unreadable: Vec<Range<u64>> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let len = CHUNK_BYTES.min(range.end - at);
        match content.read(at, len).await {
            Ok(bytes) if bytes.len() as u64 == len => hash.update(&bytes),
            _ => hash_block_by_block(content, at..at + len, &mut hash, &mut unreadable).await,
        }
        at += len;
    }
    RangeHash { sha256: hash.finalize().into(), unreadable }
}

async fn hash_block_by_block(
    content: &impl Content,
    range: Range<u64>,
    hash: &mut Sha256,
    unreadable: &mut Vec<Range<u64>>,
) {
    let block = content.block_bytes().max(512);
    let mut at = range.start;
    while at < range.end {
        // Up to the end of the block that contains `at`.
        let end = (at / block + 1).saturating_mul(block).min(range.end);
        match content.read(at, end - at).await {
            Ok(bytes) if bytes.len() as u64 == end - at => hash.update(&bytes),
            _ => {
                hash_zeros(hash, end - at);
                match unreadable.last_mut().filter(|last| last.end == at) {
                    Some(last) => last.end = end,
                    None => unreadable.push(at..end),
                }
            }
        }
        at = end;
    }
}

fn hash_zeros(hash: &mut Sha256, mut len: u64) {
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        hash.update(&ZEROS[..part as usize]);
        len -= part;
    }
}

/// SHA-256 of bytes in memory.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests;
