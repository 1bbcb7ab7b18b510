//! Replies: read from a connection, checked against their requests, put together.
//!
//! Invariants: memory for data is taken only for a request of ours, and no more than it asked for. Chunks of
//! a read lie within its range, and cover it exactly; their number is bounded, because each has data.
//!
//! Source: `proto.md`, "Simple reply message", "Structured reply chunk message", "Error values".

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use cenote_disk::stream::payload;
use cenote_disk::{Errno, Stream};
use cenote_nbd::wire::{
    CHUNK_DATA, CHUNK_HOLE, CHUNK_IS_ERROR, CHUNK_MAGIC, CHUNK_NONE, DONE, ReplyForm, SIMPLE_REPLY_MAGIC,
};
use tokio::io::{AsyncReadExt, ReadHalf};

use crate::disk::joined;
use crate::error::{ServerError, cleaned};
use crate::requests::{Ask, Kind, Lane, Requests};

const BUFFER_BYTES: usize = 64 << 10;
const SIMPLE_BYTES: usize = 16;
const CHUNK_BYTES: usize = 20;
/// Largest error of a server: its message, and an offset.
const ERROR_BYTES_MAX: usize = 4096 + 14;

/// A connection's replies.
pub(super) struct Replies<'a> {
    reader: ReadHalf<Box<dyn Stream>>,
    buffer: BytesMut,
    requests: &'a Requests,
    lane: Lane,
    form: ReplyForm,
    /// Chunks of incomplete reads, and errors.
    parts: BTreeMap<u64, Parts>,
}

#[derive(Default)]
struct Parts {
    /// By offset.
    data: BTreeMap<u64, Bytes>,
    bytes: u64,
    error: Option<io::Error>,
}

