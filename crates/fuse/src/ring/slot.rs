//! A slot: memory for one request and its answer, shared with the kernel.
//!
//! ```text
//!   0     fuse_in_header, then fuse_out_header
//!   128   the operation's structure
//!   256   fuse_uring_ent_in_out: flags (8), commit_id (8), payload_sz (4), padding (4), reserved (8)
//!   4096  names and data of the request, then the answer without its header
//! ```
//!
//! Ownership: no method may be called while the kernel has the slot; the caller ([`super::Ring`]) keeps
//! track.
#![allow(unsafe_code)] // the memory is shared with the kernel

use std::ffi::c_void;
use std::ptr::null_mut;
use std::{io, slice};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::abi::{IN_HEADER_BYTES, MAX_WRITE_BYTES, OUT_HEADER_BYTES};
use crate::reply::Reply;
use crate::request::Request;

/// `sizeof(struct fuse_uring_req_header)`.
const HEADER_BYTES: usize = 288;
const OPERATION: std::ops::Range<usize> = 128..256;
const UNIQUE_AT: usize = 8;
const COMMIT_ID_AT: usize = 264;
const PAYLOAD_BYTES_AT: usize = 272;
const PAYLOAD_AT: usize = 4096;
const SLOT_BYTES: usize = PAYLOAD_AT + MAX_WRITE_BYTES;
/// Whole pages never given back.
const KEPT_BYTES: usize = 64 << 10;

/// Memory for one request: only touched pages take memory.
pub struct Slot {
    memory: *mut u8,
    /// Payload bytes used: last time, and at most since `give_back`.
    last_bytes: usize,
    most_bytes: usize,
    /// For the kernel.
    parts: Box<[Part; 2]>,
}

/// `struct iovec`.
#[repr(C)]
struct Part {
    base: *mut u8,
    len: usize,
}

// SAFETY: it owns its memory; the addresses in it are of that.
unsafe impl Send for Slot {}

