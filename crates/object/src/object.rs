//! Object: a numbered, sparse array of blocks under one dnode.
//!
//! Idea: blocks are the leaves of a tree of indirect blocks, each an array of block pointers. All reading
//! uses [`Object::pointers`]: the pointers of a range, found from the top down, with all indirect blocks of a
//! level read together.
//!
//! ```text
//!   dnode    [p0 p1 p2]                  level L-1       fanout F = indirect block / 128
//!   level 2  [............]              block N at level l is under block N / F at level l+1
//!   level 1  [....][....]
//!   level 0  data blocks of one size     offset o lies in block o / size
//! ```
//!
//! A hole at any level reads as zeros. Metadata comes from the block cache, data of files and volumes from
//! the pool, many blocks at once.
//!
//! Invariants: every index is checked against `max_block_id` and the length of its block.
//!
//! Source: OpenZFS `dbuf.c` (`dbuf_findbp`), `dnode.c` (`dnode_next_offset`).

mod chunks;
pub(crate) mod holes;
mod stored;
mod walk;

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use cenote_boxed::boxed;
use cenote_cache::Looked;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::bytes::Endian;
use cenote_format::dnode::{DN_MAX_NBLKPTR, Dnode};
use cenote_format::units::{BlockId, ObjectId};
use cenote_pool::ReadContext;
use cenote_pool::write::StoredBlock;

use crate::error::{DatasetError, Result};
use crate::live::layer::Shown;
use crate::objset::Objset;

pub use chunks::{Chunk, Chunks};
pub use walk::{SPILL_BLOCK, Visited, Walk};

/// Most bytes read at once: a pool's longest history.
const MOST_BYTES: usize = 1 << 30;
/// Most words of an array read at once, 128 MiB; arrays of counts or metaslabs have far fewer.
const MOST_WORDS: usize = 1 << 24;
/// Data pointers looked up at once: 16 indirect blocks.
const WINDOW_BLOCKS: u64 = 1 << 14;
/// Words of a table read at once.
const TABLE_WINDOW_WORDS: u64 = 1 << 16;

/// An open object; cheap to clone.
#[derive(Debug, Clone)]
pub struct Object {
    objset: Objset,
    id: ObjectId,
    dnode: Dnode,
}

/// Pointers of neighbouring blocks, or an error.
#[derive(Debug)]
pub struct PointerRun {
    /// Number of the first, at its level.
    pub first: BlockId,
    /// Number of blocks.
    pub count: u64,
    /// `count` pointers.
    pub pointers: Result<Vec<Blkptr>>,
}

/// A data block as read.
#[derive(Debug)]
pub struct DataBlock {
    /// Its number.
    pub id: BlockId,
    /// Byte order it was written in.
    pub endian: Endian,
    /// `None` for a hole.
    pub data: Result<Option<Bytes>>,
}

impl Object {
    /// An object with a known dnode.
    pub fn new(objset: Objset, id: ObjectId, dnode: Dnode) -> Object {
        Object { objset, id, dnode }
    }

    /// Reads without caching.
    pub(crate) fn uncached(&self) -> Object {
        Object { objset: self.objset.uncached(), ..self.clone() }
    }

    /// Its object set.
    pub fn objset(&self) -> &Objset {
        &self.objset
    }

    /// Its number.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Its dnode.
    pub fn dnode(&self) -> &Dnode {
        &self.dnode
    }

