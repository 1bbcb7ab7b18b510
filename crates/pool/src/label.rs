//! The four labels of a device: configuration and uberblocks, each verified.
//!
//! Idea: a device carries its pool's configuration four times, twice at each end, so no single overwrite
//! destroys all. Labels are written in pairs, so one pair may be a txg older. This module keeps every valid
//! copy; discovery chooses.
//!
//! ```text
//!   device   | L0 | L1 | boot 3.5 MiB | allocatable space ... | L2 | L3 |     labels: 256 KiB each
//!   label    | blank 8 K | boot env 8 K | nvlist 112 K | uberblock ring 128 K |
//! ```
//!
//! The checksums of the nvlist and of each uberblock are bound to the offset on the device, so a label copied
//! elsewhere does not verify. The ring's slot size depends on the vdev's ashift. If the nvlist is damaged,
//! every size at which a magic number fits is tried.
//!
//! Source: OpenZFS `vdev_label.c` (theory comment), `vdev_impl.h`.

mod beat;
mod write;

pub(crate) use beat::Beats;
pub use beat::NoLeaf;
pub use write::{LabelUpdate, Labels, clear_labels, init_device};
pub(crate) use write::{last_slot, sealed};

use cenote_boxed::boxed;
use cenote_codec::checksum::{Checksum, Stored, embedded::label_verifier};
use cenote_device::{Device, DeviceError};
use cenote_format::gang::{ZEC_MAGIC, ZIO_ECK_BYTES};
use cenote_format::label::{
    LABEL_BYTES, UBERBLOCK_RING_OFFSET, VDEV_LABELS, VDEV_LABELS_BYTES, VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE,
    VDEV_UBERBLOCK_RING, decode_config_nvlist, label_offset,
};
use cenote_format::nvlist::Nvlist;
use cenote_format::uberblock::{UBERBLOCK_BYTES, Uberblock};
use cenote_format::units::Txg;

/// The smallest vdev, `SPA_MINDEVSIZE`.
pub const SPA_MINDEVSIZE: u64 = 64 << 20;

const NVLIST_AT: usize = VDEV_PHYS_OFFSET as usize;
const NVLIST_BYTES: usize = VDEV_PHYS_SIZE as usize;
const RING_AT: usize = UBERBLOCK_RING_OFFSET as usize;
/// 2^10 (`UBERBLOCK_SHIFT`) to 2^13 (`MAX_UBERBLOCK_SHIFT`).
const SLOT_SHIFTS: std::ops::RangeInclusive<u32> = 10..=13;

const _: () = {
    assert!(NVLIST_AT + NVLIST_BYTES == RING_AT, "the configuration ends where the ring begins");
    assert!(RING_AT as u64 + VDEV_UBERBLOCK_RING == LABEL_BYTES);
    assert!(UBERBLOCK_BYTES + ZIO_ECK_BYTES <= 1 << *SLOT_SHIFTS.start());
    assert!(VDEV_LABELS_BYTES < SPA_MINDEVSIZE, "the smallest device has space besides its labels");
};

/// The content of one label.
#[derive(Debug, Default, Clone)]
pub struct Label {
    /// The configuration, if intact.
    pub config: Option<Nvlist>,
    /// Valid uberblocks, in the ring's order.
    pub uberblocks: Vec<Uberblock>,
    /// Slots neither valid nor empty.
    pub broken_slots: Vec<BrokenSlot>,
    /// Why the label could not be read.
    pub unreadable: Option<DeviceError>,
}

/// A damaged uberblock slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokenSlot {
    /// Offset in the ring, in bytes.
    pub at: u64,
    /// The txg that it names.
    pub txg: Option<Txg>,
}

/// Reads all four labels. A truncated device may still have those in front.
#[boxed]
pub async fn read_labels(device: &dyn Device) -> Vec<Label> {
    let mut labels = Vec::with_capacity(VDEV_LABELS as usize);
    for offset in label_offsets(device).await {
        labels.push(match device.read_at(offset, LABEL_BYTES as usize).await {
            Ok(bytes) => decode_label(&bytes, offset),
            Err(error) => Label { unreadable: Some(error), ..Label::default() },
        });
    }
    labels
}

