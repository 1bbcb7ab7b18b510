//! The memory of a read: filled from front to back by the kernel, never zeroed first.
//!
//! ```text
//!   vec:   | lead: to the alignment | filled ........ | spare ...... |
//!                                   ^ ends on a multiple of the alignment, for direct I/O
//! ```
//!
//! Large buffers are reused ([`BufferPool`]).
//!
//! Zeroing 128 KiB first would cost a quarter of a warm read; hence the `unsafe` here. Invariant: the first
//! `vec.len()` bytes are initialised, and the capacity never changes, so the memory does not move while the
//! kernel has its address.
//!
//! Locking: a buffer belongs to one transfer at a time. The static list of spare buffers has its own lock
//! (`buffer_pool`).
#![allow(unsafe_code)] // uninitialised memory handed to read calls, which say how much of it they filled

use crate::buffer_pool::BufferPool;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// A merged read of 1 MiB, with room for any alignment.
const POOLED_BYTES: usize = (1 << 20) + (16 << 10);
/// Shorter reads don't use the pool, because a slice keeps a whole buffer alive.
const LEAST_POOLED_BYTES: usize = 512 << 10;
/// 16 MiB at most.
static POOL: BufferPool = BufferPool::new(16);

pub(super) struct Buffer {
    vec: Vec<u8>,
    lead: usize,
    /// Bytes that the transfer may fill.
    room: usize,
    /// Less than `room` where direct I/O rounds up beyond the end of a file.
    need: usize,
}

impl Buffer {
    /// Memory for `need` bytes, beginning and ending on a multiple of `align`, a power of two.
    pub(super) fn new(need: usize, align: usize) -> Buffer {
        let room = need.next_multiple_of(align);
        let capacity = room + align - 1;
        let mut vec = if (LEAST_POOLED_BYTES..=POOLED_BYTES).contains(&capacity) {
            let mut vec = POOL.take().unwrap_or_else(|| Vec::with_capacity(POOLED_BYTES));
            vec.clear();
            vec
        } else {
            Vec::with_capacity(capacity)
        };
        let lead = vec.as_ptr().align_offset(align);
        vec.resize(lead, 0);
        Buffer { vec, lead, room, need }
    }

    pub(super) fn filled(&self) -> usize {
        self.vec.len() - self.lead
    }

    pub(super) fn is_complete(&self) -> bool {
        self.filled() >= self.need
    }

    /// Up to `len` of the filled bytes, from `from` on.
    pub(super) fn into_bytes(self, from: usize, len: usize) -> Bytes {
        let start = (self.lead + from).min(self.vec.len());
        let end = (start + len).min(self.vec.len());
        let whole = start == 0 && end == self.vec.len();
        let is_spare = self.vec.capacity() == POOLED_BYTES;
        let bytes = if is_spare { POOL.lend(self.vec) } else { Bytes::from(self.vec) };
        if whole { bytes } else { bytes.slice(start..end) }
    }

    pub(super) fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        let left = self.room - self.filled();
        &mut self.vec.spare_capacity_mut()[..left]
    }

    /// Counts the next bytes of the spare memory as filled.
    ///
    /// # Safety
    /// The next `count` bytes of the spare memory have been initialised.
    pub(super) unsafe fn assume_filled(&mut self, count: usize) {
        let left = self.room - self.filled();
        assert!(count <= left, "the kernel wrote {count} bytes where {left} were asked for");
        // SAFETY: within capacity, as just checked; initialised, as the caller promises.
        unsafe { self.vec.set_len(self.vec.len() + count) };
    }

    /// Reads once, waiting for the device. Returns zero at the end of the file.
    pub(super) fn read(&mut self, file: &File, offset: u64) -> io::Result<usize> {
        let at = offset + self.filled() as u64;
        let (filled, _) = rustix::io::pread(file, self.spare(), at)?;
        let count = filled.len();
        // SAFETY: pread returned these very bytes as initialised.
        unsafe { self.assume_filled(count) };
        Ok(count)
    }

    /// Reads once, from the page cache only: `WouldBlock` if the next byte is not cached.
    pub(super) fn read_cached(&mut self, file: &File, offset: u64) -> io::Result<usize> {
        let at = i64::try_from(offset + self.filled() as u64).map_err(|_| io::ErrorKind::InvalidInput)?;
        let spare = self.spare();
        let target = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
        // SAFETY: one vector over memory that is ours and writable for its whole length; the descriptor is
        // open.
        let count = unsafe { libc::preadv2(file.as_raw_fd(), &target, 1, at, libc::RWF_NOWAIT) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel has written this many bytes at the start of the vector.
        unsafe { self.assume_filled(count) };
        Ok(count)
    }
}
