//! Storing the blocks of an object set in a txg, and tracking births and deaths.
//!
//! Idea: the writer of a tree hands over a block and gets a pointer. This module decides policy (checksum,
//! copies, class); the pool stores the block. All births and deaths are noted, since the owning dataset must
//! account for them.
//!
//! Source: OpenZFS `dmu.c` (`dmu_write_policy`), `dsl_dataset.c` (`dsl_dataset_block_born`,
//! `dsl_dataset_block_kill`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlkptrKind, BlockIdentity, SPA_DVAS_PER_BP};
use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_object::Result;
use cenote_object::object::SPILL_BLOCK;
use cenote_object::write::{BlockSink, NewBlock};
use cenote_pool::write::{Prepared, StoredBlock, WriteProps, Written};
use cenote_pool::{Pool, ReadContext, Zbookmark};
use parking_lot::Mutex;

use crate::features::features_of_block;
use crate::sharing::dedup::Alike;
use crate::sharing::tables::Tables;
use crate::store::policy::{Dedup, StoragePolicy};
use crate::store::space_delta::SpaceDelta;
use crate::store::txg::SyncingTxg;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Blocks born, less those freed already.
    pub(crate) born: SpaceDelta,
    /// Each birth, if the sink lists them.
    pub(crate) births: Vec<Blkptr>,
    /// Blocks no longer referred to and not free yet.
    pub(crate) dead: Vec<Blkptr>,
    pub(crate) features: BTreeSet<&'static str>,
}

/// Stores the blocks of one object set in one txg. A clone is cheap.
#[derive(Clone)]
pub(crate) struct PoolSink {
    syncing: SyncingTxg,
    policy: Arc<StoragePolicy>,
    lists_births: bool,
    frees_at_once: bool,
    ledger: Arc<Mutex<Ledger>>,
    /// Bytes born less bytes dead in this object, for its dnode.
    used: Arc<AtomicI64>,
    of_object: Arc<Mutex<OfObject>>,
}

#[derive(Debug, Default)]
struct OfObject {
    births: Vec<Blkptr>,
    dead: Vec<Blkptr>,
}

impl PoolSink {
    pub(crate) fn new(syncing: &SyncingTxg, policy: &Arc<StoragePolicy>) -> PoolSink {
        let (ledger, used, of_object) = Default::default();
        let (syncing, policy) = (syncing.clone(), policy.clone());
        PoolSink { syncing, policy, lists_births: false, frees_at_once: false, ledger, used, of_object }
    }

    pub(crate) fn listing_births(self, lists_births: bool) -> PoolSink {
        PoolSink { lists_births, ..self }
    }

    /// Frees dead blocks once their object is written, for a set that shares none: thousands of objects may
    /// go at once, each of many blocks.
    pub(crate) fn freeing_at_once(self, frees_at_once: bool) -> PoolSink {
        PoolSink { frees_at_once, ..self }
    }

    pub(crate) fn take_ledger(&self) -> Ledger {
        std::mem::take(&mut *self.ledger.lock())
    }

    /// How to deduplicate a block; `None`: not at all.
    fn dedup(&self, new: &NewBlock) -> Option<Dedup> {
        self.policy.dedup.filter(|_| !new.is_metadata())
    }

    /// A known block gets another owner instead. A rewritten block that is the known one stays.
    async fn write_once(
        &self,
        tables: &Tables,
        dedup: Dedup,
        new: &NewBlock,
        props: WriteProps,
    ) -> Result<Written> {
        let data = &new.data;
        let SyncingTxg { pool, allocator, txg, .. } = &self.syncing;
        let props = WriteProps { checksum: dedup.checksum, nop_write: false, ..props };
        let (bp, stored) = match pool.txg_writes().prepare(data.clone(), &props, *txg).await? {
            Prepared::Written(written) => return Ok(written),
            Prepared::Block { bp, stored } => (bp, stored),
        };
        let _alone = tables.alike(&bp).await;
        tables.fetch(pool, &[bp.with_dedup(true)]).await?;
        let mos = tables.mos();
        let alike = tables.lock().await.find_alike(&mos, pool, &bp, props.copies).await?;
        if let Alike::Block(found) = alike {
            if new.keeps_birth && found.with_births_of(&new.old) == new.old {
                return Ok(Written { bp: new.old, keeps_place: true });
            }
            let context = ReadContext::new(props.place);
            if !dedup.verify || pool.read(&found, &context).await.is_ok_and(|known| known == *data) {
                tables.lock().await.share(&mos, pool, &found).await?;
                pool.repair().bring_shared(allocator, &found, props.place, *txg).await;
                return Ok(Written { bp: found, keeps_place: false });
            }
        }
        let written = pool.txg_writes().store(allocator, bp, &stored, &props, *txg).await?;
        if !matches!(alike, Alike::None) || self.syncing.tables_are_full {
            return Ok(written);
        }
        tables.lock().await.enter(&mos, pool, &written.bp).await?;
        Ok(Written { bp: written.bp.with_dedup(true), ..written })
    }