impl Replies<'_> {
    pub(super) fn new(
        reader: ReadHalf<Box<dyn Stream>>,
        requests: &Requests,
        lane: Lane,
        form: ReplyForm,
    ) -> Replies<'_> {
        let (buffer, parts) = (BytesMut::with_capacity(BUFFER_BYTES), BTreeMap::new());
        Replies { reader, buffer, requests, lane, form, parts }
    }

    /// Passes replies on until the connection ends.
    pub(super) async fn receive(mut self) -> Result<Infallible, ServerError> {
        loop {
            self.fill(4).await?;
            let magic = u32::from_be_bytes([self.buffer[0], self.buffer[1], self.buffer[2], self.buffer[3]]);
            match magic {
                SIMPLE_REPLY_MAGIC => self.simple().await?,
                CHUNK_MAGIC if self.form == ReplyForm::Chunks => self.chunk().await?,
                _ => return Err(ServerError::Protocol("a reply has the wrong magic")),
            }
        }
    }

    async fn simple(&mut self) -> Result<(), ServerError> {
        self.fill(SIMPLE_BYTES).await?;
        let mut header = self.buffer.split_to(SIMPLE_BYTES);
        header.advance(4);
        let (error, cookie) = (header.get_u32(), header.get_u64());
        let ask = self.asked(cookie)?;
        let is_read = ask.kind == Kind::Read;
        if self.parts.contains_key(&cookie) || is_read && self.form == ReplyForm::Chunks {
            return Err(ServerError::Protocol("a simple reply where chunks were agreed on"));
        }
        let result = match error {
            0 if is_read => Ok(self.payload(ask.len as usize).await?),
            0 => Ok(Bytes::new()),
            error => Err(told(error, b"")?),
        };
        self.requests.answer(self.lane, cookie, result);
        Ok(())
    }

    async fn chunk(&mut self) -> Result<(), ServerError> {
        self.fill(CHUNK_BYTES).await?;
        let mut header = self.buffer.split_to(CHUNK_BYTES);
        header.advance(4);
        let (flags, kind, cookie) = (header.get_u16(), header.get_u16(), header.get_u64());
        let len = header.get_u32() as usize;
        let ask = self.asked(cookie)?;
        let is_last = flags & DONE != 0;
        match kind {
            CHUNK_NONE if len == 0 && is_last => {}
            CHUNK_DATA if len > 8 && len - 8 <= ask.len as usize => {
                let at = self.payload(8).await?.get_u64();
                let data = self.payload(len - 8).await?;
                self.add(cookie, &ask, at, data)?;
            }
            CHUNK_HOLE if len == 12 => {
                let mut hole = self.payload(12).await?;
                let (at, len) = (hole.get_u64(), hole.get_u32());
                // Checked before memory is taken.
                check_within(&ask, at, len.into())?;
                self.add(cookie, &ask, at, Bytes::from(vec![0; len as usize]))?;
            }
            kind if kind & CHUNK_IS_ERROR != 0 && (6..=ERROR_BYTES_MAX).contains(&len) => {
                let mut error = self.payload(len).await?;
                let (number, message_bytes) = (error.get_u32(), error.get_u16() as usize);
                let message = error.get(..message_bytes);
                let message = message.ok_or(ServerError::Protocol("an error is longer than its chunk"))?;
                let error = told(number, message)?;
                self.parts.entry(cookie).or_default().error.get_or_insert(error);
            }
            _ => return Err(ServerError::Protocol("a chunk has an unknown kind, or the wrong length")),
        }
        if is_last {
            let parts = self.parts.remove(&cookie).unwrap_or_default();
            let result = match parts.error {
                Some(error) => Err(error),
                // Disjoint, within the range, and as long as the whole.
                None if parts.bytes == read_bytes(&ask) => Ok(joined(parts.data.into_values().collect())),
                None => return Err(ServerError::Protocol("a read is answered in part")),
            };
            self.requests.answer(self.lane, cookie, result);
        }
        Ok(())
    }

    fn asked(&self, cookie: u64) -> Result<Arc<Ask>, ServerError> {
        let unasked = ServerError::Protocol("it answers a request that was not made on this connection");
        self.requests.asked(self.lane, cookie).ok_or(unasked)
    }

    fn add(&mut self, cookie: u64, ask: &Ask, at: u64, data: Bytes) -> Result<(), ServerError> {
        let len = data.len() as u64;
        check_within(ask, at, len)?;
        let parts = self.parts.entry(cookie).or_default();
        // Disjoint: the last one to begin before the end also ends last.
        let before = parts.data.range(..at + len).next_back();
        if before.is_some_and(|(start, data)| start + data.len() as u64 > at) {
            return Err(ServerError::Protocol("chunks of a read overlap"));
        }
        parts.bytes += len;
        parts.data.insert(at, data);
        Ok(())
    }

    async fn payload(&mut self, len: usize) -> Result<Bytes, ServerError> {
        Ok(payload(&mut self.reader, &mut self.buffer, len).await?)
    }

    /// Buffers at least `len` bytes.
    async fn fill(&mut self, len: usize) -> Result<(), ServerError> {
        while self.buffer.len() < len {
            self.buffer.reserve(BUFFER_BYTES);
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }
}

/// Bytes that an answer has.
fn read_bytes(ask: &Ask) -> u64 {
    if ask.kind == Kind::Read { ask.len.into() } else { 0 }
}

fn check_within(ask: &Ask, at: u64, len: u64) -> Result<(), ServerError> {
    let end = at.checked_add(len).filter(|_| len > 0 && at >= ask.offset);
    match end {
        Some(end) if end <= ask.offset + read_bytes(ask) => Ok(()),
        _ => Err(ServerError::Protocol("a chunk lies outside the range that was read")),
    }
}

/// A server's error. A server that ends loses its connections: requests wait for its return.
fn told(number: u32, message: &[u8]) -> Result<io::Error, ServerError> {
    if number == Errno::Shutdown as u32 {
        return Err(ServerError::Ending);
    }
    let known = i32::try_from(number).ok().filter(|number| (1..=133).contains(number));
    let error = io::Error::from_raw_os_error(known.unwrap_or(Errno::Io as i32));
    Ok(match message {
        [] => error,
        message => io::Error::new(error.kind(), format!("the server says: {}", cleaned(message))),
    })
}
