//! Deduplication tables: blocks by checksum, with addresses and reference counts.
//!
//! Idea: each checksum algorithm has a table, split by class: `unique` (one reference), `duplicate`, and
//! `ditto` (obsolete). Each part is a ZAP with a key of five words. The value is a byte array: a packing
//! byte, then the entry. Without feature `fast_dedup` an entry has an address set for each number of copies;
//! with it ("flat"), one set. Flat tables also keep a log (`ddt::log`), whose entries override the ZAPs.
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

/// Directory key of the version: 0 legacy, 1 flat.
pub const DDT_DIR_VERSION: &str = "version";
/// Directory key of the `DDT_FLAG_*`.
pub const DDT_DIR_FLAGS: &str = "flags";
/// Flat entries.
pub const DDT_FLAG_FLAT: u64 = 1 << 0;
/// The table has a log.
pub const DDT_FLAG_LOG: u64 = 1 << 1;
/// Deduplicating checksum algorithms, as named in objects.
pub const DDT_CHECKSUMS: [(u8, &str); 5] =
    [(8, "sha256"), (11, "sha512"), (12, "skein"), (13, "edonr"), (14, "blake3")];

/// Table class, `ddt_class_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DdtClass {
    /// Extra copies of much-used blocks; obsolete.
    Ditto,
    /// More than one reference.
    Duplicate,
    /// One reference.
    Unique,
}

impl DdtClass {
    /// All classes in numeric and search order.
    pub const ALL: [DdtClass; 3] = [DdtClass::Ditto, DdtClass::Duplicate, DdtClass::Unique];

    /// Name in object names.
    pub fn name(self) -> &'static str {
        match self {
            DdtClass::Ditto => "ditto",
            DdtClass::Duplicate => "duplicate",
            DdtClass::Unique => "unique",
        }
    }
}

/// Name of a table's ZAP, `DMU_POOL_DDT`, and its key in `DDT-statistics`.
pub fn ddt_object_name(checksum: &str, class: DdtClass) -> String {
    format!("DDT-{checksum}-zap-{}", class.name())
}

/// Name of a flat table's MOS directory, `DMU_POOL_DDT_DIR`.
pub fn ddt_dir_name(checksum: &str) -> String {
    format!("DDT-{checksum}")
}

/// Name of a table's log 0 or 1, `DMU_POOL_DDT_LOG`.
pub fn ddt_log_name(checksum: &str, index: u8) -> String {
    format!("DDT-log-{checksum}-{index}")
}

word_struct! {
    /// ZAP key: identity of a block's content, `ddt_key_t`.
    #[derive(Default)]
    pub struct DdtKey("DDT key", bytes: 40, required: all) {
        /// Checksum.
        pub checksum: [u64; 4],
        /// lsize (0..16), psize (16..32), compression (32..39), encrypted (39), as in a pointer.
        pub prop: u64,
    }
}

impl DdtKey {
    /// Key of a block (`ddt_key_fill`).
    pub fn of(bp: &Blkptr) -> DdtKey {
        let prop = bp.words()[6] & 0x7f_ffff_ffff | u64::from(bp.uses_crypt()) << 39;
        DdtKey { checksum: bp.checksum(), prop }
    }

    /// Uncompressed size.
    pub fn lsize(&self) -> Lsize {
        Lsize(((self.prop & 0xffff) + 1) << SPA_MINBLOCKSHIFT)
    }

    /// Stored size.
    pub fn psize(&self) -> Psize {
        Psize((((self.prop >> 16) & 0xffff) + 1) << SPA_MINBLOCKSHIFT)
    }

    /// Compression algorithm.
    pub fn compression_id(&self) -> u8 {
        ((self.prop >> 32) & 0x7f) as u8
    }

    /// Whether the block is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.prop >> 39 & 1 == 1
    }
}

word_struct! {
    /// Address set of a legacy entry.
    pub struct DdtPhys("DDT addresses", bytes: 64, required: all) {
        /// Addresses.
        pub dvas: [Dva; SPA_DVAS_PER_BP],
        /// Referencing block pointers.
        pub refcount: u64,
        /// Txg of the write; 0 if unused.
        pub phys_birth: PhysicalBirth,
    }
}

word_struct! {
    /// Legacy entry: sets for ditto, one, two and three copies.
    pub struct DdtTraditional("DDT entry", bytes: 256, required: all) {
        /// Indexed by `ddt_phys_variant_t`.
        pub phys: [DdtPhys; 4],
    }
}

