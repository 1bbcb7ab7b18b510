//! Block pointer: the address, checksum and encoding of a block, in 128 bytes.
//!
//! Idea: a pointer keeps its sixteen words, so it returns to disk bit for bit; methods read its fields. Any
//! 128 bytes are a block pointer, and every accessor is total. Callers must check offsets and sizes against
//! the vdev.
//!
//! Layout (64-bit words; bit 0 of the property word is at the right):
//!
//! ```text
//!   word  0  | vdev1 (32..56) | grid (24..32) | asize1 (0..24, in 512 B)  |
//!         1  |G| offset1 (0..63, in 512 B)                                |   G: gang
//!       2,3  second DVA            4,5  third DVA (encrypted: salt, IV)
//!         6  |B|D|X| lvl | type | cksum |E| comp | psize | lsize           |
//!            63 62 61 56    48     40   39  32     16      0
//!            B little-endian, D dedup, X encrypted, E embedded; psize, lsize in 512 B, minus one
//!         7  |R| zero                                                     |   63: rewritten
//!         8  padding
//!         9  physical birth txg (0: same as the logical)
//!        10  logical birth txg
//!        11  fill count (encrypted: IV in the upper 32 bits)
//!     12-15  checksum (encrypted: the last two words are the MAC)
//! ```
//!
//! A block has three births. Its *logical* birth dates its content: sends and diffs use it. Its *physical*
//! birth dates its bytes on disk: reads and resilvers use it. Its *allocation* birth decides which snapshots
//! and deadlists own it: the logical birth, unless the block was rewritten (`zfs rewrite -P`, feature
//! `physical_rewrite`); then the physical birth, since no earlier snapshot can hold the new copy.
//!
//! | block | logical | physical | allocation |
//! |---|---|---|---|
//! | new | txg | txg | txg |
//! | shared by dedup or clone | txg | older | logical |
//! | moved from a removed vdev | old | txg | logical |
//! | rewritten, R set | old | txg | physical |
//!
//! Embedded blocks keep up to 112 bytes of payload in all words but 6 and 10, with `psize` in bits 25..32 and
//! `lsize` in bits 0..25 of the property word, both in bytes, minus one.
//!
//! Source: OpenZFS `spa.h` (`blkptr_t`, `dva_t`), `blkptr.c`.

mod build;

pub use build::BlockIdentity;

use crate::bytes::{Endian, Reader, Writer};
use crate::dnode::ObjectType;
use crate::error::Result;
use crate::units::{Asize, Lsize, PhysicalBirth, Psize, SPA_MINBLOCKSHIFT, Txg, VdevId};

/// Bytes on disk, `SPA_BLKPTRSHIFT`.
pub const BLKPTR_BYTES: usize = 128;
/// Copies per block pointer, `SPA_DVAS_PER_BP`.
pub const SPA_DVAS_PER_BP: usize = 3;
/// Payload bytes of an embedded block, `BPE_PAYLOAD_SIZE`.
pub const BPE_PAYLOAD_BYTES: usize = 112;

const PROP: usize = 6;
const PROP2: usize = 7;
const PHYSICAL_BIRTH: usize = 9;
const LOGICAL_BIRTH: usize = 10;
const FILL: usize = 11;
const CHECKSUM: usize = 12;
/// `BP_GET_REWRITE`.
const REWRITE_BIT: u64 = 1 << 63;

const _: () = {
    assert!(size_of::<Blkptr>() == BLKPTR_BYTES);
    assert!(2 * SPA_DVAS_PER_BP == PROP, "the addresses end where the properties begin");
    assert!(CHECKSUM * 8 + 32 == BLKPTR_BYTES, "the checksum ends the pointer");
    assert!(BPE_PAYLOAD_BYTES == BLKPTR_BYTES - 2 * 8, "a payload leaves out properties and logical birth");
};

/// Data virtual address: one copy of a block on a top-level vdev.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dva {
    /// Top-level vdev.
    pub vdev: VdevId,
    /// Byte offset after the front labels and boot area.
    pub offset_bytes: u64,
    /// Allocated bytes.
    pub asize: Asize,
    /// Address of a gang header, whose block pointers hold the data.
    pub gang: bool,
}

impl Dva {
    /// Decodes the two words of an address.
    pub fn from_words([a, b]: [u64; 2]) -> Dva {
        Dva {
            vdev: VdevId((a >> 32) & 0xff_ffff),
            asize: Asize((a & 0xff_ffff) << SPA_MINBLOCKSHIFT),
            offset_bytes: (b & !(1 << 63)) << SPA_MINBLOCKSHIFT,
            gang: b >> 63 == 1,
        }
    }

