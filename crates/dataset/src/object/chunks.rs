//! The content of an object in order, read ahead of whoever takes it.
//!
//! Idea: disks are fast only when the next request is there before the last is done. The content is cut into windows;
//! while the caller works on one, the next ones are read by tasks of their own. Holes are found from the tree, whole
//! regions at a time, and are named rather than filled with zeros, so a copy can leave them out.
//!
//! Memory: `AHEAD + 1` windows.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use cenote_runtime::JoinHandle;

use super::{DataBlock, Object};
use crate::error::Result;

/// Bytes read at once.
const WINDOW_BYTES: u64 = 4 << 20;
/// Windows under way while one is consumed.
const AHEAD: usize = 2;

/// A piece of content.
#[derive(Debug)]
pub struct Chunk {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
    /// `None` for a hole: zeros.
    pub data: Result<Option<Bytes>>,
}

/// The content of an object, chunk by chunk; dropping it stops the reading ahead.
pub struct Chunks {
    object: Object,
    at_bytes: u64,
    end_bytes: u64,
    /// The next block to ask for.
    next_block: u64,
    under_way: VecDeque<JoinHandle<Vec<DataBlock>>>,
    ready: VecDeque<DataBlock>,
}

impl Drop for Chunks {
    fn drop(&mut self) {
        for task in &self.under_way {
            task.abort();
        }
    }
}

impl Chunks {
    pub(super) fn new(object: Object, offset_bytes: u64, end_bytes: u64) -> Chunks {
        let next_block = offset_bytes / object.block_bytes().max(1);
        Chunks {
            object,
            at_bytes: offset_bytes,
            end_bytes,
            next_block,
            under_way: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    /// The next piece; `None` at the end. After an error in a piece the next one goes on behind it.
    pub async fn next(&mut self) -> Option<Chunk> {
        if self.at_bytes >= self.end_bytes {
            return None;
        }
        let size = self.object.block_bytes().max(1);
        loop {
            self.read_ahead().await;
            if let Some(block) = self.ready.pop_front() {
                let start = block.id.0 * size;
                if start > self.at_bytes {
                    self.ready.push_front(block);
                    return Some(self.hole_until(start));
                }
                return Some(self.piece(start, size, block.data));
            }
            match self.under_way.pop_front() {
                Some(task) => match task.await {
                    Ok(window) => self.ready.extend(window),
                    // The runtime is shutting down: nobody will see this.
                    Err(_) => return None,
                },
                None => return Some(self.hole_until(self.end_bytes)),
            }
        }
    }

    /// What of a block is wanted.
    fn piece(&mut self, start: u64, size: u64, data: Result<Option<Bytes>>) -> Chunk {
        let offset_bytes = self.at_bytes;
        let end = (start + size).min(self.end_bytes);
        self.at_bytes = end.max(offset_bytes);
        let cut = (offset_bytes - start) as usize..(self.at_bytes - start) as usize;
        let data = data.map(|block| block.map(|bytes| bytes.slice(cut)));
        Chunk { offset_bytes, len_bytes: self.at_bytes - offset_bytes, data }
    }

    fn hole_until(&mut self, end: u64) -> Chunk {
        let offset_bytes = self.at_bytes;
        self.at_bytes = end.min(self.end_bytes);
        Chunk { offset_bytes, len_bytes: self.at_bytes - offset_bytes, data: Ok(None) }
    }

    /// Starts windows until enough are under way or all blocks are asked for.
    async fn read_ahead(&mut self) {
        let size = self.object.block_bytes().max(1);
        let end_block = self.end_bytes.min(self.object.capacity_bytes()).div_ceil(size);
        while self.under_way.len() < AHEAD && self.next_block < end_block {
            let wanted = self.next_block;
            // Where the tree is damaged the window itself will say so, block by block.
            let first = match self.object.next_data_block(wanted.into()).await {
                Ok(Some(first)) => first.0,
                Ok(None) => end_block,
                Err(_) => wanted,
            };
            let range = first..end_block.min(first.saturating_add((WINDOW_BYTES / size).max(1)));
            self.next_block = range.end.max(first);
            if !range.is_empty() {
                let task = read_window(self.object.clone(), range);
                self.under_way.push_back(self.object.objset().pool().runtime().spawn(task));
            }
        }
    }
}

async fn read_window(object: Object, range: Range<u64>) -> Vec<DataBlock> {
    object.read_blocks(range).await
}
