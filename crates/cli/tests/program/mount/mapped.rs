//! A file mapped into memory.
#![allow(unsafe_code)] // There is no other way to map a file.

use std::fs::File;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// Shares the first `len` bytes of a file with `work`, and returns when what it has changed is in the file.
pub fn with_mapped(file: &File, len: usize, work: impl FnOnce(&mut [u8])) {
    // SAFETY: the mapping is as long as the slice, nobody else in this process has it, and it outlives
    // `work`.
    unsafe {
        let at =
            mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
                .unwrap();
        work(std::slice::from_raw_parts_mut(at.cast(), len));
        msync(at, len, MsyncFlags::SYNC).unwrap();
        munmap(at, len).unwrap();
    }
}
