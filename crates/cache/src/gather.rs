//! Compacts the memory of cached blocks.
//!
//! Idea: an allocator can't give back a chunk of memory with one block in it, so after a load with other
//! block sizes a cache holds twice the memory of its blocks. Each block is copied, in order of address:
//! copies fill the holes of chunks in use, then new chunks, while one chunk after another becomes free.
//!
//! Locking: a block's shard, twice for a moment, with the copy in between. Concurrent hits, inserts and
//! evictions work as usual.

use bytes::Bytes;
use cenote_policy::BlockId;
use cenote_runtime::{Runtime, WorkKind};

use crate::BlockCache;

/// Bytes moved before other tasks get a turn.
const TURN_BYTES: usize = 1 << 20;

impl BlockCache {
    /// Moves all blocks closer together. Returns the bytes moved.
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
