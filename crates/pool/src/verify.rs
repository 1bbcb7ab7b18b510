//! Verification: checks every copy and every parity column of many blocks, in disk order.
//!
//! Idea: all copies of all blocks are sorted by offset and read in large extents from every leaf at once.
//! Data columns are hashed in the read buffers. Parity is computed strip by strip and compared. The other
//! leaves of a mirror are compared with the leaf whose checksum matches. Only a mismatch takes the slow path
//! ([`crate::recover`]), which reads everything again and names every range that differs from the right one.
//!
//! ```text
//!   items --copies, gang headers, pieces--> targets --sort--> batches, a task each --> extents --> findings
//! ```
//!
//! Missing devices cause no findings if their content can be rebuilt. Skip sectors and the zero padding of
//! dRAID are not read.
//!
//! Memory: one batch per core, with parity and copies: about four times [`BATCH_BYTES`] with a three-way
//! mirror.

mod decode;
mod examine;
pub(crate) mod targets;

use crate::batches::cut;
use crate::heal::{Healed, Repair};
use crate::mismatch::Mismatch;
use crate::pool::Pool;
use crate::zbookmark::Zbookmark;
use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{Guid, VdevId};
use decode::Decoding;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use targets::Target;

const BATCH_BYTES: u64 = 4 << 20;
const BATCH_TARGETS: usize = 2_048;

/// A block to verify.
#[derive(Debug, Clone, Copy)]
pub struct VerifyItem {
    /// The block.
    pub bp: Blkptr,
    /// Its logical address, repeated in findings.
    pub place: Zbookmark,
}

/// The fault of a copy or column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device failed to read it.
    Unreadable,
    /// ReadErrors, but the block can be rebuilt without it.
    Checksum,
    /// Parity that does not match its data.
    Parity,
    /// This copy is lost; another one is valid.
    CopyLost,
    /// All copies are lost.
    Lost,
}

/// One bad copy or column of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Index of the block among the items.
    pub item: usize,
    /// The block.
    pub place: Zbookmark,
    /// The top-level vdev of the copy.
    pub vdev: VdevId,
    /// The leaf to blame, if any.
    pub leaf: Option<Guid>,
    /// Byte offset on the leaf, labels included, or on the top-level vdev.
    pub offset_bytes: u64,
    /// Length.
    pub len_bytes: u64,
    /// The fault.
    pub fault: Fault,
}

impl Pool {
    /// Reads every copy and parity column of these blocks and reports each bad one, in the order of the
    /// items.
    ///
    /// A missing device is reported only for blocks that can't be rebuilt without it; lagging leaves
    /// ([`crate::Lacking::lagging`]) are not reported. If the tree is no longer whole
    /// ([`Pool::has_whole_tree`]), nothing is.
    #[boxed]
    pub async fn verify_many(&self, blocks: Vec<VerifyItem>) -> Vec<Finding> {
        self.examine(blocks, false, Arc::default()).await.0
    }

    async fn examine(
        &self,
        blocks: Vec<VerifyItem>,
        heals: bool,
        decoding: Arc<Decoding>,
    ) -> (Vec<Finding>, Healed) {
        let (mut targets, mut findings) = self.targets(&blocks).await;
        targets.sort_unstable_by_key(|target| (target.dva.vdev, target.dva.offset_bytes));
        let batches = cut(targets, BATCH_TARGETS, BATCH_BYTES, |target| target.psize as u64);
        let step = |batch: Vec<Target>| {
            let (pool, decoding) = (self.clone(), decoding.clone());
            async move { pool.examine_batch(batch, heals, &decoding).await }
        };
        let mut all = Examined::default();
        if batches.len() <= 1 {
            for batch in batches {
                all.add(step(batch).await);
            }
        } else {
            let width = self.runtime().parallelism();
            let mut done = std::pin::pin!(self.runtime().map_bounded(width, batches, step));
            while let Some(examined) = done.next().await {
                all.add(examined);
            }
        }
        findings.extend(all.findings);
        findings.extend(judge(all.lost));
        findings.sort_by_key(|finding| finding.item);
        if heals && self.has_whole_tree() {
            for finding in findings.iter().filter(|finding| finding.fault == Fault::Lost) {
                let bp = &blocks[finding.item].bp;
                if !self.may_be_back(bp).await {
                    self.note_lost(bp, finding.place, Mismatch::Damage);
                }
            }
        }
        if !self.has_whole_tree() {
            // Mismatches may be reuse, not damage.
            findings.clear();
        }
        (findings, all.healed)
    }
}

impl Repair<'_> {
    /// As [`Pool::verify_many`], but repairs bad copies and notes lost ones. The blocks must stay in place,
    /// as for [`Repair::heal`].
    #[boxed]
    pub async fn scrub(&self, blocks: Vec<VerifyItem>) -> (Vec<Finding>, Healed) {
        self.0.examine(blocks, true, Arc::default()).await
    }
}

#[derive(Default)]
struct Examined {
    findings: Vec<Finding>,
    lost: Vec<Target>,
    healed: Healed,
}

impl Examined {
    fn add(&mut self, more: Examined) {
        self.findings.extend(more.findings);
        self.lost.extend(more.lost);
        self.healed.add(more.healed);
    }
}

/// A block is lost if all its copies are lost.
fn judge(lost: Vec<Target>) -> Vec<Finding> {
    let mut copies: BTreeMap<usize, usize> = BTreeMap::new();
    for target in &lost {
        *copies.entry(target.block).or_default() += 1;
    }
    let finding = |target: Target| {
        let all = copies.get(&target.block).is_some_and(|&lost| lost == target.copies);
        target.finding(if all { Fault::Lost } else { Fault::CopyLost })
    };
    lost.into_iter().map(finding).collect()
}
