//! Verifies the blocks of a window in disk order, in slices for progress reports.
//!
//! The pool verifies a slice on all cores; two are in progress, so no core idles at the end of one.

use cenote_pool::{Fault, Finding, Pool, VerifyItem};
use futures::StreamExt;

use super::progress::{Meter, Progress, Stop};

/// Maximum blocks and bytes of a slice.
const SLICE_BLOCKS: usize = 32 << 10;
const SLICE_BYTES: u64 = 64 << 20;
/// Number of slices in progress.
const SLICES: usize = 2;

/// A damaged block as reported by the pool.
#[derive(Debug, Clone)]
pub(super) struct Damaged {
    pub(super) item: VerifyItem,
    pub(super) findings: Vec<Finding>,
}

impl Damaged {
    /// Whether none of its copies is readable.
    pub(super) fn is_lost(&self) -> bool {
        self.findings.iter().any(|finding| finding.fault == Fault::Lost)
    }
}

/// Verifies the blocks of a window, and empties it even if stopped.
pub(super) async fn check_window(
    pool: &Pool,
    window: &mut Vec<VerifyItem>,
    meter: &mut Meter,
    stop: &Stop,
    progress: &impl Fn(Progress),
    mut damaged: impl FnMut(Damaged),
) {
    let mut items = std::mem::take(window);
    items.sort_unstable_by_key(|item| item.bp.dvas().next());
    let runtime = pool.runtime().clone();
    let verified = runtime.map_bounded(SLICES, slices(items), |slice: Vec<VerifyItem>| {
        let pool = pool.clone();
        async move {
            let findings = pool.verify_many(slice.clone()).await;
            (slice, findings)
        }
    });
    let mut verified = std::pin::pin!(verified);
    while let Some((slice, findings)) = verified.next().await {
        meter.blocks += slice.len() as u64;
        meter.done_bytes += slice.iter().map(|item| item.bp.asize().0).sum::<u64>();
        for group in findings.chunk_by(|a, b| a.item == b.item) {
            let Some(&item) = slice.get(group[0].item) else { continue };
            meter.damaged_blocks += 1;
            damaged(Damaged { item, findings: group.to_vec() });
        }
        progress(meter.progress());
        if stop.is_stopped() {
            return;
        }
    }
}

/// Cuts a sorted window into slices.
fn slices(items: Vec<VerifyItem>) -> impl Iterator<Item = Vec<VerifyItem>> {
    let mut items = items.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut slice = Vec::new();
        while slice.len() < SLICE_BLOCKS && bytes < SLICE_BYTES {
            let Some(item) = items.next() else { break };
            bytes += item.bp.asize().0;
            slice.push(item);
        }
        (!slice.is_empty()).then_some(slice)
    })
}
