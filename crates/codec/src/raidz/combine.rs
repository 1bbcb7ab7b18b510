//! The primitive of RAID-Z: up to three targets, each a weighted sum of the same sources.
//!
//! ```text
//!   target[t] = factor[0][t]·source[0] + factor[1][t]·source[1] + ...      byte by byte, over GF(2^8)
//! ```
//!
//! Kernels need slices of equal length. This module cuts the row where a column ends, and passes each part
//! without the ended columns to the kernel. A RAID-Z row has at most two lengths, so one or two parts.

#[cfg(target_arch = "x86_64")]
use super::x86;
use super::{Kernel, MAX_PARITY, portable};

#[derive(Clone, Copy)]
pub(super) struct Term<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) factors: [u8; MAX_PARITY],
}

impl<'a> Term<'a> {
    /// The part in `start..end`, clamped to its length; `None` if it ends before.
    pub(super) fn window(&self, start: usize, end: usize) -> Option<Term<'a>> {
        let bytes = self.bytes.get(start..end.min(self.bytes.len()))?;
        (!bytes.is_empty()).then_some(Term { bytes, ..*self })
    }
}

/// Writes every target; short sources count as zeros beyond their end.
pub(super) fn combine(kernel: Kernel, targets: &mut [&mut [u8]], terms: &[Term<'_>]) {
    debug_assert!(targets.len() <= MAX_PARITY);
    let target_ends = targets.iter().map(|target| target.len());
    let last = target_ends.clone().max().unwrap_or(0);
    let mut ends: Vec<usize> = target_ends.chain(terms.iter().map(|term| term.bytes.len())).collect();
    ends.retain(|&end| (1..=last).contains(&end));
    ends.sort_unstable();
    ends.dedup();

    let mut window = Vec::with_capacity(terms.len());
    let mut start = 0;
    for end in ends {
        window.clear();
        window.extend(terms.iter().filter_map(|term| term.window(start, end)));
        let mut live: [&mut [u8]; MAX_PARITY] = Default::default();
        let mut count = 0;
        for (row, target) in targets.iter_mut().enumerate() {
            if let Some(part) = target.get_mut(start..end) {
                live[count] = part;
                window.iter_mut().for_each(|term| term.factors[count] = term.factors[row]);
                count += 1;
            }
        }
        combine_equal(kernel, &mut live[..count], &window);
        start = end;
    }
}

fn combine_equal(kernel: Kernel, targets: &mut [&mut [u8]], terms: &[Term<'_>]) {
    #[cfg(target_arch = "x86_64")]
    let done = x86::combine(kernel, targets, terms);
    #[cfg(not(target_arch = "x86_64"))]
    let (done, _) = (0, kernel);
    portable::combine(targets, terms, done);
}
