//! Blocks with several owners, shared and freed: only the last owner gives the space back.
//!
//! Idea: each free asks here first. A pointer says whether its block is in a deduplication table; whether it
//! was cloned, only the table of cloned blocks knows, of which a short array of counts in memory rules out
//! most. Changes gather in memory and go into the MOS in each pass of a txg's sync, before the space maps:
//! what is free then is known.
//!
//! Source: OpenZFS `zio.c` (`zio_brt_free`, `zio_ddt_free`).

use cenote_dataset::Mos;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_object::{Edit, Result};
use cenote_pool::Pool;

use crate::sharing::clones::{self, Clones};
use crate::sharing::dedup::{self, Alike, DedupTables};

/// Who else has a block.
#[derive(Debug, Default)]
pub(crate) struct SharedBlocks {
    clones: Clones,
    deduplicated: DedupTables,
}

impl SharedBlocks {
    /// As the tables of a pool have it.
    pub(crate) async fn load(mos: &Mos) -> Result<SharedBlocks> {
        Ok(SharedBlocks { clones: Clones::load(mos).await?, deduplicated: DedupTables::load(mos).await? })
    }

    /// Space that further references save by now; the MOS says it as of the last txg.
    pub(crate) fn saved_bytes(&self, pool: &Pool) -> u64 {
        self.clones.saved_bytes().saturating_add(self.deduplicated.saved_bytes(pool))
    }

    /// What has to be read before anything can be said of a block, if anything.
    pub(crate) fn lookup(&self, bp: &Blkptr) -> Option<Lookup> {
        match bp.is_dedup() {
            _ if bp.kind() != BlkptrKind::Normal => None,
            true => self.deduplicated.lookup(bp).map(Lookup::Deduplicated),
            false if bp.level() > 0 || bp.object_type().is_metadata() => None,
            false => self.clones.lookup(bp).map(Lookup::Cloned),
        }
    }

    /// What was read.
    pub(crate) fn admit(&mut self, pool: &Pool, found: Option<dedup::Found>) {
        if let Some(found) = found {
            self.deduplicated.admit(pool, found);
        }
    }

    /// An owner of a block has it no longer. Answers whether its space is free with that.
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

    /// A block like one that is about to be written.
    pub(crate) async fn find_alike(
        &mut self,
        mos: &Edit,
        pool: &Pool,
        bp: &Blkptr,
        copies: u8,
    ) -> Result<Alike> {
        self.deduplicated.find_alike(mos, pool, bp, copies).await
    }

    /// A block that was found by its checksum has one owner more.
    pub(crate) async fn share(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<()> {
        self.deduplicated.share(mos, pool, bp).await.map(|_| ())
    }

    /// A block has one owner more, whether or not a table knows its checksum.
    pub(crate) async fn share_clone(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<()> {
        match bp.is_dedup() && self.deduplicated.share(mos, pool, bp).await? {
            true => Ok(()),
            false => self.clones.add(mos, pool, bp).await,
        }
    }

    /// A block that was written is to be found from now on.
    pub(crate) async fn enter(&mut self, mos: &Edit, pool: &Pool, bp: &Blkptr) -> Result<()> {
        self.deduplicated.enter(mos, pool, bp).await
    }

    /// Writes what has changed into the MOS. Answers blocks that nobody has any more.
    pub(crate) async fn write(&mut self, mos: &Edit, pool: &Pool) -> Result<Vec<Blkptr>> {
        self.clones.write(mos).await?;
        self.deduplicated.write(mos, pool).await
    }
}

/// An entry of a table that is not in memory.
#[derive(Debug)]
pub(crate) enum Lookup {
    Deduplicated(dedup::Lookup),
    Cloned(clones::Lookup),
}

impl Lookup {
    /// Reads it, without any lock.
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
