//! Writes labels, in an order in which an interruption at any instant leaves a pool that opens.
//!
//! ```text
//!   1  flush        all blocks of the txg are on disk before anything leads to them
//!   2  labels 0, 2  with the new configuration, for vdevs whose configuration changed; flush
//!   3  uberblock    in its slot of the ring, in all four labels; flush    <- now the txg is the pool's state
//!   4  labels 1, 3  as 2; flush
//! ```
//!
//! Before step 3, labels 1 and 3 match the old uberblocks; after it, labels 0 and 2 match the new one. A
//! device that fails a write or flush is counted and left behind. It is an error only if none of a vdev's
//! devices has the label, or no device at all has the uberblock.
//!
//! Source: OpenZFS `vdev_config_sync`, `vdev_label_sync`, `vdev_uberblock_sync`, `vdev_label_init`,
//! `spa_sync`.

use super::read_labels;
use crate::check::native_endian;
use crate::config::VdevClass;
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::vdev::leaf::Leaf;
use crate::vdev::queue::IoClass;
use crate::vdev::unflushed::Stake;
use crate::vdev::{Layout, Top, VdevTree};
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_codec::checksum::{Checksum, embedded::label_verifier};
use cenote_device::{Device, DeviceError};
use cenote_format::gang::ZIO_ECK_BYTES;
use cenote_format::label::{
    BOOT_ENV_OFFSET, LABEL_BYTES, LabelConfig, PoolConfig, UBERBLOCK_RING_OFFSET, VDEV_LABELS, VDEV_PAD_SIZE,
    VDEV_PHYS_OFFSET, VDEV_UBERBLOCK_RING, encode_config_nvlist, label_offset, uberblock_count,
    uberblock_slot_bytes,
};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg, VdevId};
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `SPA_SYNC_MIN_VDEVS`, for each txg's uberblock.
const SPA_SYNC_MIN_VDEVS: usize = 3;
/// `RRSS_SCRATCH_VALID`: the uberblock repeats another one's txg, whose slot it must not take.
const SCRATCH_VALID: u64 = 1;
const EVEN: [u32; 2] = [0, 2];
const ODD: [u32; 2] = [1, 3];
const ALL: [u32; 4] = [0, 1, 2, 3];

/// The label changes of a txg.
#[derive(Debug, Clone, Copy)]
pub struct LabelUpdate<'a> {
    /// The MOS's configuration as of this txg; its `txg`, state and host are written unchanged.
    pub config: &'a PoolConfig,
    /// The txg's root.
    pub uberblock: &'a Uberblock,
    /// Top-level vdevs that get new labels. If empty, only the uberblock is written, to some vdevs.
    pub dirty: &'a [VdevId],
}

#[derive(Clone, Copy)]
enum Step {
    Configs([u32; 2]),
    Uberblock,
}

/// The labels of a pool.
#[derive(Clone, Copy)]
pub struct Labels<'a>(&'a Pool);

impl Pool {
    /// The labels of all leaves.
    pub fn labels(&self) -> Labels<'_> {
        Labels(self)
    }
}

