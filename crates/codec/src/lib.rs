//! Computational kernels: checksums, compression, encryption and RAID-Z parity.
//!
//! Every function maps bytes to bytes, without I/O, time or tasks, and knows only as much of their meaning as
//! the transformation needs. So each kernel is tested against published vectors, and each vectorised one
//! against its portable twin.

pub mod checksum;
pub mod compress;
pub mod crypto;
pub mod fletcher;
pub mod raidz;

mod kernel;
#[cfg(target_arch = "x86_64")]
mod register;

pub use kernel::Kernel;

/// Writer's byte order of a block: a block pointer's byte-order bit, or the order of an embedded checksum's
/// magic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first: x86, and ARM in practice.
    Little,
    /// Most significant byte first: SPARC and POWER under Solaris and AIX.
    Big,
}

impl Endian {
    pub(crate) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Endian::Little => u64::from_le_bytes(bytes),
            Endian::Big => u64::from_be_bytes(bytes),
        }
    }

    pub(crate) fn bytes(self, value: u64) -> [u8; 8] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    pub(crate) fn words(self, digest: [u8; 32]) -> [u64; 4] {
        let (words, _) = digest.as_chunks::<8>();
        std::array::from_fn(|i| self.u64(words[i]))
    }

    /// Word at `offset`, or `None` past the end.
    pub(crate) fn u64_at(self, data: &[u8], offset: usize) -> Option<u64> {
        data.get(offset..)?.first_chunk::<8>().map(|bytes| self.u64(*bytes))
    }
}
