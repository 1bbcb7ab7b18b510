//! Traces: the requests of a cache or a disk, in order.
//!
//! Files may be compressed with zstd. Their format is recognised by name and content:
//!
//! | format | lines or records |
//! |---|---|
//! | ARC | `first_block count 0 number`, as the traces of the ARC paper |
//! | blocks | a block number each, as the traces of LIRS |
//! | MSR | `timestamp,host,disk,Read\|Write,offset,bytes,response_time` (Microsoft Research Cambridge) |
//! | CSV | any columns with a header that names an id or an offset, perhaps a time, a size, a class (`data` or `metadata`) and an op; `cenote trace record` writes it |
//! | fio | fio's `iolog` versions 2 and 3 |
//! | blktrace | the text that `blkparse` prints; queued requests count |
//! | oracleGeneral | records of 24 bytes, as libCacheSim writes them |
//!
//! Of a CSV's ops, `read` requests a block and `write` adds one to the cache; other lines, about devices, are
//! not requests. A line `# dataset NUMBER NAME` names a dataset.
//!
//! In formats that count blocks, each has [`BLOCK_BYTES`]; a disk request becomes one request for each block
//! that it touches. Without times, requests are spaced widely enough for any policy.

mod binary;
mod parts;
mod text;

pub use parts::{Part, Parts, Sum};

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use crate::policy::{Access, BlockId, Class};

/// Default block size; disk requests are cut into these.
pub const BLOCK_BYTES: u32 = 4096;
const MOST_BLOCKS: u64 = 1 << 20;
/// Most requests of a trace; each takes 24 bytes of memory.
const MOST_REQUESTS: usize = 200_000_000;
const MOST_BYTES: usize = 8 << 30;
/// Between requests without times: above the 62 ms of `ARC_MINTIME`.
const STEP_NS: u64 = 63_000_000;

/// One request for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// The block.
    pub id: BlockId,
    /// Its time, from any origin.
    pub now_ns: u64,
    /// The block's size.
    pub bytes: u32,
    /// Its class.
    pub class: Class,
    /// A write: adds the block to the cache, and is no request.
    pub is_write: bool,
}

impl Request {
    pub(crate) fn access(&self, next_use: u64) -> Access {
        let Request { id, now_ns, bytes, class, .. } = *self;
        Access { id, bytes, class, now_ns, next_use }
    }
}

/// Requests in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The requests.
    pub requests: Vec<Request>,
    /// Reads and writes of devices, if recorded.
    pub devices: [Moved; 2],
    /// Requests by dataset, if recorded.
    pub parts: Parts,
}

/// Operations of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Operations.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Figures of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Requests, without writes.
    pub requests: u64,
    /// Writes.
    pub writes: u64,
    /// Distinct blocks.
    pub blocks: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Bytes of all distinct blocks: a cache of that size misses each once.
    pub footprint_bytes: u64,
    /// From the first request to the last.
    pub duration_ns: u64,
}