word_struct! {
    /// Flat entry.
    pub struct DdtFlat("flat DDT entry", bytes: 72, required: all) {
        /// Addresses.
        pub dvas: [Dva; SPA_DVAS_PER_BP],
        /// Referencing block pointers.
        pub refcount: u64,
        /// Txg of the write.
        pub phys_birth: PhysicalBirth,
        /// When the entry joined its class, in seconds since 1970.
        pub class_start_s: u64,
    }
}

/// Table entry.
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
    /// Size of an unpacked entry.
    pub const fn bytes(flat: bool) -> usize {
        if flat { DdtFlat::COUNT * 8 } else { DdtTraditional::COUNT * 8 }
    }

    /// An entry without addresses that joined its class at that time.
    pub fn empty(flat: bool, class_start_s: u64) -> DdtValue {
        let zeros = &mut std::iter::empty();
        match flat {
            true => DdtValue::Flat(DdtFlat { class_start_s, ..DdtFlat::take(zeros) }),
            false => DdtValue::Traditional(Box::new(DdtTraditional::take(zeros))),
        }
    }

    /// Decodes a ZAP entry. `unpack_zle` gets the packed bytes and the exact unpacked length; `None` means
    /// failure.
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

    /// Decodes an unpacked entry, as in the log.
    pub fn decode_unpacked(raw: &[u8], flat: bool, endian: Endian) -> Result<Self> {
        Ok(match flat {
            true => DdtValue::Flat(DdtFlat::decode(raw, endian)?),
            false => DdtValue::Traditional(Box::new(DdtTraditional::decode(raw, endian)?)),
        })
    }

    /// Encodes the entry without packing byte.
    pub fn encode_unpacked(&self, endian: Endian) -> Vec<u8> {
        match self {
            DdtValue::Traditional(entry) => entry.encode(endian),
            DdtValue::Flat(entry) => entry.encode(endian),
        }
    }

    /// Encodes an unpacked ZAP entry.
    pub fn encode(&self, endian: Endian) -> Vec<u8> {
        self.encode_as(endian, None)
    }

    /// Encodes a ZAP entry; `zle` is the ZLE-packed form to use, if any.
    pub fn encode_as(&self, endian: Endian, zle: Option<&[u8]>) -> Vec<u8> {
        let order = if endian == Endian::Little { PACKING_LITTLE } else { 0 };
        match zle {
            Some(packed) => [&[PACKING_ZLE | order], packed].concat(),
            None => [&[PACKING_NONE | order][..], &self.encode_unpacked(endian)].concat(),
        }
    }

    /// Address sets in use.
    pub fn phys(&self) -> impl Iterator<Item = DdtPhys> {
        let (sets, count) = match self {
            DdtValue::Traditional(entry) => (entry.phys, 4),
            DdtValue::Flat(e) => {
                ([DdtPhys { dvas: e.dvas, refcount: e.refcount, phys_birth: e.phys_birth }; 4], 1)
            }
        };
        sets.into_iter().take(count).filter(|p| p.phys_birth.0 != 0)
    }

    /// All sets, used or not.
    pub fn sets(&self) -> Vec<DdtPhys> {
        match self {
            DdtValue::Traditional(entry) => entry.phys.to_vec(),
            DdtValue::Flat(e) => {
                vec![DdtPhys { dvas: e.dvas, refcount: e.refcount, phys_birth: e.phys_birth }]
            }
        }
    }

    /// Replaces a set, if the number exists.
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

    /// Total references.
    pub fn refcount(&self) -> u64 {
        self.phys().fold(0, |sum, p| sum.saturating_add(p.refcount))
    }
}

/// Block pointer for a key and one of its sets. The byte order is this machine's: the table does not record
/// one.
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
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    pub struct DdtStat("DDT statistics", bytes: 64, required: all) {
        /// Blocks.
        pub blocks: u64,
        /// Uncompressed bytes.
        pub lsize_bytes: u64,
        /// Stored bytes.
        pub psize_bytes: u64,
        /// Allocated bytes.
        pub dsize_bytes: u64,
        /// Counted once per reference, like the next three: totals without deduplication.
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
    /// Saturates.
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
    /// Bucket for this reference count; `None` if zero.
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
