//! A pool's cache: its content, its hit ratio, estimates for other sizes, and advice.
//!
//! Idea: each piece of advice is a rule over the displayed numbers.
//!
//! Source: OpenZFS's `arc_summary` (displayed numbers).

use cenote_cache::{BlockCache, CacheStats, ClassStats};
use cenote_engine::{Engine, L2Stats};

/// Estimated sizes as fractions of the present one: numerator and denominator.
const SIZES: [(u64, u64); 7] = [(1, 4), (1, 2), (3, 4), (3, 2), (2, 1), (4, 1), (8, 1)];
/// Least gain that is worth more memory, and greatest negligible loss.
const WORTH: f64 = 0.02;
const NOTHING: f64 = 0.005;
/// Least look-ups for any advice.
const ENOUGH: u64 = 10_000;

/// Counters and estimates of a pool's cache.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// Name of the pool.
    pub pool: String,
    /// Cache counters.
    pub stats: CacheStats,
    /// Cache device counters.
    pub second: L2Stats,
    /// Caches of other sizes, in ascending order.
    pub sizes: Vec<Sized>,
}

/// Estimate for a cache of another size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sized {
    /// Cache size.
    pub bytes: u64,
    /// Hit ratio, from 0 to 1.
    pub ratio: f64,
    /// Error of the ratio.
    pub error: f64,
}

/// Recommended change, with its reason.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Advice {
    /// Too few look-ups yet.
    Wait,
    /// More memory is worth it.
    More {
        /// Memory to add.
        bytes: u64,
        /// Estimate with it.
        size: Sized,
        /// Present hit ratio.
        now: f64,
    },
    /// Less memory is enough.
    Less(Sized),
    /// Few prefetched blocks were used.
    ReadAheadLess {
        /// Used share.
        wanted: f64,
    },
    /// Cache devices help little with this load.
    CacheDevicesHelpLittle {
        /// Share of memory misses that they answer.
        answered: f64,
    },
    /// A special vdev would take most misses.
    Special {
        /// Share of metadata among misses.
        metadata: f64,
    },
    /// No change needed.
    Nothing,
}

impl Outlook {
    /// Samples a pool's cache.
    pub fn of(pool: &str, engine: &Engine) -> Outlook {
        let cache: &BlockCache = engine.cache();
        let stats = cache.stats();
        let sized = |(times, parts): (u64, u64)| {
            let bytes = stats.budget_bytes / parts * times;
            let estimate = cache.estimate(bytes)?;
            Some(Sized { bytes, ratio: estimate.ratio, error: estimate.error })
        };
        let sizes = SIZES.into_iter().filter_map(sized).collect();
        Outlook { pool: pool.to_owned(), stats, second: engine.cache_devices().stats(), sizes }
    }

    /// Hits as a share of look-ups.
    pub fn hit_ratio(&self) -> f64 {
        self.stats.hits() as f64 / (self.stats.hits() + self.stats.misses()).max(1) as f64
    }

    /// Recommended changes; at least one entry.
    pub fn advice(&self) -> Vec<Advice> {
        let Outlook { stats, second, .. } = self;
        let mut advice = Vec::new();
        if stats.hits() + stats.misses() < ENOUGH {
            return vec![Advice::Wait];
        }
        let now = self.hit_ratio();
        let is_full = stats.evictions > 0;
        let more = self.sizes.iter().find(|size| size.ratio - size.error - now >= WORTH);
        if let Some(more) = more.filter(|more| is_full && more.bytes > stats.budget_bytes) {
            advice.push(Advice::More { bytes: more.bytes - stats.budget_bytes, size: *more, now });
        }
        let less = self.sizes.iter().find(|size| now - size.ratio + size.error <= NOTHING);
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
}

/// Hits as a share of a class's look-ups.
pub fn hit_ratio(class: &ClassStats) -> f64 {
    class.hits as f64 / (class.hits + class.misses).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of 100 MiB with these (hits, misses).
    fn outlook(data: (u64, u64), metadata: (u64, u64), sizes: Vec<Sized>) -> Outlook {
        let class = |(hits, misses)| ClassStats { hits, misses, content_bytes: 0 };
        let stats = CacheStats {
            data: class(data),
            metadata: class(metadata),
            evictions: 1,
            budget_bytes: 100 << 20,
            ..CacheStats::default()
        };
        Outlook { pool: "tank".into(), stats, second: L2Stats::default(), sizes }
    }

    #[test]
    fn advice_follows_from_the_figures() {
        assert_eq!(outlook((10, 10), (10, 10), Vec::new()).advice(), [Advice::Wait]);
        assert_eq!(outlook((90_000, 10_000), (0, 0), Vec::new()).advice(), [Advice::Nothing]);
        let [half, twice] =
            [(50 << 20, 0.899), (200 << 20, 0.95)].map(|(bytes, ratio)| Sized { bytes, ratio, error: 0.001 });
        let more = Advice::More { bytes: 100 << 20, size: twice, now: 0.9 };
        assert_eq!(outlook((90_000, 10_000), (0, 0), vec![half, twice]).advice(), [more, Advice::Less(half)]);
        let doubtful = Sized { error: 0.04, ..twice };
        assert_eq!(outlook((90_000, 10_000), (0, 0), vec![doubtful]).advice(), [Advice::Nothing]);
        assert_eq!(
            outlook((95_000, 1_000), (1_000, 3_000), Vec::new()).advice(),
            [Advice::Special { metadata: 0.75 }]
        );
    }
}
