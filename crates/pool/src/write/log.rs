//! Intent-log blocks: each is allocated before its content is known, as the block before it must lead to it.
//!
//! Its checksum and, if encrypted, its MAC are inside; salt and IV are chosen with its place and used for the one write
//! that it gets.
//!
//! Source: OpenZFS `zio_alloc_zil`, `zio_encrypt`, `zio_checksum_compute`.

use super::{Placing, WriteProps, refused};
use crate::alloc::Allocator;
use crate::check::native_endian;
use crate::crypt::{self, DatasetKey};
use crate::error::{PoolError, Result};
use crate::place::Place;
use crate::pool::Pool;
use crate::vdev::write::Durable;
use bytes::Bytes;
use cenote_codec::checksum::{Checksum, Stored};
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlkptrKind, Dva};
use cenote_format::units::{Psize, Txg};

/// So much behind a log block is made ready for the next ones at a time.
const READY_BYTES: usize = 1 << 20;

impl Pool {
    /// Finds a place for a log block of `len` bytes in group `txg`. `chain` are the words that it will be known by: two
    /// random ones of the log, the object set, the position. Of `props` class, copies, key and place are used, and the type must be
    /// the log's.
    pub fn allocate_log_block(
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
            Some(key) => bp.with_crypt(&crypt::fresh_params(self.runtime(), key)),
            None => bp,
        };
        let dvas = Placing::new(space, props, &bp, txg).allocate(len as usize, props.copies_of(&bp))?;
        Ok(bp.with_checksum(&chain).with_dvas(&dvas))
    }

    /// Whether the place of a log block has yet to be found on the file system that the vdev's file lies in, at least in part.
    pub fn is_log_block_in_hole(&self, bp: &Blkptr) -> bool {
        bp.dvas().any(|dva| self.vdevs().has_hole(&dva, bp.psize(), bp.physical_birth()))
    }

    /// Writes zeros behind a log block, where the next ones will lie: a write to a hole of a sparse file is durable only with a commit of the
    /// host's journal, which costs more than the write; here one commit is for a hundred blocks. The caller holds group `txg` open, and must
    /// not go away before this is done.
    pub async fn fill_behind_log_block(&self, space: &Allocator, bp: &Blkptr, txg: Txg) {
        for dva in bp.dvas() {
            let Some(behind) = space.claim_behind(&dva, Psize(READY_BYTES as u64), txg) else { continue };
            let zeros = Bytes::from(vec![0; READY_BYTES]);
            // What fails here will fail again where it matters.
            drop(self.write_copies(&[behind], &zeros, txg, Durable::AtOnce).await);
            let undone = space.unallocate(&behind, txg);
            debug_assert!(undone.is_ok(), "{undone:?}: it was claimed above");
        }
    }

    /// Writes a log block to the place found for it; once only. Its header's used count must be set.
    ///
    /// # Errors
    /// [`PoolError::NotWritten`] if any copy could not be written.
    pub async fn write_log_block(
        &self,
        bp: &Blkptr,
        block: Bytes,
        key: Option<&DatasetKey>,
        place: Place,
        durable: Durable,
    ) -> Result<()> {
        if bp.kind() != BlkptrKind::Normal || bp.psize().0 != block.len() as u64 {
            return Err(refused(place, format!("{} bytes are not what the log foretold", block.len())));
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
        let dvas: Vec<Dva> = bp.dvas().collect();
        self.overwrite_copies(&dvas, &block.into(), bp.physical_birth(), place, durable).await
    }
}
