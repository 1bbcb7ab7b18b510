//! W-TinyLFU: new blocks pass a small LRU window, a hundredth of the cache. If some blocks are much larger,
//! the window has room for a few of those: a metadata block that leaves at once would be read again for each
//! of its items. A block leaving the window must be more popular than the next victim of the main cache. A
//! sketch of small counters, halved now and then so that old popularity fades, estimates popularity.
//!
//! The main cache is a segmented LRU: blocks on probation, and protected ones (four fifths) used again.
//!
//! Source: Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM ToS 2017.

use crate::lists::{Entry, Lists};
use crate::policy::{Access, BlockId, Policy};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Room in the window for this many of the largest blocks, if that is at most a quarter of the cache and they
/// are more than twice as large as the mean. The paper has blocks of one size.
const WINDOW_BLOCKS: u64 = 8;

/// W-TinyLFU.
#[derive(Debug)]
pub struct WTinyLfu {
    lists: Lists<3>,
    sketch: Sketch,
    capacity_bytes: u64,
    mean_block_bytes: u64,
    largest_bytes: u64,
}

impl WTinyLfu {
    /// An empty cache. The sketch is sized for its number of blocks of the mean size.
    pub fn new(capacity_bytes: u64, mean_block_bytes: u64) -> WTinyLfu {
        let blocks = capacity_bytes / mean_block_bytes.max(1);
        let (lists, sketch) = (Lists::new(), Sketch::new(blocks));
        WTinyLfu { lists, sketch, capacity_bytes, mean_block_bytes, largest_bytes: 0 }
    }

    fn window_bytes(&self) -> u64 {
        let is_large = self.largest_bytes / 2 > self.mean_block_bytes;
        let large = if is_large { WINDOW_BLOCKS * self.largest_bytes } else { 0 };
        let some = large.min(self.capacity_bytes / 4);
        (self.capacity_bytes / 100).max(some).max(1)
    }

    fn main_bytes(&self) -> u64 {
        self.capacity_bytes - self.window_bytes()
    }

    fn protected_bytes(&self) -> u64 {
        self.main_bytes() / 5 * 4
    }

    /// Blocks that overflow the window compete with the last on probation.
    fn shrink(&mut self, evicted: &mut Vec<BlockId>) {
        while self.lists.bytes(WINDOW) > self.window_bytes() {
            let Some(candidate) = self.lists.back(WINDOW) else { break };
            let bytes = u64::from(self.lists.entry(candidate).bytes);
            let main = |lists: &Lists<3>| lists.bytes(PROBATION) + lists.bytes(PROTECTED);
            let mut is_admitted = bytes <= self.main_bytes();
            while is_admitted && main(&self.lists) + bytes > self.main_bytes() {
                let Some(victim) = self.lists.back(PROBATION).or_else(|| self.lists.back(PROTECTED)) else {
                    break;
                };
                let count = |slot| self.sketch.count(self.lists.entry(slot).id);
                is_admitted = count(candidate) > count(victim);
                if is_admitted {
                    evicted.push(self.lists.remove(victim).id);
                }
            }
            if is_admitted {
                self.lists.move_to_front(candidate, PROBATION);
            } else {
                evicted.push(self.lists.remove(candidate).id);
            }
        }
        while self.resident_bytes() > self.capacity_bytes {
            let Some(gone) = self.lists.pop(PROBATION).or_else(|| self.lists.pop(PROTECTED)) else { return };
            evicted.push(gone.id);
        }
    }
}

impl Policy for WTinyLfu {
    fn touch(&mut self, access: &Access) -> bool {
        self.sketch.add(access.id);
        let Some((slot, list)) = self.lists.find(access.id) else { return false };
        self.lists.move_to_front(slot, if list == WINDOW { WINDOW } else { PROTECTED });
        while self.lists.bytes(PROTECTED) > self.protected_bytes() {
            let Some(last) = self.lists.back(PROTECTED) else { break };
            self.lists.move_to_front(last, PROBATION);
        }
        true
    }

