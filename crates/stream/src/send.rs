//! Makes streams of snapshots, byte for byte as OpenZFS does.
//!
//! Idea: a stream is a function of the snapshot's tree and of the receiver's state. One pass over the tree
//! ([`walk`](self::walk)) yields its parts in order; parts become records ([`records`](self::records)), and
//! their blocks are read ahead, in disk order ([`ahead`](self::ahead)). Without the blocks, the same pass
//! yields the exact length of the stream.
//!
//! ```text
//!   SendSource --begin--> BEGIN
//!       '-- Stream: Walk --Part--> Ahead --Part, data--> Records --Record, payload--> StreamWriter
//! ```
//!
//! A `send` may be dropped at any await: only the stream is left unfinished. It may take days, and must not
//! hold up freeing in the pool meanwhile. So a [`Stream`] has read all metadata outside the snapshot, whose
//! own blocks stay while the snapshot is held.
//!
//! Differences from OpenZFS 2.3: a resumed stream repeats the spill block of its first object (OpenZFS loses
//! it); an embedded spill block is sent as SPILL, not as WRITE_EMBEDDED, which no receiver takes.
//!
//! Source: OpenZFS `dmu_send.c`, `libzfs_sendrecv.c`.

mod ahead;
mod begin;
mod error;
mod package;
mod plan;
mod raw;
mod records;
mod redact;
mod redaction;
mod request;
mod source;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::stream::{Begin, DRR_BYTES, End, Record};
use cenote_format::units::{Guid, Txg};
use cenote_object::Objset;
use cenote_tasks::RedactedRun;

use ahead::Ahead;
use error::Result;
use records::{Made, Manner, Records};
use redaction::Parts;
use walk::{Block, Part, Start, Walk};

use crate::StreamWriter;

pub use error::SendError;
pub use plan::{Plan, Ready};
pub use redact::{RedactError, redaction};
pub use redaction::redaction_snapshots;
pub use request::{Extent, Notice, Replica, SendRequest, Step};
pub use source::{Resume, SendFlags, SendSource, Since};

/// The progress of a running send.
#[derive(Debug, Default, Clone)]
pub struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    records: AtomicU64,
}

