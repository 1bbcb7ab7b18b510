//! Builds block pointers, in the order in which a block is written.
//!
//! ```text
//!   Blkptr::hole | Blkptr::embedded | Blkptr::block     what it is
//!     .with_crypt | .with_mac                           how it was encrypted: sets the crypt bit
//!     .with_checksum                                    what its stored bytes give
//!     .with_dvas                                        where they went
//! ```
//!
//! Each step keeps the earlier results: the checksum leaves a MAC alone, addresses leave salt and IV alone.
//!
//! Source: OpenZFS `spa.h` (`BP_SET_*`), `zio.c` (`zio_write_compress`), `blkptr.c`, `zio_crypt.c`
//! (`zio_crypt_encode_params_bp`, `zio_crypt_encode_mac_bp`).

use super::{
    BPE_PAYLOAD_BYTES, Blkptr, CHECKSUM, CryptParams, Dva, FILL, LOGICAL_BIRTH, PHYSICAL_BIRTH, PROP, PROP2,
    REWRITE_BIT, SPA_DVAS_PER_BP,
};
use crate::bytes::Endian;
use crate::dnode::ObjectType;
use crate::units::{Lsize, PhysicalBirth, Psize, SPA_MINBLOCKSHIFT, Txg};

const ENCRYPTED_BIT: u64 = 1 << 61;
const EMBEDDED_BIT: u64 = 1 << 39;
const DEDUP_BIT: u64 = 1 << 62;

/// Fields common to every new pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockIdentity {
    /// Uncompressed size.
    pub lsize: Lsize,
    /// Type of the owning object.
    pub object_type: ObjectType,
    /// 0 for data, 1 and up for indirect blocks.
    pub level: u8,
    /// Birth txg.
    pub birth: Txg,
}

impl BlockIdentity {
    fn prop(&self) -> u64 {
        u64::from(self.object_type.0) << 48 | u64::from(self.level & 0x1f) << 56
    }
}

/// Size field of the property word: 512-byte units, minus one.
fn sectors(bytes: u64) -> u64 {
    (bytes >> SPA_MINBLOCKSHIFT).saturating_sub(1) & 0xffff
}

fn native() -> u64 {
    u64::from(Endian::NATIVE == Endian::Little) << 63
}

impl Blkptr {
    /// A hole with size, type, level and birth (feature `hole_birth`). Without the feature, a hole is
    /// [`Blkptr::HOLE`].
    pub fn hole(identity: &BlockIdentity) -> Blkptr {
        let mut words = [0; 16];
        words[PROP] = identity.prop() | sectors(identity.lsize.0);
        words[LOGICAL_BIRTH] = identity.birth.0;
        Blkptr { words }
    }

    /// An embedded block of 1 to 112 compressed bytes. `None` for any other length.
    pub fn embedded(identity: &BlockIdentity, compression_id: u8, payload: &[u8]) -> Option<Blkptr> {
        let psize = payload.len() as u64;
        if payload.is_empty() || payload.len() > BPE_PAYLOAD_BYTES {
            return None;
        }
        let mut padded = [0; BPE_PAYLOAD_BYTES];
        padded[..payload.len()].copy_from_slice(payload);
        let mut chunks = padded.as_chunks::<8>().0.iter();
        let mut words = [0; 16];
        for (index, word) in words.iter_mut().enumerate() {
            *word = match index {
                PROP => {
                    let sizes = (identity.lsize.0 - 1) & 0x1ff_ffff | (psize - 1) << 25;
                    identity.prop() | sizes | u64::from(compression_id & 0x7f) << 32 | EMBEDDED_BIT | native()
                }
                LOGICAL_BIRTH => identity.birth.0,
                _ => chunks.next().map_or(0, |chunk| u64::from_le_bytes(*chunk)),
            };
        }
        Some(Blkptr { words })
    }

    /// A block of `psize` stored bytes in native byte order. Later steps add checksum and addresses.
    pub fn block(
        identity: &BlockIdentity,
        psize: Psize,
        compression_id: u8,
        checksum_id: u8,
        fill: u64,
    ) -> Blkptr {
        let mut words = [0; 16];
        let algorithms = u64::from(compression_id & 0x7f) << 32 | u64::from(checksum_id) << 40;
        let sizes = sectors(identity.lsize.0) | sectors(psize.0) << 16;
        words[PROP] = identity.prop() | algorithms | sizes | native();
        words[LOGICAL_BIRTH] = identity.birth.0;
        words[FILL] = fill;
        Blkptr { words }
    }

    /// Sets the byte order of the content.
    #[must_use]
    pub fn with_endian(mut self, endian: Endian) -> Blkptr {
        self.words[PROP] = self.words[PROP] & !(1 << 63) | u64::from(endian == Endian::Little) << 63;
        self
    }

