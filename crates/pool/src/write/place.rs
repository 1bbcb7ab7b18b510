//! Finds an address for a block, and another one if a vdev fails.

use super::{WriteProps, refused};
use crate::alloc::{AllocClass, AllocRequest, Allocator, BlockUse};
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::vdev::queue::IoClass;
use crate::vdev::unflushed::Stake;
use crate::vdev::write::{Durable, How, NotWritten};
use crate::zbookmark::Zbookmark;
use bytes::Bytes;
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::units::{Psize, SPA_MINBLOCKSIZE, Txg, VdevId};
use futures::future::join_all;

pub(super) struct Placing<'a> {
    space: &'a Allocator,
    class: AllocClass,
    pub(super) props: &'a WriteProps,
    pub(super) txg: Txg,
    pub(super) copies: usize,
    taken: Vec<Dva>,
    /// The vdev of the enclosing gang's header.
    pub(super) near: Option<VdevId>,
    avoid: Vec<VdevId>,
    failure: Option<NotWritten>,
}

impl<'a> Placing<'a> {
    /// For a block of this stored size; its pointer has no addresses yet.
    pub(super) fn new(
        pool: &Pool,
        space: &'a Allocator,
        props: &'a WriteProps,
        (bp, psize): (&Blkptr, Psize),
        txg: Txg,
    ) -> Placing<'a> {
        let block_use = BlockUse {
            object_type: props.object_type,
            level: props.place.level,
            psize,
            special_small_blocks: props.special_small_blocks,
        };
        Placing {
            space,
            class: props.class.unwrap_or_else(|| {
                let reserve_percent = pool.devices().queue_settings().special_reserve_percent();
                space.preferred_class(&block_use, reserve_percent)
            }),
            props,
            txg,
            copies: props.copies_of(bp),
            taken: Vec::new(),
            near: None,
            avoid: Vec::new(),
            failure: None,
        }
    }

    pub(super) fn allocate(&mut self, len: usize, copies: usize) -> Result<Vec<Dva>> {
        let place = self.props.place;
        let request = AllocRequest {
            near: self.near,
            avoid: &self.avoid,
            ..AllocRequest::new(self.class, Psize(len as u64), copies, self.txg)
        };
        let dvas = self.space.allocate(&request).map_err(|source| match &self.failure {
            Some(NotWritten { vdev, why }) => PoolError::NotWritten { place, vdev: *vdev, why: why.clone() },
            None => PoolError::NoSpace { place, source },
        })?;
        self.taken.extend(&dvas);
        Ok(dvas)
    }

    /// The longest of `most`, half of it, ... `least` that fits in a free range.
    pub(super) fn longest(&mut self, least: usize, most: usize) -> Option<usize> {
        let mut len = most;
        loop {
            if let Ok(dvas) = self.allocate(len, self.copies) {
                self.give_back(&dvas, Vec::new());
                return Some(len);
            }
            if len <= least {
                return None;
            }
            // Multiples of the least waste nothing at their ends, and their number does not grow.
            len = (len / 2).next_multiple_of(least.max(1)).max(least);
        }
    }

    pub(super) fn avoid_all(&mut self, vdevs: Vec<VdevId>) {
        self.avoid.extend(vdevs);
    }

    /// Frees unwritten addresses, and avoids the failed vdevs.
    pub(super) fn give_back(&mut self, dvas: &[Dva], failures: Vec<NotWritten>) {
        unallocate(self.space, dvas, self.txg);
        self.taken.retain(|taken| !dvas.contains(taken));
        self.avoid.extend(failures.iter().map(|failure| failure.vdev));
        self.failure = failures.into_iter().next_back().or(self.failure.take());
    }

    pub(super) fn taken(&self) -> &[Dva] {
        &self.taken
    }

    pub(super) fn give_all_back(self) {
        unallocate(self.space, &self.taken, self.txg);
    }
}

fn unallocate(space: &Allocator, dvas: &[Dva], txg: Txg) {
    for dva in dvas {
        let undone = space.unallocate(dva, txg);
        debug_assert!(undone.is_ok(), "{undone:?}: it was allocated for this write");
    }
}

impl Pool {
    /// A synchronous write is separate from the txg's tree, and its waiter flushes it.
    pub(super) fn for_block(&self, txg: Txg) -> How {
        let stake = match self.writes() {
            IoClass::SyncWrite => Stake::alone(txg),
            _ => Stake::tree(txg),
        };
        How { class: self.writes(), durable: Durable::Flushed, stake }
    }

    pub(super) fn for_log(&self, txg: Txg, durable: Durable) -> How {
        How { class: self.writes(), durable, stake: Stake::alone(txg) }
    }

    /// Places a block. Terminates because every failure removes a vdev from the choice.
    pub(super) async fn place(
        &self,
        placing: &mut Placing<'_>,
        bp: Blkptr,
        stored: &Bytes,
    ) -> Result<Blkptr> {
        loop {
            let dvas = match placing.allocate(stored.len(), placing.copies) {
                Ok(dvas) => dvas,
                Err(_) if stored.len() as u64 > SPA_MINBLOCKSIZE => {
                    return self.place_gang(placing, bp, stored).await;
                }
                Err(error) => return Err(error),
            };
            match self.write_copies(&dvas, stored, placing.txg, self.for_block(placing.txg)).await {
                Ok(()) => return Ok(bp.with_dvas(&dvas)),
                Err(failures) => placing.give_back(&dvas, failures),
            }
        }
    }

    /// Writes all copies at once. The error lists the failures.
    pub(super) async fn write_copies(
        &self,
        dvas: &[Dva],
        stored: &Bytes,
        txg: Txg,
        how: How,
    ) -> Result<(), Vec<NotWritten>> {
        debug_assert!(stored.len().is_multiple_of(SPA_MINBLOCKSIZE as usize), "{} bytes", stored.len());
        let (runtime, vdevs) = (self.runtime(), self.tree().vdevs());
        let writes = dvas.iter().map(|dva| vdevs.write(runtime, dva, stored, txg, how));
        let failures: Vec<NotWritten> = join_all(writes).await.into_iter().filter_map(Result::err).collect();
        if !failures.is_empty() {
            return Err(failures);
        }
        if how.stake == Stake::tree(txg) {
            self.retain(dvas, stored, txg).await;
        }
        Ok(())
    }

    /// Writes all copies, without an alternative address.
    pub(super) async fn overwrite_copies(
        &self,
        dvas: &[Dva],
        bytes: &Bytes,
        txg: Txg,
        place: Zbookmark,
        how: How,
    ) -> Result<()> {
        self.write_copies(dvas, bytes, txg, how).await.map_err(|mut failures| match failures.pop() {
            Some(NotWritten { vdev, why }) => PoolError::NotWritten { place, vdev, why },
            None => refused(place, "it has no address".to_owned()),
        })
    }
}
