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

mod write;

pub use write::{LabelUpdate, clear_labels, init_device};

use cenote_codec::checksum::{Checksum, Stored, embedded::label_verifier};
use cenote_device::{Device, DeviceError};
use cenote_format::label::{
    LABEL_BYTES, UBERBLOCK_RING_OFFSET, VDEV_LABELS, VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE, decode_config_nvlist,
    label_offset,
};
use cenote_format::nvlist::Nvlist;
use cenote_format::uberblock::Uberblock;

/// No smaller device can be a vdev, `SPA_MINDEVSIZE`.
pub const SPA_MINDEVSIZE: u64 = 64 << 20;

const NVLIST_AT: usize = VDEV_PHYS_OFFSET as usize;
const NVLIST_BYTES: usize = VDEV_PHYS_SIZE as usize;
const RING_AT: usize = UBERBLOCK_RING_OFFSET as usize;
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

/// Reads all four labels. A device too small to be a vdev has none.
pub async fn read_labels(device: &dyn Device) -> Vec<Label> {
    let size_bytes = device.size_bytes();
    if size_bytes < SPA_MINDEVSIZE {
        return Vec::new();
    }
    let mut labels = Vec::with_capacity(VDEV_LABELS as usize);
    for offset in (0..VDEV_LABELS).filter_map(|index| label_offset(size_bytes, index)) {
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
        decode_config_nvlist(area).ok()
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
