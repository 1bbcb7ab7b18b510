//! The write pipeline: from bytes to a block pointer.
//!
//! ```text
//!   zeros?      a hole, nothing is stored
//!   compress    an eighth must be saved                         (`write::pack`)
//!   embed?      a small payload stays in the pointer
//!   encrypt     or authenticate                                 (`crypt`)
//!   checksum
//!   unchanged?  the previous pointer stays                      (nop-write)
//!   in place?   a block of this very txg is overwritten         (sync passes from 2 on)
//!   allocate    and write all copies; elsewhere if that fails   (`write::place`)
//!   gang        if no free range is long enough                 (`write::gang`)
//! ```
//!
//! Metadata of a txg gets its address at once, and is written later in one batch (`write::later`).
//!
//! Invariants: nothing is durable before [`Pool::flush`]; nothing is reachable before an uberblock leads to
//! it. If a write finally fails, its allocations are undone. A pool that waits (`suspend`) retries.
//!
//! Memory: a write holds its block as given and as stored, plus parity; the caller bounds concurrent writes.
//!
//! Source: OpenZFS `zio.c` (`zio_write_compress`, `zio_encrypt`, `zio_checksum_generate`, `zio_nop_write`,
//! `zio_dva_allocate`).

mod as_it_came;
mod free;
mod gang;
pub(crate) mod later;
mod log;
mod pack;
mod place;
mod restore;
pub(crate) mod retained;
mod steps;

use crate::alloc::{AllocClass, Allocator};
use crate::check::{checksum_work, native_endian};
use crate::crypt::{self, DatasetKey};
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::vdev::Layout;
use crate::vdev::write::{Asked, NotWritten};
use crate::zbookmark::Zbookmark;
pub use as_it_came::StoredBlock;
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_format::blkptr::{Blkptr, BlkptrKind, BlockIdentity, Dva, SPA_DVAS_PER_BP};
use cenote_format::dnode::ObjectType;
use cenote_format::units::{Lsize, Psize, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE, Txg, VdevId};
pub use log::LogBlocks;
pub use restore::{Kept, Restored};
use std::sync::Arc;
pub use steps::{Prepared, TxgWrites};

/// `zfs_sync_pass_rewrite`: later passes overwrite blocks of the same txg in place.
const SYNC_PASS_REWRITE: u32 = 2;
/// `zfs_sync_pass_dont_compress`: later passes do not compress, to keep sizes.
const SYNC_PASS_DONT_COMPRESS: u32 = 8;

/// How to write a block. Properties are resolved: no "inherit", no "on".
#[derive(Debug, Clone)]
pub struct WriteProps {
    /// Only its level has an effect; the rest is for errors.
    pub place: Zbookmark,
    /// Object type.
    pub object_type: ObjectType,
    /// Checksum. With [`Checksum::Off`] damage cannot be detected.
    pub checksum: Checksum,
    /// [`Compression::Off`] stores even zeros; [`Compression::Empty`] only turns zeros into holes.
    pub compression: Compression,
    /// For [`Compression::Zstd`].
    pub zstd_level: ZstdLevel,
    /// 1 to 3; at most 2 if encrypted.
    pub copies: u8,
    /// Level-0 blocks below, without holes; for a dnode block, its used dnodes.
    pub fill: u64,
    /// Allocation class; `None`: by type, level and stored size ([`Allocator::preferred_class`]).
    pub class: Option<AllocClass>,
    /// Data stored in at most this many bytes goes to special vdevs; 0: none.
    pub special_small_blocks: u64,
    /// The dataset's key, if encrypted.
    pub key: Option<Arc<DatasetKey>>,
    /// Written without the dataset's key: blocks come encrypted; indirect blocks need no key.
    pub raw: bool,
    /// Small payloads go into the pointer (`embedded_data` is enabled).
    pub embed: bool,
    /// Holes remember their birth (feature `hole_birth` is active).
    pub hole_birth: bool,
    /// A gang's header fills its space (`dynamic_gang_header` is active).
    pub large_gang_headers: bool,
    /// An equal previous block stays.
    pub nop_write: bool,
    /// The replaced pointer, or [`Blkptr::HOLE`].
    pub previous: Blkptr,
    /// Counted from 1; from 2 on, a previous block of the same txg and size is overwritten.
    pub sync_pass: u32,
}

