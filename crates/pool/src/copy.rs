//! Copies all allocated space to a device that joins a mirror: from one end to the other, whatever it
//! holds.
//!
//! Blocks are not checked, because nothing says where each begins: damage on the source is copied as it is,
//! and found when the block is read or verified.
//!
//! Source: OpenZFS `vdev_rebuild.c`.

use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::vdev::Layout;
use crate::vdev::queue::IoClass;
use cenote_boxed::boxed;
use cenote_device::Device;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::VdevId;

/// Bytes copied at once.
const STEP_BYTES: u64 = 1 << 20;

impl Pool {
    /// Copies a range of a disk or mirror, in block addresses, to a device that is to hold the same.
    ///
    /// # Errors
    /// No device of the vdev can read the range, the new device cannot write it, or the vdev is of another
    /// kind.
    #[boxed]
    pub async fn copy_range(&self, from: VdevId, to: &dyn Device, range: std::ops::Range<u64>) -> Result<()> {
        let refused =
            |why: &str| PoolError::Unavailable { pool: self.name().into(), vdev: from, why: why.into() };
        let vdevs = self.vdevs();
        let top = vdevs.layout_of(from).filter(|top| matches!(top.layout, Layout::Copies(_)));
        let leaves = top.map(|top| top.leaves(0, range.start)).unwrap_or_default();
        let mut at = range.start;
        while at < range.end {
            let (offset, len) = (at + VDEV_LABEL_START_SIZE, (range.end - at).min(STEP_BYTES));
            let mut found = None;
            for leaf in leaves.iter().filter(|leaf| !vdevs.is_lagging(leaf) && !leaf.is_out_of_use()) {
                found = leaf.read(IoClass::Rebuild, offset, len as usize).await.ok();
                if found.is_some() {
                    break;
                }
            }
            let bytes = found.ok_or_else(|| refused("no device can read everything to be copied"))?;
            to.write_at(offset, bytes).await?;
            at += len;
        }
        Ok(())
    }
}
