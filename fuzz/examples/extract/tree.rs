//! A pool flattened: every block reachable from its uberblock, uncompressed and without checksums, one after the other.
//!
//! Mutating a real image tests little but its checksums. A tree has none: all block pointers are rewritten bottom-up to say
//! `checksum=off, compression=off`, which every pool may. So a changed byte goes straight to the parser above.
//!
//! Layout: see `cenote_fuzz::targets::stack`, which opens it.

use std::collections::HashMap;

use cenote_dataset::Mos;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::bytes::{Endian, Writer};
use cenote_format::dnode::ObjectType;
use cenote_format::uberblock::Uberblock;
use cenote_fuzz::targets::stack::join;
use cenote_pool::{Place, Pool, ReadContext};

use super::Failure;

/// File content kept in all; the rest become holes.
const CONTENT_BYTES: usize = 64 << 10;
/// Longest block of a space map that is kept.
const SPACE_MAP_BYTES: usize = 4 << 10;
/// Words of a block pointer.
const PROP: usize = 6;

/// The pool as a tree; `None` if it has more than one disk.
pub async fn flatten(mos: &Mos) -> Result<Option<Vec<u8>>, Failure> {
    let pool = mos.pool();
    if pool.found().devices.len() != 1 || !pool.config().vdevs.iter().all(|vdev| vdev.is_leaf()) {
        return Ok(None);
    }
    let mut flattener = Flattener { pool, blocks: Vec::new(), moved: HashMap::new(), content_bytes: 0 };
    let rootbp = Box::pin(flattener.block(&pool.uberblock().rootbp)).await;
    let uberblock = Uberblock { rootbp, ..*pool.uberblock() };
    Ok(Some(join(&mos.config().encode(), &uberblock.encode(), &flattener.blocks)))
}

struct Flattener<'a> {
    pool: &'a Pool,
    blocks: Vec<u8>,
    moved: HashMap<[u64; 16], Blkptr>,
    content_bytes: usize,
}

impl Flattener<'_> {
    /// Copies a block and all below it; a hole if it can't be read or isn't wanted.
    async fn block(&mut self, bp: &Blkptr) -> Blkptr {
        if bp.is_hole() || bp.is_embedded() {
            return *bp;
        }
        if let Some(moved) = self.moved.get(bp.words()) {
            return *moved;
        }
        let Ok(bytes) = self.pool.read(bp, &ReadContext::new(Place::default())).await else {
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
                self.content_bytes += bytes.len();
                if self.content_bytes > CONTENT_BYTES {
                    return Blkptr::HOLE;
                }
            }
            ObjectType::SPACE_MAP if bytes.len() > SPACE_MAP_BYTES => return Blkptr::HOLE,
            _ => {}
        }
        let moved = self.append(bp, &bytes);
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

    /// Puts a block at the end, and points to it.
    fn append(&mut self, bp: &Blkptr, bytes: &[u8]) -> Blkptr {
        const OFF: u64 = 2; // ZIO_CHECKSUM_OFF and ZIO_COMPRESS_OFF both
        let offset_sectors = (self.blocks.len() / 512) as u64;
        let sectors = bytes.len().div_ceil(512) as u64;
        self.blocks.extend_from_slice(bytes);
        self.blocks.resize(self.blocks.len().next_multiple_of(512), 0);
        let old = bp.words();
        let mut words = [0; 16];
        words[0] = sectors;
        words[1] = offset_sectors;
        // Sizes, compression and checksum new; dedup and crypt bits gone; type, level, byte order kept.
        let kept = old[PROP] & (1 << 63 | 0x1f << 56 | 0xff << 48);
        words[PROP] = kept | OFF << 40 | OFF << 32 | (sectors - 1) << 16 | (sectors - 1);
        words[10..12].copy_from_slice(&old[10..12]);
        Blkptr::from_words(words)
    }
}
