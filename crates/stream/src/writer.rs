//! Writes a stream: records with running sums, as OpenZFS does.
//!
//! Idea: the writer tracks its position in the stream, which determines the sums of a record. A BEGIN starts
//! a sum. The END of a package's head holds that sum and has none of its own. A package's last END is all
//! zeros.
//!
//! Source: OpenZFS `dmu_send.c` (`dump_record`), `libzfs_sendrecv.c` (`send_conclusion_record`).

use cenote_boxed::boxed;
use cenote_format::FormatError;
use cenote_format::bytes::Endian;
use cenote_format::stream::{DRR_BYTES, DRR_CHECKSUM_AT, End, HeaderType, Record, set_checksum};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::error::{Result, StreamError};
use crate::sum::Sum;

/// Writes records.
pub struct StreamWriter {
    sink: Box<dyn AsyncWrite + Send + Unpin>,
    state: State,
    sum: Sum,
    written_bytes: u64,
    sums_packages: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Outside,
    PackageHead,
    Stream,
}

impl StreamWriter {
    /// Writes to `sink` in this byte order.
    pub fn new(sink: Box<dyn AsyncWrite + Send + Unpin>, endian: Endian) -> StreamWriter {
        let sum = Sum::new(endian);
        StreamWriter { sink, state: State::Outside, sum, written_bytes: 0, sums_packages: false }
    }

    /// Sums the ENDs of packages too, as zstream does.
    pub(crate) fn summing_packages(self) -> StreamWriter {
        StreamWriter { sums_packages: true, ..self }
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Writes a record and its payload, which is [`Record::payload_bytes`] long, or shorter by its padding.
    /// The writer computes all sums, also that of an END. An END outside of all streams ends a package.
    ///
    /// # Errors
    /// The sink fails; a payload of another length; a record in the wrong place.
    #[boxed]
    pub async fn write(&mut self, record: &Record, payload: &[u8]) -> Result<()> {
        let len = usize::try_from(record.payload_bytes()).unwrap_or(usize::MAX);
        if payload.len() > len || payload.len().next_multiple_of(8) < len {
            let why = "has another length than its record says";
            return Err(FormatError::Corrupt { what: "payload", why }.into());
        }
        let endian = self.sum.endian();
        let (raw, next) = match (record, self.state) {
            (Record::Begin(begin), State::Outside) => {
                let raw = record.encode(endian)?;
                self.sum = Sum::new(endian);
                self.sum.add(&raw);
                let is_package = begin.header == HeaderType::Compound;
                (raw, if is_package { State::PackageHead } else { State::Stream })
            }
            (Record::End(_), State::Outside) => {
                self.sum = Sum::new(endian);
                (self.end_of_package(End::default())?, State::Outside)
            }
            (Record::End(_), State::PackageHead) => {
                let end = End { checksum: self.sum.words(), ..End::default() };
                (self.end_of_package(end)?, State::Outside)
            }
            (Record::End(end), State::Stream) => {
                let end = End { checksum: self.sum.words(), ..end.clone() };
                (self.summed(&Record::End(end))?, State::Outside)
            }
            (Record::Begin(_), _) | (_, State::Outside | State::PackageHead) => {
                return Err(StreamError::WrongPlace);
            }
            _ => (self.summed(record)?, State::Stream),
        };
        self.state = next;
        self.put(&raw).await?;
        if payload.len() == len {
            return self.put_payload(payload).await;
        }
        // Only small payloads have padding: bonuses, embedded blocks.
        let mut padded = payload.to_vec();
        padded.resize(len, 0);
        self.put_payload(&padded).await
    }

    /// Flushes the sink.
    ///
    /// # Errors
    /// The sink fails.
    #[boxed]
    pub async fn flush(&mut self) -> Result<()> {
        self.sink.flush().await.map_err(StreamError::Write)
    }

    fn end_of_package(&mut self, end: End) -> Result<[u8; DRR_BYTES]> {
        match self.sums_packages {
            true => self.summed(&Record::End(end)),
            false => Ok(Record::End(end).encode(self.sum.endian())?),
        }
    }

    /// A record that ends with the sum of all bytes before.
    fn summed(&mut self, record: &Record) -> Result<[u8; DRR_BYTES]> {
        let endian = self.sum.endian();
        let mut raw = record.encode(endian)?;
        self.sum.add(&raw[..DRR_CHECKSUM_AT]);
        set_checksum(&mut raw, self.sum.words(), endian);
        self.sum.add(&raw[DRR_CHECKSUM_AT..]);
        Ok(raw)
    }

    async fn put_payload(&mut self, payload: &[u8]) -> Result<()> {
        self.sum.add(payload);
        self.put(payload).await
    }

    async fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write_all(bytes).await.map_err(StreamError::Write)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }
}
