//! A trace through a policy.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::policy::{Access, BlockId, PolicyName};
use crate::trace::{Request, Trace};

/// Statistics of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// All requests.
    pub requests: u64,
    /// Requests for resident blocks.
    pub hits: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Bytes of these.
    pub hit_bytes: u64,
    /// Misses found on a cache device.
    pub second_hits: u64,
}

impl Outcome {
    /// The fraction of requests that missed.
    pub fn miss_ratio(&self) -> f64 {
        1.0 - ratio(self.hits, self.requests)
    }

    /// The fraction of requests that missed the cache and the cache device.
    pub fn device_ratio(&self) -> f64 {
        1.0 - ratio(self.hits + self.second_hits, self.requests)
    }

    /// The fraction of bytes that missed.
    pub fn byte_miss_ratio(&self) -> f64 {
        1.0 - ratio(self.hit_bytes, self.bytes)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A cache device behind the cache (L2ARC): a ring, fed with the cache's misses as Cenote does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Second {
    /// Its size.
    pub bytes: u64,
    /// Most bytes written a second (`l2arc_write_max`).
    pub bytes_per_s: u64,
}

/// Replays a trace in a cache of this policy and size.
pub fn replay(trace: &Trace, name: PolicyName, capacity_bytes: u64) -> Outcome {
    replay_with(trace, name, capacity_bytes, None)
}

/// The same with a cache device.
pub fn replay_with(trace: &Trace, name: PolicyName, capacity_bytes: u64, second: Option<Second>) -> Outcome {
    let mut policy = name.build(capacity_bytes, trace.mean_block_bytes());
    let mut ring = second.map(Ring::new);
    let next_uses = (name == PolicyName::Belady).then(|| next_uses(&trace.requests));
    let next_use = |index: usize| next_uses.as_ref().map_or(u64::MAX, |next| next[index]);
    let mut outcome = Outcome::default();
    let mut evicted = Vec::new();
    for (index, request) in trace.requests.iter().enumerate() {
        let access = request.access(next_use(index));
        let is_hit = policy.touch(&access);
        if !is_hit {
            policy.insert(&access, &mut evicted);
            evicted.clear();
        }
        if request.is_write {
            continue;
        }
        outcome.requests += 1;
        outcome.bytes += u64::from(access.bytes);
        if is_hit {
            outcome.hits += 1;
            outcome.hit_bytes += u64::from(access.bytes);
        } else if let Some(ring) = &mut ring
            && ring.reads(&access)
        {
            outcome.second_hits += 1;
        }
    }
    outcome
}

struct Ring {
    second: Second,
    held: FxHashSet<BlockId>,
    oldest_first: VecDeque<(BlockId, u64)>,
    held_bytes: u64,
    /// Bytes that may be written, and the time of that figure.
    credit: u64,
    credited_ns: u64,
}

impl Ring {
    fn new(second: Second) -> Ring {
        let (held, oldest_first) = Default::default();
        Ring { second, held, oldest_first, held_bytes: 0, credit: second.bytes_per_s, credited_ns: 0 }
    }

    fn reads(&mut self, access: &Access) -> bool {
        if self.held.contains(&access.id) {
            return true;
        }
        let passed_ns = access.now_ns.saturating_sub(self.credited_ns);
        let more = u128::from(passed_ns) * u128::from(self.second.bytes_per_s) / 1_000_000_000;
        if more > 0 {
            self.credit = self.credit.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
            // Unused write capacity of a round is lost.
            self.credit = self.credit.min(self.second.bytes_per_s);
            self.credited_ns = access.now_ns;
        }
        let bytes = u64::from(access.bytes);
        if bytes <= self.credit && bytes <= self.second.bytes {
            self.credit -= bytes;
            self.held.insert(access.id);
            self.oldest_first.push_back((access.id, bytes));
            self.held_bytes += bytes;
        }
        while self.held_bytes > self.second.bytes
            && let Some((id, bytes)) = self.oldest_first.pop_front()
        {
            self.held.remove(&id);
            self.held_bytes -= bytes;
        }
        false
    }
}

/// By request: the position of the next one for the same block; `u64::MAX`: none.
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
