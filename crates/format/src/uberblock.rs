//! Uberblock: the root of the pool as of one txg.
//!
//! Idea: every label ends in a ring of uberblocks. Each txg overwrites the oldest slot, so a torn write costs
//! one txg and older trees stay reachable. The layer that knows the slot's offset verifies its 40-byte
//! checksum.
//!
//! Source: OpenZFS `uberblock_impl.h`.

use crate::blkptr::{BLKPTR_BYTES, Blkptr};
use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result};
use crate::features::Since;
use crate::units::Txg;

/// `UBERBLOCK_MAGIC`, "oo-ba-bloc".
pub const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
/// `MMP_MAGIC`: multi-modifier-protection fields are valid.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;
/// `sizeof (uberblock_t)`.
pub const UBERBLOCK_BYTES: usize = 216;

const _: () = assert!(5 * 8 + BLKPTR_BYTES + 6 * 8 == UBERBLOCK_BYTES, "words, root pointer, words");

/// `MMP_INTERVAL_VALID_BIT`, `MMP_SEQ_VALID_BIT`, `MMP_FAIL_INT_VALID_BIT`.
const MMP_VALID: [u64; 3] = [1, 2, 4];

/// The heartbeat settings of `ub_mmp_config`.
///
/// ```text
///   63            48 47            32 31                           8 7        0
///   +---------------+----------------+------------------------------+----------+
///   | fail intervals|      seq       |        interval in ms        | validity |
///   +---------------+----------------+------------------------------+----------+
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MmpConfig {
    /// Milliseconds between heartbeats of a leaf, in 24 bits.
    pub interval_ms: u32,
    /// Orders heartbeats within a second; 0 in the uberblock of a txg.
    pub seq: u16,
    /// Intervals without a heartbeat after which the writer suspends its pool; 0: it never does.
    pub fail_intervals: u16,
}

impl MmpConfig {
    /// The largest interval that fits.
    pub const MAX_INTERVAL_MS: u32 = (1 << 24) - 1;

    fn pack(self) -> u64 {
        let interval = u64::from(self.interval_ms.min(Self::MAX_INTERVAL_MS)) << 8 | MMP_VALID[0];
        interval
            | u64::from(self.seq) << 32
            | MMP_VALID[1]
            | u64::from(self.fail_intervals) << 48
            | MMP_VALID[2]
    }
}

/// Pool's root as of one txg, `uberblock_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uberblock {
    /// Writer's byte order.
    pub endian: Endian,
    /// Pool version.
    pub version: u64,
    /// Completed txg.
    pub txg: Txg,
    /// Sum of all vdev guids; detects a missing vdev.
    pub guid_sum: u64,
    /// Seconds since 1970.
    pub timestamp_s: u64,
    /// Meta object set (MOS).
    pub rootbp: Blkptr,
    /// Highest version that the writer supports.
    pub software_version: u64,
    /// `MMP_MAGIC` or 0.
    pub mmp_magic: u64,
    /// Nanoseconds between heartbeats; 0 if multihost is off.
    pub mmp_delay_ns: u64,
    /// Packed heartbeat settings; see `mmp_*` methods.
    pub mmp_config: u64,
    /// Original txg of a checkpoint's uberblock, else 0.
    pub checkpoint_txg: Txg,
    /// RAID-Z expansion: progress and scratch state.
    pub raidz_reflow_info: u64,
}

impl Uberblock {
    /// Whether the pool's version includes a feature.
    pub fn has(&self, what: Since) -> bool {
        what.is_in(self.version)
    }

    /// Uberblock of a pool without any txg on disk.
    pub fn before_first(version: u64, txg: Txg, guid_sum: u64) -> Self {
        Uberblock {
            endian: Endian::NATIVE,
            version,
            txg,
            guid_sum,
            timestamp_s: 0,
            rootbp: Blkptr::HOLE,
            software_version: version,
            mmp_magic: MMP_MAGIC,
            mmp_delay_ns: 0,
            mmp_config: 0,
            checkpoint_txg: Txg(0),
            raidz_reflow_info: 0,
        }
    }

    /// Decodes a slot in either byte order.
    pub fn decode(slot: &[u8]) -> Result<Self> {
        let magic = Reader::new("uberblock", slot, Endian::Little).array()?;
        let endian = Endian::of_magic(UBERBLOCK_MAGIC, magic)
            .ok_or(FormatError::BadMagic { what: "uberblock", found: u64::from_le_bytes(magic) })?;
        let mut r = Reader::new("uberblock", slot, endian);
        r.skip(8)?;
        let uberblock = Uberblock {
            endian,
            version: r.u64()?,
            txg: Txg(r.u64()?),
            guid_sum: r.u64()?,
            timestamp_s: r.u64()?,
            rootbp: Blkptr::read(&mut r)?,
            software_version: r.u64()?,
            mmp_magic: r.u64()?,
            mmp_delay_ns: r.u64()?,
            mmp_config: r.u64()?,
            checkpoint_txg: Txg(r.u64()?),
            raidz_reflow_info: r.u64()?,
        };
        debug_assert_eq!(r.position(), UBERBLOCK_BYTES);
        Ok(uberblock)
    }

