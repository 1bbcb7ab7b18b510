//! Hash of ZAP names: the first 28 or 48 bits of CRC-64 (ECMA-182, reflected), started from the ZAP's salt.
//!
//! A directory cursor must hold these bits and the collision differentiator, hence the limit.

/// `ZAP_FLAG_HASH64`: use 48 hash bits instead of 28.
pub const ZAP_FLAG_HASH64: u64 = 1 << 0;
/// `ZAP_FLAG_UINT64_KEY`: names are 64-bit words, not text.
pub const ZAP_FLAG_UINT64_KEY: u64 = 1 << 1;
/// `ZAP_FLAG_PRE_HASHED_KEY`: the first word of a name is its hash.
pub const ZAP_FLAG_PRE_HASHED_KEY: u64 = 1 << 2;

/// `ZFS_CRC64_POLY`.
const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Hasher of one ZAP's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZapHasher {
    /// ZAP's salt.
    pub salt: u64,
    /// `ZAP_FLAG_*`.
    pub flags: u64,
}

impl ZapHasher {
    /// Hashes a text name without NUL, already normalized if the ZAP requires it.
    pub fn text(&self, name: &[u8]) -> u64 {
        self.significant(name.iter().fold(self.salt, step))
    }

    /// Hashes a name of words.
    pub fn words(&self, name: &[u64]) -> u64 {
        if self.flags & ZAP_FLAG_PRE_HASHED_KEY != 0 {
            return self.significant(name.first().copied().unwrap_or(0));
        }
        self.significant(
            name.iter().flat_map(|w| w.to_le_bytes()).fold(self.salt, |crc, byte| step(crc, &byte)),
        )
    }

    fn significant(&self, hash: u64) -> u64 {
        let bits = if self.flags & ZAP_FLAG_HASH64 != 0 { 48 } else { 28 };
        hash & !(u64::MAX >> bits)
    }
}

fn step(crc: u64, byte: &u8) -> u64 {
    (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)]
}