impl Progress {
    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Records written.
    pub fn records(&self) -> u64 {
        self.0.records.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.0.records.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream, ready to send.
#[derive(Debug)]
pub struct Stream {
    begin: Begin,
    payload: Bytes,
    name: String,
    /// In its records: for a part of a snapshot, the guid of its head.
    guid: Guid,
    is_snapshot: bool,
    is_encrypted: bool,
    /// The receiver has all blocks born up to then.
    born_after: Txg,
    start: Start,
    /// It is a part of a snapshot.
    is_part: bool,
    /// Blocks that the receiver lacks, and those to leave out.
    lacking: Arc<[RedactedRun]>,
    redaction: Arc<[RedactedRun]>,
    objset: Objset,
}

impl Stream {
    /// Reads a stream's metadata.
    ///
    /// # Errors
    /// The snapshot can't be read, or not be sent so.
    #[boxed]
    pub async fn of(source: SendSource) -> Result<Stream> {
        let (begin, payload) = begin::begin(&source).await?;
        let is_snapshot = source.dataset.is_snapshot();
        let (name, guid) = (source.name().to_owned(), source.dataset.guid());
        let SendSource { objset, is_encrypted, ancestor, start, saved, redaction, .. } = source;
        let redaction = redaction.map(|list| list.runs).unwrap_or_default();
        let (born_after, is_part) = (ancestor.txg, saved.is_some());
        Ok(Stream {
            begin,
            payload,
            name,
            guid,
            is_snapshot,
            is_encrypted,
            born_after,
            start,
            is_part,
            lacking: ancestor.lacking,
            redaction,
            objset,
        })
    }

    /// For callers that hold the snapshot: keeps nothing else of the pool.
    #[must_use]
    pub fn not_keeping(self) -> Stream {
        let objset = if self.is_snapshot { self.objset.not_keeping() } else { self.objset };
        Stream { objset, ..self }
    }

    /// The snapshot's or dataset's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the stream, and counts each record in `progress`.
    ///
    /// # Errors
    /// A block can't be read, or the sink fails: the stream breaks off.
    #[boxed]
    pub async fn send(&self, writer: &mut StreamWriter, progress: &Progress) -> Result<()> {
        let (manner, mut records) = self.records();
        write(writer, &Record::Begin(self.begin.clone()), &self.payload, progress).await?;
        let mut ahead = Ahead::new(&self.objset, self.parts(&manner)?, manner);
        let mut made = Made::new();
        while let Some(window) = ahead.next().await? {
            let mut blocks = window.blocks.into_iter();
            for part in &window.parts {
                let data = match manner.data_of(part) {
                    Some(block) => blocks.next().map(|data| self.data(block, data)).transpose()?,
                    None => None,
                };
                self.check_byte_order(&manner, part)?;
                records.part(part, data, &mut made);
                for (record, payload) in made.drain(..) {
                    write(writer, &record, &payload, progress).await?;
                }
            }
        }
        self.end(&mut records, &mut made);
        for (record, payload) in made {
            write(writer, &record, &payload, progress).await?;
        }
        Ok(())
    }

    /// Its length in bytes, from metadata alone.
    ///
    /// # Errors
    /// Those of [`Stream::send`] about metadata.
    #[boxed]
    pub async fn estimate(&self) -> Result<u64> {
        let (manner, mut records) = self.records();
        let (mut made, mut bytes) = (Made::new(), stream_bytes(&Record::Begin(self.begin.clone())));
        let mut parts = self.parts(&manner)?;
        while let Some(part) = parts.next().await? {
            records.part(&part, None, &mut made);
            bytes += made.drain(..).map(|(record, _)| stream_bytes(&record)).sum::<u64>();
        }
        self.end(&mut records, &mut made);
        Ok(bytes + made.iter().map(|(record, _)| stream_bytes(record)).sum::<u64>())
    }

    fn records(&self) -> (Manner, Records) {
        let manner =
            Manner { features: self.begin.features, to_guid: self.guid, born_after: self.born_after };
        let last = self.objset.meta().map_or(0, |meta| meta.dnode().max_block_id.0);
        (manner, Records::new(manner, last))
    }

    fn parts(&self, manner: &Manner) -> Result<Parts> {
        let (born_after, start, lacking) = (self.born_after, self.start, self.lacking.clone());
        let (is_encrypted, is_raw) = (self.is_encrypted, manner.is_raw());
        let walk = Walk::with(&self.objset, born_after, start, is_encrypted, is_raw, lacking)?;
        Ok(match self.redaction.is_empty() {
            true => Parts::all(walk),
            false => Parts::redacted(walk, born_after, start, &self.redaction, &self.lacking),
        })
    }

    /// The last records. Without END, the receiver treats the stream of a part as a part.
    fn end(&self, records: &mut Records, made: &mut Made) {
        records.settle(made);
        if !self.is_part {
            made.push((Record::End(End { to_guid: self.guid, ..End::default() }), Bytes::new()));
        }
    }

    /// The data of a block, or an error with its place.
    fn data(&self, block: &Block, data: Result<Bytes, cenote_pool::PoolError>) -> Result<Bytes> {
        data.map_err(|source| SendError::Block {
            name: self.name.clone(),
            object: block.object,
            offset: block.id.0.saturating_mul(block.bp.lsize().0),
            source,
        })
    }

    fn check_byte_order(&self, manner: &Manner, part: &Part) -> Result<()> {
        match manner.foreign_object(part) {
            Some(object) => Err(SendError::ForeignByteOrder { name: self.name.clone(), object }),
            None => Ok(()),
        }
    }
}

fn stream_bytes(record: &Record) -> u64 {
    DRR_BYTES as u64 + record.payload_bytes()
}

async fn write(
    writer: &mut StreamWriter,
    record: &Record,
    payload: &[u8],
    progress: &Progress,
) -> Result<()> {
    writer.write(record, payload).await?;
    progress.add(stream_bytes(record));
    Ok(())
}
