//! Blocks with addresses, not written yet.

use crate::zbookmark::Zbookmark;
use bytes::Bytes;
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::units::VdevId;
use parking_lot::Mutex;
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Later {
    pub(super) blocks: Mutex<Blocks>,
    pub(super) writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub(super) struct Blocks {
    /// Keyed by the first copy's address.
    by_address: BTreeMap<(VdevId, u64), Block>,
    bytes: u64,
    /// Version of the next block.
    versions: u64,
}

#[derive(Clone)]
pub(super) struct Block {
    pub(super) dvas: Vec<Dva>,
    pub(super) stored: Bytes,
    pub(super) place: Zbookmark,
    version: u64,
}

fn address(first: &Dva) -> (VdevId, u64) {
    (first.vdev, first.offset_bytes)
}

impl Blocks {
    pub(super) fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    pub(super) fn get(&self, bp: &Blkptr) -> Option<Bytes> {
        if self.is_empty() {
            return None;
        }
        Some(self.by_address.get(&address(&bp.dvas().next()?))?.stored.clone())
    }

    pub(super) fn keep(&mut self, bp: &Blkptr, stored: Bytes, place: Zbookmark) -> u64 {
        let dvas: Vec<Dva> = bp.dvas().collect();
        let Some(first) = dvas.first().map(address) else { return self.bytes };
        self.versions += 1;
        self.bytes += stored.len() as u64;
        let block = Block { dvas, stored, place, version: self.versions };
        let replaced = self.by_address.insert(first, block);
        self.bytes -= replaced.map_or(0, |block| block.stored.len() as u64);
        self.bytes
    }

    pub(super) fn all_if_more_than(&self, bytes: u64) -> Vec<Block> {
        let all = (self.bytes > bytes).then(|| self.by_address.values().cloned());
        all.into_iter().flatten().collect()
    }

    /// Drops a written block, unless a newer version is kept.
    pub(super) fn written(&mut self, block: &Block) {
        let Some(first) = block.dvas.first().map(address) else { return };
        if self.by_address.get(&first).is_some_and(|kept| kept.version == block.version) {
            self.by_address.remove(&first);
            self.bytes -= block.stored.len() as u64;
        }
    }
}
