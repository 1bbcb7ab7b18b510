//! A pool with forged structures: metadata words are changed, yet every checksum is right.
//!
//! Idea: the engine creates a small pool in the simulator ([`pool`]) with snapshots, clones, deadlists,
//! tables, a volume and intent logs to replay. The pool is flattened into space that one of its own large
//! files holds, so that it can also be written.
//!
//! Locking: the base pool is made once per process, behind a `OnceLock`, and never changes; every case gets
//! its own copy of the image.
//!
//! An input is a list of changes, 16 bytes each; any bytes are valid:
//!
//! ```text
//!   block (u16) | word in it (u16) | kind of change (u8) | part (u8) | - (u16) | number (u64)
//! ```

mod pool;

use std::sync::OnceLock;

use cenote_codec::Endian;
use cenote_codec::checksum::{Checksum, Stored};
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_testkit::image::Image;

pub use pool::{POOL, devices};

/// Byte order in which the engine writes.
const NATIVE: Endian = if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big };
/// Size of a change.
const CHANGE_BYTES: usize = 16;
/// Most changes per input.
const MOST_CHANGES: usize = 6;

/// The unchanged pool, and the blocks that may be changed.
struct Base {
    image: Image,
    blocks: Vec<Block>,
}

/// A metadata block.
struct Block {
    /// Offset on the disk.
    offset_bytes: u64,
    bytes: Vec<u8>,
    /// Offsets of its block pointers.
    pointers: Vec<usize>,
    /// For an intent-log block, the pointer to it. The block contains its own checksum.
    log: Option<Blkptr>,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(pool::make)
}

/// Returns the pool's disk with these changes.
pub fn forge(changes: &[u8]) -> Image {
    let base = base();
    let mut image = base.image.clone();
    let mut changed: Vec<Option<Vec<u8>>> = base.blocks.iter().map(|_| None).collect();
    for raw in changes.chunks_exact(CHANGE_BYTES).take(MOST_CHANGES) {
        let change = Change::of(raw);
        let index = change.block % base.blocks.len();
        let block = changed[index].get_or_insert_with(|| base.blocks[index].bytes.clone());
        change.apply(base, &base.blocks[index], block);
    }
    for (block, bytes) in base.blocks.iter().zip(changed) {
        let Some(mut bytes) = bytes else { continue };
        if let Some(bp) = &block.log {
            let sealed = Checksum::Zilog2.seal_as(&mut bytes, bp.checksum(), NATIVE, Stored::Checksum);
            sealed.unwrap_or_else(|error| panic!("a log block has room for its checksum: {error}"));
        }
        image.write(block.offset_bytes, &bytes);
    }
    image
}

struct Change {
    block: usize,
    word: usize,
    what: u8,
    part: u8,
    number: u64,
}

impl Change {
    fn of(raw: &[u8]) -> Change {
        let half = |at: usize| usize::from(u16::from_le_bytes([raw[at], raw[at + 1]]));
        let number = raw.last_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        Change { block: half(0), word: half(2), what: raw[4], part: raw[5], number }
    }

    fn apply(&self, base: &Base, block: &Block, bytes: &mut [u8]) {
        // A word with content, or the one just after it.
        let words = bytes.as_chunks::<8>().0;
        let used: Vec<usize> = (0..words.len()).filter(|&at| words[at] != [0; 8]).collect();
        let Some(at) =
            used.get(self.word % used.len().max(1)).map(|at| 8 * (at + usize::from(self.part >> 7)))
        else {
            return;
        };
        let Some(word) = bytes.get_mut(at..at + 8) else { return };
        let old = word.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let new = match self.what % 8 {
            0 => self.number,
            1 => old.wrapping_add(self.number % 65).wrapping_sub(32),
            2 => (1u64 << (self.number % 64)).wrapping_sub(u64::from(self.part & 1)),
            3 => self.number % 256,
            4 => {
                word[usize::from(self.part % 8)] = self.number as u8;
                return;
            }
            5 => {
                let other = used[self.number as usize % used.len()];
                bytes.copy_within(8 * other..8 * other + 8, at);
                return;
            }
            _ => return self.redirect(base, block, bytes),
        };
        word.copy_from_slice(&new.to_le_bytes());
    }

    /// Redirects a pointer to another block of the pool.
    fn redirect(&self, base: &Base, block: &Block, bytes: &mut [u8]) {
        let other = &base.blocks[self.number as usize % base.blocks.len()];
        let pick = |pointers: &[usize], by: usize| pointers.get(by % pointers.len().max(1)).copied();
        let from = pick(&other.pointers, usize::from(self.part));
        if let (Some(to), Some(from)) = (pick(&block.pointers, self.word), from) {
            bytes[to..to + BLKPTR_BYTES].copy_from_slice(&other.bytes[from..from + BLKPTR_BYTES]);
        }
    }
}
