//! Listing a ZAP in disk order.
//!
//! The blocks of a fat ZAP are read in windows; those that begin as leaves are leaves. That visits each leaf
//! once, and finds entries even if the table's pointers are damaged.
//!
//! [`Zap::each_number`] allocates nothing per entry, for thousands of tables with thousands of numbers each.

use std::collections::VecDeque;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::FormatError;
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
    next: u64,
    /// Errors still to report.
    failures: VecDeque<DatasetError>,
}

impl Entries {
    pub(super) fn new(zap: Zap) -> Entries {
        Entries { zap, next: 0, failures: VecDeque::new() }
    }

    /// `None` after the last; continues behind damage.
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
            ZapBlock0::Fat(_) => match self.next_leaves().await? {
                Ok(leaves) => {
                    let mut entries = Vec::new();
                    leaves.iter().for_each(|leaf| self.add_entries(leaf, &mut entries));
                    Some(Ok(entries))
                }
                Err(error) => Some(Err(error)),
            },
        }
    }

    async fn next_leaves(&mut self) -> Option<Result<Vec<Leaf>>> {
        if let Some(failure) = self.failures.pop_front() {
            return Some(Err(failure));
        }
        let ZapBlock0::Fat(fat) = &*self.zap.block0 else { return None };
        let object = self.zap.object.clone();
        let end = fat.free_block.0.min(object.dnode().max_block_id.0.saturating_add(1));
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
            return None;
        }
        let mut leaves = Vec::new();
        for block in object.read_blocks(first..last).await {
            match block.data {
                Ok(Some(bytes)) if is_leaf(&bytes, block.endian) => match Leaf::decode(bytes, block.endian) {
                    Ok(leaf) => leaves.push(leaf),
                    Err(error) => self.failures.push_back(object.format(error)),
                },
                Ok(_) => {}
                Err(error) => self.failures.push_back(error),
            }
        }
        Some(Ok(leaves))
    }

    fn add_entries(&mut self, leaf: &Leaf, entries: &mut Vec<ZapEntry>) {
        let object = &self.zap.object;
        for entry in leaf.entries() {
            match entry.map_err(|e| object.format(e)).and_then(|entry| self.zap.entry(&entry)) {
                Ok(entry) => entries.push(entry),
                Err(error) => self.failures.push_back(error),
            }
        }
    }
}

/// Blocks of the pointer table lie among the leaves.
fn is_leaf(block: &[u8], endian: Endian) -> bool {
    block.first_chunk::<8>().is_some_and(|word| endian.u64(*word) == ZBT_LEAF)
}

impl Zap {
    /// Passes on the entries of a table from names to single numbers whose number is wanted.
    ///
    /// # Errors
    /// Damage; no number; those of `each`.
    pub async fn each_number(
        &self,
        mut is_wanted: impl FnMut(u64) -> bool,
        mut each: impl FnMut(&[u8], u64) -> Result<(), FormatError>,
    ) -> Result<()> {
        let at_fault = |error| self.object.format(error);
        if let ZapBlock0::Micro(micro) = &*self.block0 {
            let mut wanted = micro.entries().filter(|entry| is_wanted(entry.value));
            return wanted.try_for_each(|entry| each(entry.name, entry.value)).map_err(at_fault);
        }
        let mut entries = self.entries();
        while let Some(leaves) = entries.next_leaves().await {
            for leaf in leaves? {
                leaf.each_number(&mut is_wanted, &mut each).map_err(at_fault)?;
            }
        }
        Ok(())
    }
}