impl WriteProps {
    /// One copy, lz4 and fletcher4, the default for metadata and data; everything else off.
    pub fn new(place: Zbookmark, object_type: ObjectType) -> WriteProps {
        WriteProps {
            place,
            object_type,
            checksum: Checksum::Fletcher4,
            compression: Compression::Lz4,
            zstd_level: ZstdLevel::DEFAULT,
            copies: 1,
            fill: 1,
            class: None,
            special_small_blocks: 0,
            key: None,
            raw: false,
            embed: false,
            hole_birth: false,
            large_gang_headers: false,
            nop_write: false,
            previous: Blkptr::HOLE,
            sync_pass: 1,
        }
    }

    /// Pointers or MACs inside it are needed without the key.
    fn must_stay_readable(&self) -> bool {
        let parsed = matches!(self.object_type, ObjectType::DNODE | ObjectType::OBJSET);
        (self.key.is_some() || self.raw) && self.place.level == 0 && parsed
    }

    /// An earlier pass of this txg wrote the previous block.
    fn is_written_again(&self, txg: Txg) -> bool {
        self.previous.kind() == BlkptrKind::Normal && self.previous.physical_birth().txg() == txg
    }

    fn identity(&self, lsize: u64, txg: Txg) -> BlockIdentity {
        BlockIdentity {
            lsize: Lsize(lsize),
            object_type: self.object_type,
            level: self.place.level,
            birth: txg,
        }
    }

    fn copies_of(&self, bp: &Blkptr) -> usize {
        let room = if bp.is_encrypted() { SPA_DVAS_PER_BP - 1 } else { SPA_DVAS_PER_BP };
        usize::from(self.copies).clamp(1, room)
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The new pointer.
    pub bp: Blkptr,
    /// The previous address stays: nothing was allocated, and the caller must not free it.
    pub keeps_place: bool,
}

impl Pool {
    /// Writes a block of 512 bytes to 16 MiB in whole sectors, in txg `txg`. The caller frees the previous
    /// block unless [`Written::keeps_place`].
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]; [`PoolError::NotWritten`] if no vdev accepts it; an impossible request.
    #[boxed]
    pub async fn write(
        &self,
        space: &Allocator,
        data: Bytes,
        props: &WriteProps,
        txg: Txg,
    ) -> Result<Written> {
        match self.txg_writes().prepare(data, props, txg).await? {
            Prepared::Written(written) => Ok(written),
            Prepared::Block { bp, stored } => self.txg_writes().store(space, bp, &stored, props, txg).await,
        }
    }

    /// Makes all earlier writes durable. A device that fails has missed txg `txg`.
    ///
    /// # Errors
    /// [`PoolError::Unavailable`] if more devices of a vdev fail than it has redundancy for.
    #[boxed]
    pub async fn flush(&self, txg: Txg) -> Result<()> {
        self.flush_only(None, Asked::Tree(txg)).await
    }

    async fn flush_only(&self, only: Option<&[VdevId]>, asked: Asked) -> Result<()> {
        let flushed = self.tree().vdevs().flush(only, asked).await;
        flushed.map_err(|NotWritten { vdev, why }| PoolError::Unavailable {
            pool: self.name().into(),
            vdev,
            why,
        })
    }

    async fn protect(
        &self,
        bp: Blkptr,
        stored: Bytes,
        clear: &Bytes,
        props: &WriteProps,
    ) -> Result<(Blkptr, Bytes)> {
        let Some(key) = &props.key else {
            return if props.raw { without_key(bp, stored, clear, props) } else { Ok((bp, stored)) };
        };
        self.runtime().work(crypt::work(key), stored.len() as u64).await;
        crypt::encrypt(self.runtime(), bp, stored, clear, key)
            .map_err(|error| PoolError::Encrypt { place: props.place, why: error.to_string().into() })
    }