    fn expect(&self, accesses: &[Access]) {
        self.lists.look_at(accesses);
    }

    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>) {
        self.largest_bytes = self.largest_bytes.max(access.bytes.into());
        self.lists.push(WINDOW, Entry::from(access));
        self.shrink(evicted);
    }

    fn remove(&mut self, id: BlockId) {
        self.lists.forget(id);
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>) {
        self.capacity_bytes = capacity_bytes;
        self.shrink(evicted);
    }

    fn resident_bytes(&self) -> u64 {
        (0..3).map(|list| self.lists.bytes(list)).sum()
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("window", self.lists.bytes(WINDOW)),
            ("probation", self.lists.bytes(PROBATION)),
            ("protected", self.lists.bytes(PROTECTED)),
        ]
    }
}

/// Estimates uses of blocks: a count-min sketch with four rows of 4-bit counters.
#[derive(Debug)]
struct Sketch {
    /// Sixteen counters a word; the rows share the words, each with other bits of the hash.
    words: Vec<u64>,
    mask: u64,
    additions: u64,
    /// Additions between halvings.
    sample: u64,
}

const MOST_COUNTED: u64 = 15;

impl Sketch {
    fn new(blocks: u64) -> Sketch {
        // A word for each block: sixteen counters, of which a block uses four.
        let words = blocks.clamp(64, 1 << 28).next_power_of_two();
        Sketch { words: vec![0; words as usize], mask: words - 1, additions: 0, sample: 10 * blocks.max(64) }
    }

    fn place(&self, id: BlockId, row: u64) -> (usize, u64) {
        const SEEDS: [u64; 4] =
            [0xc3a5_c85c_97cb_3127, 0xb492_b66f_be98_f273, 0x9ae1_6a3b_2f90_404f, 0xcbf2_9ce4_8422_2325];
        let seed = SEEDS[row as usize];
        let mut hash = (id ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 32)).wrapping_mul(seed | 1);
        hash ^= hash >> 29;
        (((hash >> 4) & self.mask) as usize, ((hash & 3) * 4 + row) * 4)
    }

    fn count(&self, id: BlockId) -> u64 {
        let counter = |row| {
            let (word, shift) = self.place(id, row);
            self.words[word] >> shift & MOST_COUNTED
        };
        (0..4).map(counter).min().unwrap_or(0)
    }

    fn add(&mut self, id: BlockId) {
        let mut has_changed = false;
        for row in 0..4 {
            let (word, shift) = self.place(id, row);
            if self.words[word] >> shift & MOST_COUNTED < MOST_COUNTED {
                self.words[word] += 1 << shift;
                has_changed = true;
            }
        }
        self.additions += u64::from(has_changed);
        if self.additions >= self.sample {
            self.words.iter_mut().for_each(|word| *word = *word >> 1 & 0x7777_7777_7777_7777);
            self.additions /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Class;

    /// A cache of 8 MiB holds small popular blocks. Of ten large blocks, each used ten times in a row, how
    /// many are read more than once?
    #[test]
    fn a_large_block_stays_for_as_long_as_it_is_in_use() {
        let mut policy = WTinyLfu::new(8 << 20, 16 << 10);
        let mut use_block = |id, bytes| {
            let access = Access { id, bytes, class: Class::Metadata, now_ns: 0, next_use: u64::MAX };
            let is_hit = policy.touch(&access);
            if !is_hit {
                policy.insert(&access, &mut Vec::new());
            }
            is_hit
        };
        for round in 0..20 {
            let hits = (0..400).filter(|id| use_block(*id, 16 << 10)).count();
            assert_eq!(hits, if round == 0 { 0 } else { 400 });
        }
        let misses = |id| (0..10).filter(|_| !use_block(id, 128 << 10)).count();
        assert_eq!((1000..1010).map(misses).collect::<Vec<_>>(), vec![1; 10]);
    }
}
