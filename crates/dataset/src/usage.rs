//! Usage of a pool, as in `zpool list`, from its space maps.
//!
//! Idea: only space maps know the allocation of a vdev. Each map's header has the sum, so no map is replayed;
//! only the log space maps are added. Fragmentation measures the size of free ranges, weighted by their
//! bytes: a range of 512 bytes counts 100, one of 512 MiB counts 0.
//!
//! Source: OpenZFS `spa_prop_get_config`, `metaslab_class_fragmentation`, `metaslab_set_fragmentation`.

use cenote_boxed::boxed;
use cenote_format::space_map::{MapType, SpaceMapEntry};
use cenote_format::units::{Txg, VdevId};
use cenote_object::Result;
use cenote_pool::alloc::SizeHistogram;
use cenote_pool::{VdevClass, VdevConfig};

use crate::mos::Mos;
use crate::spacemaps::{LogSpacemaps, MetaslabPlace, SpaceMapHead};

/// Raw space of a top-level vdev, with parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VdevUsage {
    /// Vdev.
    pub vdev: VdevId,
    /// Allocation class.
    pub class: VdevClass,
    /// Whole metaslabs.
    pub size_bytes: u64,
    /// Allocated.
    pub allocated_bytes: u64,
    /// Freed since, but held by the checkpoint.
    pub checkpoint_bytes: u64,
    /// Fragmentation; `None` in pools without feature `spacemap_histogram`.
    pub fragmentation_percent: Option<u64>,
}

/// Space of the pool without log vdevs, as in `zpool list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUsage {
    /// Whole metaslabs of all vdevs.
    pub size_bytes: u64,
    /// Allocated.
    pub allocated_bytes: u64,
    /// Freed since, but held by the checkpoint: raw, as OpenZFS counts it after an import.
    pub checkpoint_bytes: u64,
    /// Fragmentation of the data vdevs.
    pub fragmentation_percent: Option<u64>,
}

impl PoolUsage {
    /// Sums up a pool's vdevs.
    pub fn sum(vdevs: &[VdevUsage]) -> PoolUsage {
        let total = |of: fn(&VdevUsage) -> u64| -> u64 {
            vdevs.iter().filter(|v| v.class != VdevClass::Log).map(of).fold(0, u64::saturating_add)
        };
        let normal = || vdevs.iter().filter(|vdev| vdev.class == VdevClass::Normal);
        let weighted =
            |vdev: &VdevUsage| Some(u128::from(vdev.fragmentation_percent?) * u128::from(vdev.size_bytes));
        let sum: Option<u128> = normal().map(weighted).sum();
        let space: u128 = normal().map(|vdev| u128::from(vdev.size_bytes)).sum();
        PoolUsage {
            size_bytes: total(|vdev| vdev.size_bytes),
            allocated_bytes: total(|vdev| vdev.allocated_bytes),
            checkpoint_bytes: vdevs.iter().map(|vdev| vdev.checkpoint_bytes).sum(),
            fragmentation_percent: sum.map(|sum| sum.checked_div(space).unwrap_or(0) as u64),
        }
    }

    /// Free.
    pub fn free_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.allocated_bytes)
    }

    /// Allocated, in percent.
    pub fn capacity_percent(&self) -> u64 {
        let percent = (u128::from(self.allocated_bytes) * 100).checked_div(u128::from(self.size_bytes));
        percent.unwrap_or(0) as u64
    }
}

impl Mos {
    /// Space of all top-level vdevs with metaslabs.
    ///
    /// # Errors
    /// A space map is damaged.
    #[boxed]
    pub async fn usage(&self) -> Result<Vec<VdevUsage>> {
        let counts_pieces = self.counts_free_pieces().await?;
        let log = self.log_spacemaps().await?;
        let mut usage = Vec::new();
        for vdev in &self.pool_config().vdevs {
            if vdev.kind.holds_data() && (9..64).contains(&vdev.metaslab_shift) {
                usage.push(self.vdev_usage(vdev, &log, counts_pieces).await?);
            }
        }
        Ok(usage)
    }

    async fn vdev_usage(
        &self,
        vdev: &VdevConfig,
        log: &LogSpacemaps,
        counts_pieces: bool,
    ) -> Result<VdevUsage> {
        let mut metaslabs = Vec::new();
        let logged = log.by_metaslab(vdev);
        for place in self.metaslab_places(vdev).await? {
            let changes = logged.get(&place.index).map_or(&[][..], Vec::as_slice);
            metaslabs.push(self.metaslab_usage(vdev, &place, changes).await?);
        }
        Ok(VdevUsage {
            vdev: VdevId(vdev.id),
            class: vdev.class,
            size_bytes: metaslabs.iter().map(|metaslab| metaslab.size_bytes).sum(),
            allocated_bytes: metaslabs.iter().map(|metaslab| metaslab.allocated_bytes).sum(),
            checkpoint_bytes: self.checkpoint_bytes(vdev).await?,
            fragmentation_percent: counts_pieces.then(|| fragmentation(&metaslabs)),
        })
    }

    async fn metaslab_usage(
        &self,
        vdev: &VdevConfig,
        place: &MetaslabPlace,
        changes: &[&(Txg, SpaceMapEntry)],
    ) -> Result<MetaslabUsage> {
        let (mut allocated, mut free_ranges) = (0, None);
        if let Some(map) = place.map {
            let head = SpaceMapHead::of(&self.objset().object(map).await?, vdev.ashift)?;
            (allocated, free_ranges) = (i128::from(head.allocated_bytes()), head.free_ranges);
        }
        for (_, change) in changes.iter().filter(|(txg, _)| place.lacks(*txg)) {
            match change.map_type {
                MapType::Alloc => allocated += i128::from(change.run_bytes),
                MapType::Free => allocated -= i128::from(change.run_bytes),
            }
        }
        let allocated_bytes = u64::try_from(allocated.max(0)).unwrap_or(u64::MAX);
        Ok(MetaslabUsage { size_bytes: place.size_bytes, allocated_bytes, free_ranges })
    }

    async fn counts_free_pieces(&self) -> Result<bool> {
        Ok(self.enabled_features().await?.contains("spacemap_histogram"))
    }
}

struct MetaslabUsage {
    size_bytes: u64,
    allocated_bytes: u64,
    free_ranges: Option<SizeHistogram>,
}

/// Fragmentation of a vdev: its metaslabs', weighted by their free space.
fn fragmentation(metaslabs: &[MetaslabUsage]) -> u64 {
    let (mut sum, mut all) = (0u128, 0u128);
    for metaslab in metaslabs {
        let free = u128::from(metaslab.size_bytes.saturating_sub(metaslab.allocated_bytes)) >> 9;
        all += free;
        sum += u128::from(metaslab.free_ranges.map_or(0, |ranges| ranges.fragmentation_percent())) * free;
    }
    sum.checked_div(all).unwrap_or(0) as u64
}
