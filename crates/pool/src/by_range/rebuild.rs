//! Rebuilding: reconstructs ranges of a mirror or dRAID, independently of blocks, for incomplete leaves.
//!
//! Idea: the used ranges are known without the tree of blocks, and these vdevs place parity independently of
//! blocks. So a device is filled in disk order. A scrub must verify the data later. Only complete leaves are
//! read, since the birth of the data is unknown.
//!
//! Source: OpenZFS `vdev_rebuild.c` (`vdev_rebuild_range`), `vdev_op_rebuild_asize` of each kind.

use super::ByRange;
use crate::heal::Healed;
use crate::pool::Pool;
use crate::recover::recover_unchecked;
use crate::vdev::Layout;
use cenote_boxed::boxed;
use cenote_format::blkptr::Dva;
use cenote_format::units::{Asize, PhysicalBirth, SPA_MAXBLOCKSIZE, VdevId};
use futures::StreamExt;

/// The most bytes rebuilt at once.
const UNDER_WAY_BYTES: u64 = 64 << 20;
const AT_ONCE: u64 = 16;

impl ByRange<'_> {
    /// Whether a vdev can be rebuilt: a disk or mirror, or a dRAID.
    pub fn can_rebuild(&self, vdev: VdevId) -> bool {
        let vdevs = self.0.tree().vdevs();
        vdevs.layout_of(vdev).is_some_and(|top| matches!(top.layout, Layout::Copies(_) | Layout::Draid(..)))
    }

    /// Cuts a used range into pieces to rebuild, each with at most `most_bytes` per device. On a dRAID no
    /// piece crosses a redundancy group's end.
    pub fn rebuild_pieces(&self, vdev: VdevId, (start, end): (u64, u64), most_bytes: u64) -> Vec<(u64, u64)> {
        let vdevs = self.0.tree().vdevs();
        let Some(top) = vdevs.layout_of(vdev) else { return Vec::new() };
        let sector = 1 << top.config.ashift;
        let unit = match &top.layout {
            Layout::Draid(draid, _) => draid.unit_bytes(),
            _ => sector,
        };
        let longest = |from: u64| match &top.layout {
            Layout::Draid(draid, _) => draid.rebuild_bytes(from, most_bytes),
            _ => (most_bytes.min(SPA_MAXBLOCKSIZE) / sector).max(1) * sector,
        };
        // A resumed rebuild may not start at a whole unit.
        let (mut pieces, mut at) = (Vec::new(), start / unit * unit);
        while at < end {
            let next = at.saturating_add(longest(at)).min(end);
            pieces.push((at, next));
            at = next;
        }
        pieces
    }

    /// Rebuilds [pieces](ByRange::rebuild_pieces) on every incomplete leaf in use; [`Pool::flush`] makes that
    /// durable. The result counts unrecoverable pieces, too. This view must have kept the space since before
    /// the used ranges were read.
    #[boxed]
    pub async fn rebuild(&self, vdev: VdevId, pieces: Vec<(u64, u64)>) -> Healed {
        let longest = pieces.iter().map(|piece| piece.1 - piece.0).max().unwrap_or(1);
        let at_once = (UNDER_WAY_BYTES / longest.max(1)).clamp(1, AT_ONCE) as usize;
        let step = |piece: (u64, u64)| {
            let pool = self.0.clone();
            async move { pool.rebuild_piece(vdev, piece).await }
        };
        let mut healed = Healed::default();
        let mut done = std::pin::pin!(self.0.runtime().map_bounded(at_once, pieces, step));
        while let Some(one) = done.next().await {
            healed.add(one);
        }
        healed
    }
}

impl Pool {
    async fn rebuild_piece(&self, vdev: VdevId, (start, end): (u64, u64)) -> Healed {
        let lost = Healed { lost_copies: 1, ..Healed::default() };
        let vdevs = self.tree().vdevs();
        let psize = match vdevs.layout_of(vdev).map(|top| &top.layout) {
            Some(Layout::Draid(draid, _)) => draid.data_bytes(end - start),
            _ => end - start,
        };
        let dva = Dva { vdev, offset_bytes: start, asize: Asize(end - start), gang: false };
        let Ok(map) = vdevs.map(&dva, psize as usize, PhysicalBirth::UNKNOWN) else { return lost };
        let Some(faults) = recover_unchecked(self, &vdevs, &map).await else { return lost };
        Healed { read_bytes: psize, ..self.write_truth(faults, PhysicalBirth::UNKNOWN, ()).await }
    }
}
