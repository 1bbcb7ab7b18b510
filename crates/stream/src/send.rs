//! Makes streams of snapshots, byte for byte as OpenZFS does.
//!
//! Idea: a stream is a function of the snapshot's tree and of what the receiver has. One pass over the tree
//! ([`walk`](self::walk)) gives its parts in order; parts become records ([`records`](self::records)), and
//! the blocks that these carry are read ahead of them, in disk order ([`ahead`](self::ahead)). Without the
//! blocks the same pass says exactly how long the stream will be.
//!
//! ```text
//!   SendSource --begin--> BEGIN
//!       '-- Stream: Walk --Part--> Ahead --Part, data--> Records --Record, payload--> StreamWriter
//! ```
//!
//! A `send` may be dropped at any await: nothing but the stream is left unfinished. It may take days, and
//! what the pool frees meanwhile should not wait for that. So a [`Stream`] has read all that it needs besides
//! the snapshot's own blocks, and those stay as long as the snapshot is held.
//!
//! Differences from OpenZFS 2.3: the spill block of the object at which a stream is resumed is sent again
//! (OpenZFS loses it); a spill block in its pointer is sent as SPILL, not as WRITE_EMBEDDED, which no
//! receiver takes.
//!
//! Source: OpenZFS `dmu_send.c`, `libzfs_sendrecv.c`.

mod ahead;
mod begin;
mod error;
mod package;
mod plan;
mod raw;
mod records;
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

use ahead::Ahead;
use error::Result;
use records::{Made, Manner, Records};
use walk::{Block, Part, Start, Walk};

use crate::StreamWriter;

pub use error::SendError;
pub use plan::{Plan, Ready};
pub use request::{Extent, Notice, Replica, SendRequest, Step};
pub use source::{Resume, SendFlags, SendSource, Since};

/// How far a send is: read it while the send runs.
#[derive(Debug, Default, Clone)]
pub struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    records: AtomicU64,
}

impl Progress {
    /// Bytes of the stream that were written.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Records that were written.
    pub fn records(&self) -> u64 {
        self.0.records.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.0.records.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream that is ready to be made.
#[derive(Debug)]
pub struct Stream {
    begin: Begin,
    payload: Bytes,
    name: String,
    /// As its records say it: of a part, the guid is that of the head that it is in.
    guid: Guid,
    is_snapshot: bool,
    is_encrypted: bool,
    /// The receiver has all that was born up to then.
    born_after: Txg,
    start: Start,
    /// It is of a part of a snapshot.
    is_part: bool,
    objset: Objset,
}

impl Stream {
    /// Reads all that a stream says of its snapshot.
    ///
    /// # Errors
    /// It can't be read, or not be sent so.
    #[boxed]
    pub async fn of(source: SendSource) -> Result<Stream> {
        let (begin, payload) = begin::begin(&source).await?;
        let is_snapshot = source.dataset.is_snapshot();
        let (name, guid) = (source.name().to_owned(), source.dataset.guid());
        let SendSource { objset, is_encrypted, ancestor, start, saved, .. } = source;
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
            objset,
        })
    }

    /// The same for those who hold the snapshot: nothing else of the pool is kept for it.
    #[must_use]
    pub fn not_keeping(self) -> Stream {
        let objset = if self.is_snapshot { self.objset.not_keeping() } else { self.objset };
        Stream { objset, ..self }
    }

    /// The snapshot's name, or that of the file system or volume.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes it, and tells `progress` of each record.
    ///
    /// # Errors
    /// Something can't be read, or the sink fails: the stream breaks off.
    #[boxed]
    pub async fn send(&self, writer: &mut StreamWriter, progress: &Progress) -> Result<()> {
        let (manner, mut records) = self.records();
        write(writer, &Record::Begin(self.begin.clone()), &self.payload, progress).await?;
        let mut ahead = Ahead::new(&self.objset, self.walk(&manner)?, manner);
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

    /// How many bytes it will have. Reads metadata alone.
    ///
    /// # Errors
    /// Those of [`Stream::send`] that metadata can cause.
    #[boxed]
    pub async fn estimate(&self) -> Result<u64> {
        let (manner, mut records) = self.records();
        let (mut made, mut bytes) = (Made::new(), stream_bytes(&Record::Begin(self.begin.clone())));
        let mut walk = self.walk(&manner)?;
        while let Some(part) = walk.next().await? {
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

    fn walk(&self, manner: &Manner) -> Result<Walk> {
        Walk::new(&self.objset, self.born_after, self.start, self.is_encrypted, manner.is_raw())
    }

    /// What comes last. Without its END, the receiver takes a stream of a part for a part.
    fn end(&self, records: &mut Records, made: &mut Made) {
        records.settle(made);
        if !self.is_part {
            made.push((Record::End(End { to_guid: self.guid, ..End::default() }), Bytes::new()));
        }
    }

    /// The data of a block, or an error that names its place.
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