impl Labels<'_> {
    /// Makes a txg the pool's state: flushes its blocks, writes labels and uberblocks ([`Pool::at`]).
    ///
    /// # Errors
    /// [`PoolError::Unavailable`]: too few devices accept it, and the pool does not wait for them
    /// (`suspend`). The txg may or may not be the pool's state then.
    #[boxed]
    pub async fn write(&self, update: &LabelUpdate<'_>) -> Result<()> {
        let txg = update.uberblock.txg;
        self.0.flush_tree(txg).await?;
        for step in [Step::Configs(EVEN), Step::Uberblock, Step::Configs(ODD)] {
            let mut tries = self.0.begin_tries();
            while let Err(error) = self.put_step(update, step).await {
                self.0.wait_out(&mut tries, txg, error).await?;
            }
            self.0.end_tries(tries);
        }
        Ok(())
    }

    async fn put_step(&self, update: &LabelUpdate<'_>, step: Step) -> Result<()> {
        match step {
            Step::Configs(labels) => self.put_configs(update, labels).await,
            Step::Uberblock => self.put_uberblock(update).await,
        }
    }

    /// Writes only the configuration, into all labels, as of the current txg: for instance, the importing
    /// host. After an interruption each label is intact, old or new, and leads to the same state.
    ///
    /// # Errors
    /// [`PoolError::Unavailable`]: too few devices accept it.
    #[boxed]
    pub async fn write_config(&self, config: &PoolConfig) -> Result<()> {
        let tops: Vec<VdevId> = config.vdev_tree.children.iter().map(|top| VdevId(top.id)).collect();
        let update = LabelUpdate { config, uberblock: self.0.uberblock(), dirty: &tops };
        self.put_configs(&update, EVEN).await?;
        self.put_configs(&update, ODD).await
    }

    /// Durably rewrites the last txg's uberblock on all devices, with a new expansion state.
    ///
    /// # Errors
    /// [`PoolError::Unavailable`]: no device accepts it.
    pub(crate) async fn write_uberblock(&self, uberblock: &Uberblock) -> Result<()> {
        let vdevs = self.0.tree().vdevs();
        self.put_uberblock_on(uberblock, self.uberblock_tops(&vdevs, false)).await
    }

    pub(super) fn pool(&self) -> &Pool {
        self.0
    }

    /// Whether a device in use was found without the newest uberblock.
    pub fn is_uneven(&self) -> bool {
        let (found, vdevs) = (self.0.tree().found(), self.0.tree().vdevs());
        let newest = found.uberblocks.first().map_or(Txg(0), |newest| newest.txg);
        let mut in_use = vdevs.leaves().iter().filter(|leaf| !leaf.is_out_of_use());
        in_use.any(|leaf| found.devices.get(&leaf.guid).is_some_and(|device| device.uberblock_txg < newest))
    }

    /// Writes the newest uberblock to devices that lack only that one, after an interruption, lest they lack
    /// two after the next, like a device that was away. A device that fails is counted.
    #[boxed]
    pub async fn even_out(&self) {
        let (found, vdevs, newest) = (self.0.tree().found(), self.0.tree().vdevs(), self.0.uberblock());
        let is_newest = found.uberblocks.first().is_some_and(|found| found.txg == newest.txg);
        let txg = |leaf: &Leaf| found.devices.get(&leaf.guid).map(|device| device.uberblock_txg);
        let has_it = |top: &&Top| top.writable_leaves().any(|leaf| txg(leaf) == Some(newest.txg));
        let uneven = vdevs.all_tops().iter().filter(|top| is_newest && top.has_leaves() && has_it(top));
        let writes = uneven.flat_map(|top| {
            let (at, slot) = uberblock_slot(newest, top.config.ashift);
            let lacks = |leaf: &&Arc<Leaf>| !leaf.is_stale() && txg(leaf).is_some_and(|txg| txg < newest.txg);
            let leaves: Vec<&Arc<Leaf>> = top.writable_leaves().filter(lacks).collect();
            leaves.into_iter().map(move |leaf| self.put(leaf, newest.txg, ALL, at, slot.clone()))
        });
        join_all(writes).await;
    }

    /// Writes to every leaf of the dirty vdevs.
    async fn put_configs(&self, update: &LabelUpdate<'_>, labels: [u32; 2]) -> Result<()> {
        let (vdevs, mut writing) = (self.0.tree().vdevs(), Vec::new());
        for &id in update.dirty {
            let Some(top) = vdevs.layout_of(id).filter(|top| top.has_leaves()) else { continue };
            let config = update.config.vdev_tree.children.iter().find(|config| config.id == id.0);
            let config = config.ok_or_else(|| self.label_error(id, "the configuration lacks it"))?;
            let mut writes = Vec::new();
            for leaf in top.writable_leaves() {
                let Some(vdev) = config.leaves().find(|vdev| vdev.guid == leaf.guid) else { continue };
                let list = update.config.for_leaf(config, vdev).encode();
                let area = encode_config_nvlist(&list).ok_or_else(|| too_long(self.0.name()))?;
                writes.push(self.put(leaf, update.uberblock.txg, labels, VDEV_PHYS_OFFSET, area));
            }
            writing.push(async move { (id, top, join_all(writes).await) });
        }
        for (id, top, written) in join_all(writing).await {
            if !written.iter().any(Result::is_ok) && top.config.class != VdevClass::Log {
                return Err(self.label_error(id, "no label could be written to any of its devices"));
            }
        }
        Ok(())
    }

    async fn put_uberblock(&self, update: &LabelUpdate<'_>) -> Result<()> {
        let vdevs = self.0.tree().vdevs();
        self.put_uberblock_on(update.uberblock, self.uberblock_tops(&vdevs, update.dirty.is_empty())).await
    }

    async fn put_uberblock_on(&self, uberblock: &Uberblock, tops: Vec<&Top>) -> Result<()> {
        let writes = tops.iter().flat_map(|top| {
            let (at, slot) = uberblock_slot(uberblock, top.config.ashift);
            top.writable_leaves().map(move |leaf| self.put(leaf, uberblock.txg, ALL, at, slot.clone()))
        });
        let written = join_all(writes).await;
        let is_fenced = |put: &Result<()>| matches!(put, Err(PoolError::Device(DeviceError::Fenced { .. })));
        if written.iter().any(is_fenced) {
            return Err(self.label_error(VdevId(0), "another machine has taken one of its devices"));
        }
        if !written.iter().any(Result::is_ok) {
            return Err(self.label_error(VdevId(0), "the uberblock could not be written to any device"));
        }
        let writable = tops.iter().flat_map(|top| top.writable_leaves()).map(|leaf| leaf.guid);
        let has_it: BTreeMap<Guid, bool> = writable.zip(written.iter().map(Result::is_ok)).collect();
        let slots = tops.iter().flat_map(|top| top.slots());
        let leaves = slots.flat_map(|slot| &slot.leaves);
        let labelled = leaves.map(|leaf| (leaf.guid, has_it.get(&leaf.guid).is_some_and(|has_it| *has_it)));
        self.0.beats().note_labelled(labelled);
        self.0.beats().note(uberblock);
        Ok(())
    }

    /// All vdevs, or enough random ones for the uberblock to survive.
    fn uberblock_tops<'a>(&self, vdevs: &'a VdevTree, few: bool) -> Vec<&'a Top> {
        let mut tops: Vec<&Top> = vdevs.all_tops().iter().filter(|top| top.has_leaves()).collect();
        if few {
            tops.retain(|top| top.config.class != VdevClass::Log);
            let count = tops.len().max(1);
            tops.rotate_left((self.0.runtime().random_u64() % count as u64) as usize % count);
            tops.truncate(SPA_SYNC_MIN_VDEVS);
        }
        tops
    }

    /// Durably writes part of a leaf's labels, `at` bytes into each, sealed for its offset. Returns the first
    /// error.
    async fn put<const N: usize>(
        &self,
        leaf: &Leaf,
        txg: Txg,
        labels: [u32; N],
        at: u64,
        part: Vec<u8>,
    ) -> Result<()> {
        let size_bytes = leaf.device.size_bytes();
        let parts: Option<Vec<_>> =
            labels.iter().map(|&label| sealed(size_bytes, label, at, &part)).collect();
        let parts = parts.ok_or_else(|| too_small(leaf.device.describe()))?;
        let mark = self.0.tree().missed().mark();
        let write = |(offset, bytes)| leaf.write(IoClass::SyncWrite, Stake::alone(txg), offset, bytes);
        let written = join_all(parts.into_iter().map(write)).await;
        let flushed = leaf.flush_since(mark, self.0.tree().missed()).await;
        Ok(written.into_iter().chain([flushed]).collect::<Result<(), _>>()?)
    }

    fn label_error(&self, vdev: VdevId, why: &str) -> PoolError {
        PoolError::Unavailable { pool: self.0.name().into(), vdev, why: why.into() }
    }
}

