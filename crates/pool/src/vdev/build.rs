//! Builds the flattened tree from configuration and devices.

use super::draid::Draid;
use super::leaf::{Leaf, Slot};
use super::missed::Missed;
use super::queue::QueueSettings;
use super::raidz::Raidz;
use super::reflow::Reflow;
use super::{IndirectMap, Layout, Top, VdevTree};
use crate::config::{PoolConfig, VdevConfig, VdevKind, least_bytes, least_child_bytes};
use crate::discover::FoundPool;
use cenote_format::label::VDEV_LABELS_BYTES;
use cenote_format::units::{Txg, VdevId};
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct Material<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) reflow: &'a Arc<Reflow>,
    pub(crate) found: &'a FoundPool,
    pub(crate) indirect: &'a BTreeMap<VdevId, Arc<IndirectMap>>,
    pub(crate) missed: &'a Arc<Missed>,
    pub(crate) settings: &'a Arc<QueueSettings>,
    /// From the previous tree, with their state.
    pub(crate) earlier: &'a [Arc<Leaf>],
}

pub(crate) fn build(config: &PoolConfig, material: &Material<'_>) -> VdevTree {
    let mut builder = Builder { material, leaves: Vec::new() };
    let tops = config.vdevs.iter().map(|top| builder.top(top)).collect();
    let is_expanding = config.vdevs.iter().any(|top| top.raidz_expanding);
    VdevTree { tops, leaves: builder.leaves, missed: material.missed.clone(), is_expanding }
}

struct Builder<'a> {
    material: &'a Material<'a>,
    leaves: Vec<Arc<Leaf>>,
}

impl Builder<'_> {
    fn top(&mut self, config: &VdevConfig) -> Top {
        let layout = match config.kind {
            VdevKind::Disk | VdevKind::File | VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => {
                Layout::Copies(self.slot(config, least_bytes(config)))
            }
            VdevKind::Raidz => Layout::Raidz(self.raidz(config), self.slots(config)),
            VdevKind::Draid => match Draid::new(config) {
                Some(draid) => Layout::Draid(draid, self.slots(config)),
                None => Layout::Absent,
            },
            VdevKind::Indirect => Layout::Indirect(self.material.indirect.get(&VdevId(config.id)).cloned()),
            _ => Layout::Absent,
        };
        Top { config: config.clone(), layout }
    }

    fn raidz(&self, config: &VdevConfig) -> Raidz {
        Raidz {
            parity: config.parity,
            width: config.children.len(),
            ashift: config.ashift,
            expand_txgs: config.raidz_expand_txgs.clone(),
            reflow: config.raidz_expanding.then(|| self.material.reflow.clone()),
        }
    }

    fn slots(&mut self, config: &VdevConfig) -> Vec<Slot> {
        let least = least_child_bytes(config, least_bytes(config));
        config.children.iter().map(|child| self.slot(child, least)).collect()
    }

    /// The leaves below a vdev that needs `least_bytes`, labels excluded.
    fn slot(&mut self, config: &VdevConfig, least_bytes: u64) -> Slot {
        let mut slot = Slot::default();
        self.fill(config, least_bytes, &mut slot);
        slot
    }

    fn fill(&mut self, config: &VdevConfig, least_bytes: u64, slot: &mut Slot) {
        match config.kind {
            VdevKind::Disk | VdevKind::File => match self.leaf(config, least_bytes) {
                Some(leaf) => slot.leaves.push(leaf),
                None => slot.absent.push(config.guid),
            },
            VdevKind::DistributedSpare => slot.spares.extend(config.spare_id.map(|id| (config.guid, id))),
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => {
                let least_bytes = least_child_bytes(config, least_bytes);
                for child in &config.children {
                    self.fill(child, least_bytes, slot);
                }
            }
            _ => slot.absent.push(config.guid),
        }
    }

    fn leaf(&mut self, config: &VdevConfig, least_bytes: u64) -> Option<Arc<Leaf>> {
        let guid = config.guid;
        let found = self.material.found.device(guid)?;
        let away = config.is_taken_out();
        let stale = found.stale || config.resilver_txg != Txg(0) || config.rebuild_txg != Txg(0);
        // A truncated device is read as far as it goes. Writing would put labels where other data lies.
        let is_cut_short = found.device.size_bytes().saturating_sub(VDEV_LABELS_BYTES) < least_bytes;
        let away = away || is_cut_short;
        let earlier = self.material.earlier.iter().find(|leaf| Arc::ptr_eq(&leaf.device, &found.device));
        let leaf = match earlier {
            Some(leaf) if leaf.guid == guid => leaf.clone(),
            Some(leaf) => Arc::new(leaf.renamed(guid)),
            None => {
                let Material { runtime, settings, .. } = self.material;
                Arc::new(Leaf::new(runtime, guid, found.device.clone(), settings))
            }
        };
        leaf.set_state(stale, away);
        self.leaves.push(leaf.clone());
        Some(leaf)
    }
}
