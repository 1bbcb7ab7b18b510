//! Checks whether a device in use still belongs to its leaf, by its labels.
//!
//! Idea: a file may be truncated or overwritten while the pool has it open, or a disk reassigned; reads and
//! writes still succeed. A device belongs to its leaf while one of its labels names it, unless it was cut
//! short and its data is gone. Without a readable label it still does if it holds an uberblock that this pool
//! wrote with its present devices: a torn or lost write then cost only the configurations. A device that
//! comes back to its path is compared with its siblings, because it may have been used elsewhere.
//!
//! Source: OpenZFS `vdev.c` (`vdev_validate`), which `vdev_reopen` calls.

use super::Devices;
use crate::config::least_leaf_bytes;
use crate::discover::{FoundDevice, History};
use crate::health::Trouble;
use crate::label::{Label, read_labels};
use cenote_boxed::boxed;
use cenote_device::DeviceError;
use cenote_format::label::{LabelConfig, PoolConfig, VDEV_LABELS, VDEV_LABELS_BYTES};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use futures::future::join_all;

/// The verdict on a device's labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Every readable label names the leaf.
    Confirmed,
    /// The leaf's, but labels are damaged.
    Damaged,
    /// Other content than the leaf's, and why.
    Refuted(Trouble),
    /// Not the leaf's, and nothing is there any more.
    Gone,
}

impl Devices<'_> {
    /// The verdict on a leaf's device; `None` if not in use, or unreadable.
    #[boxed]
    pub async fn identity(&self, leaf: Guid) -> Option<Identity> {
        let vdevs = self.0.tree().vdevs();
        let found = vdevs.leaves().iter().find(|one| one.guid == leaf && !one.is_out_of_use())?.clone();
        let is_top = vdevs.tops().any(|top| top.guid == leaf);
        drop(vdevs);
        let said = match self.is_cut_short(leaf, found.size_now().await?) {
            true => Identity::Refuted(Trouble::TooSmall),
            false => {
                let labels = found.labels().await?;
                let is_its_own = |label: &PoolConfig| names(label, self.0.tree().guid(), leaf, is_top);
                judge(&labels, is_its_own, |uberblock| wrote(self.0.uberblock(), uberblock))?
            }
        };
        match said {
            Identity::Refuted(_) if !found.is_there().await => Some(Identity::Gone),
            said => Some(said),
        }
    }

    /// Whether a device is too small for the leaf's data.
    pub fn is_cut_short(&self, leaf: Guid, size_bytes: u64) -> bool {
        let config = self.0.tree().config();
        let top = config.vdevs.iter().find(|top| top.leaves().any(|one| one.guid == leaf));
        let least_bytes = top.map_or(0, |top| least_leaf_bytes(top, leaf).saturating_add(VDEV_LABELS_BYTES));
        size_bytes < least_bytes
    }

    /// Leaves in use whose devices were cut short since they were opened.
    #[boxed]
    pub async fn cut_short(&self) -> Vec<Guid> {
        let leaves = self.0.tree().vdevs().leaves().to_vec();
        let in_use = leaves.iter().filter(|leaf| !leaf.is_out_of_use());
        let looks = in_use.map(async |leaf| {
            let size_bytes = leaf.size_now().await?;
            self.is_cut_short(leaf.guid, size_bytes).then_some(leaf.guid)
        });
        join_all(looks).await.into_iter().flatten().collect()
    }

    /// Compares a returning device with the siblings that stayed in use.
    #[boxed]
    pub async fn compare_with_siblings(&self, leaf: Guid, mut device: FoundDevice) -> FoundDevice {
        let vdevs = self.0.tree().vdevs();
        let top = vdevs.all_tops().iter().find(|top| top.config.leaves().any(|one| one.guid == leaf));
        let slots = top.map_or(&[][..], |top| top.slots());
        let siblings = slots.iter().flat_map(|slot| &slot.leaves);
        let siblings = siblings.filter(|one| one.guid != leaf && !one.is_out_of_use());
        let labels = join_all(siblings.map(|one| one.labels())).await.into_iter().flatten().flatten();
        let others: Vec<Uberblock> = labels.flat_map(|label| label.uberblocks).collect();
        if others.is_empty() {
            return device;
        }
        let own: Vec<Uberblock> =
            read_labels(&*device.device).await.into_iter().flat_map(|label| label.uberblocks).collect();
        device.stale = true;
        device.history = History::of(&own, &others);
        device.uberblock_txg = own.iter().map(|uberblock| uberblock.txg).max().unwrap_or(Txg(0));
        device
    }
}

fn judge(
    labels: &[Label],
    is_its_own: impl Fn(&PoolConfig) -> bool,
    is_of_pool: impl Fn(&Uberblock) -> bool,
) -> Option<Identity> {
    let decode = |label: &Label| LabelConfig::decode(label.config.as_ref()?).ok();
    let configs: Vec<LabelConfig> = labels.iter().filter_map(decode).collect();
    let says_so = |config: &LabelConfig| matches!(config, LabelConfig::Member(label) if is_its_own(label));
    // Reads beyond the end of a truncated file find no label; other failures leave the label unknown.
    let is_cut_off = |error: &DeviceError| matches!(error, DeviceError::Short { .. });
    let is_unknown = |label: &Label| label.unreadable.as_ref().is_some_and(|error| !is_cut_off(error));
    let unknown = labels.iter().filter(|label| is_unknown(label)).count();
    match configs.iter().filter(|config| says_so(config)).count() {
        0 if unknown > 0 => None,
        0 if configs.is_empty() && labels.iter().flat_map(|label| &label.uberblocks).any(is_of_pool) => {
            Some(Identity::Damaged)
        }
        0 if configs.is_empty() => Some(Identity::Refuted(Trouble::InvalidLabel)),
        0 => Some(Identity::Refuted(Trouble::CorruptedData)),
        own if own + unknown == VDEV_LABELS as usize => Some(Identity::Confirmed),
        _ => Some(Identity::Damaged),
    }
}

/// Whether a label names a leaf. The last disk of a mirror takes over the mirror's guid, which labels record
/// as the top-level vdev's.
fn names(label: &PoolConfig, pool: Guid, leaf: Guid, is_top: bool) -> bool {
    let is_leaf = label.guid == Some(leaf) || label.vdev_tree.orig_guid == Some(leaf);
    label.pool_guid == pool && (is_leaf || is_top && label.top_guid == Some(leaf))
}

/// Whether an uberblock comes from the pool whose last one is `newest`. Another sum of guids may be an
/// earlier one of this pool, in which the device was perhaps another leaf.
fn wrote(newest: &Uberblock, uberblock: &Uberblock) -> bool {
    uberblock.guid_sum == newest.guid_sum && uberblock.txg <= newest.txg
}
