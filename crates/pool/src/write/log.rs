//! Blocks of intent logs. Each is allocated before its content is known, because the previous block must
//! point to it.
//!
//! Its checksum and, if encrypted, its MAC are inside; salt and IV are chosen with its address and used for
//! its single write.
//!
//! Source: OpenZFS `zio_alloc_zil`, `zio_encrypt`, `zio_checksum_compute`.

use super::place::Placing;
use super::{WriteProps, refused};
use crate::alloc::Allocator;
use crate::check::native_endian;
use crate::context::ReadContext;
use crate::crypt::{self, DatasetKey};
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::vdev::unflushed::FlushMark;
use crate::vdev::write::{Asked, Durable};
use crate::zbookmark::Zbookmark;
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_codec::checksum::{Checksum, Stored};
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlkptrKind, Dva};
use cenote_format::units::{Psize, Txg, VdevId};

/// Bytes prepared at a time.
const READY_BYTES: usize = 1 << 20;

/// Blocks of a pool's intent logs.
#[derive(Clone, Copy)]
pub struct LogBlocks<'a>(&'a Pool);

impl Pool {
    /// Blocks of intent logs.
    pub fn log_blocks(&self) -> LogBlocks<'_> {
        LogBlocks(self)
    }
}

impl LogBlocks<'_> {
    /// Reads an intent-log block, decrypted if its pointer says so and a key is given. On another checksum
    /// than announced, the block was never written and the chain ends: [`PoolError::Checksum`], counted only
    /// if the log was claimed with the block ([`ReadContext::of_log`]).
    #[boxed]
    pub async fn read(&self, bp: &Blkptr, ctx: &ReadContext) -> Result<Bytes> {
        let stored = self.0.as_stored().read(bp, ctx).await?;
        if bp.is_encrypted() { crypt::decrypt(bp, stored, ctx) } else { Ok(stored) }
    }

    /// Allocates, in txg `txg`, the exact address of an intent-log block that no space map contains.
    ///
    /// # Errors
    /// The space is taken; or a gang's header can't be read.
    #[boxed]
    pub async fn claim(&self, space: &Allocator, bp: &Blkptr, ctx: &ReadContext, txg: Txg) -> Result<()> {
        self.0.each_address(bp, ctx, |lost, _| Err(lost), |dva, _| space.claim(dva, txg)).await
    }

    /// Allocates a log block of `len` bytes in txg `txg`. `chain` identifies it: two random words of the log,
    /// the object set, the sequence number. Of `props`, class, copies, key and place are used; the type must
    /// be the log's.
    pub fn allocate(
        &self,
        space: &Allocator,
        len: u64,
        chain: [u64; 4],
        props: &WriteProps,
        txg: Txg,
    ) -> Result<Blkptr> {
        let identity = props.identity(len, txg);
        let bp = Blkptr::block(&identity, Psize(len), Compression::Off as u8, Checksum::Zilog2 as u8, 0);
        let bp = match &props.key {
            Some(key) => bp.with_crypt(&crypt::fresh_params(self.0.runtime(), key)),
            None => bp,
        };
        let dvas = Placing::new(self.0, space, props, (&bp, Psize(len)), txg)
            .allocate(len as usize, props.copies_of(&bp))?;
        Ok(bp.with_checksum(&chain).with_dvas(&dvas))
    }

    /// Whether the host file system must still allocate part of a log block.
    pub async fn is_in_hole(&self, bp: &Blkptr) -> bool {
        for dva in bp.dvas() {
            if self.0.tree().vdevs().has_hole(&dva, bp.psize(), bp.physical_birth()).await {
                return true;
            }
        }
        false
    }

    /// Writes zeros where the next log blocks will lie. A write to a hole of a sparse file is durable only
    /// after a commit of the host's journal, which costs more than the write; one then serves a hundred
    /// blocks. The caller keeps txg `txg` open and must not be cancelled.
    #[boxed]
    pub async fn fill_behind(&self, space: &Allocator, bp: &Blkptr, txg: Txg) {
        for dva in bp.dvas() {
            let Some(behind) = space.claim_behind(&dva, Psize(READY_BYTES as u64), txg) else { continue };
            let zeros = Bytes::from(vec![0; READY_BYTES]);
            // A failure here will recur where it matters.
            drop(self.0.write_copies(&[behind], &zeros, txg, self.0.for_log(txg, Durable::AtOnce)).await);
            let undone = space.unallocate(&behind, txg);
            debug_assert!(undone.is_ok(), "{undone:?}: it was claimed above");
        }
    }

    /// Writes a log block to its address, only once. Its header's used count must be set.
    ///
    /// # Errors
    /// [`PoolError::NotWritten`] if any copy could not be written.
    #[boxed]
    pub async fn write(
        &self,
        bp: &Blkptr,
        block: Bytes,
        key: Option<&DatasetKey>,
        place: Zbookmark,
        durable: Durable,
    ) -> Result<()> {
        if bp.kind() != BlkptrKind::Normal || bp.psize().0 != block.len() as u64 {
            return Err(refused(
                place,
                format!("{} bytes are not the size in the log block's pointer", block.len()),
            ));
        }
        let mut block = Vec::from(block);
        let mut holds = Stored::Checksum;
        if bp.uses_crypt() {
            let key = key.ok_or(PoolError::NoKey { dataset: place.dataset })?;
            crypt::seal_log_block(bp, &mut block, key)
                .map_err(|error| PoolError::Encrypt { place, why: error.to_string().into() })?;
            holds = Stored::ChecksumAndMac;
        }
        Checksum::Zilog2
            .seal_as(&mut block, bp.checksum(), native_endian(), holds)
            .map_err(|error| refused(place, error.to_string()))?;
        debug_assert!(Checksum::Zilog2.verify_embedded(&block, bp.checksum(), holds).is_ok());
        let dvas: Vec<Dva> = bp.dvas().collect();
        let txg = bp.physical_birth().txg();
        self.0.overwrite_copies(&dvas, &block.into(), txg, place, self.0.for_log(txg, durable)).await
    }

    /// A mark before writes for [`LogBlocks::flush`].
    pub fn mark(&self) -> FlushMark {
        self.0.tree().missed().mark()
    }

    /// Makes writes to some vdevs since a mark durable, in txgs first to last.
    ///
    /// # Errors
    /// As [`Pool::flush`]; also if another caller's flush has failed since.
    #[boxed]
    pub async fn flush(&self, vdevs: &[VdevId], since: FlushMark, txgs: (Txg, Txg)) -> Result<()> {
        self.0.flush_only(Some(vdevs), Asked::Since(since, txgs)).await
    }
}
