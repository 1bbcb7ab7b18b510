//! The retained blocks, by address: an overwrite replaces the retained version.

use crate::write::later::blocks::Later;
use bytes::Bytes;
use cenote_format::blkptr::Dva;
use cenote_format::units::VdevId;
use parking_lot::Mutex;
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Retained {
    /// Blocks not written yet.
    pub(crate) later: Later,
    pub(super) blocks: Mutex<Blocks>,
    pub(super) flushing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub(super) struct Blocks {
    by_address: BTreeMap<(VdevId, u64), Block>,
    bytes: u64,
    flushes: u64,
    /// A device missed blocks no longer retained.
    pub(super) is_partial: bool,
}

struct Block {
    dva: Dva,
    bytes: Bytes,
    /// Flushes begun before its write.
    after: u64,
}

impl Blocks {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn keep(&mut self, dva: &Dva, bytes: &Bytes) {
        self.forget(dva);
        self.bytes += bytes.len() as u64;
        let block = Block { dva: *dva, bytes: bytes.clone(), after: self.flushes };
        self.by_address.insert((dva.vdev, dva.offset_bytes), block);
    }

    pub(super) fn forget(&mut self, dva: &Dva) {
        let gone = self.by_address.remove(&(dva.vdev, dva.offset_bytes));
        self.bytes -= gone.map_or(0, |block| block.bytes.len() as u64);
    }

    /// Returns the flush's number.
    pub(super) fn begin_flush(&mut self) -> u64 {
        self.flushes += 1;
        self.flushes
    }

    /// Drops blocks written before that flush.
    pub(super) fn flushed(&mut self, flush: u64) {
        self.by_address.retain(|_, block| block.after >= flush);
        self.bytes = self.by_address.values().map(|block| block.bytes.len() as u64).sum();
    }

    pub(super) fn all(&self) -> Vec<(Dva, Bytes)> {
        self.by_address.values().map(|block| (block.dva, block.bytes.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_format::units::Asize;

    #[test]
    fn what_a_flush_covers_goes_and_space_that_was_given_back_does_not_return() {
        let dva = |offset_bytes| Dva { vdev: VdevId(0), offset_bytes, asize: Asize(512), gang: false };
        let (mut blocks, data) = (Blocks::default(), Bytes::from(vec![1; 512]));
        [0, 512, 1024].iter().for_each(|at| blocks.keep(&dva(*at), &data));
        let flush = blocks.begin_flush();
        // Meanwhile one is overwritten, one given back, and one is new.
        [512, 2048].iter().for_each(|at| blocks.keep(&dva(*at), &data));
        blocks.forget(&dva(1024));
        let offsets =
            |blocks: &Blocks| blocks.all().iter().map(|(dva, _)| dva.offset_bytes).collect::<Vec<_>>();
        assert_eq!((offsets(&blocks), blocks.bytes()), (vec![0, 512, 2048], 1536), "if it fails");
        blocks.flushed(flush);
        assert_eq!((offsets(&blocks), blocks.bytes()), (vec![512, 2048], 1024));
    }
}
