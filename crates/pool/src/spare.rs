//! Memory of decoded blocks, used again.
//!
//! Idea: a scan decodes thousands of blocks of one size, looks at each and drops it. Memory fresh from the allocator is
//! zeroed, and memory fresh from the kernel besides costs a page fault every 4 KiB; both cost more than decoding. So the memory
//! of a dropped block waits here for the next block of its size. What it held is overwritten: whoever fills it must fill all of it.
//!
//! Bounds: blocks of 4 to 128 KiB, at most [`MOST_SPARE_BYTES`] waiting in all.

use bytes::Bytes;
use parking_lot::Mutex;

/// Sizes kept are powers of two from this shift on: 4, 8, 16, 32, 64, 128 KiB.
const FIRST_SHIFT: u32 = 12;
const SIZES: usize = 6;
/// Most bytes that wait: the blocks of dnodes that two readers have in hand.
const MOST_SPARE_BYTES: usize = 16 << 20;

#[derive(Default)]
struct Spare {
    by_size: [Vec<Box<[u8]>>; SIZES],
    bytes: usize,
}

static SPARE: Mutex<Spare> = Mutex::new(Spare { by_size: [const { Vec::new() }; SIZES], bytes: 0 });

/// A block of `len` bytes, all of them written by `fill`, which finds zeros or an earlier block's content there.
pub(crate) fn filled<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
    let Some(size) = size_index(len) else {
        let mut block = vec![0; len];
        return fill(&mut block).map(|()| block.into());
    };
    let spare = SPARE.lock().take(size);
    let mut block = Returned { memory: spare.unwrap_or_else(|| vec![0; len].into()), size };
    fill(&mut block.memory).map(|()| Bytes::from_owner(block))
}

fn size_index(len: usize) -> Option<usize> {
    let index = len.is_power_of_two().then(|| len.ilog2())?.checked_sub(FIRST_SHIFT)? as usize;
    (index < SIZES).then_some(index)
}

impl Spare {
    fn take(&mut self, size: usize) -> Option<Box<[u8]>> {
        let block = self.by_size[size].pop()?;
        self.bytes -= block.len();
        Some(block)
    }

    fn put(&mut self, size: usize, block: Box<[u8]>) {
        if self.bytes + block.len() <= MOST_SPARE_BYTES {
            self.bytes += block.len();
            self.by_size[size].push(block);
        }
    }
}

/// Memory that goes back to [`SPARE`] when the last user of the block drops it.
struct Returned {
    memory: Box<[u8]>,
    size: usize,
}

impl AsRef<[u8]> for Returned {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        SPARE.lock().put(self.size, std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_what_was_filled_in_whatever_its_memory_held() {
        for len in [1000, 4096, 16 << 10, 128 << 10, 1 << 20] {
            for byte in [1, 2, 3] {
                let block = filled::<()>(len, |memory| {
                    memory.fill(byte);
                    Ok(())
                });
                assert_eq!(block.unwrap(), vec![byte; len]);
            }
            assert_eq!(filled(len, |_| Err("unreadable")), Err("unreadable"));
        }
    }
}
