//! Makes streams of snapshots, byte for byte as OpenZFS does.
//!
//! Idea: a stream is a function of the snapshot's tree and of what the receiver has. One pass over the tree
//! ([`walk`](self::walk)) gives its parts in order; parts become records ([`records`](self::records)), and
//! the blocks that these carry are read ahead of them, in disk order ([`ahead`](self::ahead)). Without the
//! blocks the same pass says exactly how long the stream will be.
//!
//! ```text
//!   SendSource --begin--> BEGIN
//!       '-- Walk --Part--> Ahead --Part, data--> Records --Record, payload--> StreamWriter
//! ```
//!
//! A `send` may be dropped at any await: nothing but the stream is left unfinished.
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
use cenote_format::stream::{DRR_BYTES, End, Record, StreamFeatures};

use ahead::Ahead;
use error::Result;
use records::{Made, Manner, Records};
use walk::{Block, Part, Walk};

use crate::StreamWriter;

pub use error::SendError;
pub use plan::Plan;
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

/// Writes a stream, and tells `progress` of each record.
///
/// # Errors
/// Something can't be read, or the sink fails: the stream breaks off.
#[boxed]
pub async fn send(source: &SendSource, writer: &mut StreamWriter, progress: &Progress) -> Result<()> {
    let (begin, payload) = begin::begin(source).await?;
    let (manner, mut records) = source.records(begin.features);
    write(writer, &Record::Begin(begin), &payload, progress).await?;
    let mut ahead = Ahead::new(&source.objset, source.walk(&manner)?, manner);
    let mut made = Made::new();
    while let Some(window) = ahead.next().await? {
        let mut blocks = window.blocks.into_iter();
        for part in &window.parts {
            let data = match manner.data_of(part) {
                Some(block) => blocks.next().map(|data| source.data(block, data)).transpose()?,
                None => None,
            };
            source.check_byte_order(&manner, part)?;
            records.part(part, data, &mut made);
            for (record, payload) in made.drain(..) {
                write(writer, &record, &payload, progress).await?;
            }
        }
    }
    records.settle(&mut made);
    // Without its END, the receiver takes a stream of a part for a part.
    if source.saved.is_none() {
        made.push((Record::End(source.end()), Bytes::new()));
    }
    for (record, payload) in made {
        write(writer, &record, &payload, progress).await?;
    }
    Ok(())
}

/// How many bytes a stream will have. Reads metadata alone.
///
/// # Errors
/// Those of [`send`] that metadata can cause.
#[boxed]
pub async fn estimate(source: &SendSource) -> Result<u64> {
    let (begin, _) = begin::begin(source).await?;
    let (manner, mut records) = source.records(begin.features);
    let (mut made, mut bytes) = (Made::new(), stream_bytes(&Record::Begin(begin)));
    let mut walk = source.walk(&manner)?;
    while let Some(part) = walk.next().await? {
        records.part(&part, None, &mut made);
        bytes += made.drain(..).map(|(record, _)| stream_bytes(&record)).sum::<u64>();
    }
    records.settle(&mut made);
    if source.saved.is_none() {
        made.push((Record::End(source.end()), Bytes::new()));
    }
    Ok(bytes + made.iter().map(|(record, _)| stream_bytes(record)).sum::<u64>())
}

impl SendSource {
    fn records(&self, features: StreamFeatures) -> (Manner, Records) {
        let manner = Manner { features, to_guid: self.dataset.guid(), born_after: self.ancestor.txg };
        let last = self.objset.meta().map_or(0, |meta| meta.dnode().max_block_id.0);
        (manner, Records::new(manner, last))
    }

    fn walk(&self, manner: &Manner) -> Result<Walk> {
        Walk::new(&self.objset, self.ancestor.txg, self.start, self.is_encrypted, manner.is_raw())
    }

    fn end(&self) -> End {
        End { to_guid: self.dataset.guid(), ..End::default() }
    }

    /// The data of a block, or an error that names its place.
    fn data(&self, block: &Block, data: Result<Bytes, cenote_pool::PoolError>) -> Result<Bytes> {
        data.map_err(|source| SendError::Block {
            name: self.name().to_owned(),
            object: block.object,
            offset: block.id.0.saturating_mul(block.bp.lsize().0),
            source,
        })
    }

    fn check_byte_order(&self, manner: &Manner, part: &Part) -> Result<()> {
        match manner.foreign_object(part) {
            Some(object) => Err(SendError::ForeignByteOrder { name: self.name().to_owned(), object }),
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