    /// Encodes the fields without padding and checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new(self.endian);
        w.words(&[UBERBLOCK_MAGIC, self.version, self.txg.0, self.guid_sum, self.timestamp_s]);
        self.rootbp.write(&mut w);
        w.words(&[self.software_version, self.mmp_magic, self.mmp_delay_ns, self.mmp_config]);
        w.words(&[self.checkpoint_txg.0, self.raidz_reflow_info]);
        assert_eq!(w.position(), UBERBLOCK_BYTES);
        w.finish()
    }

    /// Whether multihost heartbeats are on: another host may be using the pool.
    pub fn mmp_is_on(&self) -> bool {
        self.mmp_magic == MMP_MAGIC && self.mmp_delay_ns != 0
    }

    /// Sequence number, if any; it orders heartbeats within a second.
    pub fn mmp_seq(&self) -> Option<u16> {
        self.mmp_field(MMP_VALID[1]).map(|config| (config >> 32) as u16)
    }

    /// Milliseconds between heartbeats of a leaf, if recorded.
    pub fn mmp_interval_ms(&self) -> Option<u32> {
        self.mmp_field(MMP_VALID[0]).map(|config| (config >> 8) as u32 & MmpConfig::MAX_INTERVAL_MS)
    }

    /// Intervals without a heartbeat after which the writer suspends its pool, if recorded; 0: never.
    pub fn mmp_fail_intervals(&self) -> Option<u16> {
        self.mmp_field(MMP_VALID[2]).map(|config| (config >> 48) as u16)
    }

    fn mmp_field(&self, validity: u64) -> Option<u64> {
        (self.mmp_magic == MMP_MAGIC && self.mmp_config & validity != 0).then_some(self.mmp_config)
    }

    /// With these heartbeat settings; `None`: multihost is off. A delay of 0 would say off, too.
    pub fn with_mmp(self, on: Option<(u64, MmpConfig)>) -> Uberblock {
        let (mmp_delay_ns, mmp_config) =
            on.map_or((0, 0), |(delay_ns, config)| (delay_ns.max(1), config.pack()));
        Uberblock { mmp_magic: MMP_MAGIC, mmp_delay_ns, mmp_config, ..self }
    }

    /// With another sequence number.
    pub fn with_mmp_seq(self, seq: u16) -> Uberblock {
        let others = self.mmp_config & !(0xffff << 32);
        Uberblock { mmp_config: others | u64::from(seq) << 32 | MMP_VALID[1], ..self }
    }

    /// Order of uberblocks: the highest one of a pool is its state (`vdev_uberblock_compare`).
    pub fn rank(&self) -> (Txg, u64, u16) {
        (self.txg, self.timestamp_s, self.mmp_seq().unwrap_or(0))
    }

    /// Logical vdev bytes that RAID-Z expansion has moved: `RRSS_GET_OFFSET`.
    pub fn reflow_offset_bytes(&self) -> u64 {
        (self.raidz_reflow_info & ((1 << 55) - 1)) << 9
    }

    /// Packs offset (a multiple of 512) and state: `RAIDZ_REFLOW_SET`.
    pub fn reflow_info(state: u64, offset_bytes: u64) -> u64 {
        state << 55 | (offset_bytes >> 9 & ((1 << 55) - 1))
    }

    /// Scratch area state, `raidz_reflow_scratch_state_t`; 1: valid data.
    pub fn reflow_scratch_state(&self) -> u64 {
        self.raidz_reflow_info >> 55
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_round_trip() {
        for endian in [Endian::Little, Endian::Big] {
            let ub = Uberblock {
                endian,
                version: 5000,
                txg: Txg(42),
                guid_sum: 7,
                timestamp_s: 1_700_000_000,
                rootbp: Blkptr::from_words(std::array::from_fn(|i| i as u64 * 0x0101_0101_0101)),
                software_version: 5000,
                mmp_magic: MMP_MAGIC,
                mmp_delay_ns: 0,
                mmp_config: 0,
                checkpoint_txg: Txg(0),
                raidz_reflow_info: 0,
            };
            assert_eq!(Uberblock::decode(&ub.encode()).unwrap(), ub);
        }
    }

    #[test]
    fn heartbeat_settings_lie_where_openzfs_has_them() {
        let off = Uberblock::before_first(5000, Txg(4), 0);
        assert!(!off.mmp_is_on() && off.mmp_seq().is_none() && off.mmp_interval_ms().is_none());
        let config = MmpConfig { interval_ms: 1000, seq: 3, fail_intervals: 10 };
        let on = off.with_mmp(Some((0, config)));
        assert_eq!(on.mmp_config, 0x000a_0003_0003_e807);
        assert!(on.mmp_is_on(), "a delay of 0 would say off");
        let fields = |u: &Uberblock| (u.mmp_interval_ms(), u.mmp_seq(), u.mmp_fail_intervals());
        assert_eq!(fields(&on), (Some(1000), Some(3), Some(10)));
        assert_eq!(fields(&on.with_mmp_seq(u16::MAX)), (Some(1000), Some(u16::MAX), Some(10)));
        let long = MmpConfig { interval_ms: u32::MAX, seq: 0, fail_intervals: 0 };
        let long = off.with_mmp(Some((7, long)));
        assert_eq!(fields(&long), (Some(MmpConfig::MAX_INTERVAL_MS), Some(0), Some(0)));
        assert!(on.rank() > off.rank() && on.with_mmp_seq(4).rank() > on.rank());
        assert_eq!(on.with_mmp(None), off);
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(matches!(Uberblock::decode(&[0; 1024]), Err(FormatError::BadMagic { .. })));
        assert!(matches!(Uberblock::decode(&[1, 2]), Err(FormatError::Truncated { .. })));
    }
}