impl Top {
    fn has_leaves(&self) -> bool {
        matches!(self.layout, Layout::Copies(_) | Layout::Raidz(..) | Layout::Draid(..))
    }

    fn writable_leaves(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.slots().iter().flat_map(|slot| &slot.leaves).filter(|leaf| !leaf.is_out_of_use())
    }
}

/// The offset in a label, and the unsealed bytes, of the slot for heartbeats (`MMP_BLOCKS_PER_LABEL`).
pub(crate) fn last_slot(uberblock: &Uberblock, ashift: u32) -> (u64, Vec<u8>) {
    let slot_bytes = uberblock_slot_bytes(ashift);
    let mut slot = uberblock.encode();
    slot.resize(slot_bytes as usize, 0);
    (UBERBLOCK_RING_OFFSET + (uberblock_count(ashift) - 1) * slot_bytes, slot)
}

/// The offset in a label, and the unsealed bytes.
fn uberblock_slot(uberblock: &Uberblock, ashift: u32) -> (u64, Vec<u8>) {
    let slot_bytes = uberblock_slot_bytes(ashift);
    // The last slot is reserved for heartbeats.
    let slots = uberblock_count(ashift) - u64::from(uberblock.mmp_is_on());
    let turn = uberblock.txg.0.wrapping_sub(u64::from(uberblock.reflow_scratch_state() == SCRATCH_VALID));
    let mut slot = uberblock.encode();
    assert!(slot.len() + ZIO_ECK_BYTES <= slot_bytes as usize, "no room for the checksum");
    debug_assert_eq!(Uberblock::decode(&slot).as_ref(), Ok(uberblock), "what is written can be read");
    slot.resize(slot_bytes as usize, 0);
    (UBERBLOCK_RING_OFFSET + turn % slots * slot_bytes, slot)
}

