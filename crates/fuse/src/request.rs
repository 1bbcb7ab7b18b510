//! Requests in the kernel's byte layout: the header, and a reader of the body.
//!
//! Layout: `fuse_in_header` (40 bytes): len (4), opcode (4), unique (8), nodeid (8), uid (4), gid (4), pid
//! (4), total_extlen (2), padding (2); then the operation's structure; then names, each followed by a NUL;
//! then data.

use bytes::{Bytes, BytesMut};

use crate::abi::IN_HEADER_BYTES;
use crate::vfs::{Caller, Errno, Node, Result};

/// A request, in the kernel's buffer.
#[derive(Debug)]
pub struct Request {
    pub opcode: u32,
    /// Repeated in the reply.
    pub unique: u64,
    pub node: Node,
    pub caller: Caller,
    body: Bytes,
}

impl Request {
    /// `None`: shorter than a header, or of the wrong length.
    pub fn parse(bytes: Bytes) -> Option<Request> {
        let mut fields = Body { rest: &bytes };
        let header = (|| -> Result<_> {
            let (len, opcode) = (fields.u32()?, fields.u32()?);
            let (unique, node) = (fields.u64()?, Node(fields.u64()?));
            let caller = Caller { uid: fields.u32()?, gid: fields.u32()?, pid: fields.u32()? };
            let _extension = fields.u32()?;
            Ok((len, opcode, unique, node, caller))
        })();
        let (len, opcode, unique, node, caller) = header.ok()?;
        if len as usize != bytes.len() {
            return None;
        }
        Some(Request { opcode, unique, node, caller, body: bytes.slice(IN_HEADER_BYTES..) })
    }

    pub fn join(parts: &[&[u8]]) -> Option<Request> {
        let mut bytes = BytesMut::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Request::parse(bytes.freeze())
    }

    pub fn body(&self) -> Body<'_> {
        Body { rest: &self.body }
    }

    /// The last `len_bytes` of the body, without a copy.
    pub fn tail(&self, len_bytes: usize) -> Result<Bytes> {
        let start = self.body.len().checked_sub(len_bytes).ok_or(Errno::INVAL)?;
        Ok(self.body.slice(start..))
    }
}

/// Reads a body from front to back. A missing field is `EINVAL`: the kernel speaks another version.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk::<N>().ok_or(Errno::INVAL)?;
        self.rest = rest;
        Ok(*field)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    pub fn skip(&mut self, len_bytes: usize) -> Result<()> {
        self.rest = self.rest.get(len_bytes..).ok_or(Errno::INVAL)?;
        Ok(())
    }

    /// A name, without its NUL.
    pub fn name(&mut self) -> Result<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Errno::INVAL)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(len: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(len.to_ne_bytes());
        bytes.extend(1u32.to_ne_bytes());
        bytes.extend(77u64.to_ne_bytes());
        bytes.extend(5u64.to_ne_bytes());
        for word in [1000u32, 100, 4242, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_lookup_reads_as_sent() {
        let mut bytes = header(46);
        bytes.extend(b"hello\0");
        let request = Request::parse(bytes.into()).unwrap();
        assert_eq!((request.opcode, request.unique, request.node), (1, 77, Node(5)));
        assert_eq!(request.caller, Caller { uid: 1000, gid: 100, pid: 4242 });
        assert_eq!(request.body().name(), Ok(&b"hello"[..]));
        assert_eq!(request.tail(3).unwrap(), &b"lo\0"[..]);
        assert_eq!(request.tail(7), Err(Errno::INVAL));
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        assert!(Request::parse(Bytes::from_static(b"short")).is_none());
        assert!(Request::parse(header(41).into()).is_none());
        let mut bytes = header(43);
        bytes.extend(b"abc");
        let request = Request::parse(bytes.into()).unwrap();
        assert_eq!(request.body().name(), Err(Errno::INVAL), "no NUL");
        assert_eq!(request.body().u64(), Err(Errno::INVAL));
    }
}
