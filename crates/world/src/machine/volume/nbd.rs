//! A client of volumes, by NBD with simple replies.
//!
//! Source: the NBD project's `doc/proto.md`.

use std::io::Result;

use bytes::BufMut;
use cenote_fuse::Errno;
use cenote_nbd::wire::{
    NBD_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, option, reply,
};
use cenote_runtime::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::{Reply, is_whole};

/// `NBD_FLAG_C_FIXED_NEWSTYLE | NBD_FLAG_C_NO_ZEROES`.
const CLIENT_FLAGS: u32 = 3;
/// `NBD_CMD_*`.
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
/// `NBD_CMD_FLAG_*`.
const FUA: u16 = 1 << 0;
const NO_HOLE: u16 = 1 << 1;

/// A connection to one export.
pub struct Connection {
    stream: DuplexStream,
    rng: Rng,
    cookie: u64,
}

impl Connection {
    /// Opens an export. `None`: it is refused.
    ///
    /// # Errors
    /// The connection ends.
    pub async fn open(mut stream: DuplexStream, export: &str, rng: Rng) -> Result<Option<Connection>> {
        let magic = (stream.read_u64().await?, stream.read_u64().await?);
        assert_eq!(magic, (NBD_MAGIC, OPTION_MAGIC), "no NBD server");
        stream.read_u16().await?;
        stream.write_u32(CLIENT_FLAGS).await?;
        let mut go = Vec::new();
        go.put_u64(OPTION_MAGIC);
        go.put_u32(option::GO);
        go.put_u32(4 + export.len() as u32 + 2);
        go.put_u32(export.len() as u32);
        go.put_slice(export.as_bytes());
        go.put_u16(0);
        stream.write_all(&go).await?;
        loop {
            assert_eq!(stream.read_u64().await?, OPTION_REPLY_MAGIC, "no reply to an option");
            stream.read_u32().await?;
            let kind = stream.read_u32().await?;
            let mut data = vec![0; stream.read_u32().await? as usize];
            stream.read_exact(&mut data).await?;
            match kind {
                reply::ACK => return Ok(Some(Connection { stream, rng, cookie: 0 })),
                kind if reply::is_error(kind) => return Ok(None),
                _ => {}
            }
        }
    }

    /// Sends a request, and reads its reply.
    async fn ask(&mut self, command: u16, flags: u16, offset: u64, len: u64, data: &[u8]) -> Result<Reply> {
        self.cookie += 1;
        let mut request = Vec::with_capacity(28 + data.len());
        request.put_u32(REQUEST_MAGIC);
        request.put_u16(flags);
        request.put_u16(command);
        request.put_u64(self.cookie);
        request.put_u64(offset);
        request.put_u32(len as u32);
        request.put_slice(data);
        self.stream.write_all(&request).await?;
        assert_eq!(self.stream.read_u32().await?, SIMPLE_REPLY_MAGIC, "no simple reply");
        let error = self.stream.read_u32().await?;
        assert_eq!(self.stream.read_u64().await?, self.cookie, "a reply to another request");
        if error != 0 {
            return Ok(Err(Errno::from_raw_os_error(error as i32)));
        }
        let mut data = vec![0; if command == READ { len as usize } else { 0 }];
        self.stream.read_exact(&mut data).await?;
        Ok(Ok(data.into()))
    }

    /// Reads.
    ///
    /// # Errors
    /// The connection ends; within: the server's error.
    pub async fn read(&mut self, offset: u64, len: u64) -> Result<Reply> {
        self.ask(READ, 0, offset, len, &[]).await
    }

    /// Writes.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn write(&mut self, offset: u64, data: &[u8], is_durable: bool) -> Result<Reply> {
        let flags = if is_durable { FUA } else { 0 };
        self.ask(WRITE, flags, offset, data.len() as u64, data).await
    }

    /// Zeroes.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn zero(&mut self, offset: u64, len: u64) -> Result<Reply> {
        let (command, flags) = match self.rng.below(3) {
            0 if is_whole(offset, len) => (TRIM, 0),
            1 => (WRITE_ZEROES, NO_HOLE),
            _ => (WRITE_ZEROES, 0),
        };
        self.ask(command, flags, offset, len, &[]).await
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn flush(&mut self) -> Result<Reply> {
        self.ask(FLUSH, 0, 0, 0, &[]).await
    }
}