/// `None` if the device is too small for labels.
pub(crate) fn sealed(size_bytes: u64, label: u32, at: u64, part: &[u8]) -> Option<(u64, Bytes)> {
    let offset = label_offset(size_bytes, label)? + at;
    let mut bytes = part.to_vec();
    // Fails only for parts shorter than a checksum, which don't exist.
    Checksum::Label.seal(&mut bytes, label_verifier(offset), native_endian()).ok()?;
    Some((offset, bytes.into()))
}

/// Writes a device's first labels: configuration, empty boot settings, an empty ring. `config` has txg 0
/// until a txg includes the device ([`Labels::write`]).
///
/// # Errors
/// The device fails, is too small, or the configuration is too long for a label.
#[boxed]
pub async fn init_device(device: &dyn Device, config: &LabelConfig) -> Result<()> {
    let name = device.describe();
    let config = encode_config_nvlist(&config.encode()).ok_or_else(|| too_long(name))?;
    let parts = [
        (VDEV_PHYS_OFFSET, config),
        (BOOT_ENV_OFFSET, vec![0; VDEV_PAD_SIZE as usize]),
        (UBERBLOCK_RING_OFFSET, vec![0; VDEV_UBERBLOCK_RING as usize]),
    ];
    for label in 0..VDEV_LABELS {
        for (at, part) in &parts {
            let (offset, bytes) =
                sealed(device.size_bytes(), label, *at, part).ok_or_else(|| too_small(name))?;
            device.write_at(offset, bytes).await?;
        }
    }
    Ok(device.flush().await?)
}

/// Zeroes every label with pool content (`zpool labelclear`), and returns their number. Other bytes stay.
#[boxed]
pub async fn clear_labels(device: &dyn Device) -> Result<u32> {
    let mut cleared = 0;
    for (label, found) in (0..).zip(read_labels(device).await) {
        let is_label = found.config.is_some() || !found.uberblocks.is_empty();
        if let Some(offset) = label_offset(device.size_bytes(), label).filter(|_| is_label) {
            device.write_at(offset, Bytes::from(vec![0; LABEL_BYTES as usize])).await?;
            cleared += 1;
        }
    }
    device.flush().await?;
    Ok(cleared)
}

fn too_long(pool: &str) -> PoolError {
    let why = "its configuration does not fit in a label: too many devices in one vdev, or too long paths";
    PoolError::Config { pool: pool.into(), why: why.into() }
}

pub(super) fn too_small(device: &str) -> PoolError {
    PoolError::Config { pool: device.into(), why: "the device has no room for labels".into() }
}
