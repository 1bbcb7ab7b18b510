//! Usage of a pool, as in `zpool list`, from its space maps.
//!
//! Idea: each space map's header has the sum of its allocations, so no map is replayed; only the log space
//! maps are added. Fragmentation measures the size of free ranges, weighted by their bytes: a range of 512
//! bytes counts 100, one of 512 MiB counts 0.
//!
//! Source: OpenZFS `spa_prop_get_config`, `metaslab_class_fragmentation`, `metaslab_set_fragmentation`.

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_format::dsl::names::pool as names;
use cenote_format::space_map::{MapType, SpaceMapEntry};
use cenote_format::units::{Txg, VdevId};
use cenote_object::Result;
use cenote_pool::alloc::{AllocClass, SizeHistogram};
use cenote_pool::{VdevClass, VdevConfig};

use crate::mos::Mos;
use crate::spacemaps::{LogSpacemaps, MetaslabPlace, SpaceMapHead, has_embedded_log};

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
    /// Size of the metaslab set aside for intent logs; 0 without one.
    pub embedded_log_bytes: u64,
    /// Allocated in that metaslab.
    pub embedded_log_allocated_bytes: u64,
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
        let normal = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Normal);
        PoolUsage {
            size_bytes: total(|vdev| vdev.size_bytes),
            allocated_bytes: total(|vdev| vdev.allocated_bytes),
            checkpoint_bytes: vdevs.iter().map(|vdev| vdev.checkpoint_bytes).sum(),
            fragmentation_percent: class_fragmentation(normal),
        }
    }

    /// Free.
    pub fn free_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.allocated_bytes)
    }

    /// Allocated, in percent.
    pub fn capacity_percent(&self) -> u64 {
        percent(self.allocated_bytes, self.size_bytes)
    }
}

/// Space of an allocation class: `class_normal_size` and its kin.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ClassUsage {
    /// Raw size, with parity.
    pub size_bytes: u64,
    /// Raw bytes allocated.
    pub allocated_bytes: u64,
    /// Size net of parity.
    pub usable_bytes: u64,
    /// Bytes allocated, net of parity.
    pub used_bytes: u64,
    /// Fragmentation; `None` for a class without space.
    pub fragmentation_percent: Option<u64>,
}

impl ClassUsage {
    fn add(&mut self, size_bytes: u64, allocated_bytes: u64, net: impl Fn(u64) -> u64) {
        self.size_bytes = self.size_bytes.saturating_add(size_bytes);
        self.allocated_bytes = self.allocated_bytes.saturating_add(allocated_bytes);
        self.usable_bytes = self.usable_bytes.saturating_add(net(size_bytes));
        self.used_bytes = self.used_bytes.saturating_add(net(allocated_bytes));
    }

    /// Sum of all classes but logs: `usable`, `used` and `available` of the pool.
    pub fn of_pool(classes: &BTreeMap<AllocClass, ClassUsage>) -> ClassUsage {
        let mut sum = ClassUsage::default();
        for (_, class) in classes.iter().filter(|(class, _)| **class != AllocClass::Log) {
            sum.size_bytes = sum.size_bytes.saturating_add(class.size_bytes);
            sum.allocated_bytes = sum.allocated_bytes.saturating_add(class.allocated_bytes);
            sum.usable_bytes = sum.usable_bytes.saturating_add(class.usable_bytes);
            sum.used_bytes = sum.used_bytes.saturating_add(class.used_bytes);
        }
        sum
    }

    /// Free, raw.
    pub fn free_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.allocated_bytes)
    }

    /// Free, net of parity.
    pub fn available_bytes(&self) -> u64 {
        self.usable_bytes.saturating_sub(self.used_bytes)
    }

    /// Allocated, in percent.
    pub fn capacity_percent(&self) -> u64 {
        percent(self.allocated_bytes, self.size_bytes)
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100).checked_div(u128::from(whole)).unwrap_or(0) as u64
}

