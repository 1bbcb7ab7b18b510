//! The running sum of a stream: fletcher4 of all bytes so far, in the sender's byte order.

use cenote_codec::fletcher::fletcher4_after;
use cenote_format::bytes::Endian;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum {
    words: [u64; 4],
    endian: Endian,
}

impl Sum {
    pub(crate) fn new(endian: Endian) -> Sum {
        Sum { words: [0; 4], endian }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.words = fletcher4_after(self.words, bytes, self.endian == Endian::Big);
    }

    pub(crate) fn endian(&self) -> Endian {
        self.endian
    }

    pub(crate) fn words(&self) -> [u64; 4] {
        self.words
    }
}
