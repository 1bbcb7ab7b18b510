//! Extents: many small ranges read as few large ones.
//!
//! Idea: blocks that were written together lie together, and RAID-Z cuts each into columns that lie
//! together on every child. So ranges are collected first, sorted by device and offset, and merged if
//! reading the gap between them costs less than a second request.
//!
//! Bounds: an extent has at most [`MAX_EXTENT_BYTES`], or one range if that is longer; at most
//! [`MAX_GAP_BYTES`] per range are read in vain. The caller bounds how much it asks for.
//!
//! A failed extent fails all its ranges: the caller reads them again one by one.

use crate::vdev::leaf::Leaf;
use crate::vdev::queue::IoClass;
use bytes::Bytes;
use std::sync::Arc;

/// Gaps up to this size are read along. A disk reads 64 KiB in a third of a millisecond; a request costs
/// more.
const MAX_GAP_BYTES: u64 = 64 << 10;
/// Longest merged read.
const MAX_EXTENT_BYTES: u64 = 1 << 20;

/// Ranges of this size are read alone, each into memory of its own: who keeps one would have to copy it out
/// of a merged read. Where many wait for the device, its queue reads neighbours in one request.
const LEAST_LARGE_BYTES: usize = 64 << 10;

/// A claim to a range, redeemed after the read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket(usize);

/// Ranges to be read.
#[derive(Default)]
pub(crate) struct Extents {
    wanted: Vec<Wanted>,
}

struct Wanted {
    leaf: Arc<Leaf>,
    offset_bytes: u64,
    len: usize,
}

/// Where a range is.
#[derive(Debug, Default, Clone, Copy)]
struct Slice {
    extent: usize,
    /// In the extent.
    offset: usize,
    len: usize,
}

/// A run of ranges that are read together.
struct Extent {
    leaf: Arc<Leaf>,
    start_bytes: u64,
    end_bytes: u64,
}

/// Ranges that were read.
pub(crate) struct Fetched {
    /// By ticket.
    slices: Vec<Slice>,
    /// `None` if it failed.
    extents: Vec<Option<Bytes>>,
}

impl Extents {
    /// Asks for a range.
    pub(crate) fn want(&mut self, leaf: &Arc<Leaf>, offset_bytes: u64, len: usize) -> Ticket {
        self.wanted.push(Wanted { leaf: leaf.clone(), offset_bytes, len });
        Ticket(self.wanted.len() - 1)
    }

    /// Reads all extents concurrently.
    pub(crate) async fn fetch(self, class: IoClass) -> Fetched {
        let (slices, merged) = self.merge();
        let reads = merged.iter().map(|extent| {
            let len = (extent.end_bytes - extent.start_bytes) as usize;
            extent.leaf.read_hastily(class, extent.start_bytes, len)
        });
        let extents = futures::future::join_all(reads).await.into_iter().map(Result::ok).collect();
        Fetched { slices, extents }
    }

    /// Where each range will be, and what is to be read for that: by leaf and offset.
    fn merge(self) -> (Vec<Slice>, Vec<Extent>) {
        let key = |&index: &usize| {
            let wanted: &Wanted = &self.wanted[index];
            (wanted.leaf.guid, wanted.offset_bytes)
        };
        let mut order: Vec<usize> = (0..self.wanted.len()).collect();
        order.sort_unstable_by_key(key);
        let mut slices = vec![Slice::default(); self.wanted.len()];
        let mut merged: Vec<Extent> = Vec::new();
        for index in order {
            let Wanted { ref leaf, offset_bytes, len } = self.wanted[index];
            let end = offset_bytes + len as u64;
            match merged.last_mut() {
                Some(last)
                    if last.leaf.guid == leaf.guid
                        && len < LEAST_LARGE_BYTES
                        && offset_bytes <= last.end_bytes + MAX_GAP_BYTES
                        && end - last.start_bytes <= MAX_EXTENT_BYTES =>
                {
                    last.end_bytes = end.max(last.end_bytes);
                }
                _ => merged.push(Extent { leaf: leaf.clone(), start_bytes: offset_bytes, end_bytes: end }),
            }
            let start = merged.last().map_or(0, |extent| extent.start_bytes);
            slices[index] = Slice { extent: merged.len() - 1, offset: (offset_bytes - start) as usize, len };
        }
        (slices, merged)
    }
}

impl Fetched {
    /// The bytes of a range; `None` if its extent could not be read.
    pub(crate) fn slice(&self, ticket: Ticket) -> Option<&[u8]> {
        let Slice { extent, offset, len } = *self.slices.get(ticket.0)?;
        self.extents.get(extent)?.as_ref()?.get(offset..offset + len)
    }

    /// The same as a buffer that shares the extent's memory and keeps all of it alive.
    pub(crate) fn shared(&self, ticket: Ticket) -> Option<Bytes> {
        let Slice { extent, offset, len } = *self.slices.get(ticket.0)?;
        let bytes = self.extents.get(extent)?.as_ref()?;
        bytes.get(offset..offset + len).map(|range| bytes.slice_ref(range))
    }

    /// The same as a separate buffer: it shares the extent's memory unless it would keep much more than
    /// itself alive.
    pub(crate) fn bytes(&self, ticket: Ticket) -> Option<Bytes> {
        let Slice { extent, offset, len } = *self.slices.get(ticket.0)?;
        let bytes = self.extents.get(extent)?.as_ref()?;
        let range = bytes.get(offset..offset + len)?;
        Some(if bytes.len() <= 2 * len { bytes.slice_ref(range) } else { Bytes::copy_from_slice(range) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_device::MemoryDevice;
    use cenote_format::units::Guid;
    use cenote_runtime::{Runtime, SimConfig};

    #[test]
    fn leaves_are_read_in_the_order_of_their_guids_wherever_they_lie_in_memory() {
        let main = |runtime: Runtime| async move {
            let leaf = |guid: u64| {
                let device = Arc::new(MemoryDevice::new("disk", 4096));
                Arc::new(Leaf::new(&runtime, Guid(guid * 37 % 64), device, &Arc::default()))
            };
            let leaves: Vec<Arc<Leaf>> = (0..64).map(leaf).collect();
            let mut extents = Extents::default();
            leaves.iter().for_each(|leaf| _ = extents.want(leaf, 0, 512));
            let (_, merged) = extents.merge();
            assert_eq!(merged.len(), 64);
            assert!(merged.iter().is_sorted_by_key(|extent| extent.leaf.guid));
        };
        Runtime::simulate(SimConfig::default(), main);
    }
}
