//! The connection to the kernel, `/dev/fuse`: requests in, replies and notices out.
//!
//! Locking: none. The kernel hands each request to one reader, and takes each `writev` as one message; any
//! thread may read or write.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use crate::abi::{IN_HEADER_BYTES, MAX_WRITE_BYTES, OUT_HEADER_BYTES, WRITE_IN_BYTES};
use crate::reply::Reply;
use crate::request::Request;

/// The largest request; the kernel requires at least 8 KiB.
const BUFFER_BYTES: usize = IN_HEADER_BYTES + WRITE_IN_BYTES + MAX_WRITE_BYTES;
/// A larger request keeps the buffer it was read into; a smaller one is copied out of it. Written data stays
/// in memory until its txg is on disk, so the size of its buffer counts.
const KEEP_BYTES: usize = BUFFER_BYTES / 8 * 7;
/// Most slices of a `writev` (`UIO_MAXIOV`).
const MAX_SLICES: usize = 1024;

/// A clone costs one atomic increment.
#[derive(Debug, Clone)]
pub struct Channel(Arc<OwnedFd>);

impl Channel {
    pub fn new(device: OwnedFd) -> Channel {
        Channel(Arc::new(device))
    }

    /// The next request; `None` after an unmount.
    ///
    /// # Errors
    /// The connection broke; [`Errno::AGAIN`]: there is none, and the descriptor does not block.
    pub fn read(&self, buffer: &mut Vec<u8>) -> Result<Option<Request>, Errno> {
        loop {
            buffer.clear();
            buffer.reserve(BUFFER_BYTES);
            match rustix::io::read(&*self.0, spare_capacity(buffer)) {
                Ok(0) | Err(Errno::NODEV) => return Ok(None),
                Ok(len) if len > KEEP_BYTES => {
                    let bytes = Bytes::from(std::mem::take(buffer));
                    return Request::parse(bytes).map(Some).ok_or(Errno::INVAL);
                }
                Ok(_) => {
                    let bytes = Bytes::copy_from_slice(buffer);
                    return Request::parse(bytes).map(Some).ok_or(Errno::INVAL);
                }
                // ENOENT: the process was killed before its request was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// From now on, reads do not wait for a request.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop_blocking(&self) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(&*self.0, true)
    }

    /// Its descriptor of `/dev/fuse`.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub fn reply(&self, unique: u64, reply: Result<Reply, Errno>) {
        match reply {
            Ok(reply) => self.send(unique, 0, &reply),
            Err(error) => self.send(unique, -error.raw_os_error(), &Reply::empty()),
        }
    }

    /// Sends a notice. Returns whether the kernel accepted it.
    pub fn notify(&self, code: i32, notice: &Reply) -> bool {
        self.try_send(0, code, notice).is_ok()
    }

    fn send(&self, unique: u64, error: i32, reply: &Reply) {
        match self.try_send(unique, error, reply) {
            // ENOENT: the process no longer waits. ENODEV: unmounted meanwhile.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
            // A malformed reply was refused; the process must not wait forever.
            Err(_) => drop(self.try_send(unique, -Errno::IO.raw_os_error(), &Reply::empty())),
        }
    }

    fn try_send(&self, unique: u64, error: i32, reply: &Reply) -> Result<(), Errno> {
        let joined;
        let data: &[Bytes] = if reply.data.len() + 2 > MAX_SLICES {
            joined = [Bytes::from(reply.data.concat())];
            &joined
        } else {
            &reply.data
        };
        let len = OUT_HEADER_BYTES + reply.len_bytes();
        let mut header = [0; OUT_HEADER_BYTES];
        header[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[8..].copy_from_slice(&unique.to_ne_bytes());
        let mut slices = Vec::with_capacity(2 + data.len());
        slices.push(IoSlice::new(&header));
        slices.push(IoSlice::new(&reply.fields));
        slices.extend(data.iter().map(|part| IoSlice::new(part)));
        loop {
            match rustix::io::writev(&*self.0, &slices) {
                Err(Errno::INTR) => {}
                result => return result.map(|_| ()),
            }
        }
    }
}
