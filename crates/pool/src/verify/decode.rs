//! Decoding of verified blocks: blocks that match their checksums must also decrypt and decompress.
//!
//! Idea: the batch that has read and verified a copy decodes it, too. Gang blocks and blocks
//! without an intact copy are read again.
//!
//! Source: OpenZFS `dsl_scan.c` (`scan_exec_io`, `dsl_scan_scrub_done`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cenote_boxed::boxed;
use futures::StreamExt;
use parking_lot::Mutex;

use super::{Fault, Finding, VerifyItem};
use crate::context::ReadContext;
use crate::error::{PoolError, Result};
use crate::heal::{Healed, Repair};
use crate::mismatch::Mismatch;

/// Blocks to decode, by item.
#[derive(Default)]
pub(super) struct Decoding {
    contexts: BTreeMap<usize, ReadContext>,
    /// Whether the decoded ones failed.
    failed: Mutex<BTreeMap<usize, bool>>,
}

impl Decoding {
    /// How to decode an item not yet decoded.
    pub(super) fn due(&self, item: usize) -> Option<&ReadContext> {
        self.contexts.get(&item).filter(|_| !self.failed.lock().contains_key(&item))
    }

    pub(super) fn note<T>(&self, item: usize, decoded: &Result<T>) {
        self.failed.lock().insert(item, is_undecodable(decoded));
    }
}

fn is_undecodable<T>(decoded: &Result<T>) -> bool {
    matches!(decoded, Err(PoolError::Decompress { .. } | PoolError::Decrypt { .. }))
}

impl Repair<'_> {
    /// As [`Repair::scrub`], and decodes the blocks with a context, by item. Nothing can repair one that
    /// fails: it is noted as lost. Also returns these.
    #[boxed]
    pub async fn scrub_thoroughly(
        &self,
        blocks: Vec<VerifyItem>,
        contexts: BTreeMap<usize, ReadContext>,
    ) -> (Vec<Finding>, Healed, BTreeSet<usize>) {
        let whole = |item: &usize| blocks.get(*item).is_some_and(|block| !block.bp.is_gang());
        let of_whole = contexts.iter().filter(|(item, _)| whole(item));
        let of_whole = of_whole.map(|(item, context)| (*item, context.clone())).collect();
        let decoding = Arc::new(Decoding { contexts: of_whole, ..Decoding::default() });
        let (findings, healed) = self.0.examine(blocks.clone(), true, decoding.clone()).await;
        let (failed, mut left) = (std::mem::take(&mut *decoding.failed.lock()), contexts);
        left.retain(|item, _| *item < blocks.len() && !failed.contains_key(item));
        for finding in findings.iter().filter(|finding| finding.fault == Fault::Lost) {
            left.remove(&finding.item);
        }
        let mut undecodable: BTreeSet<usize> =
            failed.into_iter().filter(|(_, is_failed)| *is_failed).map(|(item, _)| item).collect();
        undecodable.extend(self.read_undecodable(&blocks, left).await);
        for block in undecodable.iter().filter_map(|item| blocks.get(*item)) {
            self.0.note_lost(&block.bp, block.place, Mismatch::Damage);
        }
        (findings, healed, undecodable)
    }

    async fn read_undecodable(
        &self,
        blocks: &[VerifyItem],
        left: BTreeMap<usize, ReadContext>,
    ) -> Vec<usize> {
        let read = |(item, context): (usize, ReadContext)| {
            let (pool, bp) = (self.0.clone(), blocks[item].bp);
            async move { (item, is_undecodable(&pool.read(&bp, &context).await)) }
        };
        let (mut failed, width) = (Vec::new(), self.0.runtime().parallelism());
        let mut done = std::pin::pin!(self.0.runtime().map_bounded(width, left, read));
        while let Some((item, is_failed)) = done.next().await {
            failed.extend(is_failed.then_some(item));
        }
        failed
    }
}
