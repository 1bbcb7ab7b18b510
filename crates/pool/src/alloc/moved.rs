//! Freeing blocks of vdevs that were or are being removed.
//!
//! Idea: a block is freed at its copies' addresses, and its range on the removed vdev becomes *obsolete*:
//! that part of the mapping is unused. While a vdev is being removed, blocks freed beyond the mapping's end
//! will never be copied.
//!
//! Locking: a mutex guards the obsolete ranges, taken once per call, with no other lock under it. The mapping
//! grows under the lock of the list of vdevs ([`super::Allocator::extend_moved`]).
//!
//! Source: OpenZFS `metaslab.c` (`metaslab_free_impl`), `vdev_removal.c` (`free_from_removing_vdev`),
//! `vdev_indirect.c` (`vdev_indirect_mark_obsolete`).

use super::AllocError;
use crate::ranges::Ranges;
use cenote_format::FormatError;
use cenote_format::blkptr::Dva;
use cenote_format::indirect::{IndirectMapping, IndirectMappingEntry};
use parking_lot::Mutex;

#[derive(Debug)]
pub(super) struct Moved {
    mapping: IndirectMapping,
    obsolete: Mutex<Ranges>,
}

impl Moved {
    pub(super) fn new(mapping: IndirectMapping) -> Moved {
        Moved { mapping, obsolete: Mutex::default() }
    }

    /// Returns the addresses of the block's copies.
    pub(super) fn free(&self, dva: &Dva) -> Result<Vec<Dva>, AllocError> {
        let end = dva.offset_bytes.saturating_add(dva.asize.0).min(self.end_bytes());
        let len = end.saturating_sub(dva.offset_bytes);
        if len == 0 {
            return Ok(Vec::new());
        }
        let copies = self.mapping.resolve(dva.offset_bytes, len);
        let mut obsolete = self.obsolete.lock();
        if copies.is_empty() || !obsolete.is_clear(dva.offset_bytes, len) {
            return Err(AllocError::NotAllocated { dva: *dva });
        }
        obsolete.insert(dva.offset_bytes, len);
        Ok(copies)
    }

    pub(super) fn note_obsolete(&self, dva: &Dva) {
        self.obsolete.lock().insert(dva.offset_bytes, dva.asize.0);
    }

    pub(super) fn extend(&mut self, more: &[IndirectMappingEntry]) -> Result<(), FormatError> {
        self.mapping.append(more)
    }

    pub(super) fn condense(&mut self, mapping: IndirectMapping) {
        self.mapping = mapping;
    }

    pub(super) fn mapping(&self) -> &IndirectMapping {
        &self.mapping
    }

    /// End of the copied part.
    pub(super) fn end_bytes(&self) -> u64 {
        self.mapping.end_bytes()
    }

    pub(super) fn take_obsolete(&self) -> Ranges {
        std::mem::take(&mut self.obsolete.lock())
    }
}