/// A trace can't be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum TraceError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: no known trace format; the first line is {line:?}", path.display())]
    Unknown { path: PathBuf, line: String },
    #[error("{}: line {line}: {what}", path.display())]
    Line { path: PathBuf, line: usize, what: String },
    #[error("{}: {what}", path.display())]
    Content { path: PathBuf, what: String },
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// It can't be read, is of no known format, has wrong lines, or is too large.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        let raw = std::fs::read(path).map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
        let wrong = |what: String| TraceError::Content { path: path.to_owned(), what };
        let content = if raw.starts_with(&ZSTD_MAGIC) { decompress(&raw).map_err(wrong)? } else { raw };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut requests = Requests::default();
        if name.contains("oracleGeneral") {
            binary::read(&content, &mut requests).map_err(wrong)?;
        } else {
            text::read(path, &content, &mut requests)?;
        }
        Ok(Trace { requests: requests.all, devices: requests.devices, parts: requests.parts })
    }

    /// Mean block size of the requests, at least 1.
    pub fn mean_block_bytes(&self) -> u64 {
        let bytes: u64 = self.requests.iter().map(|request| u64::from(request.bytes)).sum();
        (bytes / (self.requests.len() as u64).max(1)).max(1)
    }

    pub(crate) fn reads(&self) -> u64 {
        self.requests.iter().filter(|request| !request.is_write).count() as u64
    }

    /// Computes the figures.
    pub fn summary(&self) -> Summary {
        let mut blocks: FxHashMap<BlockId, u32> = FxHashMap::default();
        for request in &self.requests {
            let bytes = blocks.entry(request.id).or_default();
            *bytes = (*bytes).max(request.bytes);
        }
        let time = |request: Option<&Request>| request.map_or(0, |request| request.now_ns);
        Summary {
            requests: self.reads(),
            writes: self.requests.len() as u64 - self.reads(),
            blocks: blocks.len() as u64,
            bytes: self.requests.iter().filter(|r| !r.is_write).map(|r| u64::from(r.bytes)).sum(),
            footprint_bytes: blocks.into_values().map(u64::from).sum(),
            duration_ns: time(self.requests.last()).saturating_sub(time(self.requests.first())),
        }
    }
}

#[derive(Default)]
struct Requests {
    all: Vec<Request>,
    class: Class,
    is_write: bool,
    devices: [Moved; 2],
    parts: Parts,
}

impl Requests {
    fn push(&mut self, id: BlockId, bytes: u32, now_ns: Option<u64>) -> Result<(), String> {
        if self.all.len() >= MOST_REQUESTS {
            return Err(format!("more than {MOST_REQUESTS} requests; cut it first"));
        }
        let now_ns = now_ns.unwrap_or(self.all.len() as u64 * STEP_NS);
        let (class, is_write) = (self.class, self.is_write);
        self.all.push(Request { id, now_ns, bytes: bytes.max(1), class, is_write });
        Ok(())
    }

    fn moved(&mut self, is_write: bool, bytes: u64) {
        let moved = &mut self.devices[usize::from(is_write)];
        moved.operations += 1;
        moved.bytes = moved.bytes.saturating_add(bytes);
    }

    fn push_range(&mut self, offset: u64, bytes: u64, now_ns: Option<u64>) -> Result<(), String> {
        let block = u64::from(BLOCK_BYTES);
        let first = offset / block;
        let blocks = (offset % block).checked_add(bytes).ok_or("a size beyond the disk")?.div_ceil(block);
        self.push_blocks(first, blocks.max(1), now_ns)
    }

    fn push_blocks(&mut self, first: u64, count: u64, now_ns: Option<u64>) -> Result<(), String> {
        if count > MOST_BLOCKS {
            return Err(format!("a request for {count} blocks"));
        }
        (0..count).try_for_each(|index| self.push(first.wrapping_add(index), BLOCK_BYTES, now_ns))
    }
}

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

fn decompress(raw: &[u8]) -> Result<Vec<u8>, String> {
    let told = |code| zstd_safe::get_error_name(code).to_owned();
    let mut context = zstd_safe::DCtx::create();
    let mut content = Vec::new();
    let mut input = zstd_safe::InBuffer::around(raw);
    let mut piece = vec![0; 1 << 20];
    loop {
        let mut output = zstd_safe::OutBuffer::around(&mut piece[..]);
        let left = context.decompress_stream(&mut output, &mut input).map_err(told)?;
        let written = output.as_slice().len();
        content.extend_from_slice(output.as_slice());
        if content.len() > MOST_BYTES {
            return Err(format!("more than {} GiB when decompressed", MOST_BYTES >> 30));
        }
        if input.pos() == raw.len() && (left == 0 || written == 0) {
            return if left == 0 { Ok(content) } else { Err("the compressed file is cut short".to_owned()) };
        }
    }
}
