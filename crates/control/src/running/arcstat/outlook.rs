//! Predicts the effect of other cache sizes, and advises changes.
//!
//! Idea: each piece of advice is a rule over the displayed numbers.
//!
//! Source: OpenZFS's `arc_summary` (for the selection).

use cenote_cache::{BlockCache, CacheStats, ClassStats};
use cenote_engine::L2Stats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sizes shown, as fractions of the present one: numerator and denominator.
const SIZES: [(u64, u64); 7] = [(1, 4), (1, 2), (3, 4), (3, 2), (2, 1), (4, 1), (8, 1)];
/// A gain worth more memory, and a negligible loss.
const WORTH: f64 = 0.02;
const NOTHING: f64 = 0.005;
/// Minimum look-ups before any advice.
const ENOUGH: u64 = 10_000;

/// Predictions and advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outlook {
    /// Caches of other sizes, smallest first.
    pub sizes: Vec<Sized>,
    /// Advice; at least one entry.
    pub advice: Vec<Advice>,
}

/// Predicted hit ratio of another size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sized {
    /// Size.
    pub bytes: u64,
    /// The hit ratio, from 0 to 1.
    pub ratio: f64,
    /// Margin of error.
    pub error: f64,
}

/// Advice and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// Too few reads to judge.
    Wait,
    /// More memory is worth it.
    More {
        /// Additional bytes.
        bytes: u64,
        /// The larger cache.
        size: Sized,
        /// Current hit ratio.
        now: f64,
    },
    /// Less memory would do.
    Less(Sized),
    /// Few prefetched blocks were used.
    ReadAheadLess {
        /// The fraction used.
        wanted: f64,
    },
    /// Cache devices help little with this load.
    CacheDevicesHelpLittle {
        /// The fraction of memory misses that they answer.
        answered: f64,
    },
    /// A special vdev would take most misses.
    Special {
        /// Metadata's fraction of misses.
        metadata: f64,
    },
    /// Nothing to change.
    Nothing,
}

impl Outlook {
    pub(super) fn of(cache: &BlockCache, stats: &CacheStats, second: &L2Stats) -> Outlook {
        let sized = |(times, parts): (u64, u64)| {
            let bytes = stats.budget_bytes / parts * times;
            let estimate = cache.estimate(bytes)?;
            Some(Sized { bytes, ratio: estimate.ratio, error: estimate.error })
        };
        let sizes: Vec<Sized> = SIZES.into_iter().filter_map(sized).collect();
        let advice = advice(stats, second, &sizes);
        Outlook { sizes, advice }
    }
}

fn advice(stats: &CacheStats, second: &L2Stats, sizes: &[Sized]) -> Vec<Advice> {
    let mut advice = Vec::new();
    if stats.hits() + stats.misses() < ENOUGH {
        return vec![Advice::Wait];
    }
    let now = hit_ratio_of_all(stats);
    let is_full = stats.evictions > 0;
    let more = sizes.iter().find(|size| size.ratio - size.error - now >= WORTH);
    if let Some(more) = more.filter(|more| is_full && more.bytes > stats.budget_bytes) {
        advice.push(Advice::More { bytes: more.bytes - stats.budget_bytes, size: *more, now });
    }
    let less = sizes.iter().find(|size| now - size.ratio + size.error <= NOTHING);
    if let Some(less) = less.filter(|less| less.bytes < stats.budget_bytes) {
        advice.push(Advice::Less(*less));
    }
    let ahead = &stats.prefetch;
    let used = ahead.used + ahead.iohits;
    if ahead.io_issued > ENOUGH && used * 2 < ahead.io_issued {
        advice.push(Advice::ReadAheadLess { wanted: used as f64 / ahead.io_issued as f64 });
    }
    let looked = second.hits + second.misses;
    if second.devices > 0 && looked > ENOUGH && second.hits * 20 < looked {
        let answered = second.hits as f64 / looked as f64;
        advice.push(Advice::CacheDevicesHelpLittle { answered });
    }
    let metadata = stats.metadata.misses as f64 / stats.misses().max(1) as f64;
    if is_full && metadata > 0.5 && hit_ratio(&stats.metadata) < 0.9 {
        advice.push(Advice::Special { metadata });
    }
    if advice.is_empty() { vec![Advice::Nothing] } else { advice }
}

/// A cache's hit ratio.
pub fn hit_ratio_of_all(stats: &CacheStats) -> f64 {
    stats.hits() as f64 / (stats.hits() + stats.misses()).max(1) as f64
}

/// A class's hit ratio.
pub fn hit_ratio(class: &ClassStats) -> f64 {
    class.hits as f64 / (class.hits + class.misses).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Advice for a cache of 100 MiB with these hits and misses of data and metadata.
    fn advised(data: (u64, u64), metadata: (u64, u64), sizes: &[Sized]) -> Vec<Advice> {
        let class = |(hits, misses)| ClassStats { hits, misses, content_bytes: 0 };
        let stats = CacheStats {
            data: class(data),
            metadata: class(metadata),
            evictions: 1,
            budget_bytes: 100 << 20,
            ..CacheStats::default()
        };
        advice(&stats, &L2Stats::default(), sizes)
    }

    #[test]
    fn advice_follows_from_the_figures() {
        assert_eq!(advised((10, 10), (10, 10), &[]), [Advice::Wait]);
        assert_eq!(advised((90_000, 10_000), (0, 0), &[]), [Advice::Nothing]);
        let [half, twice] =
            [(50 << 20, 0.899), (200 << 20, 0.95)].map(|(bytes, ratio)| Sized { bytes, ratio, error: 0.001 });
        let more = Advice::More { bytes: 100 << 20, size: twice, now: 0.9 };
        assert_eq!(advised((90_000, 10_000), (0, 0), &[half, twice]), [more, Advice::Less(half)]);
        let doubtful = Sized { error: 0.04, ..twice };
        assert_eq!(advised((90_000, 10_000), (0, 0), &[doubtful]), [Advice::Nothing]);
        assert_eq!(advised((95_000, 1_000), (1_000, 3_000), &[]), [Advice::Special { metadata: 0.75 }]);
    }
}