    /// Sets the crypt bit, and the MAC if the pointer has one.
    #[must_use]
    pub fn with_mac(mut self, mac: Option<[u8; 16]>) -> Blkptr {
        self.words[PROP] |= ENCRYPTED_BIT;
        if let Some(mac) = mac {
            let (halves, _) = mac.as_chunks::<8>();
            self.words[CHECKSUM + 2] = u64::from_le_bytes(halves[0]);
            self.words[CHECKSUM + 3] = u64::from_le_bytes(halves[1]);
        }
        self
    }

    /// Sets the crypt bit; stores salt and IV in the third address and half of the fill count.
    #[must_use]
    pub fn with_crypt(self, params: &CryptParams) -> Blkptr {
        let mut marked = self.with_mac(Some(params.mac));
        let [a, b, c, d, e, f, g, h, i, j, k, l] = params.iv;
        marked.words[4] = u64::from_le_bytes(params.salt);
        marked.words[5] = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let tail = u64::from(u32::from_le_bytes([i, j, k, l]));
        marked.words[FILL] = marked.words[FILL] & 0xffff_ffff | tail << 32;
        marked
    }

    /// Sets the checksum: four words, or the two before a MAC.
    #[must_use]
    pub fn with_checksum(mut self, words: &[u64]) -> Blkptr {
        for (slot, word) in self.words[CHECKSUM..].iter_mut().zip(words) {
            *slot = *word;
        }
        self
    }

    /// Sets the addresses that fit; clears unused slots.
    #[must_use]
    pub fn with_dvas(mut self, dvas: &[Dva]) -> Blkptr {
        let slots = if self.is_encrypted() { SPA_DVAS_PER_BP - 1 } else { SPA_DVAS_PER_BP };
        for index in 0..slots {
            let [a, b] = dvas.get(index).map_or([0, 0], |dva| dva.to_words());
            (self.words[2 * index], self.words[2 * index + 1]) = (a, b);
        }
        self
    }

    /// Sets the fill count after the addresses ([`Blkptr::fill`]). Holes and embedded blocks have none.
    #[must_use]
    pub fn with_fill(mut self, fill: u64) -> Blkptr {
        let kept = if self.is_encrypted() { self.words[FILL] & !0xffff_ffff } else { 0 };
        if !self.is_embedded() && !self.is_hole() {
            self.words[FILL] = kept | if self.is_encrypted() { fill & 0xffff_ffff } else { fill };
        }
        self
    }

    /// Sets the dedup bit.
    #[must_use]
    pub fn with_dedup(mut self, is_dedup: bool) -> Blkptr {
        self.words[PROP] = self.words[PROP] & !DEDUP_BIT | if is_dedup { DEDUP_BIT } else { 0 };
        self
    }

    /// The pointer of an additional owner from txg `txg` on; addresses and physical birth stay.
    #[must_use]
    pub fn shared_in(mut self, txg: Txg) -> Blkptr {
        if self.is_embedded() {
            // An embedded block's payload takes the physical birth's word.
            self.words[LOGICAL_BIRTH] = txg.0;
            return self;
        }
        self.with_births(txg, self.physical_birth())
    }

    /// Sets the births of a shared or moved block.
    #[must_use]
    pub fn with_births(mut self, logical: Txg, physical: PhysicalBirth) -> Blkptr {
        self.words[PROP2] &= !REWRITE_BIT;
        self.words[LOGICAL_BIRTH] = logical.0;
        self.words[PHYSICAL_BIRTH] = if logical == physical.txg() { 0 } else { physical.0 };
        self
    }

    /// The pointer of a new copy of content that dates from txg `logical` (`BP_SET_REWRITE`).
    #[must_use]
    pub fn as_rewritten(mut self, logical: Txg) -> Blkptr {
        self = self.with_births(logical, self.physical_birth());
        self.words[PROP2] |= REWRITE_BIT;
        self
    }