    /// A rewritten block dates from `old`, unless a pointer can't say so: it is embedded, or deduplicated.
    ///
    /// Source: OpenZFS `zio.c` (`zio_dva_allocate`, `zio_ddt_write`).
    fn keeping_birth(&self, written: Written, old: &Blkptr) -> Written {
        let is_block = |bp: &Blkptr| bp.kind() == BlkptrKind::Normal && !bp.is_dedup();
        if written.keeps_place || !is_block(&written.bp) || old.is_hole() {
            return written;
        }
        let bp = written.bp.as_rewritten(old.logical_birth());
        self.ledger.lock().features.extend(features_of_block(&bp));
        Written { bp, ..written }
    }

    fn bear(&self, bp: &Blkptr) {
        let space = self.space_of(bp);
        self.used.fetch_add(space.used, Ordering::Relaxed);
        self.of_object.lock().births.push(*bp);
        let mut ledger = self.ledger.lock();
        ledger.born = ledger.born + space;
        if self.lists_births {
            ledger.births.push(*bp);
        }
    }

    fn space_of(&self, bp: &Blkptr) -> SpaceDelta {
        SpaceDelta::of(&self.syncing.pool, bp)
    }

    fn props(&self, new: &NewBlock) -> WriteProps {
        let (syncing, policy) = (&self.syncing, &self.policy);
        let is_spill = new.block == SPILL_BLOCK;
        let is_metadata = new.is_metadata();
        let place =
            Zbookmark { dataset: policy.dataset, object: new.object, level: new.level, block: new.block };
        let checksum = match Checksum::try_from(new.checksum_id) {
            Ok(Checksum::On) => Checksum::Fletcher4,
            Ok(own) if own.is_of_pointer() => own,
            Ok(_) | Err(_) => policy.checksum,
        };
        // Metadata gets at least fletcher4, and a strong checksum if the data has one.
        let checksum = if is_metadata && !checksum.is_metadata() { Checksum::Fletcher4 } else { checksum };
        let compression = match Compression::try_from(new.compression_id) {
            _ if is_metadata => Compression::On,
            Ok(Compression::Inherit) | Err(_) => policy.compression,
            Ok(own) => own,
        };
        let compression =
            if compression == Compression::On { syncing.features.compression } else { compression };
        let extra = if is_metadata { policy.extra_copies(new.object_type, new.level, is_spill) } else { 0 };
        WriteProps {
            checksum,
            compression,
            zstd_level: policy.zstd_level,
            copies: (policy.copies + extra).min(SPA_DVAS_PER_BP as u8),
            fill: new.fill,
            special_small_blocks: policy.special_small_blocks,
            key: policy.key.clone(),
            raw: policy.raw,
            embed: syncing.features.embedded_data,
            hole_birth: syncing.features.hole_birth,
            large_gang_headers: syncing.features.large_gang_headers,
            nop_write: !is_metadata && !new.moves,
            previous: new.old,
            sync_pass: syncing.pass,
            ..WriteProps::new(place, new.object_type)
        }
    }
}

impl BlockSink for PoolSink {
    fn pool(&self) -> &Pool {
        &self.syncing.pool
    }

    fn txg(&self) -> Txg {
        self.syncing.txg
    }

    fn for_object(&self) -> PoolSink {
        PoolSink { used: Arc::default(), of_object: Arc::default(), ..self.clone() }
    }

    fn uncounted(&self) -> PoolSink {
        PoolSink { used: Arc::default(), ..self.clone() }
    }

    fn used_bytes(&self) -> i64 {
        self.used.load(Ordering::Relaxed)
    }

