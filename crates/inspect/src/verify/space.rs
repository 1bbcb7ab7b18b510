//! What the space maps say is allocated, and how that compares with what is referenced.
//!
//! Idea: both are sorted ranges ([`super::extent`]), so that comparing them is one pass: allocated and not referenced is *leaked*;
//! referenced and not allocated will be overwritten, perhaps by the next import for writing. What a checkpoint keeps is still
//! allocated in the space maps, though nothing in the current state refers to it: it is taken out first. What the removal of a vdev
//! has copied is allocated at its destination too, and its pointers lead to the source: the copies count as referenced.
//!
//! Memory: the allocated ranges of one vdev, 16 bytes a range for all, and 32 a range that a removal has copied.
//!
//! Source: OpenZFS `zdb.c` (`zdb_leak_init`), `vdev.c` (`vdev_metaslab_init`: the embedded log).

use cenote_dataset::spacemaps::LogSpacemaps;
use cenote_dataset::{Mos, Result};
use cenote_format::blkptr::Dva;
use cenote_format::units::VdevId;
use cenote_pool::{VdevClass, VdevConfig, VdevKind};
use std::collections::BTreeMap;

use super::extent::{Extent, ExtentSet, subtract};

/// Metaslabs that a vdev must have more than, for one to be set aside for intent logs (`zfs_embedded_slog_min_ms`).
const EMBEDDED_LOG_MIN_METASLABS: u64 = 64;

/// Space of an allocation class as its space maps say, changes that are only in log space maps left out (as `zdb -b`).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ClassSpace {
    /// `normal`, `special`, `dedup`, `log` or `embedded log`.
    pub class: &'static str,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Bytes that its vdevs have.
    pub total_bytes: u64,
}

/// Class names in the order of a report.
type ClassOrder = (u8, &'static str);

/// The space maps of a pool.
#[derive(Debug)]
pub(super) struct SpaceMaps {
    log: LogSpacemaps,
    classes: BTreeMap<ClassOrder, (u64, u64)>,
    copies: Vec<Dva>,
}

impl SpaceMaps {
    /// Reads what all vdevs share.
    ///
    /// # Errors
    /// It is damaged.
    pub(super) async fn load(mos: &Mos) -> Result<SpaceMaps> {
        let log = mos.log_spacemaps().await?;
        Ok(SpaceMaps { log, classes: BTreeMap::new(), copies: Vec::new() })
    }

    /// Space by class of the vdevs read so far.
    pub(super) fn classes(&self) -> Vec<ClassSpace> {
        let space = |(&(_, class), &(allocated_bytes, total_bytes)): (&ClassOrder, &(u64, u64))| ClassSpace {
            class,
            allocated_bytes,
            total_bytes,
        };
        self.classes.iter().map(space).collect()
    }

    /// What removals under way have copied off the vdevs read so far.
    pub(super) fn copies(&self) -> &[Dva] {
        &self.copies
    }

    /// Reads what is allocated on a top-level vdev into `allocated`, and says which metaslabs contradict themselves.
    ///
    /// # Errors
    /// A space map is damaged: nothing of this vdev is known.
    pub(super) async fn vdev(
        &mut self,
        mos: &Mos,
        top: &VdevConfig,
        allocated: &mut ExtentSet,
    ) -> Result<Vec<u64>> {
        if top.kind == VdevKind::Indirect {
            return Ok(Vec::new());
        }
        let vdev = VdevId(top.id);
        let metaslabs = mos.metaslabs(top, &self.log).await?;
        let kept = mos.checkpointed(top).await?;
        let extent = |(start, end)| Extent::new(vdev, start, end - start);
        let ranges = || metaslabs.iter().flat_map(|metaslab| metaslab.allocated.iter());
        self.copies.extend(mos.removal_copies(top, ranges()).await?);
        subtract(ranges().map(extent), kept.iter().map(extent), |extent| {
            allocated.insert(extent);
        });
        let used: Vec<u64> = metaslabs.iter().map(|metaslab| metaslab.own_map_bytes).collect();
        self.count(top, &used, metaslabs.first().map_or(0, |metaslab| metaslab.place.size_bytes));
        let contradict = metaslabs.iter().filter(|metaslab| !metaslab.overlaps.is_empty());
        Ok(contradict.map(|metaslab| metaslab.place.index).collect())
    }

    fn count(&mut self, top: &VdevConfig, used: &[u64], metaslab_bytes: u64) {
        let mut add = |class, allocated: u64, metaslabs: u64| {
            let space = self.classes.entry(class).or_default();
            space.0 += allocated;
            space.1 += metaslabs * metaslab_bytes;
        };
        let (all, count) = (used.iter().sum::<u64>(), used.len() as u64);
        let class = match top.class {
            VdevClass::Normal => (0, "normal"),
            VdevClass::Special => (1, "special"),
            VdevClass::Dedup => (2, "dedup"),
            VdevClass::Log => (4, "log"),
        };
        // Large enough vdevs set one metaslab aside for logs: at import, the emptiest.
        let set_aside = top.class == VdevClass::Normal && count > EMBEDDED_LOG_MIN_METASLABS;
        let least = used.iter().copied().min().filter(|_| set_aside);
        add(class, all - least.unwrap_or(0), count - u64::from(least.is_some()));
        if top.class == VdevClass::Normal {
            add((3, "embedded log"), least.unwrap_or(0), u64::from(least.is_some()));
        }
    }
}
