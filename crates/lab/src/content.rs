//! What is written into files: bytes that neither compress nor occur twice.

/// One step of SplitMix64: different numbers give different ones.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Blocks are told apart from this size on, in bytes.
const BLOCK_BYTES: usize = 512;

/// A buffer of random bytes; each block of it is stamped before it is written.
#[derive(Debug, Clone)]
pub struct Content {
    buffer: Vec<u8>,
    stamp: u64,
}

impl Content {
    /// Gives at most `bytes` at once. Two with different seeds give different blocks.
    pub fn new(bytes: usize, seed: u64) -> Content {
        let mut buffer = Vec::with_capacity(bytes.next_multiple_of(8));
        let mut state = seed;
        while buffer.len() < bytes {
            state = mix(state);
            buffer.extend_from_slice(&state.to_le_bytes());
        }
        buffer.truncate(bytes);
        Content { buffer, stamp: mix(seed) }
    }

    /// The next bytes: at most `bytes` of them.
    pub fn next(&mut self, bytes: u64) -> &[u8] {
        let length = self.buffer.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let part = &mut self.buffer[..length];
        for block in part.chunks_mut(BLOCK_BYTES) {
            self.stamp = self.stamp.wrapping_add(1);
            let stamp = mix(self.stamp).to_le_bytes();
            let length = block.len().min(stamp.len());
            block[..length].copy_from_slice(&stamp[..length]);
        }
        part
    }
}
