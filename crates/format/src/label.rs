//! Vdev label: the description of the pool that every one of its disks carries four times.
//!
//! Idea: two labels lie at the front of a device and two at its end, so that no single mishap (a new
//! partition table, a truncated image) destroys all of them. Each holds the configuration of the disk's
//! top-level vdev and a ring of uberblocks. Labels 0 and 2 are written before a txg's uberblock, 1 and 3
//! after it, so one pair is whole at any instant.
//!
//! Layout of a device, sizes in KiB; the device's size is first rounded down to a multiple of 256:
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
//! The boot settings, the configuration and every uberblock slot end in a 40-byte checksum salted with its
//! own offset on the device; the layer that knows the offset verifies it.
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

/// Bytes of a label, `sizeof (vdev_label_t)`.
pub const LABEL_BYTES: u64 = 256 << 10;
/// Labels on a device, `VDEV_LABELS`.
pub const VDEV_LABELS: u32 = 4;
/// Bytes before the first byte that can be allocated, `VDEV_LABEL_START_SIZE`: DVA offset 0 lies here.
pub const VDEV_LABEL_START_SIZE: u64 = 4 << 20;
/// Bytes at the end that cannot be allocated, `VDEV_LABEL_END_SIZE`.
pub const VDEV_LABEL_END_SIZE: u64 = 2 * LABEL_BYTES;
/// Bytes of a device that cannot be allocated: labels at both ends and the boot area.
pub const VDEV_LABELS_BYTES: u64 = VDEV_LABEL_START_SIZE + VDEV_LABEL_END_SIZE;
/// Where the boot area begins, `VDEV_BOOT_OFFSET`. RAID-Z expansion uses it as its scratch area.
pub const VDEV_BOOT_OFFSET: u64 = 2 * LABEL_BYTES;
/// Bytes of the boot area, `VDEV_BOOT_SIZE`.
pub const VDEV_BOOT_SIZE: u64 = 7 << 19;
/// Bytes of the blank at the start of a label and of the boot settings after it, `VDEV_PAD_SIZE`.
pub const VDEV_PAD_SIZE: u64 = 8 << 10;
/// Where the boot settings lie in a label.
pub const BOOT_ENV_OFFSET: u64 = VDEV_PAD_SIZE;
/// Where the configuration lies in a label.
pub const VDEV_PHYS_OFFSET: u64 = 2 * VDEV_PAD_SIZE;
/// Bytes of the configuration with its checksum, `VDEV_PHYS_SIZE`.
pub const VDEV_PHYS_SIZE: u64 = 112 << 10;
/// Where the ring of uberblocks begins in a label.
pub const UBERBLOCK_RING_OFFSET: u64 = 128 << 10;
/// Bytes of the ring, `VDEV_UBERBLOCK_RING`.
pub const VDEV_UBERBLOCK_RING: u64 = 128 << 10;
/// Bytes of the checksum that ends each part, `sizeof (zio_eck_t)`: a magic number and 32 bytes of checksum.
pub const ECK_BYTES: usize = ZIO_ECK_BYTES;
/// log2 of the smallest uberblock slot, `UBERBLOCK_SHIFT`.
const UBERBLOCK_SHIFT: u32 = 10;
/// log2 of the largest, `MAX_UBERBLOCK_SHIFT`.
const MAX_UBERBLOCK_SHIFT: u32 = 13;

const _: () = {
    // A label: blank, boot settings, configuration, ring.
    assert!(BOOT_ENV_OFFSET + VDEV_PAD_SIZE == VDEV_PHYS_OFFSET);
    assert!(VDEV_PHYS_OFFSET + VDEV_PHYS_SIZE == UBERBLOCK_RING_OFFSET);
    assert!(UBERBLOCK_RING_OFFSET + VDEV_UBERBLOCK_RING == LABEL_BYTES);
    assert!(LABEL_BYTES == 256 << 10);
    // The front of a device: two labels, boot area, DVA offset 0.
    assert!(VDEV_BOOT_OFFSET + VDEV_BOOT_SIZE == VDEV_LABEL_START_SIZE);
    // An uberblock and its checksum fit in the smallest slot; slots divide the ring.
    assert!(UBERBLOCK_BYTES + ECK_BYTES <= 1 << UBERBLOCK_SHIFT);
    assert!(VDEV_UBERBLOCK_RING.is_multiple_of(1 << MAX_UBERBLOCK_SHIFT));
};

/// Where label `index` (0 to 3) begins on a device of this size; `None` if the device is too small for it.
pub fn label_offset(device_bytes: u64, index: u32) -> Option<u64> {
    let aligned_bytes = device_bytes - device_bytes % LABEL_BYTES;
    if index >= VDEV_LABELS || aligned_bytes < u64::from(VDEV_LABELS) * LABEL_BYTES {
        return None;
    }
    let front = u64::from(index) * LABEL_BYTES;
    let behind = aligned_bytes - u64::from(VDEV_LABELS) * LABEL_BYTES;
    Some(if index < VDEV_LABELS / 2 { front } else { front + behind })
}

/// Bytes of an uberblock slot on a top-level vdev with this ashift, `VDEV_UBERBLOCK_SIZE`: 1 KiB to 8 KiB.
pub fn uberblock_slot_bytes(ashift: u32) -> u64 {
    1 << ashift.clamp(UBERBLOCK_SHIFT, MAX_UBERBLOCK_SHIFT)
}

/// Slots in the ring, `VDEV_UBERBLOCK_COUNT`: 128 to 16.
pub fn uberblock_count(ashift: u32) -> u64 {
    VDEV_UBERBLOCK_RING / uberblock_slot_bytes(ashift)
}

/// The slots of a label's ring with their offsets in the label. `ring` holds the bytes from
/// `UBERBLOCK_RING_OFFSET` on; an incomplete slot is left out.
pub fn uberblock_slots(ring: &[u8], ashift: u32) -> impl Iterator<Item = (u64, &[u8])> {
    let slot_bytes = uberblock_slot_bytes(ashift);
    let slots = ring.chunks_exact(slot_bytes as usize).take(uberblock_count(ashift) as usize);
    (0..).map(move |i| UBERBLOCK_RING_OFFSET + i * slot_bytes).zip(slots)
}

/// Packs a configuration into the `VDEV_PHYS_SIZE` bytes at `VDEV_PHYS_OFFSET`, except for the checksum at
/// their end. `None` if it is too long because the pool has too many devices or their paths are too long.
pub fn encode_config_nvlist(list: &Nvlist) -> Option<Vec<u8>> {
    let mut packed = list.encode();
    let fits = packed.len() <= VDEV_PHYS_SIZE as usize - ECK_BYTES;
    debug_assert_eq!(Nvlist::decode(&packed).as_ref(), Ok(list), "what is written can be read");
    packed.resize(VDEV_PHYS_SIZE as usize, 0);
    fits.then_some(packed)
}

/// Unpacks the configuration from the bytes at `VDEV_PHYS_OFFSET`, whose checksum the caller has verified.
///
/// # Errors
/// Bytes that are truncated or not an nvlist.
pub fn decode_config_nvlist(vdev_phys: &[u8]) -> Result<Nvlist> {
    let need = VDEV_PHYS_SIZE as usize;
    let Some(phys) = vdev_phys.get(..need) else {
        return Err(FormatError::Truncated { what: "label configuration", need, have: vdev_phys.len() });
    };
    Nvlist::decode(&phys[..need - ECK_BYTES])
}