    /// The two words. The unused RAID-Z "grid" byte is zero.
    pub fn to_words(self) -> [u64; 2] {
        let a = (self.vdev.0 & 0xff_ffff) << 32 | ((self.asize.0 >> SPA_MINBLOCKSHIFT) & 0xff_ffff);
        [a, u64::from(self.gang) << 63 | self.offset_bytes >> SPA_MINBLOCKSHIFT]
    }
}

/// Kind of a block pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlkptrKind {
    /// Reads as zeros.
    Hole,
    /// Payload inside the pointer.
    Embedded,
    /// Left out by a redacted send.
    Redacted,
    /// Block at one to three addresses.
    Normal,
}

/// Decryption parameters of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CryptParams {
    /// Salt of the block's key.
    pub salt: [u8; 8],
    /// Initialization vector.
    pub iv: [u8; 12],
    /// Message authentication code.
    pub mac: [u8; 16],
}

/// Block pointer, `blkptr_t`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Blkptr {
    words: [u64; 16],
}

impl Blkptr {
    /// Pointer to no block.
    pub const HOLE: Blkptr = Blkptr { words: [0; 16] };

    /// Reads a pointer in the byte order of its containing block.
    pub fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Blkptr { words: r.words()? })
    }

    /// Decodes the first 128 bytes.
    pub fn decode(data: &[u8], endian: Endian) -> Result<Self> {
        Self::read(&mut Reader::new("block pointer", data, endian))
    }

    /// Appends the 128 bytes.
    pub fn write(&self, w: &mut Writer) {
        w.words(&self.words);
    }

    /// Words as on disk.
    pub fn words(&self) -> &[u64; 16] {
        &self.words
    }

    /// Wraps raw words.
    pub fn from_words(words: [u64; 16]) -> Self {
        Blkptr { words }
    }

    fn bits(&self, low: u32, len: u32) -> u64 {
        (self.words[PROP] >> low) & ((1 << len) - 1)
    }

    /// Kind of the pointer.
    pub fn kind(&self) -> BlkptrKind {
        if self.is_embedded() {
            return if self.bits(40, 8) == 2 { BlkptrKind::Redacted } else { BlkptrKind::Embedded };
        }
        if self.words[0] == 0 && self.words[1] == 0 { BlkptrKind::Hole } else { BlkptrKind::Normal }
    }

    /// Whether this is a hole.
    pub fn is_hole(&self) -> bool {
        self.kind() == BlkptrKind::Hole
    }

    /// Whether the pointer is embedded or redacted.
    pub fn is_embedded(&self) -> bool {
        self.bits(39, 1) == 1
    }

    /// Byte order of the block, not of the pointer.
    pub fn endian(&self) -> Endian {
        if self.bits(63, 1) == 1 { Endian::Little } else { Endian::Big }
    }

    /// Whether the block is in a dedup table.
    pub fn is_dedup(&self) -> bool {
        !self.is_embedded() && self.bits(62, 1) == 1
    }

    /// Crypt bit. Type and level decide between encrypted, authenticated and indirect MAC.
    pub fn uses_crypt(&self) -> bool {
        self.bits(61, 1) == 1
    }

    /// Whether the block is ciphertext (level 0, encrypted type).
    pub fn is_encrypted(&self) -> bool {
        self.uses_crypt() && self.level() == 0 && self.object_type().is_encrypted()
    }

    /// Whether the block is plaintext with a MAC (level 0, unencrypted type).
    pub fn is_authenticated(&self) -> bool {
        self.uses_crypt() && self.level() == 0 && !self.object_type().is_encrypted()
    }

    /// Whether an indirect block's checksum covers the MACs of its children.
    pub fn has_indirect_mac(&self) -> bool {
        self.uses_crypt() && self.level() > 0
    }

    /// 0 for data, 1 and up for indirect blocks.
    pub fn level(&self) -> u8 {
        self.bits(56, 5) as u8
    }

    /// Type of the owning object.
    pub fn object_type(&self) -> ObjectType {
        ObjectType(self.bits(48, 8) as u8)
    }

    /// `enum zio_checksum`; meaningless if embedded.
    pub fn checksum_id(&self) -> u8 {
        self.bits(40, 8) as u8
    }

    /// `bp_embedded_type_t`: 0 data, 1 reserved, 2 redacted.
    pub fn embedded_type(&self) -> u8 {
        self.bits(40, 8) as u8
    }

    /// `enum zio_compress`.
    pub fn compression_id(&self) -> u8 {
        self.bits(32, 7) as u8
    }

    /// Uncompressed size. At most 32 MiB; above 16 MiB only if damaged.
    pub fn lsize(&self) -> Lsize {
        if self.is_embedded() {
            return Lsize(self.bits(0, 25) + 1);
        }
        if self.is_hole() && self.words[PROP] == 0 {
            return Lsize(0);
        }
        Lsize((self.bits(0, 16) + 1) << SPA_MINBLOCKSHIFT)
    }

    /// Stored size: payload bytes if embedded, zero for a hole.
    pub fn psize(&self) -> Psize {
        match self.kind() {
            BlkptrKind::Hole => Psize(0),
            BlkptrKind::Embedded | BlkptrKind::Redacted => Psize(self.bits(25, 7) + 1),
            BlkptrKind::Normal => Psize((self.bits(16, 16) + 1) << SPA_MINBLOCKSHIFT),
        }
    }

    /// Addresses of the copies: at most two if encrypted, because the third holds salt and IV.
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + '_ {
        let count = match self.kind() {
            BlkptrKind::Normal if self.is_encrypted() => 2,
            BlkptrKind::Normal => SPA_DVAS_PER_BP,
            _ => 0,
        };
        (0..count).map(|i| self.dva_at(i)).filter(|d| d.asize.0 != 0 || d.offset_bytes != 0 || d.vdev.0 != 0)
    }

    fn dva_at(&self, index: usize) -> Dva {
        Dva::from_words([self.words[2 * index], self.words[2 * index + 1]])
    }

    /// Whether the first copy is a gang block (then all are).
    pub fn is_gang(&self) -> bool {
        self.kind() == BlkptrKind::Normal && self.words[1] >> 63 == 1
    }

    /// Allocated bytes of all copies.
    pub fn asize(&self) -> Asize {
        Asize(self.dvas().map(|d| d.asize.0).sum())
    }

    /// Txg of the content: incremental sends and diffs compare it.
    pub fn logical_birth(&self) -> Txg {
        Txg(self.words[LOGICAL_BIRTH])
    }

    /// Txg in which the stored bytes were written: before the logical birth if deduplicated or cloned, after
    /// it if moved.
    pub fn physical_birth(&self) -> PhysicalBirth {
        match self.words[PHYSICAL_BIRTH] {
            txg if txg != 0 && !self.is_embedded() => PhysicalBirth(txg),
            _ => PhysicalBirth::in_txg(self.logical_birth()),
        }
    }

    /// Whether a rewrite moved the block; the logical birth is unchanged.
    pub fn is_rewritten(&self) -> bool {
        !self.is_embedded() && self.words[PROP2] & REWRITE_BIT != 0
    }

    /// Txg of the allocation, `BP_GET_BIRTH`. It decides which snapshots and deadlists own the block, and
    /// which subtrees a traversal may skip. A parent's is never earlier.
    pub fn allocation_birth(&self) -> Txg {
        if self.is_rewritten() { self.physical_birth().txg() } else { self.logical_birth() }
    }

    /// Level-0 blocks below this one, without holes; for a dnode block, its used dnodes.
    pub fn fill(&self) -> u64 {
        match self.kind() {
            BlkptrKind::Normal if self.is_encrypted() => self.words[FILL] & 0xffff_ffff,
            BlkptrKind::Normal => self.words[FILL],
            BlkptrKind::Embedded => 1,
            _ => 0,
        }
    }

    /// Checksum words; with the crypt bit, only the first two.
    pub fn checksum(&self) -> [u64; 4] {
        let w = &self.words;
        [w[CHECKSUM], w[CHECKSUM + 1], w[CHECKSUM + 2], w[CHECKSUM + 3]]
    }

    /// Salt, IV and MAC of a block with the crypt bit.
    pub fn crypt_params(&self) -> CryptParams {
        let w = &self.words;
        let mut iv = [0; 12];
        iv[..8].copy_from_slice(&w[5].to_le_bytes());
        iv[8..].copy_from_slice(&((w[FILL] >> 32) as u32).to_le_bytes());
        let mut mac = [0; 16];
        mac[..8].copy_from_slice(&w[14].to_le_bytes());
        mac[8..].copy_from_slice(&w[15].to_le_bytes());
        CryptParams { salt: w[4].to_le_bytes(), iv, mac }
    }

    /// Payload of an embedded pointer, still compressed: `psize` bytes, at most 112.
    pub fn embedded_payload(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(BPE_PAYLOAD_BYTES);
        for (i, word) in self.words.iter().enumerate() {
            if i != PROP && i != LOGICAL_BIRTH {
                payload.extend_from_slice(&word.to_le_bytes());
            }
        }
        payload.truncate(self.psize().0 as usize);
        payload
    }
}

impl std::fmt::Debug for Blkptr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Blkptr({:?} {} L{} {}L/{}P",
            self.kind(),
            self.object_type(),
            self.level(),
            self.lsize(),
            self.psize()
        )?;
        for dva in self.dvas() {
            write!(f, " <{}:{:x}:{:x}>", dva.vdev, dva.offset_bytes, dva.asize.0)?;
        }
        write!(f, " birth {}/{} fill {})", self.logical_birth(), self.physical_birth(), self.fill())
    }
}
