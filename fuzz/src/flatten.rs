//! Flattens a pool: every block reachable from its uberblock, uncompressed and without checksums.
//!
//! Mutating a real image would mostly test its checksums. A flattened pool has none: all block pointers are
//! rewritten bottom-up to `checksum=off, compression=off`, which every pool may use. So a changed block is
//! always accepted, up to the uberblock, and reaches its parser unfiltered.

use std::collections::HashMap;
use std::ops::Range;

use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::bytes::{Endian, Writer};
use cenote_format::dnode::ObjectType;
use cenote_pool::{Pool, ReadContext, Zbookmark};

/// Bytes of file content kept; the rest becomes holes.
const CONTENT_BYTES: usize = 64 << 10;
/// Longest space map block kept if the pool is only read.
const SPACE_MAP_BYTES: usize = 4 << 10;
/// Index of a block pointer's property word.
const PROP: usize = 6;
const SECTOR_BYTES: u64 = 512;

/// A flattened pool.
pub struct Flat {
    /// Pointer for the uberblock.
    pub rootbp: Blkptr,
    /// All blocks, children before their parents.
    pub blocks: Vec<FlatBlock>,
}

/// A block of a flattened pool.
pub struct FlatBlock {
    /// Offset on the vdev.
    pub offset_bytes: u64,
    /// Type of the content at level 0.
    pub object_type: ObjectType,
    /// 0 for content, 1 and up for an indirect block.
    pub level: u8,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Space for flattened blocks, and blocks to leave out.
pub struct Room {
    /// Free ranges of vdev 0, in order.
    pub extents: Vec<Range<u64>>,
    /// Keep long space maps, for a pool that will be written.
    pub keep_space_maps: bool,
}

/// Flattens a pool on one disk.
///
/// # Panics
/// If the room is too small.
pub async fn flatten(pool: &Pool, room: Room) -> Flat {
    let mut flattener = Flattener { pool, room, blocks: Vec::new(), moved: HashMap::new(), content_bytes: 0 };
    let rootbp = Box::pin(flattener.block(&pool.uberblock().rootbp)).await;
    Flat { rootbp, blocks: flattener.blocks }
}

struct Flattener<'a> {
    pool: &'a Pool,
    room: Room,
    blocks: Vec<FlatBlock>,
    moved: HashMap<[u64; 16], Blkptr>,
    content_bytes: usize,
}

impl Flattener<'_> {
    /// Copies a block and everything below it. Returns a hole if it is unreadable or left out.
    async fn block(&mut self, bp: &Blkptr) -> Blkptr {
        if bp.is_hole() || bp.is_embedded() {
            return *bp;
        }
        if let Some(moved) = self.moved.get(bp.words()) {
            return *moved;
        }
        let Ok(bytes) = self.pool.read(bp, &ReadContext::new(Zbookmark::default())).await else {
            return Blkptr::HOLE;
        };
        let mut bytes = bytes.to_vec();
        match bp.object_type() {
            _ if bp.level() > 0 => {
                for at in (0..bytes.len()).step_by(BLKPTR_BYTES) {
                    self.pointer(&mut bytes, at, bp.endian()).await;
                }
            }
            ObjectType::DNODE => self.dnodes(&mut bytes, bp.endian()).await,
            ObjectType::OBJSET => {
                for at in [0, 1024, 1536, 2048] {
                    self.dnode(&mut bytes, at, bp.endian()).await;
                }
            }
            ObjectType::PLAIN_FILE_CONTENTS | ObjectType::ZVOL => {
                if self.content_bytes + bytes.len() > CONTENT_BYTES {
                    return Blkptr::HOLE;
                }
                self.content_bytes += bytes.len();
            }
            ObjectType::SPACE_MAP if !self.room.keep_space_maps && bytes.len() > SPACE_MAP_BYTES => {
                return Blkptr::HOLE;
            }
            _ => {}
        }
        let moved = self.append(bp, bytes);
        self.moved.insert(*bp.words(), moved);
        moved
    }

    async fn dnodes(&mut self, block: &mut [u8], endian: Endian) {
        let mut at = 0;
        while at < block.len() {
            let extra_slots = if block[at] == 0 { 0 } else { usize::from(block[at + 12]) };
            self.dnode(block, at, endian).await;
            at += 512 * (1 + extra_slots);
        }
    }

    /// Rewrites the pointers of the dnode at `at`: its own, its spill block's, and a dataset's in its bonus.
    async fn dnode(&mut self, block: &mut [u8], at: usize, endian: Endian) {
        const SPILL_FLAG: u8 = 1 << 2;
        const DATASET_BP_AT: usize = 128;
        if block.get(at).is_none_or(|&object_type| object_type == 0) {
            return;
        }
        let (count, bonus_type, flags) = (block[at + 3], ObjectType(block[at + 4]), block[at + 7]);
        let bytes = 512 * (1 + usize::from(block[at + 12]));
        let bonus_at = at + 64 + BLKPTR_BYTES * usize::from(count);
        for pointer_at in (at + 64..bonus_at).step_by(BLKPTR_BYTES) {
            self.pointer(block, pointer_at, endian).await;
        }
        if flags & SPILL_FLAG != 0 {
            self.pointer(block, at + bytes - BLKPTR_BYTES, endian).await;
        }
        if bonus_type == ObjectType::DSL_DATASET {
            self.pointer(block, bonus_at + DATASET_BP_AT, endian).await;
        }
    }

    async fn pointer(&mut self, block: &mut [u8], at: usize, endian: Endian) {
        let Some(raw) = block.get_mut(at..at + BLKPTR_BYTES) else { return };
        let Ok(bp) = Blkptr::decode(raw, endian) else { return };
        let moved = Box::pin(self.block(&bp)).await;
        let mut writer = Writer::new(endian);
        moved.write(&mut writer);
        block[at..at + BLKPTR_BYTES].copy_from_slice(&writer.finish());
    }

    /// Takes the next free range of this length.
    fn take(&mut self, bytes: u64) -> u64 {
        let extent = self.room.extents.iter_mut().find(|extent| extent.end - extent.start >= bytes);
        let extent = extent.unwrap_or_else(|| panic!("no room for {bytes} bytes of a flattened pool"));
        let start = extent.start;
        extent.start += bytes;
        start
    }

    /// Places a block. Returns the pointer to it.
    fn append(&mut self, bp: &Blkptr, mut bytes: Vec<u8>) -> Blkptr {
        const OFF: u64 = 2; // ZIO_CHECKSUM_OFF and ZIO_COMPRESS_OFF both
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES as usize), 0);
        let sectors = bytes.len() as u64 / SECTOR_BYTES;
        let offset_bytes = self.take(bytes.len() as u64);
        let old = bp.words();
        let mut words = [0; 16];
        words[0] = sectors;
        words[1] = offset_bytes / SECTOR_BYTES;
        // New sizes, compression and checksum; no dedup and crypt bits; the old type, level and byte order.
        let kept = old[PROP] & (1 << 63 | 0x1f << 56 | 0xff << 48);
        words[PROP] = kept | OFF << 40 | OFF << 32 | (sectors - 1) << 16 | (sectors - 1);
        words[10..12].copy_from_slice(&old[10..12]);
        self.blocks.push(FlatBlock { offset_bytes, object_type: bp.object_type(), level: bp.level(), bytes });
        Blkptr::from_words(words)
    }
}
