//! The transfer of a ring's request: its entry for the kernel, and its progress.
//!
//! A transfer may take several entries: the kernel may stop early, and its lengths have 32 bits.
//!
//! Locking: none; a transfer belongs to one request at a time.
#![allow(unsafe_code)] // buffers count as filled what the kernel says it has filled

use std::os::fd::AsRawFd;

use bytes::Bytes;
use io_uring::{opcode, squeue, types};

use super::super::buffer::Buffer;

/// The kernel's length has 32 bits and its limit is just under 2 GiB.
const PIECE_BYTES: usize = 1 << 30;

pub(in super::super) enum Transfer {
    Read(Buffer),
    Write(Write),
    ReadPieces(Vec<Buffer>, Vectors),
    WritePieces(WritePieces, Vectors),
    /// `fdatasync`.
    Sync,
    /// `sync_file_range`.
    StartWriteback,
}

pub(in super::super) struct Write {
    pub(super) data: Bytes,
    pub(super) done: usize,
    /// Complete only once durable (`RWF_DSYNC`).
    pub(super) through: bool,
}

pub(in super::super) struct WritePieces {
    pub(super) pieces: Vec<Bytes>,
    pub(super) done: usize,
}

#[derive(Default)]
pub(in super::super) struct Vectors(Vec<libc::iovec>);

// SAFETY: the addresses are those of memory that the same request owns, and only the ring fills them in.
unsafe impl Send for Vectors {}

impl Transfer {
    /// The entry for the rest. Its addresses point into memory that the transfer owns and that does not move
    /// with it.
    pub(super) fn entry(&mut self, file: &impl AsRawFd, offset: u64) -> squeue::Entry {
        let fd = types::Fd(file.as_raw_fd());
        match self {
            Transfer::Read(buffer) => {
                let at = offset + buffer.filled() as u64;
                let spare = buffer.spare();
                opcode::Read::new(fd, spare.as_mut_ptr().cast(), spare.len().min(PIECE_BYTES) as u32)
                    .offset(at)
                    .build()
            }
            Transfer::Write(Write { data, done, through }) => {
                let (at, rest) = (offset + *done as u64, &data[*done..]);
                let flags = if *through { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, rest.as_ptr(), rest.len().min(PIECE_BYTES) as u32)
                    .offset(at)
                    .rw_flags(flags)
                    .build()
            }
            Transfer::ReadPieces(buffers, vectors) => {
                let at = offset + buffers.iter().map(|buffer| buffer.filled() as u64).sum::<u64>();
                let spare = buffers.iter_mut().map(Buffer::spare).filter(|spare| !spare.is_empty());
                vectors.0 = spare.map(|spare| vector(spare.as_mut_ptr().cast(), spare.len())).collect();
                opcode::Readv::new(fd, vectors.0.as_ptr(), vectors.0.len() as u32).offset(at).build()
            }
            Transfer::WritePieces(write, vectors) => {
                vectors.0 = write.rest().map(|rest| vector(rest.as_ptr().cast_mut(), rest.len())).collect();
                let at = offset + write.done as u64;
                opcode::Writev::new(fd, vectors.0.as_ptr(), vectors.0.len() as u32).offset(at).build()
            }
            Transfer::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            // Length 0 means to the end of the file.
            Transfer::StartWriteback => {
                opcode::SyncFileRange::new(fd, 0).flags(libc::SYNC_FILE_RANGE_WRITE).build()
            }
        }
    }

    /// Counts `count` more bytes as transferred. Returns whether it is complete.
    ///
    /// # Safety
    /// The kernel has completed this transfer's last entry with this count.
    pub(super) unsafe fn advance(&mut self, count: usize) -> bool {
        match self {
            Transfer::Read(buffer) => {
                // SAFETY: the kernel has read `count` bytes to the start of the spare memory.
                unsafe { buffer.assume_filled(count) };
                buffer.is_complete()
            }
            Transfer::Write(write) => {
                write.done += count;
                write.done >= write.data.len()
            }
            Transfer::ReadPieces(buffers, _) => {
                let mut left = count;
                for buffer in buffers.iter_mut() {
                    let filled = left.min(buffer.spare().len());
                    // SAFETY: the kernel has filled the buffers in this order, `count` bytes in all.
                    unsafe { buffer.assume_filled(filled) };
                    left -= filled;
                }
                buffers.iter().all(Buffer::is_complete)
            }
            Transfer::WritePieces(write, _) => {
                write.done += count;
                write.done >= write.len()
            }
            Transfer::Sync | Transfer::StartWriteback => true,
        }
    }
}

impl WritePieces {
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let mut done = self.done;
        self.pieces.iter().filter_map(move |piece| {
            let skipped = done.min(piece.len());
            done -= skipped;
            Some(&piece[skipped..]).filter(|rest| !rest.is_empty())
        })
    }
}

fn vector(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}
