//! Copies the data of a vdev being removed to another one.
//!
//! ```text
//!   mirror -> a, b                mirror -> c, d
//!             |  '---- b's bytes --------> d        each new leaf is a copy of another old leaf
//!             '------- a's bytes --------> c
//! ```
//!
//! Idea: ranges are copied blindly, without checksums. Damage to one side of a mirror stays on one side, so a
//! readable block stays readable. A leaf that fails, or may be incomplete, is read only if there is no other.
//!
//! The copied blocks are of unknown births, so a leaf that fails to take a copy is recorded as lacking
//! everything.
//!
//! Source: OpenZFS `vdev_removal.c` (`spa_vdev_copy_segment`, `spa_vdev_copy_one_child`).

use super::ByRange;
use crate::error::{PoolError, Result};
use crate::vdev::leaf::Leaf;
use crate::vdev::queue::IoClass;
use crate::vdev::unflushed::Stake;
use crate::vdev::{Layout, Top};
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_device::DeviceError;
use cenote_format::blkptr::Dva;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::{Guid, TXG_INITIAL, Txg, VdevId};
use futures::future::join_all;
use std::sync::Arc;

impl ByRange<'_> {
    /// Copies a range from `start` of a vdev being removed to all of `to`, allocated in `txg`. Both vdevs are
    /// disks or mirrors.
    ///
    /// Memory: the range, once for each side.
    ///
    /// # Errors
    /// No device can read the range, or none takes it.
    #[boxed]
    pub async fn copy_off(&self, (from, start): (VdevId, u64), to: &Dva, txg: Txg) -> Result<()> {
        let vdevs = self.0.tree().vdevs();
        let failed = |vdev: VdevId, why: &str| PoolError::Unavailable {
            pool: self.0.name().into(),
            vdev,
            why: why.into(),
        };
        let leaves = |vdev: VdevId| {
            let top = vdevs.layout_of(vdev).filter(|top| matches!(top.layout, Layout::Copies(_)));
            top.map(Top::slots).and_then(<[_]>::first).ok_or_else(|| failed(vdev, "it holds no copies"))
        };
        let (old, new) = (leaves(from)?, leaves(to.vdev)?);
        let mut sources: Vec<&Arc<Leaf>> = old.leaves.iter().filter(|leaf| !leaf.is_out_of_use()).collect();
        sources.retain(|leaf| !vdevs.is_lagging(leaf));
        let (away, targets): (Vec<&Arc<Leaf>>, Vec<_>) =
            new.leaves.iter().partition(|leaf| leaf.is_out_of_use());
        let (at, len) = (start.saturating_add(VDEV_LABEL_START_SIZE), to.asize.0 as usize);
        let sides = targets.len().min(sources.len());
        let reads = (0..sides).map(|side| read_side(&sources, side, at, len));
        let mut read: Vec<Bytes> = Vec::with_capacity(sides);
        for side in join_all(reads).await {
            read.push(side.map_err(|why| failed(from, &why))?);
        }
        if read.is_empty() {
            let vdev = if targets.is_empty() { to.vdev } else { from };
            return Err(failed(vdev, "none of its devices is present"));
        }
        let at = to.offset_bytes.saturating_add(VDEV_LABEL_START_SIZE);
        let write = |(leaf, bytes): (&&Arc<Leaf>, &Bytes)| {
            let (leaf, bytes) = ((*leaf).clone(), bytes.clone());
            async move { leaf.write(IoClass::Removal, Stake::copied(txg), at, bytes).await }
        };
        let outcomes = join_all(targets.iter().zip(read.iter().cycle()).map(write)).await;
        let lacks = |leaf: Guid| self.0.tree().missed().note_all(leaf, (TXG_INITIAL, txg));
        new.absent.iter().copied().chain(away.iter().map(|leaf| leaf.guid)).for_each(lacks);
        let (mut is_written, mut why) = (false, String::new());
        for (leaf, outcome) in targets.iter().zip(outcomes) {
            match outcome {
                Ok(()) => is_written = true,
                Err(error) => {
                    lacks(leaf.guid);
                    why = error.to_string();
                }
            }
        }
        if is_written { Ok(()) } else { Err(failed(to.vdev, &why)) }
    }
}

/// Reads from the `side`-th leaf, or another if that fails.
async fn read_side(sources: &[&Arc<Leaf>], side: usize, at: u64, len: usize) -> Result<Bytes, String> {
    let mut last: Option<DeviceError> = None;
    for leaf in sources.iter().cycle().skip(side).take(sources.len()) {
        match leaf.read(IoClass::Removal, at, len).await {
            Ok(bytes) => return Ok(bytes),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| "none of its devices is present".into(), |error| error.to_string()))
}
