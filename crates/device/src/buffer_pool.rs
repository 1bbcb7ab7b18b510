//! Reused buffer memory.
//!
//! Idea: reads need thousands of short-lived buffers in a few sizes. Fresh memory costs a page fault every 4
//! KiB and is zeroed first: more than a warm read. So dropped buffers are kept here.
//!
//! Locking: a mutex guards the list, for a push or pop. `Bytes` may be dropped on any thread.

use bytes::Bytes;
use parking_lot::Mutex;

/// Unused buffers of one size.
pub struct BufferPool {
    waiting: Mutex<Vec<Vec<u8>>>,
    most: usize,
}

impl BufferPool {
    /// Keeps at most this many buffers.
    pub const fn new(most: usize) -> BufferPool {
        BufferPool { waiting: Mutex::new(Vec::new()), most }
    }

    /// An unused buffer, with its previous length and content.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.waiting.lock().pop()
    }

    /// Bytes whose memory returns here. All memory of a pool must have one size.
    pub fn lend(&'static self, memory: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { memory, to: self })
    }
}

struct Lent {
    memory: Vec<u8>,
    to: &'static BufferPool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut waiting = self.to.waiting.lock();
        if waiting.len() < self.to.most {
            waiting.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_bytes_are_the_next_memory_up_to_a_bound() {
        static POOL: BufferPool = BufferPool::new(2);
        assert_eq!(POOL.take(), None);
        let lent: Vec<Bytes> = (1..=3).map(|byte| POOL.lend(vec![byte; 10])).collect();
        let piece = lent[0].slice(3..);
        drop(lent);
        assert_eq!([POOL.take(), POOL.take(), POOL.take()], [Some(vec![3; 10]), Some(vec![2; 10]), None]);
        assert_eq!(piece, vec![1; 7], "still in use");
        drop(piece);
        assert_eq!(POOL.take(), Some(vec![1; 10]));
    }
}