    /// Copies the births of another pointer to the block.
    #[must_use]
    pub fn with_births_of(mut self, other: &Blkptr) -> Blkptr {
        for index in [PROP2, PHYSICAL_BIRTH, LOGICAL_BIRTH] {
            self.words[index] = other.words[index];
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blkptr::BlkptrKind;
    use crate::units::{Asize, VdevId};
    use proptest::prelude::*;

    fn identity(lsize: u64, object_type: ObjectType, level: u8) -> BlockIdentity {
        BlockIdentity { lsize: Lsize(lsize), object_type, level, birth: Txg(77) }
    }

    fn dva(n: u64) -> Dva {
        Dva { vdev: VdevId(n), offset_bytes: n << 20, asize: Asize(4096), gang: false }
    }

    #[test]
    fn a_block_reads_back_as_it_was_made() {
        let id = identity(128 << 10, ObjectType::PLAIN_FILE_CONTENTS, 2);
        let bp = Blkptr::block(&id, Psize(8192), 15, 7, 1234).with_checksum(&[1, 2, 3, 4]).with_dvas(&[
            dva(1),
            dva(2),
            dva(3),
        ]);
        assert_eq!((bp.kind(), bp.lsize(), bp.psize()), (BlkptrKind::Normal, id.lsize, Psize(8192)));
        assert_eq!((bp.level(), bp.object_type(), bp.fill()), (2, id.object_type, 1234));
        assert_eq!((bp.compression_id(), bp.checksum_id(), bp.checksum()), (15, 7, [1, 2, 3, 4]));
        assert_eq!((bp.logical_birth(), bp.physical_birth()), (Txg(77), PhysicalBirth(77)));
        assert_eq!(bp.dvas().collect::<Vec<_>>(), [dva(1), dva(2), dva(3)]);
        assert_eq!(bp.endian(), Endian::NATIVE);
        let moved = bp.with_births(Txg(77), PhysicalBirth(90)).with_dvas(&[dva(9)]);
        assert_eq!((moved.physical_birth(), moved.dvas().count()), (PhysicalBirth(90), 1));
    }

    #[test]
    fn a_rewritten_block_is_allocated_when_it_was_written() {
        let id = identity(512, ObjectType::PLAIN_FILE_CONTENTS, 0);
        let new = Blkptr::block(&id, Psize(512), 2, 7, 1).with_dvas(&[dva(1)]);
        let births = |bp: &Blkptr| (bp.logical_birth().0, bp.physical_birth().0, bp.allocation_birth().0);
        let mut words = *new.with_births(Txg(77), PhysicalBirth(90)).words();
        assert_eq!(births(&Blkptr::from_words(words)), (77, 90, 77), "moved");
        words[PROP2] = REWRITE_BIT;
        let rewritten = Blkptr::from_words(words);
        assert_eq!(births(&rewritten), (77, 90, 90));
        assert_eq!(births(&rewritten.shared_in(Txg(99))), (99, 90, 99), "a clone of it is not rewritten");
        assert_eq!(new.with_births_of(&rewritten), rewritten);
        // In an embedded block, the word is payload.
        let embedded = Blkptr::embedded(&id, 15, &[0xff; BPE_PAYLOAD_BYTES]).unwrap();
        assert_eq!((embedded.is_rewritten(), embedded.allocation_birth()), (false, Txg(77)));
    }

    #[test]
    fn an_encrypted_block_keeps_its_parameters_beside_addresses_fill_and_checksum() {
        let params = CryptParams { salt: [1; 8], iv: *b"initializing", mac: *b"authenticate it!" };
        let bp = Blkptr::block(&identity(512, ObjectType::PLAIN_FILE_CONTENTS, 0), Psize(512), 2, 7, 5)
            .with_crypt(&params)
            .with_checksum(&[8, 9])
            .with_dvas(&[dva(1), dva(2), dva(3)])
            .with_fill(6);
        assert_eq!(bp.crypt_params(), params);
        assert_eq!((bp.is_encrypted(), bp.fill(), bp.dvas().count()), (true, 6, 2));
        assert_eq!(bp.checksum()[..2], [8, 9]);
    }

    #[test]
    fn a_hole_remembers_its_birth() {
        let hole = Blkptr::hole(&identity(16 << 20, ObjectType::ZVOL, 1));
        assert_eq!((hole.kind(), hole.lsize(), hole.psize()), (BlkptrKind::Hole, Lsize(16 << 20), Psize(0)));
        assert_eq!((hole.logical_birth(), hole.level(), hole.fill()), (Txg(77), 1, 0));
    }

    proptest! {
        #[test]
        fn an_embedded_payload_comes_back(payload in prop::collection::vec(any::<u8>(), 0..120)) {
            let id = identity(3 << 9, ObjectType::DIRECTORY_CONTENTS, 0);
            match Blkptr::embedded(&id, 15, &payload) {
                None => prop_assert!(payload.is_empty() || payload.len() > BPE_PAYLOAD_BYTES),
                Some(bp) => {
                    prop_assert_eq!(&bp.embedded_payload(), &payload);
                    prop_assert_eq!((bp.kind(), bp.lsize()), (BlkptrKind::Embedded, id.lsize));
                    prop_assert_eq!((bp.compression_id(), bp.logical_birth()), (15, Txg(77)));
                    let shared = bp.shared_in(Txg(99));
                    prop_assert_eq!((shared.embedded_payload(), shared.logical_birth()), (payload, Txg(99)));
                }
            }
        }
    }
}
