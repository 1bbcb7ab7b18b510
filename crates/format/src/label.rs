//! Vdev label: the pool's description, four copies on each disk.
//!
//! Idea: two labels lie at each end of a device, so no single accident (a new partition table, a truncated
//! image) destroys all. Each holds the configuration of the disk's top-level vdev and a ring of uberblocks.
//! Labels 0 and 2 are written before a txg's uberblock, 1 and 3 after it: one pair is always whole.
//!
//! Layout of a device, in KiB; its size is first rounded down to a multiple of 256:
//!
//! ```text
//!   0        256       512                4096                   size-512   size-256   size
//!   | label 0 | label 1 | boot area (3584) | data, DVA offset 0 .. | label 2 | label 3 |
//!
//! within a label:
//!   0       8              16                               128                       256
//!   | blank | boot settings | configuration, packed nvlist   | ring of uberblocks     |
//! ```
//!
//! Boot settings, configuration and uberblock slots end in a 40-byte checksum salted with its device offset.
//! The layer that knows the offset verifies it.
//!
//! Source: OpenZFS `vdev_impl.h` (`vdev_label_t`), `vdev_label.c`.

mod boot_env;
mod config;
mod encode;
mod fields;
#[cfg(test)]
mod tests;
mod vdev_config;
mod vdev_kind;

pub use boot_env::BootEnv;
pub use config::{AuxConfig, LabelConfig, PoolConfig, PoolState};
pub use vdev_config::{DraidConfig, ERR_EXCEEDED, EXTERNAL, VdevConfig};
pub use vdev_kind::{VdevClass, VdevKind};

use crate::error::{FormatError, Result};
use crate::gang::ZIO_ECK_BYTES;
use crate::nvlist::Nvlist;
use crate::uberblock::UBERBLOCK_BYTES;

/// `sizeof (vdev_label_t)`.
pub const LABEL_BYTES: u64 = 256 << 10;
/// Labels per device, `VDEV_LABELS`.
pub const VDEV_LABELS: u32 = 4;
/// Front bytes that cannot be allocated, `VDEV_LABEL_START_SIZE`; DVA offset 0 follows.
pub const VDEV_LABEL_START_SIZE: u64 = 4 << 20;
/// End bytes that cannot be allocated, `VDEV_LABEL_END_SIZE`.
pub const VDEV_LABEL_END_SIZE: u64 = 2 * LABEL_BYTES;
/// Bytes that cannot be allocated in total.
pub const VDEV_LABELS_BYTES: u64 = VDEV_LABEL_START_SIZE + VDEV_LABEL_END_SIZE;
/// Boot area, `VDEV_BOOT_OFFSET`. RAID-Z expansion uses it as scratch area.
pub const VDEV_BOOT_OFFSET: u64 = 2 * LABEL_BYTES;
/// Boot area size, `VDEV_BOOT_SIZE`.
pub const VDEV_BOOT_SIZE: u64 = 7 << 19;
/// Size of a label's blank, and of its boot settings, `VDEV_PAD_SIZE`.
pub const VDEV_PAD_SIZE: u64 = 8 << 10;
/// Boot settings in a label.
pub const BOOT_ENV_OFFSET: u64 = VDEV_PAD_SIZE;
/// Configuration in a label.
pub const VDEV_PHYS_OFFSET: u64 = 2 * VDEV_PAD_SIZE;
/// Configuration size with checksum, `VDEV_PHYS_SIZE`.
pub const VDEV_PHYS_SIZE: u64 = 112 << 10;
/// Uberblock ring in a label.
pub const UBERBLOCK_RING_OFFSET: u64 = 128 << 10;
/// Ring size, `VDEV_UBERBLOCK_RING`.
pub const VDEV_UBERBLOCK_RING: u64 = 128 << 10;
/// Trailing checksum of each part, `sizeof (zio_eck_t)`: magic number and 32 bytes.
pub const ECK_BYTES: usize = ZIO_ECK_BYTES;
/// log2 of the smallest slot, `UBERBLOCK_SHIFT`.
const UBERBLOCK_SHIFT: u32 = 10;
/// log2 of the largest slot, `MAX_UBERBLOCK_SHIFT`.
const MAX_UBERBLOCK_SHIFT: u32 = 13;

