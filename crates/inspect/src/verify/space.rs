//! What the space maps say is allocated, and how that compares with what is referenced.
//!
//! Idea: both are sorted ranges ([`super::extent`]), so that comparing them is one pass: allocated and not referenced is *leaked*;
//! referenced and not allocated will be overwritten, perhaps by the next import for writing. What a checkpoint keeps is still
//! allocated in the space maps, though nothing in the current state refers to it: it is taken out first. What the removal of a vdev
//! has copied is allocated at its destination too, and its pointers lead to the source: the copies count as referenced.
//!
//! Memory: the allocated ranges of one vdev, 16 bytes a range for all, and 32 a range that a removal has copied.
//!
//! Source: OpenZFS `zdb.c` (`zdb_leak_init`, `dump_block_stats`).

use cenote_dataset::spacemaps::{LogSpacemaps, Metaslab, has_embedded_log};
use cenote_dataset::{Mos, Result};
use cenote_format::blkptr::Dva;
use cenote_format::units::VdevId;
use cenote_pool::{VdevClass, VdevConfig, VdevKind};
use std::collections::BTreeMap;

use super::extent::{Extent, ExtentSet, subtract};

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
/// After the classes that hold data, before separate log devices.
const EMBEDDED_LOG: ClassOrder = (3, "embedded log");

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
        self.count(top, &metaslabs);
        let contradict = metaslabs.iter().filter(|metaslab| !metaslab.overlaps.is_empty());
        Ok(contradict.map(|metaslab| metaslab.place.index).collect())
    }

    fn count(&mut self, top: &VdevConfig, metaslabs: &[Metaslab]) {
        let for_log = metaslabs.iter().min_by_key(|m| m.own_map_bytes).filter(|_| has_embedded_log(top));
        let for_log = for_log.map(|metaslab| metaslab.place.index);
        let order = match top.class {
            VdevClass::Normal => {
                self.classes.entry(EMBEDDED_LOG).or_default();
                0
            }
            VdevClass::Special => 1,
            VdevClass::Dedup => 2,
            VdevClass::Log => 4,
        };
        for metaslab in metaslabs {
            let class = match for_log == Some(metaslab.place.index) {
                true => EMBEDDED_LOG,
                false => (order, top.class.name()),
            };
            let (allocated_bytes, total_bytes) = self.classes.entry(class).or_default();
            *allocated_bytes += metaslab.own_map_bytes;
            *total_bytes += metaslab.place.size_bytes;
        }
    }
}