    async fn write(&self, new: NewBlock) -> Result<Blkptr> {
        let (syncing, old) = (&self.syncing, new.old);
        let props = self.props(&new);
        let _room = syncing.in_flight.enter(new.data.len()).await;
        let (data, place) = (new.data.clone(), props.place);
        let written = match (self.dedup(&new), &syncing.tables) {
            (Some(dedup), Some(tables)) => self.write_once(tables, dedup, &new, props).await?,
            _ if new.is_metadata() => {
                syncing.pool.txg_writes().later(&syncing.allocator, new.data, &props, syncing.txg).await?
            }
            _ => syncing.pool.write(&syncing.allocator, new.data, &props, syncing.txg).await?,
        };
        let written = if new.keeps_birth { self.keeping_birth(written, &old) } else { written };
        // The next txg that changes this tree reads it again.
        if new.object_type != ObjectType::OBJSET {
            syncing.cache.fill(&syncing.pool, &written.bp, &data, (place, self.policy.caching));
        }
        if !written.keeps_place {
            self.bear(&written.bp);
            self.kill(&old);
        } else if written.bp != old {
            syncing.cache.forget(&old);
        }
        Ok(written.bp)
    }

    /// Writes as received, unless deduplicated.
    async fn write_stored(&self, new: NewBlock, block: StoredBlock) -> Result<Blkptr> {
        if let (Some(_), Some(data)) = (self.dedup(&new), block.content()) {
            return self.write(NewBlock { data, ..new }).await;
        }
        let (syncing, old) = (&self.syncing, new.old);
        let props = self.props(&new);
        let _room = syncing.in_flight.enter(block.bytes.len()).await;
        let written = syncing.pool.as_stored().write(&syncing.allocator, &block, &props, syncing.txg).await?;
        if !new.is_metadata() {
            self.ledger.lock().features.extend(features_of_block(&written.bp));
        }
        self.bear(&written.bp);
        self.kill(&old);
        Ok(written.bp)
    }

    /// Adds an owner, in place of `old`.
    async fn share(&self, bp: &Blkptr, (object, block): (ObjectId, BlockId), old: &Blkptr) -> Result<Blkptr> {
        let syncing = &self.syncing;
        if syncing.pool.lacking().may_lack(bp) {
            let place = Zbookmark { dataset: self.policy.dataset, object, level: 0, block };
            let _room = syncing.in_flight.enter(bp.psize().0 as usize).await;
            syncing.pool.repair().bring_shared(&syncing.allocator, bp, place, syncing.txg).await;
        }
        if let Some(tables) = syncing.tables.as_ref().filter(|_| !bp.is_embedded()) {
            tables.fetch(&syncing.pool, &[*bp]).await?;
            tables.lock().await.share_clone(&tables.mos(), &syncing.pool, bp).await?;
        }
        let shared = bp.shared_in(syncing.txg);
        self.ledger.lock().features.extend(features_of_block(&shared));
        self.bear(&shared);
        self.kill(old);
        Ok(shared)
    }

    fn kill(&self, bp: &Blkptr) {
        if !bp.is_hole() {
            self.used.fetch_sub(self.space_of(bp).used, Ordering::Relaxed);
            self.of_object.lock().dead.push(*bp);
        }
    }

    async fn object_is_written(&self) -> Result<()> {
        let OfObject { dead, .. } = std::mem::take(&mut *self.of_object.lock());
        if !self.frees_at_once {
            self.ledger.lock().dead.extend(dead);
            return Ok(());
        }
        let (SyncingTxg { pool, allocator, txg, .. }, mut freed) = (&self.syncing, SpaceDelta::default());
        for bp in dead {
            freed = freed + self.space_of(&bp);
            self.syncing.cache.forget(&bp);
            pool.free(allocator, &bp, *txg, &ReadContext::new(Zbookmark::default())).await?;
        }
        let mut ledger = self.ledger.lock();
        ledger.born = ledger.born + -freed;
        Ok(())
    }

    fn object_is_given_up(&self) {
        let OfObject { births, .. } = std::mem::take(&mut *self.of_object.lock());
        self.ledger.lock().dead.extend(births);
    }

    fn hole(&self, old: &Blkptr) -> Blkptr {
        let (lsize, object_type, level) = (old.lsize(), old.object_type(), old.level());
        match self.syncing.features.hole_birth && lsize.0 != 0 {
            true => Blkptr::hole(&BlockIdentity { lsize, object_type, level, birth: self.syncing.txg }),
            false => Blkptr::HOLE,
        }
    }
}
