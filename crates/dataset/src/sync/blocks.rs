//! Where a group's blocks go while an object set is written, and what of its old blocks is dead.
//!
//! Idea: whoever writes a tree hands a block over and gets a pointer. Policy (which checksum, how many copies, which
//! class) is decided here, once; how a block is stored is the pool's business. All births and deaths are noted, since the dataset
//! that owns the blocks has to account for them.
//!
//! Source: OpenZFS `dmu.c` (`dmu_write_policy`), `dsl_dataset.c` (`dsl_dataset_block_born`, `dsl_dataset_block_kill`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlockIdentity, SPA_DVAS_PER_BP};
use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, Lsize, ObjectId, Psize, Txg};
use cenote_pool::alloc::{Allocator, BlockUse};
use cenote_pool::write::{Prepared, WriteProps, Written};
use cenote_pool::{Place, Pool, ReadContext};
use cenote_runtime::Runtime;
use parking_lot::Mutex;

use super::policy::{Dedup, StoragePolicy};
use crate::deadlist::BlockSpace;
use crate::engine::features_of_block;
use crate::error::Result;
use crate::live::LiveObjset;
use crate::object::SPILL_BLOCK;
use crate::sharing::{Alike, SharedBlocks};

/// A transaction group that is being written.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) pool: Pool,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) txg: Txg,
    /// Counts the rounds in which the MOS is written until it does not change any more.
    pub(crate) pass: u32,
    /// Holes say in which group they were made.
    pub(crate) hole_birth: bool,
    /// Small blocks stay in their pointers.
    pub(crate) embed: bool,
    /// What `compression=on` means, and metadata has.
    pub(crate) compression: Compression,
    /// Where blocks that are alike are found, if any are to be.
    pub(crate) tables: Option<Tables>,
}

/// Deduplication tables, and the MOS that they are in.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) shared: Arc<tokio::sync::Mutex<SharedBlocks>>,
    pub(crate) mos: LiveObjset,
}

/// Space that blocks take, as datasets account for it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    /// On disk, net of parity.
    pub(crate) used: i64,
    pub(crate) compressed: i64,
    pub(crate) uncompressed: i64,
}

/// What became of blocks while a set was written.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// All blocks that were born.
    pub(crate) born: Space,
    /// Each of them, if the sink lists births.
    pub(crate) births: Vec<Blkptr>,
    /// Blocks that the set does not refer to any more.
    pub(crate) dead: Vec<Blkptr>,
    /// Features that blocks of other sets came with.
    pub(crate) features: BTreeSet<&'static str>,
}

/// A block to be written.
#[derive(Debug)]
pub(crate) struct NewBlock {
    pub(crate) object: ObjectId,
    pub(crate) object_type: ObjectType,
    pub(crate) level: u8,
    pub(crate) block: BlockId,
    pub(crate) data: Bytes,
    /// What it takes the place of.
    pub(crate) old: Blkptr,
    /// Blocks with content at or below it, or dnodes in it.
    pub(crate) fill: u64,
    /// The object's own choice; 0: the dataset's.
    pub(crate) checksum_id: u8,
    /// The object's own choice; 0: the dataset's.
    pub(crate) compression_id: u8,
}

/// Takes the blocks of one object set in one group. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct BlockSink {
    group: Group,
    policy: Arc<StoragePolicy>,
    lists_births: bool,
    ledger: Arc<Mutex<Ledger>>,
    /// Bytes of this object born less those dead, for its dnode.
    used: Arc<AtomicI64>,
}

impl BlockSink {
    pub(crate) fn new(group: &Group, policy: &Arc<StoragePolicy>) -> BlockSink {
        let (ledger, used) = (Arc::default(), Arc::default());
        BlockSink { group: group.clone(), policy: policy.clone(), lists_births: false, ledger, used }
    }

    /// The same, with each block that is born in the ledger.
    pub(crate) fn listing_births(self, lists_births: bool) -> BlockSink {
        BlockSink { lists_births, ..self }
    }

