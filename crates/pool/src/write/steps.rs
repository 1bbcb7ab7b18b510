//! A write in steps: for a txg, which prepares blocks on many cores and writes its metadata in one batch.
//!
//! ```text
//!   prepare   all that needs no address       later    prepare, and an address at once
//!   store     an address, and the write       finish   the writes of all later blocks
//! ```
//!
//! Source: OpenZFS `zio.c`, whose pipeline has these stages for each block.

use super::pack::Packed;
use super::place::Placing;
use super::{WriteProps, Written, check_request};
use crate::alloc::Allocator;
use crate::check::Check;
use crate::error::Result;
use crate::pool::Pool;
use crate::vdev::queue::IoClass;
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{Psize, Txg};

/// A prepared block.
#[derive(Debug)]
pub enum Prepared {
    /// It needs no address, or has one already.
    Written(Written),
    /// It needs an address.
    Block {
        /// Its pointer without addresses.
        bp: Blkptr,
        /// Its bytes as stored.
        stored: Bytes,
    },
}

/// A txg's writes to a pool, in steps.
#[derive(Clone, Copy)]
pub struct TxgWrites<'a>(pub(super) &'a Pool);

impl Pool {
    /// A txg's writes, in steps.
    pub fn txg_writes(&self) -> TxgWrites<'_> {
        TxgWrites(self)
    }
}

impl TxgWrites<'_> {
    /// The first half of [`Pool::write`]: everything that needs no address.
    ///
    /// # Errors
    /// An impossible request.
    #[boxed]
    pub async fn prepare(&self, data: Bytes, props: &WriteProps, txg: Txg) -> Result<Prepared> {
        check_request(&data, props)?;
        let identity = props.identity(data.len() as u64, txg);
        let new = |bp| Prepared::Written(Written { bp, keeps_place: false });
        let (stored, compression) = match self.0.pack(&data, props, txg).await? {
            Packed::Hole if props.hole_birth && props.previous.logical_birth() != Txg(0) => {
                return Ok(new(Blkptr::hole(&identity)));
            }
            Packed::Hole => return Ok(new(Blkptr::HOLE)),
            Packed::Embedded(bp) => return Ok(new(bp)),
            Packed::Stored { bytes, compression } => (bytes, compression),
        };
        let psize = Psize(stored.len() as u64);
        let bp = Blkptr::block(&identity, psize, compression as u8, props.checksum as u8, props.fill);
        let (bp, stored) = self.0.protect(bp, stored, &data, props).await?;
        let bp = self.0.with_checksum_of(bp, &stored, props).await?;
        debug_assert!(Check::of(&bp, self.0.salt()).is_ok_and(|check| check.verify(&stored).is_ok()));
        if props.nop_write && self.0.is_unchanged(&bp, props) {
            return Ok(Prepared::Written(Written { bp: props.previous, keeps_place: true }));
        }
        Ok(Prepared::Block { bp, stored })
    }

    /// The second half of [`Pool::write`].
    ///
    /// # Errors
    /// Those of [`Pool::write`].
    #[boxed]
    pub async fn store(
        &self,
        space: &Allocator,
        bp: Blkptr,
        stored: &Bytes,
        props: &WriteProps,
        txg: Txg,
    ) -> Result<Written> {
        let psize = Psize(stored.len() as u64);
        if self.0.may_overwrite(&bp, psize, props, txg)
            && let Some(bp) = self.0.overwrite(bp, &props.previous, stored, props.place).await
        {
            return Ok(Written { bp, keeps_place: true });
        }
        let mut tries = self.0.begin_tries();
        let bp = loop {
            let mut placing = Placing::new(self.0, space, props, (&bp, psize), txg);
            let error = match self.0.place(&mut placing, bp, stored).await {
                Ok(bp) => break bp,
                Err(error) => error,
            };
            self.0.forget_retained(placing.taken());
            placing.give_all_back();
            if self.0.writes() == IoClass::SyncWrite {
                return Err(error);
            }
            self.0.wait_out(&mut tries, txg, error).await?;
        };
        self.0.end_tries(tries);
        assert_eq!(bp.psize(), psize, "{}: the pointer has another size", props.place);
        Ok(Written { bp, keeps_place: false })
    }
}
