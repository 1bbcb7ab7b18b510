//! I/O memory: slots of equal size, page-aligned as direct I/O requires.
//!
//! Reads and writes have separate slots: data just read must not be written next.

/// Strictest alignment that direct I/O needs on any device: a page.
const ALIGNMENT: usize = 4096;

#[derive(Debug)]
pub(super) struct Buffers {
    /// Longer than the slots, for alignment. It never grows, so slots do not move.
    memory: Vec<u8>,
    lead: usize,
    slots: usize,
    slot_bytes: usize,
}

impl Buffers {
    pub fn new(slots: usize, bytes: usize) -> Buffers {
        let slot_bytes = bytes.next_multiple_of(ALIGNMENT);
        let memory = vec![0; slots * slot_bytes + ALIGNMENT];
        let lead = memory.as_ptr().align_offset(ALIGNMENT);
        Buffers { memory, lead, slots, slot_bytes }
    }

    pub fn slot(&mut self, index: usize, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.slot_bytes, "{bytes} bytes requested from a slot of {}", self.slot_bytes);
        &mut self.memory[self.lead + index * self.slot_bytes..][..bytes]
    }

    pub fn all(&mut self) -> &mut [u8] {
        &mut self.memory[self.lead..][..self.slots * self.slot_bytes]
    }

    pub fn each(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let bytes = self.slot_bytes.max(1);
        self.all().chunks_mut(bytes)
    }
}
