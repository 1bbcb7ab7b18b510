//! Constants and layouts of the protocol. All integers are big-endian.
//!
//! ```text
//!   greeting   NBDMAGIC IHAVEOPT flags:u16            client: flags:u32
//!   option     IHAVEOPT option:u32 length:u32 data    reply: magic option:u32 kind:u32 length:u32 data
//!   request    magic:u32 flags:u16 command:u16 cookie:u64 offset:u64 length:u32 (extended: u64) data
//!   reply      simple: magic:u32 error:u32 cookie:u64 data
//!              chunks: magic:u32 flags:u16 kind:u16 cookie:u64 length:u32 payload
//!              extended chunks: magic:u32 flags:u16 kind:u16 cookie:u64 offset:u64 length:u64 payload
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use cenote_disk::{Errno, Failure};

use crate::export::Extent;

/// `NBDMAGIC`
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Magic of option replies.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_REQUEST_MAGIC`
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// `NBD_EXTENDED_REQUEST_MAGIC`
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// `NBD_SIMPLE_REPLY_MAGIC`
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// `NBD_EXTENDED_REPLY_MAGIC`
pub const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flag `NBD_FLAG_FIXED_NEWSTYLE`.
pub const FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag `NBD_FLAG_NO_ZEROES`.
pub const NO_ZEROES: u16 = 2;

/// Options, `NBD_OPT_*`.
pub mod option {
    #![allow(missing_docs)] // names of the protocol
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Option replies, `NBD_REP_*`.
pub mod reply {
    #![allow(missing_docs)] // names of the protocol
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR + 1;
    pub const ERR_POLICY: u32 = ERROR + 2;
    pub const ERR_INVALID: u32 = ERROR + 3;
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR + 10;

    /// Whether a reply is an error.
    pub fn is_error(kind: u32) -> bool {
        kind & ERROR != 0
    }
}

/// Information types, `NBD_INFO_*`.
pub mod info {
    #![allow(missing_docs)] // names of the protocol
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export, `NBD_FLAG_*`.
pub mod can {
    #![allow(missing_docs)] // names of the protocol
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const FLUSH: u16 = 1 << 2;
    pub const FUA: u16 = 1 << 3;
    pub const TRIM: u16 = 1 << 5;
    pub const WRITE_ZEROES: u16 = 1 << 6;
    pub const ROTATIONAL: u16 = 1 << 4;
    pub const DF: u16 = 1 << 7;
    pub const MULTI_CONN: u16 = 1 << 8;
    pub const CACHE: u16 = 1 << 10;
    pub const FAST_ZERO: u16 = 1 << 11;
}

/// Requests, `NBD_CMD_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // names of the protocol
pub enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    Unknown,
}

impl From<u16> for Command {
    fn from(number: u16) -> Command {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            _ => Command::Unknown,
        }
    }
}

impl Command {
    /// Its number; none: unknown.
    pub fn number(self) -> Option<u16> {
        (self != Command::Unknown).then_some(self as u16)
    }
}

/// Request flags, `NBD_CMD_FLAG_*`.
pub mod flag {
    #![allow(missing_docs)] // names of the protocol
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// [`flag`]s.
    pub flags: u16,
    /// The command.
    pub command: Command,
    /// Identifies the reply.
    pub cookie: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Length of the range, or of the payload.
    pub len: u64,
}

impl Request {
    /// Size of a header.
    pub const BYTES: usize = 28;
    /// Size of an extended header.
    pub const EXTENDED_BYTES: usize = 32;

    /// Decodes a header; `None` if its magic is wrong or it is too short.
    pub fn decode(header: &[u8], is_extended: bool) -> Option<Request> {
        let field = |at: usize, len: usize| {
            let bytes = header.get(at..at + len)?;
            Some(bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
        };
        let (magic, len_bytes) = if is_extended { (EXTENDED_REQUEST_MAGIC, 8) } else { (REQUEST_MAGIC, 4) };
        if field(0, 4)? != u64::from(magic) {
            return None;
        }
        Some(Request {
            flags: field(4, 2)? as u16,
            command: Command::from(field(6, 2)? as u16),
            cookie: field(8, 8)?,
            offset: field(16, 8)?,
            len: field(24, len_bytes)?,
        })
    }

    /// Encodes an unextended header. `None`: an unknown command, or a length beyond 32 bits.
    pub fn encode(&self) -> Option<[u8; Request::BYTES]> {
        let mut header = BytesMut::with_capacity(Request::BYTES);
        header.put_u32(REQUEST_MAGIC);
        header.put_u16(self.flags);
        header.put_u16(self.command.number()?);
        header.put_u64(self.cookie);
        header.put_u64(self.offset);
        header.put_u32(self.len.try_into().ok()?);
        header.as_ref().try_into().ok()
    }

    /// Length of the payload after the header.
    pub fn payload_bytes(&self, is_extended: bool) -> u64 {
        let has = match is_extended {
            true => self.flags & flag::PAYLOAD_LEN != 0,
            false => self.command == Command::Write,
        };
        if has { self.len } else { 0 }
    }
}

/// Form of replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplyForm {
    /// One header and all data.
    #[default]
    Simple,
    /// Chunks: data, holes, errors with their offset.
    Chunks,
    /// Chunks with 64-bit lengths.
    Extended,
}

