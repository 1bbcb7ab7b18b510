//! Reads a stream: verified records with their payloads.
//!
//! Idea: a stream is read record by record and never beyond its end, so the caller can read further data from
//! the same pipe. The first record shows the byte order. A record's sum is checked when read and covers the
//! payload before it, so [`StreamReader::next`] reads one record ahead to verify a payload.
//!
//! ```text
//!   stream    BEGIN  records ...  END
//!   package   BEGIN  END   stream  stream ...   END
//! ```
//!
//! Source: OpenZFS `dmu_recv.c` (`receive_read_payload_and_next_header`), `libzfs_sendrecv.c`
//! (`zfs_receive_package`).

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::FormatError;
use cenote_format::bytes::Endian;
use cenote_format::stream::{DRR_BYTES, DRR_CHECKSUM_AT, End, HeaderType, Record, checksum_of};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::{Result, StreamError};
use crate::sum::Sum;

/// A record and its payload.
#[derive(Debug, Clone)]
pub struct Item {
    /// The record.
    pub record: Record,
    /// Its payload with padding, [`Record::payload_bytes`] long.
    pub payload: Bytes,
    /// Bytes of the stream up to the end of the payload.
    pub end_bytes: u64,
    /// It belongs to the package, not to one of its streams.
    pub of_package: bool,
}

/// Reads records.
pub struct StreamReader {
    source: Box<dyn AsyncRead + Send + Unpin>,
    state: State,
    /// The next record, whose sum covers the payload before it.
    ahead: Option<Record>,
    sum: Sum,
    read_bytes: u64,
    in_package: bool,
}

/// The reader's position in the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the start of the input, or of a stream within a package.
    Outside,
    /// After the BEGIN of a package.
    PackageHead,
    /// After the BEGIN of a stream.
    Stream,
    /// After the end, or an error.
    Ended,
}

impl StreamReader {
    /// Reads from `source`, in small pieces too: buffer a source with expensive calls.
    pub fn new(source: Box<dyn AsyncRead + Send + Unpin>) -> StreamReader {
        StreamReader {
            source,
            state: State::Outside,
            ahead: None,
            sum: Sum::new(Endian::NATIVE),
            read_bytes: 0,
            in_package: false,
        }
    }

    /// The stream's byte order, once its BEGIN was read.
    pub fn endian(&self) -> Endian {
        self.sum.endian()
    }

    /// Bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The next record; `None` after the last.
    ///
    /// # Errors
    /// The bytes end early or are damaged. The reader is then at its end.
    #[boxed]
    pub async fn next(&mut self) -> Result<Option<Item>> {
        // Stays `Ended` if this future is dropped within a record.
        let state = std::mem::replace(&mut self.state, State::Ended);
        let item = match state {
            State::Ended => return Ok(None),
            State::Outside => self.begin().await?,
            State::PackageHead => self.end_of_head().await?,
            State::Stream => self.within().await?,
        };
        self.state = match (&item.record, state) {
            (Record::Begin(begin), _) if begin.header == HeaderType::Compound => State::PackageHead,
            (Record::Begin(_), _) => State::Stream,
            (Record::End(_), State::Outside) => State::Ended,
            (Record::End(_), _) if self.in_package => State::Outside,
            (Record::End(_), _) => State::Ended,
            _ => State::Stream,
        };
        Ok(Some(item))
    }

    /// BEGIN of a stream or a package, or the END of a package.
    async fn begin(&mut self) -> Result<Item> {
        let raw = self.header().await?;
        let Some(endian) = Record::endian_of(&raw) else {
            let record = Record::decode(&raw, self.endian());
            return match record {
                Ok(record @ Record::End(_)) if self.in_package => Ok(self.item(record, Bytes::new(), true)),
                _ => Err(StreamError::BadMagic),
            };
        };
        let record = Record::decode(&raw, endian)?;
        let Record::Begin(begin) = &record else { return Err(StreamError::BadMagic) };
        let is_package = begin.header == HeaderType::Compound;
        if is_package && self.in_package {
            return Err(StreamError::WrongPlace);
        }
        self.in_package |= is_package;
        self.sum = Sum::new(endian);
        self.sum.add(&raw);
        let payload = self.payload(&record).await?;
        let item = self.item(record, payload, is_package);
        if !is_package {
            self.look_ahead().await?;
        }
        Ok(item)
    }

    /// The END of a package's head: it has no sum of its own, only that of its payload.
    async fn end_of_head(&mut self) -> Result<Item> {
        let raw = self.header().await?;
        match Record::decode(&raw, self.endian())? {
            Record::End(End { checksum, .. }) if checksum != self.sum.words() => {
                Err(StreamError::HeaderChecksum)
            }
            record @ Record::End(_) => Ok(self.item(record, Bytes::new(), true)),
            _ => Err(StreamError::WrongPlace),
        }
    }

    /// The record read ahead.
    async fn within(&mut self) -> Result<Item> {
        let record = self.ahead.take().ok_or(StreamError::Incomplete)?;
        let payload = self.payload(&record).await?;
        let end_bytes = self.read_bytes;
        if !matches!(record, Record::End(_)) {
            self.look_ahead().await?;
        }
        Ok(Item { record, payload, end_bytes, of_package: false })
    }

    /// Reads and verifies the next record.
    async fn look_ahead(&mut self) -> Result<()> {
        let before = self.sum.words();
        let raw = self.header().await?;
        self.sum.add(&raw[..DRR_CHECKSUM_AT]);
        // Before decoding: a damaged record may not even decode.
        let stored = checksum_of(&raw, self.endian());
        if stored != [0; 4] && stored != self.sum.words() {
            return Err(StreamError::Checksum);
        }
        let record = Record::decode(&raw, self.endian())?;
        match &record {
            Record::Begin(_) => return Err(StreamError::WrongPlace),
            Record::End(end) if end.checksum != before => return Err(StreamError::Checksum),
            _ => {}
        }
        self.sum.add(&raw[DRR_CHECKSUM_AT..]);
        self.ahead = Some(record);
        Ok(())
    }

    fn item(&self, record: Record, payload: Bytes, of_package: bool) -> Item {
        Item { record, payload, end_bytes: self.read_bytes, of_package }
    }

    async fn payload(&mut self, record: &Record) -> Result<Bytes> {
        // `Record::decode` has limited the length. Memory grows with the data received, not with that length.
        let len = record.payload_bytes();
        if !len.is_multiple_of(4) {
            return Err(FormatError::Corrupt { what: "payload", why: "is not whole words" }.into());
        }
        let mut payload = Vec::new();
        let read = (&mut self.source).take(len).read_to_end(&mut payload).await.map_err(StreamError::Read)?;
        self.read_bytes += read as u64;
        if read as u64 != len {
            return Err(StreamError::Incomplete);
        }
        self.sum.add(&payload);
        Ok(payload.into())
    }

    async fn header(&mut self) -> Result<[u8; DRR_BYTES]> {
        let mut raw = [0; DRR_BYTES];
        match self.source.read_exact(&mut raw).await {
            Ok(read) => self.read_bytes += read as u64,
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                return Err(StreamError::Read(error));
            }
            Err(_) if self.read_bytes > 0 => return Err(StreamError::Incomplete),
            Err(error) => return Err(StreamError::Read(error)),
        }
        Ok(raw)
    }
}
