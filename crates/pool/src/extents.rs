//! Extents: many small ranges read as few large ones.
//!
//! Idea: blocks that were written together lie together, and a RAID-Z cuts each into columns that lie together on
//! every child. So ranges are collected first, sorted by device and place, and merged where the gap between them
//! costs less to read than a second request.
//!
//! Bounds: an extent has at most [`MAX_EXTENT_BYTES`], or one range if that is longer; what is read in vain is at most
//! [`MAX_GAP_BYTES`] a range. The caller bounds how much it asks for.
//!
//! A failed extent fails all its ranges: who asked reads them again one by one.

use crate::vdev::leaf::Leaf;
use bytes::Bytes;
use std::sync::Arc;

/// Gaps up to this are read over. A disk passes 64 KiB in a third of a millisecond, a request costs it more.
const MAX_GAP_BYTES: u64 = 64 << 10;
/// Longest merged read.
const MAX_EXTENT_BYTES: u64 = 1 << 20;

/// The claim to a range, to be redeemed after the read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket(usize);

/// Ranges to be read.
#[derive(Default)]
pub(crate) struct Extents<'a> {
    wanted: Vec<Wanted<'a>>,
}

struct Wanted<'a> {
    leaf: &'a Arc<Leaf>,
    offset_bytes: u64,
    len: usize,
}

/// Ranges that were read.
pub(crate) struct Fetched {
    /// By ticket: the extent, the range's place in it, its length.
    places: Vec<(usize, usize, usize)>,
    /// `None`: failed.
    extents: Vec<Option<Bytes>>,
}

impl<'a> Extents<'a> {
    /// Asks for a range.
    pub(crate) fn want(&mut self, leaf: &'a Arc<Leaf>, offset_bytes: u64, len: usize) -> Ticket {
        self.wanted.push(Wanted { leaf, offset_bytes, len });
        Ticket(self.wanted.len() - 1)
    }

    /// Reads all of it, every extent at the same time.
    pub(crate) async fn fetch(self) -> Fetched {
        let key = |&index: &usize| {
            let wanted: &Wanted<'_> = &self.wanted[index];
            (Arc::as_ptr(wanted.leaf) as usize, wanted.offset_bytes)
        };
        let mut order: Vec<usize> = (0..self.wanted.len()).collect();
        order.sort_unstable_by_key(key);
        let mut places = vec![(0, 0, 0); self.wanted.len()];
        let mut merged: Vec<(&Arc<Leaf>, u64, u64)> = Vec::new();
        for index in order {
            let Wanted { leaf, offset_bytes, len } = self.wanted[index];
            let end = offset_bytes + len as u64;
            match merged.last_mut() {
                Some((last, start, last_end))
                    if Arc::ptr_eq(last, leaf)
                        && offset_bytes <= *last_end + MAX_GAP_BYTES
                        && end - *start <= MAX_EXTENT_BYTES =>
                {
                    *last_end = end.max(*last_end);
                }
                _ => merged.push((leaf, offset_bytes, end)),
            }
            let start = merged.last().map_or(0, |(_, start, _)| *start);
            places[index] = (merged.len() - 1, (offset_bytes - start) as usize, len);
        }
        let reads = merged.into_iter().map(|(leaf, start, end)| leaf.read(start, (end - start) as usize));
        let extents = futures::future::join_all(reads).await.into_iter().map(Result::ok).collect();
        Fetched { places, extents }
    }
}

impl Fetched {
    /// The bytes of a range; `None` if its extent could not be read.
    pub(crate) fn slice(&self, ticket: Ticket) -> Option<&[u8]> {
        let (extent, at, len) = *self.places.get(ticket.0)?;
        self.extents.get(extent)?.as_ref()?.get(at..at + len)
    }

    /// The same as a buffer that shares the extent's memory, and keeps all of it alive.
    pub(crate) fn shared(&self, ticket: Ticket) -> Option<Bytes> {
        let (extent, at, len) = *self.places.get(ticket.0)?;
        let bytes = self.extents.get(extent)?.as_ref()?;
        bytes.get(at..at + len).map(|range| bytes.slice_ref(range))
    }

    /// The same as a buffer of its own: shared with the extent, unless it would keep much more than itself alive.
    pub(crate) fn bytes(&self, ticket: Ticket) -> Option<Bytes> {
        let (extent, at, len) = *self.places.get(ticket.0)?;
        let bytes = self.extents.get(extent)?.as_ref()?;
        let range = bytes.get(at..at + len)?;
        Some(if bytes.len() <= 2 * len { bytes.slice_ref(range) } else { Bytes::copy_from_slice(range) })
    }
}
