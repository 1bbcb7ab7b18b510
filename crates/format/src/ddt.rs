//! Deduplication tables: blocks by checksum, with their addresses and reference counts.
//!
//! Idea: there is a table per checksum algorithm, split by class: `unique` (one reference), `duplicate`,
//! and `ditto` (obsolete). Each part is a ZAP with a key of five words. The value is a byte array: one byte
//! that says how the entry is packed, then the entry. Without feature `fast_dedup` an entry has four sets
//! of addresses, one for each number of copies; with it ("flat") an entry has one. Flat tables also keep a
//! log (`ddt::log`) of entries that are not in the ZAPs yet and override them.
//!
//! ```text
//!   legacy   MOS directory:  DDT-sha256-zap-duplicate, DDT-sha256-zap-unique, DDT-statistics
//!   flat     MOS directory:  DDT-sha256 -> ZAP: version, flags, DDT-sha256-zap-unique, DDT-log-sha256-0 ...
//!
//!   value    | little-endian (bit 7), packing (0..7: 2 none, 14 ZLE) | entry, packed |
//! ```
//!
//! Source: OpenZFS `ddt.h`, `ddt_impl.h`, `ddt.c`, `ddt_zap.c`.

pub mod log;

use crate::blkptr::{Blkptr, Dva, SPA_DVAS_PER_BP};
use crate::bytes::Endian;
use crate::dnode::ObjectType;
use crate::error::{FormatError, Result};
use crate::units::{Lsize, PhysicalBirth, Psize, SPA_MINBLOCKSHIFT};
use crate::words::{Phys, Words, word_struct};

/// `DDT_DIR_VERSION`: key of the table's version in its directory; 0 legacy, 1 flat.
pub const DDT_DIR_VERSION: &str = "version";
/// `DDT_DIR_FLAGS`: key of the table's `DDT_FLAG_*`.
pub const DDT_DIR_FLAGS: &str = "flags";
/// `DDT_FLAG_FLAT`: entries are flat.
pub const DDT_FLAG_FLAT: u64 = 1 << 0;
/// `DDT_FLAG_LOG`: there is a log.
pub const DDT_FLAG_LOG: u64 = 1 << 1;
/// Names of the checksum algorithms that deduplicate, as in object names.
pub const DDT_CHECKSUMS: [(u8, &str); 5] =
    [(8, "sha256"), (11, "sha512"), (12, "skein"), (13, "edonr"), (14, "blake3")];

/// Class of a table, `ddt_class_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DdtClass {
    /// Extra copies of much-used blocks; no longer made.
    Ditto,
    /// More than one reference.
    Duplicate,
    /// One reference.
    Unique,
}

impl DdtClass {
    /// All classes by number, which is also the order of a search.
    pub const ALL: [DdtClass; 3] = [DdtClass::Ditto, DdtClass::Duplicate, DdtClass::Unique];

    /// The class as object names spell it.
    pub fn name(self) -> &'static str {
        match self {
            DdtClass::Ditto => "ditto",
            DdtClass::Duplicate => "duplicate",
            DdtClass::Unique => "unique",
        }
    }
}

/// Name of a table's ZAP, `DMU_POOL_DDT`; also its key in `DDT-statistics`.
pub fn ddt_object_name(checksum: &str, class: DdtClass) -> String {
    format!("DDT-{checksum}-zap-{}", class.name())
}

/// Name of a flat table's directory in the MOS directory, `DMU_POOL_DDT_DIR`.
pub fn ddt_dir_name(checksum: &str) -> String {
    format!("DDT-{checksum}")
}

/// Name of a table's first (0) or second (1) log in its directory, `DMU_POOL_DDT_LOG`.
pub fn ddt_log_name(checksum: &str, index: u8) -> String {
    format!("DDT-log-{checksum}-{index}")
}

word_struct! {
    /// What identifies a block's content, `ddt_key_t`: the ZAP's key.
    #[derive(Default)]
    pub struct DdtKey("DDT key", bytes: 40, required: all) {
        /// The checksum.
        pub checksum: [u64; 4],
        /// lsize (0..16), psize (16..32), compression (32..39), encrypted (39), as in a block pointer.
        pub prop: u64,
    }
}

impl DdtKey {
    /// The key of the block that a pointer leads to (`ddt_key_fill`).
    pub fn of(bp: &Blkptr) -> DdtKey {
        let prop = bp.words()[6] & 0x7f_ffff_ffff | u64::from(bp.uses_crypt()) << 39;
        DdtKey { checksum: bp.checksum(), prop }
    }

