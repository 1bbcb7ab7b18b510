//! The block size of a new volume, and the reservation that guarantees it can be written full.
//!
//! Idea: `used` is computed as if all blocks were 128 KiB, but parity and padding cost more with small
//! blocks. So the reservation is scaled by the overhead of the volume's blocks, and indirect blocks are
//! added.
//!
//! Source: OpenZFS `libzfs_dataset.c` (`zvol_volsize_to_reservation`, `volsize_from_vdevs`), `zfs_main.c`
//! (`default_volblocksize`).

use cenote_dataset::Mos;
use cenote_format::units::{PhysicalBirth, SPA_OLD_MAXBLOCKSIZE, VdevId};
use cenote_pool::VdevKind;

use crate::text::nice_bytes;

/// `ZVOL_DEFAULT_BLOCKSIZE`.
pub const DEFAULT_BLOCK_BYTES: u64 = 16 << 10;
/// The block size assumed in space accounting.
const TYPICAL_BLOCK_BYTES: u64 = SPA_OLD_MAXBLOCKSIZE;
/// Pointers in an indirect block, `DNODES_PER_LEVEL`.
const POINTERS_PER_BLOCK: u64 = 1 << 10;
/// `1 << DN_MAX_INDBLKSHIFT`.
const INDIRECT_BLOCK_BYTES: u64 = 128 << 10;
/// Blocks above the data: the metadnode, levels 0 to 6.
const META_BLOCKS: u64 = 7;
/// `SPA_DVAS_PER_BP`.
const MAX_COPIES: u64 = 3;

/// Default block size of a volume: at least half of the smallest allocation on the widest vdev.
pub fn default_block_bytes(mos: &Mos) -> u64 {
    let vdevs = mos.pool().tree().vdevs();
    let least = vdevs.tops().map(|top| {
        let sector = 1u64 << top.ashift;
        match top.kind {
            VdevKind::Raidz if top.parity == 1 => 2 * sector,
            VdevKind::Raidz => 4 * sector,
            VdevKind::Draid => vdevs.alloc_unit_bytes().1.max(sector),
            _ => sector,
        }
    });
    let least = least.max().unwrap_or(0);
    let mut bytes = DEFAULT_BLOCK_BYTES;
    while bytes * 2 <= least {
        bytes *= 2;
    }
    bytes
}

/// Checks a new size of a volume.
pub fn check(size_bytes: u64, block_bytes: u64) -> Result<(), String> {
    match size_bytes {
        0 => Err("'volsize' cannot be zero".into()),
        bytes if !bytes.is_multiple_of(block_bytes) => {
            let block = nice_bytes(block_bytes);
            Err(format!("'volsize' must be a multiple of volume block size ({block})"))
        }
        _ => Ok(()),
    }
}

/// Bytes to reserve for a volume.
pub fn reservation(mos: &Mos, size_bytes: u64, block_bytes: u64, copies: u64) -> u64 {
    let mut blocks = size_bytes / block_bytes;
    let data = data_bytes(mos, blocks, block_bytes);
    let mut indirect = META_BLOCKS;
    while blocks > 1 {
        blocks = blocks.div_ceil(POINTERS_PER_BLOCK);
        indirect += blocks;
    }
    let indirect = indirect * (copies + 1).min(MAX_COPIES) * INDIRECT_BLOCK_BYTES;
    data.saturating_mul(copies).saturating_add(indirect)
}

/// The accounted size of this many blocks, on the least efficient vdev.
fn data_bytes(mos: &Mos, blocks: u64, block_bytes: u64) -> u64 {
    let vdevs = mos.pool().tree().vdevs();
    let with_parity = vdevs.tops().filter(|top| matches!(top.kind, VdevKind::Raidz | VdevKind::Draid));
    let scaled = with_parity.filter_map(|top| {
        let asize = |bytes| vdevs.psize_to_asize(VdevId(top.id), bytes, PhysicalBirth::UNKNOWN);
        let (of_block, of_typical) = (asize(block_bytes)?, asize(TYPICAL_BLOCK_BYTES)?);
        let units = (u128::from(blocks) * u128::from(of_block)) / u128::from((of_typical >> 9).max(1));
        Some(u64::try_from(units * u128::from(TYPICAL_BLOCK_BYTES >> 9)).unwrap_or(u64::MAX))
    });
    scaled.max().unwrap_or(blocks.saturating_mul(block_bytes))
}
