//! Reused memory for decoded blocks ([`BufferPool`]).
//!
//! A reused buffer's old content must be overwritten. Bounds: blocks of 4 to 128 KiB; at most 2 MiB of each
//! size are kept.

use bytes::Bytes;
use cenote_device::BufferPool;

/// 4, 8, 16, 32, 64, 128 KiB.
const FIRST_SHIFT: u32 = 12;
/// The most bytes kept of each size.
const MOST_BYTES: usize = 2 << 20;

static POOLS: [BufferPool; 6] = [
    BufferPool::new(MOST_BYTES >> 12),
    BufferPool::new(MOST_BYTES >> 13),
    BufferPool::new(MOST_BYTES >> 14),
    BufferPool::new(MOST_BYTES >> 15),
    BufferPool::new(MOST_BYTES >> 16),
    BufferPool::new(MOST_BYTES >> 17),
];

/// `fill` must write all `len` bytes; they may hold an earlier block's content.
pub(crate) fn filled<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
    let pool = pool_of(len);
    let mut block = pool.and_then(BufferPool::take).unwrap_or_else(|| vec![0; len]);
    fill(&mut block)?;
    Ok(match pool {
        Some(pool) => pool.lend(block),
        None => block.into(),
    })
}

fn pool_of(len: usize) -> Option<&'static BufferPool> {
    let shift = len.is_power_of_two().then(|| len.ilog2())?;
    POOLS.get(shift.checked_sub(FIRST_SHIFT)? as usize)
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