const _: () = {
    // Label: blank, boot settings, configuration, ring.
    assert!(BOOT_ENV_OFFSET + VDEV_PAD_SIZE == VDEV_PHYS_OFFSET);
    assert!(VDEV_PHYS_OFFSET + VDEV_PHYS_SIZE == UBERBLOCK_RING_OFFSET);
    assert!(UBERBLOCK_RING_OFFSET + VDEV_UBERBLOCK_RING == LABEL_BYTES);
    assert!(LABEL_BYTES == 256 << 10);
    // Device front: two labels, boot area, DVA offset 0.
    assert!(VDEV_BOOT_OFFSET + VDEV_BOOT_SIZE == VDEV_LABEL_START_SIZE);
    // The smallest slot holds an uberblock and checksum; slots divide the ring.
    assert!(UBERBLOCK_BYTES + ECK_BYTES <= 1 << UBERBLOCK_SHIFT);
    assert!(VDEV_UBERBLOCK_RING.is_multiple_of(1 << MAX_UBERBLOCK_SHIFT));
};

/// Offset of label `index` (0 to 3); `None` if the device is too small.
pub fn label_offset(device_bytes: u64, index: u32) -> Option<u64> {
    let aligned_bytes = device_bytes - device_bytes % LABEL_BYTES;
    if index >= VDEV_LABELS || aligned_bytes < u64::from(VDEV_LABELS) * LABEL_BYTES {
        return None;
    }
    let front = u64::from(index) * LABEL_BYTES;
    let behind = aligned_bytes - u64::from(VDEV_LABELS) * LABEL_BYTES;
    Some(if index < VDEV_LABELS / 2 { front } else { front + behind })
}

/// Uberblock slot size for this ashift, `VDEV_UBERBLOCK_SIZE`: 1 KiB to 8 KiB.
pub fn uberblock_slot_bytes(ashift: u32) -> u64 {
    1 << ashift.clamp(UBERBLOCK_SHIFT, MAX_UBERBLOCK_SHIFT)
}

/// Slots per ring, `VDEV_UBERBLOCK_COUNT`: 128 to 16.
pub fn uberblock_count(ashift: u32) -> u64 {
    VDEV_UBERBLOCK_RING / uberblock_slot_bytes(ashift)
}

/// Slots with their label offsets. `ring` starts at `UBERBLOCK_RING_OFFSET`; an incomplete slot is skipped.
pub fn uberblock_slots(ring: &[u8], ashift: u32) -> impl Iterator<Item = (u64, &[u8])> {
    let slot_bytes = uberblock_slot_bytes(ashift);
    let slots = ring.chunks_exact(slot_bytes as usize).take(uberblock_count(ashift) as usize);
    (0..).map(move |i| UBERBLOCK_RING_OFFSET + i * slot_bytes).zip(slots)
}

/// Packs a configuration for `VDEV_PHYS_OFFSET`, without its trailing checksum. `None` if it exceeds
/// `VDEV_PHYS_SIZE` (too many devices, or too long paths).
pub fn encode_config_nvlist(list: &Nvlist) -> Option<Vec<u8>> {
    let mut packed = list.encode();
    let fits = packed.len() <= VDEV_PHYS_SIZE as usize - ECK_BYTES;
    debug_assert_eq!(Nvlist::decode(&packed).as_ref(), Ok(list), "what is written can be read");
    packed.resize(VDEV_PHYS_SIZE as usize, 0);
    fits.then_some(packed)
}

/// Unpacks the configuration at `VDEV_PHYS_OFFSET`. The caller has verified its checksum.
///
/// # Errors
/// Truncated bytes, or no nvlist.
pub fn decode_config_nvlist(vdev_phys: &[u8]) -> Result<Nvlist> {
    let need = VDEV_PHYS_SIZE as usize;
    let Some(phys) = vdev_phys.get(..need) else {
        return Err(FormatError::Truncated { what: "label configuration", need, have: vdev_phys.len() });
    };
    Nvlist::decode(&phys[..need - ECK_BYTES])
}
