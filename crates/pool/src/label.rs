//! The four labels of a device: configuration and uberblocks, each verified.
//!
//! Idea: a device carries its pool's configuration four times, two copies in front and two at the end, so
//! that no single overwrite loses them. They are written two at a time, so one pair may be a group older.
//! Every valid copy is kept here; which to believe is discovery's business.
//!
//! ```text
//!   device   | L0 | L1 | boot 3.5 MiB | allocatable space ... | L2 | L3 |     labels: 256 KiB each
//!   label    | blank 8 K | boot env 8 K | nvlist 112 K | uberblock ring 128 K |
//! ```
//!
//! The list and each uberblock end in a checksum bound to their offset on the device, so a label that was
//! copied elsewhere does not verify. The size of a slot in the ring depends on the vdev's ashift; as a
//! damaged list can't tell it, every size that fits a magic number is tried.
//!
//! Source: OpenZFS `vdev_label.c` (theory comment), `vdev_impl.h`.

use cenote_codec::checksum::{Checksum, Stored, embedded::label_verifier};
use cenote_device::{Device, DeviceError};
use cenote_format::nvlist::Nvlist;
use cenote_format::uberblock::Uberblock;

/// Bytes of a label, `sizeof (vdev_label_t)`.
pub const LABEL_BYTES: u64 = 256 << 10;
/// Labels of a device, `VDEV_LABELS`.
pub const VDEV_LABELS: usize = 4;
/// Where allocatable space begins on a leaf, `VDEV_LABEL_START_SIZE`: two labels and the boot area.
pub const VDEV_LABEL_START_BYTES: u64 = 4 << 20;
/// The boot area, `VDEV_BOOT_SIZE`; RAID-Z expansion keeps its scratch data there.
pub const VDEV_BOOT_BYTES: u64 = 7 << 19;
/// No smaller device can be a vdev, `SPA_MINDEVSIZE`.
pub const SPA_MINDEVSIZE: u64 = 64 << 20;

const NVLIST_AT: usize = 16 << 10;
const NVLIST_BYTES: usize = 112 << 10;
const RING_AT: usize = 128 << 10;
/// `zio_eck_t` at the end of the list.
const ECK_BYTES: usize = 40;
/// Sizes of an uberblock slot: 2^10 (`UBERBLOCK_SHIFT`) to 2^13 (`MAX_UBERBLOCK_SHIFT`).
const SLOT_SHIFTS: std::ops::RangeInclusive<u32> = 10..=13;

/// What one label holds.
#[derive(Debug, Default, Clone)]
pub struct Label {
    /// The configuration, if its checksum is right and it decodes.
    pub config: Option<Nvlist>,
    /// The uberblocks whose checksum is right, in the ring's order.
    pub uberblocks: Vec<Uberblock>,
    /// Why the label could not be read.
    pub unreadable: Option<DeviceError>,
}

/// Byte offset of label `index` on a device of `size_bytes`.
pub fn label_offset(size_bytes: u64, index: usize) -> u64 {
    let aligned = size_bytes - size_bytes % LABEL_BYTES;
    let index = index as u64;
    if index < 2 { index * LABEL_BYTES } else { aligned - (VDEV_LABELS as u64 - index) * LABEL_BYTES }
}

/// Reads all four labels. A device too small to be a vdev has none.
pub async fn read_labels(device: &dyn Device) -> Vec<Label> {
    let size_bytes = device.size_bytes();
    if size_bytes < SPA_MINDEVSIZE {
        return Vec::new();
    }
    let mut labels = Vec::with_capacity(VDEV_LABELS);
    for index in 0..VDEV_LABELS {
        let offset = label_offset(size_bytes, index);
        labels.push(match device.read_at(offset, LABEL_BYTES as usize).await {
            Ok(bytes) => decode_label(&bytes, offset),
            Err(error) => Label { unreadable: Some(error), ..Label::default() },
        });
    }
    labels
}

/// Takes apart the 256 KiB that were read at `offset` of a device.
pub fn decode_label(bytes: &[u8], offset: u64) -> Label {
    let Some((head, ring)) = bytes.split_at_checked(RING_AT) else { return Label::default() };
    let config = head.get(NVLIST_AT..NVLIST_AT + NVLIST_BYTES).and_then(|area| {
        let verifier = label_verifier(offset + NVLIST_AT as u64);
        Checksum::Label.verify_embedded(area, verifier, Stored::Checksum).ok()?;
        Nvlist::decode(&area[..NVLIST_BYTES - ECK_BYTES]).ok()
    });
    Label { config, uberblocks: uberblocks(ring, offset + RING_AT as u64), unreadable: None }
}

fn uberblocks(ring: &[u8], offset: u64) -> Vec<Uberblock> {
    let mut found = Vec::new();
    let smallest = 1 << SLOT_SHIFTS.start();
    for at in (0..ring.len()).step_by(smallest) {
        let Ok(uberblock) = Uberblock::decode(&ring[at..]) else { continue };
        let verifies = SLOT_SHIFTS.map(|shift| 1 << shift).any(|len: usize| {
            let slot = ring.get(at..at + len).filter(|_| at.is_multiple_of(len));
            let verifier = label_verifier(offset + at as u64);
            slot.is_some_and(|slot| Checksum::Label.verify_embedded(slot, verifier, Stored::Checksum).is_ok())
        });
        if verifies {
            found.push(uberblock);
        }
    }
    found
}