    async fn with_checksum_of(&self, bp: Blkptr, stored: &[u8], props: &WriteProps) -> Result<Blkptr> {
        let checksum = props.checksum;
        self.runtime().work(checksum_work(checksum), stored.len() as u64).await;
        let words = checksum.compute(stored, native_endian(), self.salt());
        let words = words.map_err(|error| refused(props.place, error.to_string()))?;
        let beside_mac = bp.uses_crypt() && props.object_type != ObjectType::OBJSET;
        Ok(if beside_mac { bp.with_checksum(&checksum.beside_mac(words)) } else { bp.with_checksum(&words) })
    }

    /// Whether only the birth would change. Never on removed vdevs.
    fn is_unchanged(&self, bp: &Blkptr, props: &WriteProps) -> bool {
        let previous = &props.previous;
        let dvas: Vec<Dva> = previous.dvas().collect();
        let at_its_place = bp.with_dvas(&dvas).with_births_of(previous).with_fill(previous.fill());
        let is_removed = |dva: &Dva| {
            self.tree()
                .vdevs()
                .layout_of(dva.vdev)
                .is_none_or(|top| matches!(top.layout, Layout::Indirect(_)))
        };
        previous.kind() == BlkptrKind::Normal
            && props.checksum.is_nop_write_safe()
            && !bp.uses_crypt()
            && at_its_place == *previous
            && dvas.len() == props.copies_of(bp)
            && !dvas.iter().any(is_removed)
    }

    /// Whether the block may overwrite the previous one of this txg. Not if deduplicated, because other
    /// pointers may lead to it; nor if encrypted, because copies of the disk could hold two blocks under one
    /// key at one address.
    fn may_overwrite(&self, bp: &Blkptr, psize: Psize, props: &WriteProps, txg: Txg) -> bool {
        let previous = &props.previous;
        props.sync_pass >= SYNC_PASS_REWRITE
            && props.is_written_again(txg)
            && previous.logical_birth() == txg
            && previous.psize() == psize
            && !previous.is_dedup()
            && !bp.uses_crypt()
            && !previous.uses_crypt()
    }

    /// `None` if that fails: then the block goes elsewhere.
    async fn overwrite(
        &self,
        bp: Blkptr,
        previous: &Blkptr,
        stored: &Bytes,
        place: Zbookmark,
    ) -> Option<Blkptr> {
        let dvas: Vec<Dva> = previous.dvas().collect();
        let bp = bp.with_dvas(&dvas);
        let txg = bp.physical_birth().txg();
        if previous.is_gang() {
            return self.overwrite_gang(bp, stored, place).await.ok().map(|()| bp);
        }
        self.write_copies(&dvas, stored, txg, self.for_block(txg)).await.ok().map(|()| bp)
    }
}

/// The blocks that need no key: indirect blocks and the head.
fn without_key(bp: Blkptr, stored: Bytes, clear: &[u8], props: &WriteProps) -> Result<(Blkptr, Bytes)> {
    if bp.level() > 0 {
        return Ok((bp.with_mac(Some(crypt::indirect_mac(clear))), stored));
    }
    match props.object_type == ObjectType::OBJSET {
        true => Ok((bp.with_mac(None), stored)),
        false => Err(refused(props.place, "it would need its dataset's key".to_owned())),
    }
}

fn check_request(data: &[u8], props: &WriteProps) -> Result<()> {
    let len = data.len() as u64;
    let why = if len == 0 || len > SPA_MAXBLOCKSIZE || !len.is_multiple_of(SPA_MINBLOCKSIZE) {
        format!("a block can't have {len} bytes")
    } else if !props.checksum.is_of_pointer() {
        format!("block pointers can't have the checksum {}", props.checksum.name())
    } else if props.key.is_some() && props.object_type == ObjectType::INTENT_LOG {
        "a log block must be written where the block before it says".to_owned()
    } else {
        return Ok(());
    };
    Err(refused(props.place, why))
}

fn refused(place: Zbookmark, why: String) -> PoolError {
    PoolError::BadWrite { place, why: why.into() }
}
