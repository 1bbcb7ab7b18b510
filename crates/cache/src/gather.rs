//! Cached blocks, moved closer together.
//!
//! Idea: an allocator hands out memory in pieces of some blocks, and a piece with one block in it can't be
//! given back. After loads of other sizes a cache so keeps twice the memory that its blocks take. So each
//! block is copied: the copies fill what is free in pieces that are in use, and new pieces from end to end.
//! It goes in the order of addresses, so that piece after piece becomes free on the way, and little more
//! memory is taken meanwhile. Nothing outside tells in which order that was.
//!
//! Locking: a block's shard, twice for a moment; the copy is made between. What is hit, inserted or evicted
//! meanwhile is as if nothing had been moved.

use bytes::Bytes;
use cenote_policy::BlockId;
use cenote_runtime::{Runtime, WorkKind};

use crate::BlockCache;

/// Bytes that are moved before others get their turn.
const TURN_BYTES: usize = 1 << 20;

impl BlockCache {
    /// Moves all blocks closer together, so that the allocator can give back what lies free between them.
    /// Answers how many bytes were moved.
    pub async fn gather(&self, runtime: &Runtime) -> u64 {
        let listed = self.shards.iter().map(|shard| shard.read().addresses());
        let mut blocks: Vec<(usize, BlockId)> = listed.flatten().collect();
        blocks.sort_unstable();
        let (mut moved_bytes, mut turn_bytes) = (0, 0);
        for (_, id) in blocks {
            let len_bytes = self.move_block(id);
            moved_bytes += len_bytes as u64;
            turn_bytes += len_bytes;
            if turn_bytes >= TURN_BYTES {
                runtime.work(WorkKind::Copy, turn_bytes as u64).await;
                runtime.yield_now().await;
                turn_bytes = 0;
            }
        }
        moved_bytes
    }

    fn move_block(&self, id: BlockId) -> usize {
        let Some(old) = self.shard(id).read().bytes(id) else { return 0 };
        let new = Bytes::copy_from_slice(&old);
        let moved = self.shard(id).write().replace(id, &old, new);
        if moved { old.len() } else { 0 }
    }
}