    /// Size before compression.
    pub fn lsize(&self) -> Lsize {
        Lsize(((self.prop & 0xffff) + 1) << SPA_MINBLOCKSHIFT)
    }

    /// Size as stored.
    pub fn psize(&self) -> Psize {
        Psize((((self.prop >> 16) & 0xffff) + 1) << SPA_MINBLOCKSHIFT)
    }

    /// Compression algorithm.
    pub fn compression_id(&self) -> u8 {
        ((self.prop >> 32) & 0x7f) as u8
    }

    /// The block is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.prop >> 39 & 1 == 1
    }
}

word_struct! {
    /// One set of addresses of a legacy entry, 64 bytes.
    pub struct DdtPhys("DDT addresses", bytes: 64, required: all) {
        /// The copies.
        pub dvas: [Dva; SPA_DVAS_PER_BP],
        /// Block pointers that refer to them.
        pub refcount: u64,
        /// The txg in which the block was written; 0 if the set is unused.
        pub phys_birth: PhysicalBirth,
    }
}

word_struct! {
    /// A legacy entry, 256 bytes: sets for extra copies (ditto), one, two and three copies.
    pub struct DdtTraditional("DDT entry", bytes: 256, required: all) {
        /// Indexed by `ddt_phys_variant_t`.
        pub phys: [DdtPhys; 4],
    }
}

word_struct! {
    /// A flat entry, 72 bytes.
    pub struct DdtFlat("flat DDT entry", bytes: 72, required: all) {
        /// The copies.
        pub dvas: [Dva; SPA_DVAS_PER_BP],
        /// Block pointers that refer to them.
        pub refcount: u64,
        /// The txg in which the block was written.
        pub phys_birth: PhysicalBirth,
        /// When the entry entered its class, in seconds since 1970.
        pub class_start_s: u64,
    }
}

/// What a table knows about a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DdtValue {
    /// Without feature `fast_dedup`.
    Traditional(Box<DdtTraditional>),
    /// With feature `fast_dedup`.
    Flat(DdtFlat),
}

/// `ZIO_COMPRESS_OFF` as packing.
const PACKING_NONE: u8 = 2;
/// `ZIO_COMPRESS_ZLE` as packing.
const PACKING_ZLE: u8 = 14;
/// `DDT_ZAP_COMPRESS_BYTEORDER_MASK`: written by a little-endian machine.
const PACKING_LITTLE: u8 = 0x80;

impl DdtValue {
    /// Bytes of an unpacked entry.
    pub const fn bytes(flat: bool) -> usize {
        if flat { DdtFlat::COUNT * 8 } else { DdtTraditional::COUNT * 8 }
    }

    /// An entry without addresses that enters its class at that time.
    pub fn empty(flat: bool, class_start_s: u64) -> DdtValue {
        let zeros = &mut std::iter::empty();
        match flat {
            true => DdtValue::Flat(DdtFlat { class_start_s, ..DdtFlat::take(zeros) }),
            false => DdtValue::Traditional(Box::new(DdtTraditional::take(zeros))),
        }
    }

    /// Decodes the bytes of a ZAP entry. `unpack_zle` takes the packed bytes and the exact length to unpack
    /// them to; it returns `None` on failure.
    pub fn decode(
        value: &[u8],
        flat: bool,
        unpack_zle: impl FnOnce(&[u8], usize) -> Option<Vec<u8>>,
    ) -> Result<Self> {
        let Some((&header, packed)) = value.split_first() else {
            return Err(FormatError::Truncated { what: "DDT entry", need: 1, have: 0 });
        };
        let endian = if header & PACKING_LITTLE != 0 { Endian::Little } else { Endian::Big };
        match header & !PACKING_LITTLE {
            PACKING_NONE => Self::decode_unpacked(packed, flat, endian),
            PACKING_ZLE => {
                let raw = unpack_zle(packed, Self::bytes(flat))
                    .ok_or(FormatError::Corrupt { what: "DDT entry", why: "does not decompress" })?;
                Self::decode_unpacked(&raw, flat, endian)
            }
            other => Err(FormatError::OutOfRange {
                what: "DDT entry's packing",
                value: other.into(),
                bound: PACKING_ZLE.into(),
            }),
        }
    }

