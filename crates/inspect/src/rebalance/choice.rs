//! Decides by its pointer to which end a block should be rewritten.
//!
//! Locking: the surplus of vdevs consists of independent relaxed atomics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_dataset::{Dataset, Mos};
use cenote_engine::compression_now;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::units::{PhysicalBirth, Txg, VdevId};
use cenote_object::Result;
use cenote_pool::alloc::{AllocClass, BlockUse};
use cenote_pool::{Pool, VdevClass};

use super::{Aim, Fill};

/// A vdev gives blocks away if fuller than the average by more than this part of its size.
const UNEVEN: f64 = 0.02;

/// Bytes that each overfull vdev should give away.
#[derive(Debug, Clone, Default)]
pub(super) struct Surplus(Arc<BTreeMap<VdevId, AtomicI64>>);

impl Surplus {
    /// Of vdevs for data that take part in allocation.
    pub(super) fn of(fills: &[Fill]) -> Surplus {
        let normal = || fills.iter().filter(|fill| fill.class == VdevClass::Normal);
        let sum = |of: fn(&Fill) -> u64| normal().map(|fill| of(fill) as f64).sum::<f64>();
        let average = sum(|fill| fill.allocated_bytes) / sum(|fill| fill.size_bytes).max(1.0);
        let surplus = normal().filter_map(|fill| {
            let size = fill.size_bytes as f64;
            let surplus = fill.allocated_bytes as f64 - average * size;
            (surplus > UNEVEN * size).then(|| (fill.vdev, AtomicI64::new(surplus as i64)))
        });
        Surplus(Arc::new(surplus.collect()))
    }

    fn has(&self, vdev: VdevId) -> bool {
        self.0.get(&vdev).is_some_and(|bytes| bytes.load(Ordering::Relaxed) > 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.values().all(|bytes| bytes.load(Ordering::Relaxed) <= 0)
    }

    /// A block of a vdev moves.
    pub(super) fn take(&self, bp: &Blkptr) {
        for dva in bp.dvas() {
            if let Some(bytes) = self.0.get(&dva.vdev) {
                bytes.fetch_sub(dva.asize.0.cast_signed(), Ordering::Relaxed);
            }
        }
    }
}

/// The rules for a dataset's blocks.
#[derive(Clone)]
pub(super) struct Choice {
    pool: Pool,
    aims: Vec<Aim>,
    special_used_percent: Option<u64>,
    special_small_blocks: u64,
    /// The compression that a block gets, unless it does not shrink.
    pub(super) compression: Option<(Compression, ZstdLevel)>,
    /// Stored compressions that a rewrite does not improve.
    pub(super) keeps: Vec<u8>,
    pub(super) surplus: Surplus,
    now: PhysicalBirth,
    /// Blocks allocated up to this txg are in a snapshot.
    pub(super) held_until: Txg,
}

impl Choice {
    /// The rules by a dataset's present properties and its pool's vdevs.
    ///
    /// # Errors
    /// The properties can't be read.
    pub(super) async fn of(
        mos: &Mos,
        dataset: &Dataset,
        aims: &[Aim],
        fills: &[Fill],
        surplus: Surplus,
    ) -> Result<Choice> {
        let [special_small_blocks] = dataset.numbers(["special_small_blocks"]).await?;
        let special = || fills.iter().filter(|fill| fill.class == VdevClass::Special);
        let sum = |of: fn(&Fill) -> u64| special().map(|fill| u128::from(of(fill))).sum::<u128>();
        let used = (sum(|fill| fill.allocated_bytes) * 100).checked_div(sum(|fill| fill.size_bytes));
        let compression = compression_now(mos, dataset).await?;
        Ok(Choice {
            pool: mos.pool().clone(),
            aims: aims.to_vec(),
            special_used_percent: used.map(|percent| percent as u64),
            special_small_blocks,
            compression: Some(compression).filter(|(compression, _)| *compression != Compression::Off),
            keeps: Vec::new(),
            surplus,
            now: PhysicalBirth::in_txg(Txg(mos.uberblock().txg.0 + 1)),
            held_until: dataset.phys().prev_snapshot_txg,
        })
    }

    /// Whether a snapshot has the block, too.
    pub(super) fn is_held(&self, bp: &Blkptr) -> bool {
        bp.allocation_birth() <= self.held_until
    }

    /// The first aim that a rewrite of a block of data or metadata would serve.
    pub(super) fn aim(&self, bp: &Blkptr) -> Option<Aim> {
        if bp.kind() != BlkptrKind::Normal || bp.is_dedup() {
            return None;
        }
        self.aims.iter().copied().find(|aim| self.serves(*aim, bp))
    }

    fn serves(&self, aim: Aim, bp: &Blkptr) -> bool {
        let is_data = bp.level() == 0 && !bp.object_type().is_metadata();
        match aim {
            Aim::Special => self.belongs_on_special(bp) && self.lies_on_normal(bp),
            _ if !is_data => false,
            Aim::NewWidth => self.bytes_now(bp) < bp.asize().0,
            Aim::Compression => self.compression.is_some_and(|(compression, _)| {
                compression as u8 != bp.compression_id() && !self.keeps.contains(&bp.compression_id())
            }),
            Aim::NewVdevs => bp.dvas().next().is_some_and(|dva| self.surplus.has(dva.vdev)),
        }
    }

    fn belongs_on_special(&self, bp: &Blkptr) -> bool {
        let Some(used_percent) = self.special_used_percent else { return false };
        let (object_type, level, psize) = (bp.object_type(), bp.level(), bp.psize());
        let special_small_blocks = self.special_small_blocks;
        let block = BlockUse { object_type, level, psize, special_small_blocks };
        block.class(
            true,
            false,
            || used_percent,
            self.pool.devices().queue_settings().special_reserve_percent(),
        ) == AllocClass::Special
    }

    fn lies_on_normal(&self, bp: &Blkptr) -> bool {
        let vdevs = self.pool.tree().vdevs();
        bp.dvas().next().is_some_and(|dva| vdevs.class_of(dva.vdev) == Some(VdevClass::Normal))
    }

    pub(super) fn bytes_now(&self, bp: &Blkptr) -> u64 {
        self.bytes_of(bp, bp.psize().0)
    }

    pub(super) fn bytes_of(&self, bp: &Blkptr, psize_bytes: u64) -> u64 {
        let vdevs = self.pool.tree().vdevs();
        let bytes = |vdev| vdevs.psize_to_asize(vdev, psize_bytes, self.now);
        bp.dvas().map(|dva| bytes(dva.vdev).unwrap_or(dva.asize.0).min(dva.asize.0)).sum()
    }
}
