//! A client of volumes, by NBD with simple replies.
//!
//! Source: the NBD project's `doc/proto.md`.

use std::io::{Error, Result};

use bytes::{BufMut, Bytes};
use cenote_nbd::wire::{
    NBD_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, option, reply,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// `NBD_FLAG_C_FIXED_NEWSTYLE | NBD_FLAG_C_NO_ZEROES`.
const CLIENT_FLAGS: u32 = 3;
/// `NBD_CMD_*`.
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;

/// A connection to one export.
pub struct Connection {
    stream: DuplexStream,
    cookie: u64,
}

fn broken(why: &str) -> Error {
    Error::other(why.to_owned())
}

impl Connection {
    /// Opens an export. `None`: it is refused.
    ///
    /// # Errors
    /// The connection ends.
    pub async fn open(mut stream: DuplexStream, export: &str) -> Result<Option<Connection>> {
        if (stream.read_u64().await?, stream.read_u64().await?) != (NBD_MAGIC, OPTION_MAGIC) {
            return Err(broken("no NBD server"));
        }
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
            if stream.read_u64().await? != OPTION_REPLY_MAGIC {
                return Err(broken("no reply to an option"));
            }
            stream.read_u32().await?;
            let kind = stream.read_u32().await?;
            let mut data = vec![0; stream.read_u32().await? as usize];
            stream.read_exact(&mut data).await?;
            match kind {
                reply::ACK => return Ok(Some(Connection { stream, cookie: 0 })),
                kind if kind >> 31 == 1 => return Ok(None),
                _ => {}
            }
        }
    }

    /// Sends a request. Returns the data of its reply, or its error number.
    async fn ask(
        &mut self,
        command: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> Result<std::result::Result<Bytes, u32>> {
        self.cookie += 1;
        let mut request = Vec::with_capacity(28 + data.len());
        request.put_u32(REQUEST_MAGIC);
        request.put_u16(0);
        request.put_u16(command);
        request.put_u64(self.cookie);
        request.put_u64(offset);
        request.put_u32(len);
        request.put_slice(data);
        self.stream.write_all(&request).await?;
        if self.stream.read_u32().await? != SIMPLE_REPLY_MAGIC {
            return Err(broken("no simple reply"));
        }
        let error = self.stream.read_u32().await?;
        if self.stream.read_u64().await? != self.cookie {
            return Err(broken("a reply to another request"));
        }
        if error != 0 {
            return Ok(Err(error));
        }
        let mut data = vec![0; if command == READ { len as usize } else { 0 }];
        self.stream.read_exact(&mut data).await?;
        Ok(Ok(data.into()))
    }

    /// Reads.
    ///
    /// # Errors
    /// The connection ends; within: the server's error number.
    pub async fn read(&mut self, offset: u64, len: u32) -> Result<std::result::Result<Bytes, u32>> {
        self.ask(READ, offset, len, &[]).await
    }

    /// Writes.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn write(&mut self, offset: u64, data: &[u8]) -> Result<std::result::Result<Bytes, u32>> {
        self.ask(WRITE, offset, data.len() as u32, data).await
    }

    /// Zeroes.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn zero(&mut self, offset: u64, len: u32) -> Result<std::result::Result<Bytes, u32>> {
        self.ask(WRITE_ZEROES, offset, len, &[]).await
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn flush(&mut self) -> Result<std::result::Result<Bytes, u32>> {
        self.ask(FLUSH, 0, 0, &[]).await
    }
}