    /// Decodes an entry that is not packed, as in the log.
    pub fn decode_unpacked(raw: &[u8], flat: bool, endian: Endian) -> Result<Self> {
        Ok(match flat {
            true => DdtValue::Flat(DdtFlat::decode(raw, endian)?),
            false => DdtValue::Traditional(Box::new(DdtTraditional::decode(raw, endian)?)),
        })
    }

    /// The entry as bytes, not packed.
    pub fn encode_unpacked(&self, endian: Endian) -> Vec<u8> {
        match self {
            DdtValue::Traditional(entry) => entry.encode(endian),
            DdtValue::Flat(entry) => entry.encode(endian),
        }
    }

    /// The bytes of a ZAP entry, unpacked.
    pub fn encode(&self, endian: Endian) -> Vec<u8> {
        self.encode_as(endian, None)
    }

    /// The bytes of a ZAP entry. `zle` is the encoded entry packed with ZLE, if it is to be packed.
    pub fn encode_as(&self, endian: Endian, zle: Option<&[u8]>) -> Vec<u8> {
        let order = if endian == Endian::Little { PACKING_LITTLE } else { 0 };
        match zle {
            Some(packed) => [&[PACKING_ZLE | order], packed].concat(),
            None => [&[PACKING_NONE | order][..], &self.encode_unpacked(endian)].concat(),
        }
    }

    /// The sets of addresses in use, with their reference counts.
    pub fn phys(&self) -> impl Iterator<Item = DdtPhys> {
        let (sets, count) = match self {
            DdtValue::Traditional(entry) => (entry.phys, 4),
            DdtValue::Flat(e) => {
                ([DdtPhys { dvas: e.dvas, refcount: e.refcount, phys_birth: e.phys_birth }; 4], 1)
            }
        };
        sets.into_iter().take(count).filter(|p| p.phys_birth.0 != 0)
    }

    /// All sets by number, used or not.
    pub fn sets(&self) -> Vec<DdtPhys> {
        match self {
            DdtValue::Traditional(entry) => entry.phys.to_vec(),
            DdtValue::Flat(e) => {
                vec![DdtPhys { dvas: e.dvas, refcount: e.refcount, phys_birth: e.phys_birth }]
            }
        }
    }

    /// Replaces the set of that number, if there is one.
    pub fn put_set(&mut self, number: usize, set: DdtPhys) {
        match self {
            DdtValue::Traditional(entry) => {
                if let Some(place) = entry.phys.get_mut(number) {
                    *place = set;
                }
            }
            DdtValue::Flat(entry) => {
                let DdtPhys { dvas, refcount, phys_birth } = set;
                *entry = DdtFlat { dvas, refcount, phys_birth, ..*entry };
            }
        }
    }

    /// References over all sets.
    pub fn refcount(&self) -> u64 {
        self.phys().fold(0, |sum, p| sum.saturating_add(p.refcount))
    }
}

/// The block pointer that reads what a key and one of its sets describe. Its byte-order bit is this
/// machine's, because a table doesn't record the data's.
pub fn ddt_blkptr(checksum_id: u8, key: &DdtKey, phys: &DdtPhys) -> Blkptr {
    let mut words = [0; 16];
    for (pair, dva) in words.chunks_exact_mut(2).zip(&phys.dvas) {
        pair.copy_from_slice(&dva.to_words());
    }
    let little = u64::from(Endian::NATIVE == Endian::Little);
    words[6] = key.prop & 0x7f_ffff_ffff
        | u64::from(checksum_id) << 40
        | u64::from(ObjectType::DEDUP.0) << 48
        | u64::from(key.is_encrypted()) << 61
        | 1 << 62
        | little << 63;
    words[10] = phys.phys_birth.0;
    words[11] = 1;
    words[12..].copy_from_slice(&key.checksum);
    Blkptr::from_words(words)
}

word_struct! {
    /// Sums over entries, `ddt_stat_t`.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub struct DdtStat("DDT statistics", bytes: 64, required: all) {
        /// Blocks.
        pub blocks: u64,
        /// Their bytes before compression.
        pub lsize_bytes: u64,
        /// Their bytes as stored.
        pub psize_bytes: u64,
        /// Space they take on disk.
        pub dsize_bytes: u64,
        /// The same four sums counted once per reference: what there would be without deduplication.
        pub referenced_blocks: u64,
        /// See `referenced_blocks`.
        pub referenced_lsize_bytes: u64,
        /// See `referenced_blocks`.
        pub referenced_psize_bytes: u64,
        /// See `referenced_blocks`.
        pub referenced_dsize_bytes: u64,
    }
}

