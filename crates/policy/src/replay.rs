//! A trace through a policy.

use rustc_hash::FxHashMap;

use crate::policy::PolicyName;
use crate::trace::{Request, Trace};

/// What a cache would have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// All requests.
    pub requests: u64,
    /// Those that found their block resident.
    pub hits: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Bytes of the hits.
    pub hit_bytes: u64,
}

impl Outcome {
    /// The part of requests that missed.
    pub fn miss_ratio(&self) -> f64 {
        1.0 - ratio(self.hits, self.requests)
    }

    /// The part of bytes that missed.
    pub fn byte_miss_ratio(&self) -> f64 {
        1.0 - ratio(self.hit_bytes, self.bytes)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Runs a trace through a policy of this name with a cache of this size.
pub fn replay(trace: &Trace, name: PolicyName, capacity_bytes: u64) -> Outcome {
    let mut policy = name.build(capacity_bytes, trace.mean_block_bytes());
    let next_uses = (name == PolicyName::Belady).then(|| next_uses(&trace.requests));
    let next_use = |index: usize| next_uses.as_ref().map_or(u64::MAX, |next| next[index]);
    let accesses = trace.requests.iter().enumerate().map(|(index, r)| r.access(next_use(index)));
    let mut outcome = Outcome::default();
    let mut evicted = Vec::new();
    for access in accesses {
        outcome.requests += 1;
        outcome.bytes += u64::from(access.bytes);
        if policy.touch(&access) {
            outcome.hits += 1;
            outcome.hit_bytes += u64::from(access.bytes);
        } else {
            policy.insert(&access, &mut evicted);
            evicted.clear();
        }
    }
    outcome
}

/// For each request, the position of the next one for the same block; `u64::MAX`: none.
fn next_uses(requests: &[Request]) -> Vec<u64> {
    let mut next = vec![u64::MAX; requests.len()];
    let mut later = FxHashMap::default();
    for (index, request) in requests.iter().enumerate().rev() {
        if let Some(position) = later.insert(request.id, index as u64) {
            next[index] = position;
        }
    }
    next
}