impl Slot {
    pub fn new() -> io::Result<Slot> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory, wherever the kernel likes.
        let memory = unsafe { mmap_anonymous(null_mut(), SLOT_BYTES, protection, flags)? };
        // Slots lie side by side: a huge page would be there whole for the header of one.
        // SAFETY: the new memory; only how it is backed changes.
        unsafe { madvise(memory, SLOT_BYTES, Advice::LinuxNoHugepage) }.ok();
        let memory = memory.cast::<u8>();
        let header = Part { base: memory, len: HEADER_BYTES };
        // SAFETY: within the memory.
        let payload = Part { base: unsafe { memory.add(PAYLOAD_AT) }, len: MAX_WRITE_BYTES };
        Ok(Slot { memory, last_bytes: 0, most_bytes: 0, parts: Box::new([header, payload]) })
    }

    /// Valid as long as the slot.
    pub fn parts_address(&self) -> u64 {
        self.parts.as_ptr() as u64
    }

    /// The request in it (`None`: malformed), its number, and its commit number.
    pub fn request(&mut self) -> (Option<Request>, u64, u64) {
        let payload_bytes = u32_at(self.header(), PAYLOAD_BYTES_AT) as usize;
        self.note_use(payload_bytes.min(MAX_WRITE_BYTES));
        (self.whole_request(), u64_at(self.header(), UNIQUE_AT), u64_at(self.header(), COMMIT_ID_AT))
    }

    fn whole_request(&self) -> Option<Request> {
        let (header, payload) = (self.header(), self.payload());
        let payload_bytes = u32_at(header, PAYLOAD_BYTES_AT) as usize;
        let operation_bytes = (u32_at(header, 0) as usize).checked_sub(IN_HEADER_BYTES + payload_bytes)?;
        Request::join(&[
            &header[..IN_HEADER_BYTES],
            header[OPERATION].get(..operation_bytes)?,
            payload.get(..payload_bytes)?,
        ])
    }

    pub fn put(&mut self, unique: u64, answer: &Result<Reply, Errno>) {
        let (error, reply) = match answer {
            Ok(reply) if reply.len_bytes() <= MAX_WRITE_BYTES => (0, Some(reply)),
            Ok(_) => (-Errno::IO.raw_os_error(), None),
            Err(error) => (-error.raw_os_error(), None),
        };
        let mut len = 0;
        for part in reply.into_iter().flat_map(Reply::parts) {
            self.payload_mut()[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        self.note_use(len);
        let header = self.header_mut();
        header[..4].copy_from_slice(&((OUT_HEADER_BYTES + len) as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[8..16].copy_from_slice(&unique.to_ne_bytes());
        header[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4].copy_from_slice(&(len as u32).to_ne_bytes());
    }

    fn note_use(&mut self, bytes: usize) {
        (self.last_bytes, self.most_bytes) = (bytes, self.most_bytes.max(bytes));
    }

    pub fn is_large(&self) -> bool {
        self.last_bytes > KEPT_BYTES
    }

    /// Gives back the memory of large requests. It must hold no request, and no answer that the kernel has
    /// not read.
    pub fn give_back(&mut self) {
        if self.most_bytes > KEPT_BYTES {
            // SAFETY: within the memory, which stays mapped and reads as zeros afterwards.
            let rest = unsafe { self.memory.add(PAYLOAD_AT + KEPT_BYTES) }.cast::<c_void>();
            // SAFETY: as above.
            unsafe { madvise(rest, MAX_WRITE_BYTES - KEPT_BYTES, Advice::LinuxDontNeed) }.ok();
            self.most_bytes = 0;
        }
    }

    fn header(&self) -> &[u8] {
        // SAFETY: within the memory, which is initialized and not the kernel's now.
        unsafe { slice::from_raw_parts(self.memory, HEADER_BYTES) }
    }

    fn payload(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts(self.memory.add(PAYLOAD_AT), MAX_WRITE_BYTES) }
    }

    fn header_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed by nobody else.
        unsafe { slice::from_raw_parts_mut(self.memory, HEADER_BYTES) }
    }

    fn payload_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.memory.add(PAYLOAD_AT), MAX_WRITE_BYTES) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: mapped so, and given up by the kernel.
        unsafe { munmap(self.memory.cast::<c_void>(), SLOT_BYTES) }.ok();
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Caller, Node};

    fn slot(opcode: u32, operation: &[u8], payload: &[u8]) -> Slot {
        let mut slot = Slot::new().unwrap();
        let len = IN_HEADER_BYTES + operation.len() + payload.len();
        let mut header: Vec<u8> = [len as u32, opcode].iter().flat_map(|word| word.to_ne_bytes()).collect();
        header.extend([77u64, 5].iter().flat_map(|word| word.to_ne_bytes()));
        header.extend([1000u32, 100, 4242, 0].iter().flat_map(|word| word.to_ne_bytes()));
        slot.header_mut()[..header.len()].copy_from_slice(&header);
        slot.header_mut()[OPERATION][..operation.len()].copy_from_slice(operation);
        slot.header_mut()[COMMIT_ID_AT..COMMIT_ID_AT + 8].copy_from_slice(&9u64.to_ne_bytes());
        let payload_bytes = (payload.len() as u32).to_ne_bytes();
        slot.header_mut()[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4].copy_from_slice(&payload_bytes);
        slot.payload_mut()[..payload.len()].copy_from_slice(payload);
        slot
    }

    #[test]
    fn a_request_is_put_together_from_its_parts() {
        let (request, unique, commit_id) = slot(8, &[1; 16], b"name\0").request();
        let request = request.unwrap();
        assert_eq!((request.opcode, request.unique, request.node), (8, 77, Node(5)));
        assert_eq!((unique, commit_id), (77, 9));
        assert_eq!(request.caller, Caller { uid: 1000, gid: 100, pid: 4242 });
        let mut body = request.body();
        body.skip(16).unwrap();
        assert_eq!(body.name(), Ok(&b"name"[..]));
    }

    #[test]
    fn lengths_that_cannot_be_are_no_request() {
        for (at, len) in [(0, 3), (0, 1 << 30), (PAYLOAD_BYTES_AT, 1 << 30), (PAYLOAD_BYTES_AT, u32::MAX)] {
            let mut slot = slot(8, &[1; 16], b"name\0");
            slot.header_mut()[at..at + 4].copy_from_slice(&len.to_ne_bytes());
            let (request, unique, commit_id) = slot.request();
            assert!(request.is_none() && (unique, commit_id) == (77, 9), "{len} at {at}");
        }
    }

    #[test]
    fn an_answer_lies_where_the_kernel_looks_for_it() {
        let mut slot = slot(15, &[], &[]);
        let data = vec![bytes::Bytes::from_static(b"con"), bytes::Bytes::from_static(b"tent")];
        slot.put(77, &Ok(Reply { fields: vec![7], data }));
        assert_eq!(&slot.payload()[..8], b"\x07content");
        assert_eq!((u32_at(slot.header(), 0), u32_at(slot.header(), 4)), (24, 0));
        assert_eq!((u64_at(slot.header(), 8), u32_at(slot.header(), PAYLOAD_BYTES_AT)), (77, 8));
        slot.put(78, &Err(Errno::NOENT));
        assert_eq!((u32_at(slot.header(), 0), u32_at(slot.header(), 4) as i32), (16, -2));
        let much = bytes::Bytes::from(vec![0; MAX_WRITE_BYTES + 1]);
        slot.put(79, &Ok(Reply::data(vec![much])));
        assert_eq!((u32_at(slot.header(), 0), u32_at(slot.header(), 4) as i32), (16, -5));
    }

    #[test]
    fn what_a_large_request_took_goes_back() {
        let mut slot = slot(16, &[1; 40], &vec![3; MAX_WRITE_BYTES]);
        assert!(slot.request().0.is_some() && slot.is_large());
        slot.put(77, &Ok(Reply::data(vec![vec![4; 100].into()])));
        assert!(!slot.is_large(), "the answer is small");
        slot.give_back();
        let left = slot.payload().iter().filter(|byte| [3, 4].contains(*byte)).count();
        assert_eq!(left, KEPT_BYTES);
        slot.put(78, &Ok(Reply::data(vec![vec![5; KEPT_BYTES + 1].into()])));
        assert!(slot.is_large());
        slot.give_back();
        assert_eq!(slot.payload()[KEPT_BYTES], 0);
    }
}
