//! Memory that is used again.
//!
//! Idea: reads come in a few sizes, thousands of them, and each is looked at and dropped. Memory fresh from the kernel costs a page fault every
//! 4 KiB and is zeroed first; that costs more than a warm read, or than decoding a block. So the memory of dropped bytes waits here for the
//! next who needs as much.

use bytes::Bytes;
use parking_lot::Mutex;

/// Memory of one size that nobody uses now.
pub struct Spare {
    waiting: Mutex<Vec<Vec<u8>>>,
    most: usize,
}

impl Spare {
    /// Of which at most so many pieces wait.
    pub const fn new(most: usize) -> Spare {
        Spare { waiting: Mutex::new(Vec::new()), most }
    }

    /// A piece as it was lent, if one waits: as long, and with what it held then.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.waiting.lock().pop()
    }

    /// Bytes whose memory comes back here when the last user has dropped them. All that is lent to one `Spare` has one size.
    pub fn lend(&'static self, memory: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { memory, to: self })
    }
}

struct Lent {
    memory: Vec<u8>,
    to: &'static Spare,
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
        static SPARE: Spare = Spare::new(2);
        assert_eq!(SPARE.take(), None);
        let lent: Vec<Bytes> = (1..=3).map(|byte| SPARE.lend(vec![byte; 10])).collect();
        let piece = lent[0].slice(3..);
        drop(lent);
        assert_eq!([SPARE.take(), SPARE.take(), SPARE.take()], [Some(vec![3; 10]), Some(vec![2; 10]), None]);
        assert_eq!(piece, vec![1; 7], "still in use");
        drop(piece);
        assert_eq!(SPARE.take(), Some(vec![1; 10]));
    }
}
