//! Random bytes as fast as memory takes them: AES-128 of a counter, with the processor's AES instructions where it has them.
//!
//! Counter block: `origin / 16 + index` and `serial`, 8 bytes each. Counters are written into the buffer, a piece at a time so that it
//! stays in the first-level cache, and encrypted in place. Which instructions there are is asked at run time, by the `aes` crate.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};

const BLOCK_BYTES: usize = 16;
/// Encrypted at once.
const PIECE_BLOCKS: usize = 256;

/// Random bytes for each (origin, serial).
pub(super) struct Keystream(Aes128);

impl Keystream {
    pub fn new(key: [u64; 2]) -> Keystream {
        let mut bytes = Block::default();
        counter(&mut bytes, key[0], key[1]);
        Keystream(Aes128::new(&bytes))
    }

    /// Fills `buffer`. Where `origin` is a multiple of 16, these are the bytes from there of an endless stream of that serial.
    pub fn write(&self, buffer: &mut [u8], origin: u64, serial: u64) {
        let mut at = origin / BLOCK_BYTES as u64;
        let (blocks, rest) = Block::slice_as_chunks_mut(buffer);
        for piece in blocks.chunks_mut(PIECE_BLOCKS) {
            for block in piece.iter_mut() {
                counter(block, at, serial);
                at += 1;
            }
            self.0.encrypt_blocks(piece);
        }
        if !rest.is_empty() {
            let mut last = Block::default();
            counter(&mut last, at, serial);
            self.0.encrypt_block(&mut last);
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}

impl std::fmt::Debug for Keystream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keystream")
    }
}

#[inline]
fn counter(block: &mut Block, high: u64, low: u64) {
    block[..8].copy_from_slice(&high.to_le_bytes());
    block[8..].copy_from_slice(&low.to_le_bytes());
}
