//! Sharing and freeing blocks with several owners: the last owner frees the space.
//!
//! Idea: each free asks here first. A block pointer has a flag for deduplication. Only the BRT knows cloned
//! blocks; its small array of counts in memory rules out most others. Changes gather in memory and go to the
//! MOS in each pass of a sync, before the space maps, when all frees are known.
//!
//! Source: OpenZFS `zio.c` (`zio_brt_free`, `zio_ddt_free`).

use cenote_dataset::Mos;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_object::{Edit, Result};
use cenote_pool::Pool;

use crate::sharing::clones::{self, Clones};
use crate::sharing::dedup::{self, Alike, DedupTables};

#[derive(Debug, Default)]
pub(crate) struct SharedBlocks {
    clones: Clones,
    deduplicated: DedupTables,
}

impl SharedBlocks {
    pub(crate) async fn load(mos: &Mos) -> Result<SharedBlocks> {
        Ok(SharedBlocks { clones: Clones::load(mos).await?, deduplicated: DedupTables::load(mos).await? })
    }

    /// Savings by now; the MOS has them as of the last txg.
    pub(crate) fn saved_bytes(&self, pool: &Pool) -> u64 {
        self.clones.saved_bytes().saturating_add(self.deduplicated.saved_bytes(pool))
    }

    /// Whether there are deduplication tables.
    pub(crate) fn deduplicates(&self) -> bool {
        self.deduplicated.are_some()
    }

    /// The entry to read first, if any.
    pub(crate) fn lookup(&self, bp: &Blkptr) -> Option<Lookup> {
        match bp.is_dedup() {
            _ if bp.kind() != BlkptrKind::Normal => None,
            true => self.deduplicated.lookup(bp).map(Lookup::Deduplicated),
            false if bp.level() > 0 || bp.object_type().is_metadata() => None,
            false => self.clones.lookup(bp).map(Lookup::Cloned),
        }
    }

    pub(crate) fn admit(&mut self, pool: &Pool, found: Option<dedup::Found>) {
        if let Some(found) = found {
            self.deduplicated.admit(pool, found);
        }
    }

    /// Drops an owner. Returns whether the block is free.
    pub(crate) async fn release(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<bool> {
        if bp.kind() != BlkptrKind::Normal {
            return Ok(true);
        }
        if bp.is_dedup() && self.deduplicated.release(mos, pool, bp).await? {
            return Ok(false);
        }
        if bp.level() > 0 || bp.object_type().is_metadata() {
            return Ok(true);
        }
        self.clones.release(mos, pool, bp).await
    }

    /// Forgets a deduplicated block with one reference: see [`DedupTables::prune`].
    pub(crate) fn prune(&mut self, pool: &Pool, found: dedup::Found, before_s: u64) -> bool {
        self.deduplicated.prune(pool, found, before_s)
    }

    pub(crate) async fn find_alike(
        &mut self,
        mos: &Edit,
        pool: &Pool,
        bp: &Blkptr,
        copies: u8,
    ) -> Result<Alike> {
        self.deduplicated.find_alike(mos, pool, bp, copies).await
    }

    /// Adds an owner to a deduplicated block.
    pub(crate) async fn share(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<()> {
        self.deduplicated.share(mos, pool, bp).await.map(|_| ())
    }

    /// Adds an owner to a block, in the DDT if it knows it, else in the BRT.
    pub(crate) async fn share_clone(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<()> {
        match bp.is_dedup() && self.deduplicated.share(mos, pool, bp).await? {
            true => Ok(()),
            false => self.clones.add(mos, pool, bp).await,
        }
    }

    pub(crate) async fn enter(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<()> {
        self.deduplicated.enter(mos, pool, bp).await
    }

    /// Returns blocks without owners.
    pub(crate) async fn write(&mut self, mos: &Edit, pool: &Pool) -> Result<Vec<Blkptr>> {
        self.clones.write(mos).await?;
        self.deduplicated.write(mos, pool).await
    }
}

#[derive(Debug)]
pub(crate) enum Lookup {
    Deduplicated(dedup::Lookup),
    Cloned(clones::Lookup),
}

impl Lookup {
    /// Needs no lock.
    pub(crate) async fn read(self, mos: &Edit) -> Result<Option<dedup::Found>> {
        match self {
            Lookup::Deduplicated(lookup) => lookup.read(mos).await.map(Some),
            Lookup::Cloned(lookup) => {
                lookup.read_ahead(mos).await;
                Ok(None)
            }
        }
    }
}