impl Mos {
    /// Space of each allocation class. Pools older than version 9 have no parity in their accounts, so both
    /// kinds of size are raw there.
    ///
    /// # Errors
    /// The pool's directory is damaged.
    #[boxed]
    pub async fn class_usage(&self, vdevs: &[VdevUsage]) -> Result<BTreeMap<AllocClass, ClassUsage>> {
        let deflates = self.directory_u64(names::DEFLATE).await?.unwrap_or(0) != 0;
        let tree = self.pool().tree().vdevs();
        let mut classes: BTreeMap<_, _> =
            AllocClass::ALL.into_iter().map(|class| (class, ClassUsage::default())).collect();
        for vdev in vdevs {
            let net = |bytes| if deflates { tree.deflate(vdev.vdev, bytes) } else { bytes };
            let (log, log_allocated) = (vdev.embedded_log_bytes, vdev.embedded_log_allocated_bytes);
            let (main, allocated) =
                (vdev.size_bytes.saturating_sub(log), vdev.allocated_bytes.saturating_sub(log_allocated));
            classes.entry(vdev.class.into()).or_default().add(main, allocated, net);
            classes.entry(AllocClass::EmbeddedLog).or_default().add(log, log_allocated, net);
        }
        for (class, usage) in &mut classes {
            let of_class = || vdevs.iter().filter(|vdev| AllocClass::from(vdev.class) == *class);
            usage.fragmentation_percent = match usage.size_bytes {
                0 => None,
                _ => class_fragmentation(of_class()),
            };
        }
        Ok(classes)
    }

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
        let for_log = metaslabs.iter().min_by_key(|metaslab| metaslab.own_map_bytes);
        let for_log = for_log.filter(|_| has_embedded_log(vdev));
        Ok(VdevUsage {
            vdev: VdevId(vdev.id),
            class: vdev.class,
            size_bytes: metaslabs.iter().map(|metaslab| metaslab.size_bytes).sum(),
            allocated_bytes: metaslabs.iter().map(|metaslab| metaslab.allocated_bytes).sum(),
            checkpoint_bytes: self.checkpoint_bytes(vdev).await?,
            fragmentation_percent: counts_pieces.then(|| fragmentation(&metaslabs)),
            embedded_log_bytes: for_log.map_or(0, |metaslab| metaslab.size_bytes),
            embedded_log_allocated_bytes: for_log.map_or(0, |metaslab| metaslab.allocated_bytes),
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
        let own_map_bytes = u64::try_from(allocated).unwrap_or(0);
        for (_, change) in changes.iter().filter(|(txg, _)| place.lacks(*txg)) {
            match change.map_type {
                MapType::Alloc => allocated += i128::from(change.run_bytes),
                MapType::Free => allocated -= i128::from(change.run_bytes),
            }
        }
        let allocated_bytes = u64::try_from(allocated.max(0)).unwrap_or(u64::MAX);
        Ok(MetaslabUsage { size_bytes: place.size_bytes, own_map_bytes, allocated_bytes, free_ranges })
    }

    async fn counts_free_pieces(&self) -> Result<bool> {
        Ok(self.enabled_features().await?.contains("spacemap_histogram"))
    }
}

/// Fragmentation of a class: its vdevs', weighted by size. Metaslabs set aside for logs count for their vdev,
/// so a class of them alone has none.
fn class_fragmentation<'a>(vdevs: impl Iterator<Item = &'a VdevUsage>) -> Option<u64> {
    let (mut sum, mut space) = (0u128, 0u128);
    for vdev in vdevs {
        sum += u128::from(vdev.fragmentation_percent?) * u128::from(vdev.size_bytes);
        space += u128::from(vdev.size_bytes);
    }
    Some(sum.checked_div(space).unwrap_or(0) as u64)
}

struct MetaslabUsage {
    size_bytes: u64,
    /// Without the log: an import sets aside the metaslab with the least (`vdev_metaslab_init`).
    own_map_bytes: u64,
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
