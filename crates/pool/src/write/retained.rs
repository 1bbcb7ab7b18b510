//! Retains blocks of a txg until a flush has made them durable, so that they can be rewritten.
//!
//! Idea: a failed flush may have lost all writes since the previous one, and is reported once
//! (`vdev/unflushed`). So a pool that waits (`suspend`) keeps the bytes, rewrites them to their addresses and
//! flushes again. A block overwritten in a later sync pass replaces its retained version.
//!
//! Memory: up to [`RETAINED_BYTES_MAX`] and the writes in flight; beyond that the txg is flushed early. If a
//! device has missed some of it by then, a later failure is final, as for blocks copied by a removal or
//! expansion.
//!
//! Locking: one mutex, taken once per block, never across an await. `flushing` serialises flushes of txgs.
//!
//! Source: none; OpenZFS keeps dirty buffers until the txg is synced, but does not rewrite them.

pub(crate) mod blocks;

use crate::error::Result;
use crate::pool::Pool;
use crate::suspend::Tries;
use crate::vdev::queue::IoClass;
use crate::vdev::unflushed::Stake;
use crate::vdev::write::{Durable, How};
use crate::zbookmark::Zbookmark;
use blocks::Blocks;
use bytes::Bytes;
use cenote_format::blkptr::Dva;
use cenote_format::units::Txg;

/// Beyond it, the txg is flushed early.
const RETAINED_BYTES_MAX: u64 = 128 << 20;

impl Pool {
    pub(super) async fn retain(&self, dvas: &[Dva], bytes: &Bytes, txg: Txg) {
        if self.suspension().failmode().is_none() {
            return;
        }
        let is_much = {
            let mut blocks = self.retained().blocks.lock();
            dvas.iter().for_each(|dva| blocks.keep(dva, bytes));
            blocks.bytes() > RETAINED_BYTES_MAX && !blocks.is_partial
        };
        if is_much {
            self.flush_on_the_way(txg).await;
        }
    }

    /// Forgets freed space, which may have a new owner.
    pub(super) fn forget_retained(&self, dvas: &[Dva]) {
        let mut blocks = self.retained().blocks.lock();
        dvas.iter().for_each(|dva| blocks.forget(dva));
    }

    /// Flushes early, so that not all of a large txg must be retained.
    async fn flush_on_the_way(&self, txg: Txg) {
        let _alone = self.retained().flushing.lock().await;
        let before = {
            let mut blocks = self.retained().blocks.lock();
            if blocks.bytes() <= RETAINED_BYTES_MAX {
                return;
            }
            blocks.begin_flush()
        };
        let is_durable = self.flush(txg).await.is_ok();
        let is_everywhere = !self
            .tree()
            .vdevs()
            .leaves()
            .iter()
            .any(|leaf| self.tree().missed().has_any(leaf.guid, (txg, txg)));
        if is_durable {
            let mut blocks = self.retained().blocks.lock();
            blocks.is_partial |= !is_everywhere;
            blocks.flushed(before);
        }
    }

    /// Makes a txg's blocks durable; if devices fail, once they work again.
    ///
    /// # Errors
    /// Those of [`Pool::flush`], if the pool does not wait, or not all possible losses are retained.
    pub(crate) async fn flush_tree(&self, txg: Txg) -> Result<()> {
        assert!(self.is_all_written(), "nothing may lead to a block that is not on disk");
        let mut tries = self.begin_tries();
        while let Err(error) = self.flush(txg).await {
            let can_be_repeated = !self.retained().blocks.lock().is_partial && self.forget_lost(txg);
            if self.suspension().failmode().is_none() || !can_be_repeated {
                return Err(error);
            }
            self.wait_out(&mut tries, txg, error).await?;
            // From here on a leaf has the txg's blocks if it takes them, despite earlier misses.
            self.tree().missed().begin_again(Some(txg));
            self.write_retained(txg, &mut tries).await?;
        }
        self.tree().missed().begin_again(None);
        *self.retained().blocks.lock() = Blocks::default();
        self.end_tries(tries);
        Ok(())
    }

    /// The txg is rewritten. Returns whether that covers all losses.
    fn forget_lost(&self, txg: Txg) -> bool {
        self.tree().vdevs().leaves().iter().map(|leaf| leaf.forget_lost(txg)).fold(true, |all, one| all & one)
    }

    async fn write_retained(&self, txg: Txg, tries: &mut Tries) -> Result<()> {
        let blocks = self.retained().blocks.lock().all();
        let how = How { class: IoClass::AsyncWrite, durable: Durable::Flushed, stake: Stake::tree(txg) };
        for (dva, bytes) in blocks {
            let place = Zbookmark::default();
            while let Err(error) = self.overwrite_copies(&[dva], &bytes, txg, place, how).await {
                self.wait_out(tries, txg, error).await?;
            }
        }
        Ok(())
    }
}