    /// The same for another object, whose space is counted by itself.
    pub(crate) fn for_object(&self) -> BlockSink {
        BlockSink { used: Arc::default(), ..self.clone() }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.group.pool.runtime()
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Bytes of the object born less those dead so far.
    pub(crate) fn used_bytes(&self) -> i64 {
        self.used.load(Ordering::Relaxed)
    }

    /// What was born and died since this was asked last.
    pub(crate) fn take_ledger(&self) -> Ledger {
        std::mem::take(&mut *self.ledger.lock())
    }

    /// Writes a block; what it replaces is dead.
    pub(crate) async fn write(&self, new: NewBlock) -> Result<Blkptr> {
        let (group, old) = (&self.group, new.old);
        let props = self.props(&new);
        let written = match (self.dedup(&new), &group.tables) {
            (Some(dedup), Some(tables)) => self.write_once(tables, dedup, new.data, props).await?,
            _ => group.pool.write(&group.allocator, new.data, &props, group.txg).await?,
        };
        if !written.keeps_place {
            self.bear(&written.bp);
            self.kill(&old);
        }
        Ok(written.bp)
    }

    /// How it is told whether there is such a block already; `None`: it is stored in any case.
    fn dedup(&self, new: &NewBlock) -> Option<Dedup> {
        let is_data = new.level == 0 && !new.object_type.is_metadata() && new.block != SPILL_BLOCK;
        self.policy.dedup.filter(|_| is_data)
    }

    /// Writes a block unless there is one like it; then that gets one more owner.
    ///
    /// One at a time: of two alike, the second must find the first.
    async fn write_once(
        &self,
        tables: &Tables,
        dedup: Dedup,
        data: Bytes,
        props: WriteProps,
    ) -> Result<Written> {
        let group = &self.group;
        let props = WriteProps { checksum: dedup.checksum, nop_write: false, ..props };
        let (bp, stored) = match group.pool.prepare(data.clone(), &props, group.txg).await? {
            Prepared::Written(written) => return Ok(written),
            Prepared::Block { bp, stored } => (bp, stored),
        };
        let (mut shared, mos) = (tables.shared.lock().await, tables.mos.edit());
        let alike = shared.find_alike(&mos, &group.pool, &bp, props.copies).await?;
        if let Alike::Block(found) = alike {
            let context = ReadContext::new(props.place);
            if !dedup.verify || group.pool.read(&found, &context).await.is_ok_and(|known| known == data) {
                shared.share(&mos, &group.pool, &found).await?;
                return Ok(Written { bp: found, keeps_place: false });
            }
        }
        let written = group.pool.store(&group.allocator, bp, &stored, &props, group.txg).await?;
        if !matches!(alike, Alike::None) {
            return Ok(written);
        }
        shared.enter(&mos, &group.pool, &written.bp).await?;
        Ok(Written { bp: written.bp.with_dedup(true), ..written })
    }

    /// A block that is on disk gets one owner more; what it takes the place of is dead.
    pub(crate) async fn share(&self, bp: &Blkptr, old: &Blkptr) -> Result<Blkptr> {
        let group = &self.group;
        if let Some(tables) = group.tables.as_ref().filter(|_| !bp.is_embedded()) {
            let mut shared = tables.shared.lock().await;
            shared.share_clone(&tables.mos.edit(), &group.pool, bp).await?;
        }
        let shared = bp.shared_in(group.txg);
        self.ledger.lock().features.extend(features_of_block(&shared));
        self.bear(&shared);
        self.kill(old);
        Ok(shared)
    }

    /// A block is not referred to any more.
    pub(crate) fn kill(&self, bp: &Blkptr) {
        if !bp.is_hole() {
            self.used.fetch_sub(self.space_of(bp).used, Ordering::Relaxed);
            self.ledger.lock().dead.push(*bp);
        }
    }

    fn bear(&self, bp: &Blkptr) {
        let space = self.space_of(bp);
        self.used.fetch_add(space.used, Ordering::Relaxed);
        let mut ledger = self.ledger.lock();
        ledger.born = ledger.born + space;
        if self.lists_births {
            ledger.births.push(*bp);
        }
    }

    fn space_of(&self, bp: &Blkptr) -> Space {
        Space::of(&self.group.pool, bp)
    }

    /// What stands where `old` stood and nothing does now.
    pub(crate) fn hole(&self, old: &Blkptr) -> Blkptr {
        let (lsize, object_type, level) = (old.lsize(), old.object_type(), old.level());
        match self.group.hole_birth && lsize.0 != 0 {
            true => Blkptr::hole(&BlockIdentity { lsize, object_type, level, birth: self.group.txg }),
            false => Blkptr::HOLE,
        }
    }

    /// One of the holes that the hole `parent` consists of.
    pub(crate) fn hole_below(&self, parent: &Blkptr, child_lsize: Lsize) -> Blkptr {
        let identity = BlockIdentity {
            lsize: child_lsize,
            object_type: parent.object_type(),
            level: parent.level().saturating_sub(1),
            birth: parent.logical_birth(),
        };
        Blkptr::hole(&identity)
    }

    /// Fill count of a data block: 1, or how many dnodes are in it.
    pub(crate) fn data_fill(&self, object_type: ObjectType, data: &[u8]) -> u64 {
        match object_type {
            ObjectType::DNODE => crate::objset::used_dnodes(data),
            _ => 1,
        }
    }

    /// How a block is to be stored.
    fn props(&self, new: &NewBlock) -> WriteProps {
        let (group, policy) = (&self.group, &self.policy);
        let is_spill = new.block == SPILL_BLOCK;
        let is_metadata = new.level > 0 || new.object_type.is_metadata() || is_spill;
        let place = Place { dataset: policy.dataset, object: new.object, level: new.level, block: new.block };
        let checksum = match Checksum::try_from(new.checksum_id) {
            Ok(Checksum::Inherit) | Err(_) => policy.checksum,
            Ok(own) => own,
        };
        // Metadata is not worth less than a strong checksum of the data, and always worth fletcher4.
        let checksum = if is_metadata && !checksum.is_metadata() { Checksum::Fletcher4 } else { checksum };
        let compression = match Compression::try_from(new.compression_id) {
            _ if is_metadata => Compression::On,
            Ok(Compression::Inherit) | Err(_) => policy.compression,
            Ok(own) => own,
        };
        let compression = if compression == Compression::On { group.compression } else { compression };
        let extra = if is_metadata { policy.extra_copies(new.object_type, new.level, is_spill) } else { 0 };
        let block_use = BlockUse {
            object_type: new.object_type,
            level: new.level,
            psize: Psize(new.data.len() as u64),
            special_small_blocks: policy.special_small_blocks,
        };
        WriteProps {
            checksum,
            compression,
            zstd_level: policy.zstd_level,
            copies: (policy.copies + extra).min(SPA_DVAS_PER_BP as u8),
            fill: new.fill,
            class: group.allocator.preferred_class(&block_use),
            key: policy.key.clone(),
            embed: group.embed,
            hole_birth: group.hole_birth,
            nop_write: !is_metadata,
            previous: new.old,
            sync_pass: group.pass,
            ..WriteProps::new(place, new.object_type, new.level)
        }
    }
}

impl Space {
    /// What a block takes.
    pub(crate) fn of(pool: &Pool, bp: &Blkptr) -> Space {
        let BlockSpace { used_bytes, compressed_bytes, uncompressed_bytes } =
            BlockSpace::of(bp, pool.vdevs().dsize(bp));
        Space {
            used: used_bytes as i64,
            compressed: compressed_bytes as i64,
            uncompressed: uncompressed_bytes as i64,
        }
    }
}

impl std::ops::Add for Space {
    type Output = Space;

    fn add(self, other: Space) -> Space {
        Space {
            used: self.used + other.used,
            compressed: self.compressed + other.compressed,
            uncompressed: self.uncompressed + other.uncompressed,
        }
    }
}

impl std::ops::Neg for Space {
    type Output = Space;

    fn neg(self) -> Space {
        Space { used: -self.used, compressed: -self.compressed, uncompressed: -self.uncompressed }
    }
}