/// Chunk flag `NBD_REPLY_FLAG_DONE`.
pub const DONE: u16 = 1;
/// `NBD_REPLY_TYPE_NONE`
pub const CHUNK_NONE: u16 = 0;
/// `NBD_REPLY_TYPE_OFFSET_DATA`
pub const CHUNK_DATA: u16 = 1;
/// `NBD_REPLY_TYPE_OFFSET_HOLE`
pub const CHUNK_HOLE: u16 = 2;
const CHUNK_STATUS: u16 = 5;
const CHUNK_STATUS_EXT: u16 = 6;
/// Bit of chunks with an error.
pub const CHUNK_IS_ERROR: u16 = 1 << 15;
const CHUNK_ERROR: u16 = CHUNK_IS_ERROR + 1;
/// Longest error message sent.
const MESSAGE_BYTES: usize = 1 << 10;

/// Builds the reply to one request as pieces. Data is not copied.
#[derive(Debug)]
pub struct Replies {
    form: ReplyForm,
    cookie: u64,
    offset: u64,
    pieces: Vec<Bytes>,
}

impl Replies {
    /// Starts the reply to a request.
    pub fn to(form: ReplyForm, request: &Request) -> Replies {
        Replies { form, cookie: request.cookie, offset: request.offset, pieces: Vec::with_capacity(2) }
    }

    /// The pieces to send.
    pub fn pieces(self) -> Vec<Bytes> {
        self.pieces
    }

    /// Success without data.
    pub fn done(&mut self) {
        match self.form {
            ReplyForm::Simple => self.simple(0),
            _ => self.chunk(DONE, CHUNK_NONE, 0, BytesMut::new()),
        }
    }

    /// Failure.
    pub fn failed(&mut self, failure: &Failure) {
        if self.form == ReplyForm::Simple {
            return self.simple(failure.errno as u32);
        }
        let mut end = failure.message.len().min(MESSAGE_BYTES);
        while !failure.message.is_char_boundary(end) {
            end -= 1;
        }
        let message = &failure.message.as_bytes()[..end];
        let mut payload = BytesMut::with_capacity(6 + message.len());
        payload.put_u32(failure.errno as u32);
        payload.put_u16(message.len() as u16);
        payload.put_slice(message);
        self.chunk(DONE, CHUNK_ERROR, 0, payload);
    }

    /// Data read. A simple reply must contain all of it.
    pub fn data(&mut self, offset: u64, data: Bytes, is_last: bool) {
        match self.form {
            ReplyForm::Simple => self.simple(0),
            _ => {
                let mut payload = BytesMut::with_capacity(8);
                payload.put_u64(offset);
                self.chunk(if is_last { DONE } else { 0 }, CHUNK_DATA, data.len() as u64, payload);
            }
        }
        self.pieces.push(data);
    }

    /// A hole in a read range, below 4 GiB. Chunks only.
    pub fn hole(&mut self, offset: u64, len: u32, is_last: bool) {
        let mut payload = BytesMut::with_capacity(12);
        payload.put_u64(offset);
        payload.put_u32(len);
        self.chunk(if is_last { DONE } else { 0 }, CHUNK_HOLE, 0, payload);
    }

    /// Extents of a context. Chunks only.
    pub fn status(&mut self, context: u32, extents: &[Extent], is_last: bool) {
        let is_extended = self.form == ReplyForm::Extended;
        let mut payload = BytesMut::with_capacity(8 + 16 * extents.len());
        payload.put_u32(context);
        if is_extended {
            payload.put_u32(extents.len() as u32);
        }
        for extent in extents {
            match is_extended {
                true => {
                    payload.put_u64(extent.len_bytes);
                    payload.put_u64(extent.flags.into());
                }
                false => {
                    payload.put_u32(extent.len_bytes as u32);
                    payload.put_u32(extent.flags);
                }
            }
        }
        let kind = if is_extended { CHUNK_STATUS_EXT } else { CHUNK_STATUS };
        self.chunk(if is_last { DONE } else { 0 }, kind, 0, payload);
    }

    fn simple(&mut self, error: u32) {
        let mut header = BytesMut::with_capacity(16);
        header.put_u32(SIMPLE_REPLY_MAGIC);
        header.put_u32(error);
        header.put_u64(self.cookie);
        self.pieces.push(header.freeze());
    }

    fn chunk(&mut self, flags: u16, kind: u16, more_bytes: u64, payload: BytesMut) {
        let len = payload.len() as u64 + more_bytes;
        let mut header = BytesMut::with_capacity(32 + payload.len());
        let is_extended = self.form == ReplyForm::Extended;
        header.put_u32(if is_extended { EXTENDED_CHUNK_MAGIC } else { CHUNK_MAGIC });
        header.put_u16(flags);
        header.put_u16(kind);
        header.put_u64(self.cookie);
        match is_extended {
            true => {
                header.put_u64(self.offset);
                header.put_u64(len);
            }
            false => header.put_u32(len as u32),
        }
        header.put_slice(&payload);
        self.pieces.push(header.freeze());
    }
}

pub(crate) fn invalid(why: &str) -> Failure {
    Failure::new(Errno::Invalid, why)
}