    /// Size of a data block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.dnode.data_block_bytes)
    }

    /// End of the last block; a file's size is in its attributes.
    pub fn capacity_bytes(&self) -> u64 {
        self.dnode.max_block_id.0.saturating_add(1).saturating_mul(self.block_bytes())
    }

    /// A damage error.
    pub fn damaged(&self, why: &str) -> DatasetError {
        self.objset.damaged(self.id, why)
    }

    /// A decoding error.
    pub fn format(&self, source: cenote_format::FormatError) -> DatasetError {
        self.objset.format(self.id, source)
    }

    /// The pointer to a block; a hole if none.
    ///
    /// # Errors
    /// Unreadable indirect block.
    #[boxed]
    pub async fn blkptr(&self, level: u8, block: BlockId) -> Result<Blkptr> {
        self.pointer_to(level, block).await
    }

    /// [`Object::blkptr`] without a box; allocates nothing if the path is cached.
    async fn pointer_to(&self, level: u8, block: BlockId) -> Result<Blkptr> {
        let mut at = self.dnode.levels - 1;
        if level > at || self.ancestor(block, level, at) > u64::from(DN_MAX_NBLKPTR) {
            return Ok(Blkptr::HOLE);
        }
        let (cache, pool) = (self.objset.cache(), self.objset.pool());
        let mut bp = self.dnode.blkptr(self.ancestor(block, level, at) as u8);
        while at > level && !bp.is_hole() {
            let parent = BlockId(self.ancestor(block, level, at));
            let index = self.ancestor(block, level, at - 1) & ((1 << self.dnode.fanout_shift()) - 1);
            let place = self.objset.place(self.id, at, parent);
            bp = match cache.hit(pool, &bp, place, |indirect| self.child(indirect, &bp, index)) {
                Some(child) => child?,
                None => self.child(&self.read_indirect(at, parent, &bp).await?, &bp, index)?,
            };
            at -= 1;
        }
        Ok(bp)
    }

    /// The pointers of blocks `range` at `level`, as runs that share an indirect block. Blocks under a hole
    /// are holes. Allocates in proportion to the range: ask for windows.
    #[boxed]
    pub async fn pointers(&self, level: u8, range: Range<u64>) -> Vec<PointerRun> {
        let top = self.dnode.levels - 1;
        if level > top || range.is_empty() {
            return Vec::new();
        }
        let span_at = |at: u8| {
            let last = BlockId(range.end - 1);
            self.ancestor(BlockId(range.start), level, at)..self.ancestor(last, level, at) + 1
        };
        let span = span_at(top);
        let count = span.end - span.start;
        let slots = u64::from(DN_MAX_NBLKPTR);
        // Slots beyond the dnode's are holes (`Dnode::blkptr`).
        let pointers = span.clone().map(|i| self.dnode.blkptr(i.min(slots) as u8));
        let pointers =
            if top == level || span.start < slots { Ok(pointers.collect()) } else { Ok(Vec::new()) };
        let mut runs = vec![PointerRun { first: BlockId(span.start), count, pointers }];
        for at in (level..top).rev() {
            runs = self.descend(runs, at, span_at(at)).await;
        }
        runs
    }

    /// Pointers from the next data in `from..end`, at most a window, and where to continue; `None`: no more
    /// data.
    ///
    /// # Errors
    /// Unreadable indirect block above the first.
    pub(crate) async fn next_pointers(&self, from: u64, end: u64) -> Result<Option<(Vec<PointerRun>, u64)>> {
        let first = self.next_data_block(BlockId(from)).await?;
        let Some(BlockId(first)) = first.filter(|first| first.0 < end) else { return Ok(None) };
        // Spares pointers beyond the last block.
        let end = end.min(self.dnode.max_block_id.0.saturating_add(1)).max(first + 1);
        let next = end.min(first.saturating_add(WINDOW_BLOCKS));
        Ok(Some((self.pointers(0, first..next).await, next)))
    }

    /// From runs of level `at + 1` to those of level `at`, clipped to `span`.
    async fn descend(&self, parents: Vec<PointerRun>, at: u8, span: Range<u64>) -> Vec<PointerRun> {
        let shift = self.dnode.fanout_shift();
        let mut slots = Vec::new();
        let mut requests = Vec::new();
        for run in parents {
            match run.pointers {
                Ok(pointers) => slots.extend(pointers.into_iter().enumerate().map(|(i, bp)| {
                    let parent = run.first.0 + i as u64;
                    if !bp.is_hole() {
                        requests.push((bp, self.objset.context(self.id, at + 1, BlockId(parent))));
                    }
                    (parent, 1, Ok(bp))
                })),
                Err(error) => slots.push((run.first.0, run.count, Err(error))),
            }
        }
        let caching = self.objset.caching().get();
        let blocks = self.objset.cache().read_many(self.objset.pool(), requests, caching).await;
        let mut blocks = blocks.into_iter();
        let mut runs = Vec::with_capacity(slots.len());
        for (parent, parents, bp) in slots {
            let first = (parent << shift).max(span.start);
            let end = (parent + parents).checked_shl(shift).unwrap_or(u64::MAX).min(span.end);
            let count = end.saturating_sub(first);
            let pointers = match bp {
                Err(error) => Err(error),
                Ok(bp) if bp.is_hole() => Ok(vec![bp; count as usize]),
                Ok(bp) => match blocks.next() {
                    Some(Ok(block)) => (first..end)
                        .map(|child| self.child(&block, &bp, child & ((1 << shift) - 1)))
                        .collect(),
                    Some(Err(error)) => Err(error.into()),
                    None => Err(self.damaged("a block was not read")),
                },
            };
            runs.push(PointerRun { first: BlockId(first), count, pointers });
        }
        runs
    }

    /// Reads an indirect or metadata block through the cache.
    ///
    /// # Errors
    /// Those of the pool.
    #[boxed]
    pub async fn read_metadata(&self, level: u8, block: BlockId, bp: &Blkptr) -> Result<Bytes> {
        let bytes = self.read_indirect(level, block, bp).await?;
        let size = if level > 0 { bp.lsize().0 as usize } else { bytes.len() };
        Ok(fit(bytes, size))
    }

    /// [`Object::read_metadata`] in which holes at the end of an indirect block may be missing.
    #[boxed]
    pub(crate) async fn read_indirect(&self, level: u8, block: BlockId, bp: &Blkptr) -> Result<Bytes> {
        let ctx = self.objset.context(self.id, level, block);
        Ok(self.objset.cache().read(self.objset.pool(), bp, &ctx, self.objset.caching().get()).await?)
    }

    /// Reads a whole block of a metadata object through the cache. A hole is zeros.
    ///
    /// # Errors
    /// Unreadable block.
    #[boxed]
    pub async fn read_block(&self, block: BlockId) -> Result<(Bytes, Endian)> {
        let size = self.block_bytes() as usize;
        let bp = match self.objset.layers().block(self.id, block) {
            Shown::Data(data) => return Ok((fit(data, size), Endian::NATIVE)),
            Shown::Hole => return Ok((zeros(size), Endian::NATIVE)),
            Shown::Arrived(block) => return Ok((fit(self.arrived(&block)?, size), block.endian)),
            Shown::Stored(bp) => bp,
            Shown::Below => self.blkptr(0, block).await?,
        };
        let bytes = if bp.is_hole() { Bytes::new() } else { self.read_metadata(0, block, &bp).await? };
        // Zeros are the same in any byte order.
        let endian = if bp.is_hole() { Endian::NATIVE } else { bp.endian() };
        Ok((fit(bytes, size), endian))
    }

    /// The spill block, if any.
    ///
    /// # Errors
    /// Unreadable block.
    #[boxed]
    pub async fn read_spill(&self) -> Result<Option<(Endian, Bytes)>> {
        if let Some(changed) = self.objset.layers().spill(self.id) {
            return Ok(changed.map(|spill| (Endian::NATIVE, spill)));
        }
        let Some(bp) = self.dnode.spill().filter(|bp| !bp.is_hole()) else { return Ok(None) };
        let bytes = self.read_metadata(0, SPILL_BLOCK, &bp).await?;
        Ok(Some((bp.endian(), bytes)))
    }

    /// Reads a range, all blocks at once. Holes, and bytes beyond the end, are zeros.
    ///
    /// # Errors
    /// Unreadable block; too long a range.
    #[boxed]
    pub async fn read(&self, offset_bytes: u64, len_bytes: usize) -> Result<Bytes> {
        let (blocks, skip) = match self.part(offset_bytes, len_bytes)? {
            Part::Zeros => return Ok(zeros(len_bytes)),
            Part::OfBlock(block, skip) => return self.part_of_block(block, skip, len_bytes).await,
            Part::OfBlocks(blocks, skip) => (blocks, skip),
        };
        let mut out = BytesMut::with_capacity(len_bytes);
        let pieces = self.parts_of_blocks(blocks, skip, len_bytes).await?;
        pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        Ok(out.freeze())
    }

    /// [`Object::read`] in a piece per block, without a copy.
    ///
    /// # Errors
    /// Those of [`Object::read`].
    #[boxed]
    pub async fn read_pieces(&self, offset_bytes: u64, len_bytes: usize) -> Result<Vec<Bytes>> {
        match self.part(offset_bytes, len_bytes)? {
            Part::Zeros => Ok(vec![zeros(len_bytes)]),
            Part::OfBlock(block, skip) => Ok(vec![self.part_of_block(block, skip, len_bytes).await?]),
            Part::OfBlocks(blocks, skip) => self.parts_of_blocks(blocks, skip, len_bytes).await,
        }
    }

    fn part(&self, offset_bytes: u64, len_bytes: usize) -> Result<Part> {
        if len_bytes > MOST_BYTES {
            return Err(self.damaged("would be longer than anything that is read whole"));
        }
        let size = self.block_bytes();
        let end = offset_bytes.saturating_add(len_bytes as u64).min(self.capacity_bytes());
        if size == 0 || offset_bytes >= end {
            return Ok(Part::Zeros);
        }
        let first = offset_bytes / size;
        let skip = (offset_bytes - first * size) as usize;
        if skip + len_bytes <= size as usize {
            return Ok(Part::OfBlock(BlockId(first), skip));
        }
        Ok(Part::OfBlocks(first..end.div_ceil(size), skip))
    }

    async fn part_of_block(&self, block: BlockId, skip: usize, len_bytes: usize) -> Result<Bytes> {
        let Some(mut part) = self.data_block(block).await? else { return Ok(zeros(len_bytes)) };
        part.advance(skip);
        part.truncate(len_bytes);
        Ok(part)
    }

    async fn parts_of_blocks(&self, blocks: Range<u64>, skip: usize, len_bytes: usize) -> Result<Vec<Bytes>> {
        let (size, first) = (self.block_bytes() as usize, blocks.start);
        let (mut pieces, mut left) = (Vec::new(), len_bytes);
        for block in self.read_blocks(blocks).await {
            let from = if block.id.0 == first { skip } else { 0 };
            let take = (size - from).min(left);
            pieces.push(block.data?.map_or_else(|| zeros(take), |bytes| bytes.slice(from..from + take)));
            left -= take;
        }
        if left > 0 {
            pieces.push(zeros(left));
        }
        Ok(pieces)
    }

    /// Reads `count` words from word `first`, each in its block's byte order.
    ///
    /// # Errors
    /// Unreadable block; too long a range.
    #[boxed]
    pub async fn read_words(&self, first: u64, count: usize) -> Result<Vec<u64>> {
        if count > MOST_WORDS {
            return Err(self.damaged("would be a longer array than any is"));
        }
        let per_block = (self.block_bytes() / 8).max(1);
        let end = first.saturating_add(count as u64);
        let mut words = Vec::with_capacity(count);
        for block in self.read_blocks(first / per_block..end.div_ceil(per_block)).await {
            let base = block.id.0 * per_block;
            let cut = first.saturating_sub(base) as usize..(end - base).min(per_block) as usize;
            match block.data? {
                None => words.resize(words.len() + cut.len(), 0),
                Some(bytes) => {
                    let raw = bytes.as_chunks::<8>().0.get(cut).unwrap_or_default();
                    words.extend(raw.iter().map(|w| block.endian.u64(*w)));
                }
            }
        }
        Ok(words)
    }

    /// Reads words of a table without holes. A forged `count` costs no more than the table.
    ///
    /// # Errors
    /// Unreadable block; a hole.
    #[boxed]
    pub async fn read_table(&self, first: u64, count: u64) -> Result<Vec<u64>> {
        let per_block = (self.block_bytes() / 8).max(1);
        let end = first.saturating_add(count);
        let mut words = Vec::new();
        let mut at = first;
        while at < end {
            let stop =
                end.min((at / per_block + TABLE_WINDOW_WORDS.div_ceil(per_block)).saturating_mul(per_block));
            let last = (stop - 1) / per_block;
            for block in [at / per_block, last] {
                let region = self.next_region(block).await;
                if region.is_none_or(|region| region.start != block) {
                    return Err(self.damaged("has a hole where its table goes on"));
                }
            }
            words.extend(self.read_words(at, (stop - at) as usize).await?);
            at = stop;
        }
        Ok(words)
    }

    fn arrived(&self, block: &StoredBlock) -> Result<Bytes> {
        block
            .content()
            .ok_or_else(|| self.damaged("a block has just come, and can't be read without its key"))
    }

    /// The path of most small reads: makes no lists, and cached blocks cost one lookup per level.
    async fn data_block(&self, block: BlockId) -> Result<Option<Bytes>> {
        let size = self.block_bytes() as usize;
        let layers = self.objset.layers();
        let shown = if layers.touches(self.id) { layers.block(self.id, block) } else { Shown::Below };
        let bp = match shown {
            Shown::Data(data) => return Ok(Some(fit(data, size))),
            Shown::Hole => return Ok(None),
            Shown::Arrived(block) => return Ok(Some(fit(self.arrived(&block)?, size))),
            Shown::Stored(bp) => bp,
            Shown::Below => self.pointer_to(0, block).await?,
        };
        if bp.is_hole() {
            return Ok(None);
        }
        let (cache, pool) = (self.objset.cache(), self.objset.pool());
        let looked = |looked| self.objset.prefetcher().note(self, block.0..block.0 + 1, looked);
        if let Some(bytes) = cache.hit(pool, &bp, self.objset.place(self.id, 0, block), Bytes::clone) {
            looked(Looked::default());
            return Ok(Some(fit(bytes, size)));
        }
        let request = vec![(bp, self.objset.context(self.id, 0, block))];
        let read = cache.read_data(pool, request, self.objset.caching().get(), looked).await.pop();
        let bytes = read.ok_or_else(|| self.damaged("a block was not read"))??;
        Ok(Some(fit(bytes, size)))
    }

    /// Reads data blocks, neighbours on disk together.
    #[boxed]
    pub async fn read_blocks(&self, range: Range<u64>) -> Vec<DataBlock> {
        let size = self.block_bytes() as usize;
        let hole = |id| DataBlock { id: BlockId(id), endian: Endian::NATIVE, data: Ok(None) };
        let mut blocks: Vec<DataBlock> = range.clone().map(hole).collect();
        let mut requests = Vec::new();
        let mut waiting = Vec::new();
        for run in self.pointers(0, range.clone()).await {
            let at = (run.first.0 - range.start) as usize;
            for (i, block) in blocks.iter_mut().enumerate().skip(at).take(run.count as usize) {
                match &run.pointers {
                    Err(error) => block.data = Err(error.clone()),
                    Ok(pointers) => {
                        if let Some(bp) = pointers.get(i - at).filter(|bp| !bp.is_hole()) {
                            block.endian = bp.endian();
                            requests.push((*bp, self.objset.context(self.id, 0, block.id)));
                            waiting.push(i);
                        }
                    }
                }
            }
        }
        self.show_changes(&mut blocks, &mut waiting, &mut requests);
        let caching = self.objset.caching().get();
        let looked = |looked| self.objset.prefetcher().note(self, range, looked);
        let results = self.objset.cache().read_data(self.objset.pool(), requests, caching, looked).await;
        for (index, result) in waiting.into_iter().zip(results) {
            blocks[index].data = result.map(|bytes| Some(fit(bytes, size))).map_err(Into::into);
        }
        blocks
    }

    fn show_changes(
        &self,
        blocks: &mut [DataBlock],
        waiting: &mut Vec<usize>,
        requests: &mut Vec<(Blkptr, ReadContext)>,
    ) {
        if !self.objset.layers().touches(self.id) {
            return;
        }
        let size = self.block_bytes() as usize;
        let mut is_below = vec![true; blocks.len()];
        let mut stored = Vec::new();
        for (index, block) in blocks.iter_mut().enumerate() {
            let (endian, data) = match self.objset.layers().block(self.id, block.id) {
                Shown::Below => continue,
                Shown::Hole => (Endian::NATIVE, None),
                Shown::Data(data) => (Endian::NATIVE, Some(fit(data, size))),
                Shown::Arrived(arrived) => {
                    block.data = self.arrived(&arrived).map(|data| Some(fit(data, size)));
                    (block.endian, is_below[index]) = (arrived.endian, false);
                    continue;
                }
                Shown::Stored(bp) => {
                    stored.push((index, (bp, self.objset.context(self.id, 0, block.id))));
                    (bp.endian(), None)
                }
            };
            (block.endian, block.data) = (endian, Ok(data));
            is_below[index] = false;
        }
        let below = waiting.iter().copied().zip(requests.drain(..)).filter(|(index, _)| is_below[*index]);
        (*waiting, *requests) = below.chain(stored).unzip();
    }

    /// All block pointers, indirect ones included.
    pub fn walk(&self) -> Walk {
        Walk::new(self.clone())
    }

    /// The content of a range, with read-ahead.
    pub fn chunks(&self, offset_bytes: u64, end_bytes: u64) -> Chunks {
        Chunks::new(self.clone(), offset_bytes, end_bytes)
    }

    fn ancestor(&self, block: BlockId, level: u8, at: u8) -> u64 {
        let shift = self.dnode.fanout_shift() * u32::from(at - level);
        block.0.checked_shr(shift).unwrap_or(0)
    }

    fn child(&self, indirect: &Bytes, parent: &Blkptr, index: u64) -> Result<Blkptr> {
        let at = index as usize * BLKPTR_BYTES;
        let raw = indirect.get(at..).unwrap_or_default();
        if raw.is_empty() && ((at + BLKPTR_BYTES) as u64) <= parent.lsize().0 {
            // The cache leaves out holes at the end.
            return Ok(Blkptr::HOLE);
        }
        let child = Blkptr::decode(raw, parent.endian()).map_err(|e| self.format(e))?;
        if !child.is_hole() && child.level() + 1 != parent.level() {
            return Err(self.damaged("a block of its tree leads to another place of it"));
        }
        Ok(child)
    }
}

enum Part {
    Zeros,
    /// In one block, from this byte on.
    OfBlock(BlockId, usize),
    /// In several, from this byte of the first; zeros follow.
    OfBlocks(Range<u64>, usize),
}

/// Cuts or pads a block to the dnode's block size.
pub(crate) fn fit(mut bytes: Bytes, size: usize) -> Bytes {
    if bytes.len() >= size {
        bytes.truncate(size);
        return bytes;
    }
    let mut whole = BytesMut::zeroed(size);
    whole[..bytes.len()].copy_from_slice(&bytes);
    whole.freeze()
}

/// Small lengths are not allocated.
pub(crate) fn zeros(len: usize) -> Bytes {
    static ZEROS: [u8; 1 << 17] = [0; 1 << 17];
    if len <= ZEROS.len() { Bytes::from_static(&ZEROS[..len]) } else { BytesMut::zeroed(len).freeze() }
}
