//! Random bytes at memory speed: AES-128 of a counter, with the processor's AES instructions if available.
//!
//! A counter block is `origin / 16 + index` and `serial`, 8 bytes each. Counters are written to the buffer in
//! pieces that fit the first-level cache, and encrypted in place. The `aes` crate selects instructions at run
//! time.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};

const BLOCK_BYTES: usize = 16;
/// Blocks encrypted at once.
const PIECE_BLOCKS: usize = 256;

/// Random bytes for each (origin, serial).
pub(super) struct Keystream(Aes128);

impl Keystream {
    pub fn new(key: [u64; 2]) -> Keystream {
        let mut bytes = Block::default();
        counter(&mut bytes, key[0], key[1]);
        Keystream(Aes128::new(&bytes))
    }

    /// Fills `buffer`. If `origin` is a multiple of 16, these are the bytes from there on of an endless
    /// stream for that serial.
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
