//! Listing a ZAP in the order of the disk.
//!
//! A fat ZAP's blocks from the second to the last used one are read in windows; those that begin as leaves
//! are the leaves. That visits each leaf once, whatever the pointer table says, and finds the entries of a
//! table whose pointers are damaged.

use std::collections::VecDeque;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::bytes::Endian;
use cenote_format::zap::{Leaf, ZBT_LEAF, ZapBlock0};

use crate::error::{DatasetError, Result};
use crate::object::holes::{Region, RegionKind};
use crate::zap::{Zap, ZapEntry, ZapValue};

/// Bytes of leaves read at once.
const WINDOW_BYTES: u64 = 1 << 20;

/// An iteration over the entries of a ZAP.
#[derive(Debug)]
pub struct Entries {
    zap: Zap,
    /// The next block to read.
    next: u64,
    /// What could not be read, still to be told.
    failures: VecDeque<DatasetError>,
}

impl Entries {
    pub(super) fn new(zap: Zap) -> Entries {
        Entries { zap, next: 0, failures: VecDeque::new() }
    }

    /// The next entries; `None` after the last. After an error it goes on behind what is damaged.
    #[boxed]
    pub async fn next_batch(&mut self) -> Option<Result<Vec<ZapEntry>>> {
        if let Some(failure) = self.failures.pop_front() {
            return Some(Err(failure));
        }
        match &*self.zap.block0 {
            ZapBlock0::Micro(micro) if self.next == 0 => {
                let entries = micro.entries().map(|entry| ZapEntry {
                    name: Bytes::copy_from_slice(entry.name),
                    value: ZapValue::from_u64(entry.value),
                });
                let entries = entries.collect();
                self.next = 1;
                Some(Ok(entries))
            }
            ZapBlock0::Micro(_) => None,
            ZapBlock0::Fat(fat) => {
                let end = fat.free_block.0.min(self.zap.object.dnode().max_block_id.0.saturating_add(1));
                self.read_leaves(end).await
            }
        }
    }

    async fn read_leaves(&mut self, end: u64) -> Option<Result<Vec<ZapEntry>>> {
        let object = self.zap.object.clone();
        let wanted = self.next.max(1);
        let first = match object.next_region(wanted).await.filter(|region| region.start < end) {
            Some(Region { end: next, kind: RegionKind::Unreadable(error), .. }) => {
                self.next = next.max(wanted + 1);
                return Some(Err(error));
            }
            Some(region) => region.start,
            None => end,
        };
        let count = (WINDOW_BYTES / object.block_bytes().max(1)).max(1);
        let last = end.min(first.saturating_add(count));
        self.next = last.max(wanted);
        if first >= last {
            return self.failures.pop_front().map(Err);
        }
        let mut entries = Vec::new();
        for block in object.read_blocks(first..last).await {
            match block.data {
                Ok(Some(bytes)) => self.add_leaf(bytes, block.endian, &mut entries),
                Ok(None) => {}
                Err(error) => self.failures.push_back(error),
            }
        }
        Some(Ok(entries))
    }

    fn add_leaf(&mut self, block: Bytes, endian: Endian, entries: &mut Vec<ZapEntry>) {
        let block_type = block.first_chunk::<8>().map(|word| endian.u64(*word));
        if block_type != Some(ZBT_LEAF) {
            return;
        }
        let object = &self.zap.object;
        let leaf = match Leaf::decode(block, endian) {
            Ok(leaf) => leaf,
            Err(error) => return self.failures.push_back(object.format(error)),
        };
        for entry in leaf.entries() {
            match entry.map_err(|e| object.format(e)).and_then(|entry| self.zap.entry(&entry)) {
                Ok(entry) => entries.push(entry),
                Err(error) => self.failures.push_back(error),
            }
        }
    }
}
