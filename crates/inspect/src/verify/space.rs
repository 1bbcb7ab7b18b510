//! The space that the space maps call allocated, compared with the referenced space.
//!
//! Idea: both are sorted ranges ([`super::extent`]), compared in one pass. Allocated but unreferenced space
//! is *leaked*; referenced but unallocated space will be overwritten, perhaps by the next import for writing.
//! A checkpoint's space is unreferenced, so it is subtracted first. Pointers to data copied by a vdev's
//! removal lead to the source, so the copies count as referenced.
//!
//! Memory: the allocated ranges of one vdev; 16 bytes for each range in total, and 32 for each range that a
//! removal has copied.
//!
//! Source: OpenZFS `zdb.c` (`zdb_leak_init`, `dump_block_stats`).

use std::collections::BTreeMap;

use cenote_dataset::Mos;
use cenote_dataset::spacemaps::{LogSpacemaps, Metaslab, has_embedded_log};
use cenote_format::blkptr::Dva;
use cenote_format::units::VdevId;
use cenote_object::Result;
use cenote_pool::{VdevClass, VdevConfig, VdevKind};

use super::extent::{Extent, ExtentSet, subtract};

/// The space of an allocation class according to its space maps, without changes that are only in log space
/// maps (like `zdb -b`).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ClassSpace {
    /// `normal`, `special`, `dedup`, `log` or `embedded log`.
    pub class: String,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Bytes on its vdevs in total.
    pub total_bytes: u64,
}

/// Sort key of class names in a report.
type ClassOrder = (u8, &'static str);
/// After the classes that hold data, before separate log devices.
const EMBEDDED_LOG: ClassOrder = (3, "embedded log");

#[derive(Debug)]
pub(super) struct SpaceMaps {
    log: LogSpacemaps,
    classes: BTreeMap<ClassOrder, (u64, u64)>,
    copies: Vec<Dva>,
}

impl SpaceMaps {
    /// Reads the tables that all vdevs share.
    ///
    /// # Errors
    /// They are damaged.
    pub(super) async fn load(mos: &Mos) -> Result<SpaceMaps> {
        let log = mos.log_spacemaps().await?;
        Ok(SpaceMaps { log, classes: BTreeMap::new(), copies: Vec::new() })
    }

    pub(super) fn classes(&self) -> Vec<ClassSpace> {
        let space = |(&(_, class), &(allocated_bytes, total_bytes)): (&ClassOrder, &(u64, u64))| ClassSpace {
            class: class.to_owned(),
            allocated_bytes,
            total_bytes,
        };
        self.classes.iter().map(space).collect()
    }

    /// Copies made by unfinished removals, for the vdevs read so far.
    pub(super) fn copies(&self) -> &[Dva] {
        &self.copies
    }

    /// Reads the allocated ranges of a top-level vdev into `allocated`; returns the metaslabs whose maps
    /// contradict themselves.
    ///
    /// # Errors
    /// A space map is damaged: nothing about this vdev is known.
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
