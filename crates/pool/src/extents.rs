//! Extents: many small ranges read as few large ones.
//!
//! Idea: blocks written together lie together, and RAID-Z cuts each into columns that lie together on every
//! child. So ranges are sorted by device and offset, and merged if reading the gap costs less than a second
//! request.
//!
//! Bounds: an extent has at most [`MAX_EXTENT_BYTES`], or one longer range. At most [`MAX_GAP_BYTES`] per
//! range are read in vain. The caller bounds the number of ranges.
//!
//! A failed extent fails all its ranges; the caller rereads them one by one.

use crate::vdev::leaf::Leaf;
use crate::vdev::queue::IoClass;
use bytes::Bytes;
use std::sync::Arc;

/// Reading 64 KiB takes a third of a millisecond, less than a request.
const MAX_GAP_BYTES: u64 = 64 << 10;
const MAX_EXTENT_BYTES: u64 = 1 << 20;

/// Ranges from this size on get their own memory, so keeping one needs no copy. On a busy device the queue
/// still joins neighbours.
const LEAST_LARGE_BYTES: usize = 64 << 10;

/// A claim to a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket(usize);

#[derive(Default)]
pub(crate) struct Extents {
    wanted: Vec<Wanted>,
}

struct Wanted {
    leaf: Arc<Leaf>,
    offset_bytes: u64,
    len: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Slice {
    extent: usize,
    offset: usize,
    len: usize,
}

struct Extent {
    leaf: Arc<Leaf>,
    start_bytes: u64,
    end_bytes: u64,
}

pub(crate) struct Fetched {
    slices: Vec<Slice>,
    /// `None` if it failed.
    extents: Vec<Option<Bytes>>,
}

impl Extents {
    pub(crate) fn want(&mut self, leaf: &Arc<Leaf>, offset_bytes: u64, len: usize) -> Ticket {
        self.wanted.push(Wanted { leaf: leaf.clone(), offset_bytes, len });
        Ticket(self.wanted.len() - 1)
    }

    pub(crate) async fn fetch(self, class: IoClass) -> Fetched {
        let (slices, merged) = self.merge();
        let reads = merged.iter().map(|extent| {
            let len = (extent.end_bytes - extent.start_bytes) as usize;
            extent.leaf.read_hastily(class, extent.start_bytes, len)
        });
        let extents = futures::future::join_all(reads).await.into_iter().map(Result::ok).collect();
        Fetched { slices, extents }
    }

    /// By leaf and offset.
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
    /// `None` if its extent could not be read.
    pub(crate) fn slice(&self, ticket: Ticket) -> Option<&[u8]> {
        let Slice { extent, offset, len } = *self.slices.get(ticket.0)?;
        self.extents.get(extent)?.as_ref()?.get(offset..offset + len)
    }

    /// Shares, and keeps alive, the whole extent's memory.
    pub(crate) fn shared(&self, ticket: Ticket) -> Option<Bytes> {
        let Slice { extent, offset, len } = *self.slices.get(ticket.0)?;
        let bytes = self.extents.get(extent)?.as_ref()?;
        bytes.get(offset..offset + len).map(|range| bytes.slice_ref(range))
    }

    /// Shares the extent's memory unless that is much larger.
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
