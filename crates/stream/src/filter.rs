//! Filters: a stream goes in, a changed stream comes out, as `zstream` changes it.
//!
//! ```text
//!   reader --item--> change (several at a time) --item--> writer
//!     decompress    named records
//!     drop          named records
//!     recompress    all records
//!   redup           reads its file twice, at any place (`redup`)
//! ```
//!
//! Idea: the reader verifies all sums and the writer computes new ones, so a filter never passes on a damaged
//! stream as a valid one. Changes are pure functions of one record and run in parallel, in the stream's
//! order. The byte order stays.
//!
//! Memory: two records per core, with payloads before and after the change.
//!
//! Source: OpenZFS `zstream_decompress.c`, `zstream_recompress.c`, `zstream_redup.c` (2.3.2),
//! `zstream_drop_record.c` (2.4.99).

mod decompress;
mod drop;
mod recompress;
mod redup;

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use cenote_codec::compress::{CompressError, Compression};
use cenote_format::stream::{CryptFields, Record};
use cenote_format::units::ObjectId;
use cenote_runtime::Runtime;
use futures::TryStreamExt;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::StreamError;
use crate::reader::{Item, StreamReader};
use crate::writer::StreamWriter;

pub use decompress::{Decompress, decompress};
pub use drop::drop_records;
pub use recompress::{Recompress, recompress};
pub use redup::{Redup, redup};

/// Error of a filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The stream is damaged, or the output failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A deduplicated stream, before `redup`.
    #[error("Deduplicated streams are not supported")]
    Dedup,
    /// A record's payload can't be decompressed.
    #[error("decompression type {compression_id} failed for ino {object} offset {offset}")]
    Decompress {
        /// Its object.
        object: ObjectId,
        /// Offset in the object.
        offset: u64,
        /// Its compression.
        compression_id: u8,
    },
    /// The compressor refused.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// A deduplicated stream refers to a block that it does not contain.
    #[error("object {object} offset {offset} refers to a block that the stream does not contain")]
    NoBlock {
        /// The referring object.
        object: ObjectId,
        /// Offset in the object.
        offset: u64,
    },
}

/// The result of a change.
#[derive(Debug, Default)]
pub struct Changed {
    /// The record and its payload; none: dropped.
    pub kept: Option<(Record, Bytes)>,
    /// A message about it.
    pub note: Option<String>,
}

impl Changed {
    fn to(record: Record, payload: Bytes) -> Changed {
        Changed { kept: Some((record, payload)), note: None }
    }

    fn noting(self, note: String) -> Changed {
        Changed { note: Some(note), ..self }
    }
}

/// A change of records.
pub type Change = Arc<dyn Fn(Record, Bytes) -> Result<Changed, FilterError> + Send + Sync>;

/// A record by object and offset, as users name it.
pub type Place = (ObjectId, u64);

/// Passes a stream through a change, and messages to `note`.
///
/// # Errors
/// The stream is damaged or deduplicated; errors of the change and of the sink.
pub async fn filter(
    runtime: &Runtime,
    source: Box<dyn AsyncRead + Send + Unpin>,
    sink: Box<dyn AsyncWrite + Send + Unpin>,
    change: Change,
    note: &mut (dyn FnMut(String) + Send),
) -> Result<(), FilterError> {
    let mut reader = StreamReader::new(source);
    let Some(first) = reader.next().await? else { return Ok(()) };
    let mut writer = StreamWriter::new(sink, reader.endian()).summing_packages();
    writer.write(&first.record, &first.payload).await?;
    let items = futures::stream::try_unfold(reader, |mut reader| async move {
        Ok::<_, StreamError>(reader.next().await?.map(|item| (item, reader)))
    });
    let changed = runtime.map_bounded_stream(2 * runtime.parallelism(), items, move |item| {
        let change = change.clone();
        async move { changed(item?, &change) }
    });
    let mut changed = pin!(changed);
    while let Some(Changed { kept, note: told }) = changed.try_next().await? {
        if let Some(told) = told {
            note(told);
        }
        if let Some((record, payload)) = kept {
            writer.write(&record, &payload).await?;
        }
    }
    Ok(writer.flush().await?)
}

fn changed(item: Item, change: &Change) -> Result<Changed, FilterError> {
    match item.record {
        Record::WriteByref(_) => Err(FilterError::Dedup),
        record if item.of_package => Ok(Changed::to(record, item.payload)),
        record => change(record, item.payload),
    }
}

fn is_encrypted(crypt: &CryptFields) -> bool {
    crypt.salt.iter().any(|byte| *byte != 0)
}

/// The algorithm of a record's number; none: not compressed.
fn algorithm(compression_id: u8) -> Result<Option<Compression>, CompressError> {
    use Compression::{Empty, Inherit, Off, On};
    let algorithm = Compression::try_from(compression_id)?;
    Ok(Some(algorithm).filter(|algorithm| !matches!(algorithm, Inherit | On | Off | Empty)))
}
