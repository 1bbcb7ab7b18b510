//! The content of an object in order, with read-ahead.
//!
//! Idea: disks need the next request before the last is done. While the caller works on one window, tasks
//! read the next ones. Holes are found in the tree, whole regions at a time, and reported, so that a copy can
//! skip them. Everything under an unreadable indirect block is one piece, too.
//!
//! Memory: `AHEAD + 1` windows.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_runtime::JoinHandle;

use crate::error::{DatasetError, Result};
use crate::object::holes::RegionKind;
use crate::object::{DataBlock, Object};

/// Bytes read at once.
const WINDOW_BYTES: u64 = 4 << 20;
/// Windows read ahead.
const AHEAD: usize = 2;

/// A piece of content.
#[derive(Debug)]
pub struct Chunk {
    /// Start.
    pub offset_bytes: u64,
    /// Length.
    pub len_bytes: u64,
    /// `None` for a hole.
    pub data: Result<Option<Bytes>>,
}

/// An object's content in chunks; dropping it stops the read-ahead.
pub struct Chunks {
    object: Object,
    at_bytes: u64,
    end_bytes: u64,
    next_block: u64,
    under_way: VecDeque<Ahead>,
    ready: VecDeque<DataBlock>,
}

enum Ahead {
    Window(JoinHandle<Vec<DataBlock>>),
    /// Blocks under an unreadable indirect block.
    Unreadable(Range<u64>, DatasetError),
}

impl Drop for Chunks {
    fn drop(&mut self) {
        for ahead in &self.under_way {
            if let Ahead::Window(task) = ahead {
                task.abort();
            }
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

    /// `None` at the end. Continues behind an error.
    #[boxed]
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
                return Some(self.piece(start, start + size, block.data));
            }
            match self.under_way.pop_front() {
                Some(Ahead::Window(task)) => match task.await {
                    Ok(window) => self.ready.extend(window),
                    // The runtime is shutting down.
                    Err(_) => return None,
                },
                Some(Ahead::Unreadable(blocks, error)) => {
                    let (start, end) = (blocks.start * size, blocks.end.saturating_mul(size));
                    if start > self.at_bytes {
                        self.under_way.push_front(Ahead::Unreadable(blocks, error));
                        return Some(self.hole_until(start));
                    }
                    return Some(self.piece(start, end, Err(error)));
                }
                None => return Some(self.hole_until(self.end_bytes)),
            }
        }
    }

    fn piece(&mut self, start: u64, end: u64, data: Result<Option<Bytes>>) -> Chunk {
        let offset_bytes = self.at_bytes;
        self.at_bytes = end.min(self.end_bytes).max(offset_bytes);
        let cut = (offset_bytes - start) as usize..(self.at_bytes - start) as usize;
        let data = data.map(|block| block.map(|bytes| bytes.slice(cut)));
        Chunk { offset_bytes, len_bytes: self.at_bytes - offset_bytes, data }
    }

    fn hole_until(&mut self, end: u64) -> Chunk {
        let offset_bytes = self.at_bytes;
        self.at_bytes = end.min(self.end_bytes);
        Chunk { offset_bytes, len_bytes: self.at_bytes - offset_bytes, data: Ok(None) }
    }

    async fn read_ahead(&mut self) {
        let size = self.object.block_bytes().max(1);
        let end_block = self.end_bytes.min(self.object.capacity_bytes()).div_ceil(size);
        while self.under_way.len() < AHEAD && self.next_block < end_block {
            let first = self.next_block;
            let region = self.object.region(first).await;
            match region.kind {
                RegionKind::Hole => self.next_block = region.end,
                RegionKind::Unreadable(error) => {
                    self.next_block = region.end.min(end_block);
                    self.under_way.push_back(Ahead::Unreadable(first..self.next_block, error));
                }
                RegionKind::Data => {
                    self.next_block = end_block.min(first.saturating_add((WINDOW_BYTES / size).max(1)));
                    let task = read_window(self.object.clone(), first..self.next_block);
                    let task = self.object.objset().pool().runtime().spawn(task);
                    self.under_way.push_back(Ahead::Window(task));
                }
            }
        }
    }
}

async fn read_window(object: Object, range: Range<u64>) -> Vec<DataBlock> {
    object.read_blocks(range).await
}