/// The newest uberblock in any of the four labels. Verifies only as many as necessary.
pub(crate) async fn newest_uberblock(device: &dyn Device) -> Option<Uberblock> {
    let mut newest: Option<Uberblock> = None;
    for label in (0..VDEV_LABELS).filter_map(|index| label_offset(device.size_bytes(), index)) {
        let at = label + UBERBLOCK_RING_OFFSET;
        let Ok(ring) = device.read_at(at, VDEV_UBERBLOCK_RING as usize).await else { continue };
        let places = (0..ring.len()).step_by(1 << SLOT_SHIFTS.start());
        let mut found: Vec<(usize, Uberblock)> =
            places.filter_map(|place| Some((place, Uberblock::decode(&ring[place..]).ok()?))).collect();
        found.retain(|(_, one)| newest.is_none_or(|newest| one.rank() > newest.rank()));
        found.sort_by_key(|(_, one)| std::cmp::Reverse(one.rank()));
        newest =
            found.into_iter().find(|(place, _)| verifies(&ring, *place, at)).map(|(_, one)| one).or(newest);
    }
    newest
}

/// Whether a slot that begins here, of any size, has the right checksum.
fn verifies(ring: &[u8], at: usize, offset: u64) -> bool {
    SLOT_SHIFTS.map(|shift| 1 << shift).any(|len: usize| {
        let slot = ring.get(at..at + len).filter(|_| at.is_multiple_of(len));
        let verifier = label_verifier(offset + at as u64);
        slot.is_some_and(|slot| Checksum::Label.verify_embedded(slot, verifier, Stored::Checksum).is_ok())
    })
}

async fn label_offsets(device: &dyn Device) -> Vec<u64> {
    let size_bytes = device.size_bytes();
    if size_bytes >= SPA_MINDEVSIZE {
        return (0..VDEV_LABELS).filter_map(|index| label_offset(size_bytes, index)).collect();
    }
    let mut offsets = Vec::new();
    for offset in (0..u64::from(VDEV_LABELS / 2)).map(|index| index * LABEL_BYTES) {
        if offset + LABEL_BYTES <= size_bytes && may_be_label(device, offset).await {
            offsets.push(offset);
        }
    }
    offsets
}

/// Whether a configuration ends where a label's would: reads a page, since folders hold many small files.
async fn may_be_label(device: &dyn Device, offset: u64) -> bool {
    const PAGE_BYTES: usize = 4096;
    let end = offset + VDEV_PHYS_OFFSET + VDEV_PHYS_SIZE;
    match device.read_at(end - PAGE_BYTES as u64, PAGE_BYTES).await {
        Ok(page) => {
            let trailer = page.len().checked_sub(ZIO_ECK_BYTES).and_then(|at| page[at..].first_chunk::<8>());
            trailer.is_some_and(|magic| {
                [u64::from_le_bytes(*magic), u64::from_be_bytes(*magic)].contains(&ZEC_MAGIC)
            })
        }
        // Reading the label will report the error.
        Err(_) => true,
    }
}

/// Decodes the 256 KiB read at `offset` of a device.
pub fn decode_label(bytes: &[u8], offset: u64) -> Label {
    let Some((head, ring)) = bytes.split_at_checked(RING_AT) else { return Label::default() };
    let config = head.get(NVLIST_AT..NVLIST_AT + NVLIST_BYTES).and_then(|area| {
        let verifier = label_verifier(offset + NVLIST_AT as u64);
        Checksum::Label.verify_embedded(area, verifier, Stored::Checksum).ok()?;
        decode_config_nvlist(area).ok()
    });
    let (uberblocks, broken_slots) = slots(ring, offset + RING_AT as u64);
    Label { config, uberblocks, broken_slots, unreadable: None }
}

fn slots(ring: &[u8], offset: u64) -> (Vec<Uberblock>, Vec<BrokenSlot>) {
    let (mut found, mut broken) = (Vec::new(), Vec::new());
    let smallest = 1 << SLOT_SHIFTS.start();
    for at in (0..ring.len()).step_by(smallest) {
        let Ok(uberblock) = Uberblock::decode(&ring[at..]) else {
            if ring[at..].iter().take(UBERBLOCK_BYTES).any(|byte| *byte != 0) {
                broken.push(BrokenSlot { at: at as u64, txg: None });
            }
            continue;
        };
        if verifies(ring, at, offset) {
            found.push(uberblock);
        } else if uberblock.txg != Txg(0) {
            broken.push(BrokenSlot { at: at as u64, txg: Some(uberblock.txg) });
        }
    }
    (found, broken)
}
