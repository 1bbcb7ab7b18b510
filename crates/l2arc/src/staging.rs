//! Blocks read from the pool that wait for a place on a cache device.
//!
//! Idea: blocks are kept as stored until a round of feeding takes them; while enough are waiting, new ones
//! are dropped, at no cost. So a device gets a sample of memory's misses, whatever the difference in speed.
//! Blocks that do not qualify yet (read ahead, used once) stay for some rounds.
//!
//! Memory: two rounds of feeding.
//!
//! Locking: none here; [`crate::CacheDevices`] keeps it behind a mutex.

use std::collections::VecDeque;

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use rustc_hash::FxHashSet;

use crate::index::BlockName;

/// A block as it is stored in the pool.
#[derive(Debug, Clone)]
pub(crate) struct Staged {
    pub(crate) name: BlockName,
    pub(crate) bp: Blkptr,
    pub(crate) stored: Bytes,
    /// It was read ahead.
    pub(crate) is_ahead: bool,
    /// Rounds of feeding without qualifying.
    pub(crate) passed: u8,
}

/// Most rounds without qualifying.
const MOST_PASSED: u8 = 8;

#[derive(Debug, Default)]
pub(crate) struct Staging {
    blocks: VecDeque<Staged>,
    names: FxHashSet<BlockName>,
    bytes: u64,
}

impl Staging {
    /// Adds a block, unless present.
    pub(crate) fn push(&mut self, block: Staged) {
        if self.names.insert(block.name) {
            self.bytes += block.stored.len() as u64;
            self.blocks.push_back(block);
        }
    }

    /// Takes qualifying blocks, oldest first, while `fits` returns true.
    pub(crate) fn take(
        &mut self,
        qualifies: impl Fn(&Staged) -> bool,
        mut fits: impl FnMut(&Staged) -> bool,
    ) -> Vec<Staged> {
        let mut taken = Vec::new();
        let mut is_full = false;
        for mut block in std::mem::take(&mut self.blocks) {
            is_full |= qualifies(&block) && !fits(&block);
            if is_full {
                self.blocks.push_back(block);
            } else if qualifies(&block) {
                self.left(&block);
                taken.push(block);
            } else if block.passed == MOST_PASSED {
                self.left(&block);
            } else {
                block.passed += 1;
                self.blocks.push_back(block);
            }
        }
        taken
    }

    pub(crate) fn clear(&mut self) {
        *self = Staging::default();
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn left(&mut self, block: &Staged) {
        self.names.remove(&block.name);
        self.bytes -= block.stored.len() as u64;
    }
}
