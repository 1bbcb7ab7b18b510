//! A stream in a file that can be read at any place.
//!
//! Idea: some work on streams needs a record again long after it went by. The caller has the file; this crate
//! gets only its positional read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cenote_format::bytes::Endian;
use cenote_format::stream::{DRR_BYTES, Record};
use tokio::io::{AsyncRead, BufReader, ReadBuf};

use crate::error::{Result, StreamError};

const BUFFER_BYTES: usize = 256 << 10;

type ReadAt = dyn Fn(u64, &mut [u8]) -> io::Result<usize> + Send + Sync;

/// A file with a stream.
#[derive(Clone)]
pub struct StreamFile(Arc<ReadAt>);

/// Reads a file from a position.
struct FromFile {
    file: StreamFile,
    at: u64,
}

impl StreamFile {
    /// From a positional read, which returns 0 at the end of the file.
    pub fn new(read_at: impl Fn(u64, &mut [u8]) -> io::Result<usize> + Send + Sync + 'static) -> StreamFile {
        StreamFile(Arc::new(read_at))
    }

    /// Its bytes from a position on.
    pub fn from(&self, at: u64) -> Box<dyn AsyncRead + Send + Unpin> {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, FromFile { file: self.clone(), at }))
    }

    /// Fills a buffer.
    ///
    /// # Errors
    /// The file ends before, or can't be read.
    pub fn read_exact(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        let mut read = 0;
        while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match (self.0)(at.saturating_add(read as u64), rest) {
                Ok(0) => return Err(StreamError::Incomplete),
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StreamError::Read(error)),
            }
        }
        Ok(())
    }

    /// The record at a position. Its sum is not verified.
    ///
    /// # Errors
    /// No record; the file can't be read.
    pub fn record(&self, at: u64, endian: Endian) -> Result<Record> {
        let mut raw = [0; DRR_BYTES];
        self.read_exact(at, &mut raw)?;
        Ok(Record::decode(&raw, endian)?)
    }

    /// The payload of the record at a position.
    ///
    /// # Errors
    /// The file ends before, or can't be read.
    pub fn payload(&self, at: u64, record: &Record) -> Result<Bytes> {
        // `Record::decode` has limited the length.
        let mut payload = vec![0; usize::try_from(record.payload_bytes()).unwrap_or(0)];
        self.read_exact(at.saturating_add(DRR_BYTES as u64), &mut payload)?;
        Ok(payload.into())
    }
}

impl AsyncRead for FromFile {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let count = (this.file.0)(this.at, buffer.initialize_unfilled())?;
        buffer.advance(count);
        this.at += count as u64;
        Poll::Ready(Ok(()))
    }
}