impl Default for DdtStat {
    fn default() -> DdtStat {
        DdtStat::take(&mut std::iter::empty())
    }
}

impl std::ops::AddAssign<&DdtStat> for DdtStat {
    /// Saturates: a count too large to be true stops at the largest number.
    fn add_assign(&mut self, other: &DdtStat) {
        let sums = self.to_words().into_iter().zip(other.to_words()).map(|(a, b)| a.saturating_add(b));
        *self = DdtStat::take(&mut sums.collect::<Vec<u64>>().into_iter());
    }
}

impl std::ops::SubAssign<&DdtStat> for DdtStat {
    /// Saturates at zero.
    fn sub_assign(&mut self, other: &DdtStat) {
        let rest = self.to_words().into_iter().zip(other.to_words()).map(|(a, b)| a.saturating_sub(b));
        *self = DdtStat::take(&mut rest.collect::<Vec<u64>>().into_iter());
    }
}

word_struct! {
    /// Statistics by reference count, `ddt_histogram_t`: an entry of `DDT-statistics`.
    pub struct DdtHistogram("DDT histogram", bytes: 4096, required: all) {
        /// Bucket i: blocks with at least 2^i and fewer than 2^(i+1) references.
        pub buckets: [DdtStat; 64],
    }
}

impl Default for DdtHistogram {
    fn default() -> DdtHistogram {
        DdtHistogram { buckets: [DdtStat::default(); 64] }
    }
}

impl DdtHistogram {
    /// The bucket of blocks with as many references as this one; `None` if it has none.
    pub fn bucket(&mut self, entry: &DdtStat) -> Option<&mut DdtStat> {
        let bucket = entry.referenced_blocks.checked_ilog2()?;
        self.buckets.get_mut(bucket as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::check_phys;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<DdtKey>();
        check_phys::<DdtTraditional>();
        check_phys::<DdtFlat>();
        check_phys::<DdtHistogram>();
        assert_eq!((DdtValue::bytes(true), DdtValue::bytes(false)), (72, 256));
    }

    #[test]
    fn names_are_those_of_the_mos() {
        assert_eq!(ddt_object_name("sha256", DdtClass::Duplicate), "DDT-sha256-zap-duplicate");
        assert_eq!(ddt_log_name("blake3", 1), "DDT-log-blake3-1");
    }

    proptest! {
        #[test]
        fn values_round_trip(words in any::<[[u64; 8]; 4]>(), flat in any::<bool>(), big in any::<bool>()) {
            let endian = if big { Endian::Big } else { Endian::Little };
            let raw: Vec<u8> = words.iter().flatten().flat_map(|w| w.to_le_bytes()).collect();
            let value = DdtValue::decode_unpacked(&raw, flat, Endian::Little).unwrap();
            prop_assert_eq!(&DdtValue::decode(&value.encode(endian), flat, |_, _| None).unwrap(), &value);

            let mut packed = value.encode(endian);
            packed[0] ^= PACKING_NONE ^ PACKING_ZLE;
            let unpack = |raw: &[u8], len: usize| (raw.len() == len).then(|| raw.to_vec());
            let unpacked = DdtValue::decode(&packed, flat, unpack);
            prop_assert_eq!(unpacked.unwrap(), value);
        }

        #[test]
        fn hostile_values_are_refused_or_read(
            raw in prop::collection::vec(any::<u8>(), 0..300),
            flat in any::<bool>(),
        ) {
            if let Ok(value) = DdtValue::decode(&raw, flat, |_, _| None) {
                prop_assert!(raw.len() > DdtValue::bytes(flat));
                prop_assert!(value.phys().count() <= 4);
            }
        }

        #[test]
        fn pointers_say_what_the_key_says(
            checksum in any::<[u64; 4]>(),
            prop in any::<u64>(),
            dva in any::<[u64; 2]>(),
        ) {
            let key = DdtKey { checksum, prop };
            let dvas = [Dva::from_words(dva), Dva::default(), Dva::default()];
            let bp = ddt_blkptr(8, &key, &DdtPhys { dvas, refcount: 2, phys_birth: PhysicalBirth(7) });
            prop_assert_eq!(bp.checksum(), checksum);
            prop_assert!(bp.is_dedup());
            prop_assert_eq!((bp.lsize(), bp.compression_id(), bp.uses_crypt()),
                (key.lsize(), key.compression_id(), key.is_encrypted()));
            prop_assert!(bp.is_hole() || bp.psize() == key.psize());
        }
    }
}
