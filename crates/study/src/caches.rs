//! Caches of open pools: their activity, and estimates for other sizes.
//!
//! Hit ratios of other sizes are estimated from a sample of the look-ups (`cenote_policy::live`).

mod outlook;

use cenote_cache::CacheStats;
use cenote_engine::{Engine, L2Stats};

pub use outlook::{Advice, Outlook, Sized, hit_ratio};

/// Cache counters of one pool, or of all, since its open or since an earlier sample.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Name of the pool.
    pub pool: String,
    /// Cache counters.
    pub stats: CacheStats,
    /// Cache device counters.
    pub second: L2Stats,
}

impl Sample {
    /// Samples a pool's cache.
    pub fn take(pool: &str, engine: &Engine) -> Sample {
        let (stats, second) = (engine.cache().stats(), engine.cache_devices().stats());
        Sample { pool: pool.to_owned(), stats, second }
    }

    /// Sums samples under a name.
    pub fn sum(name: &str, all: &[Sample]) -> Sample {
        let mut stats = CacheStats::default();
        all.iter().for_each(|sample| stats.add(&sample.stats));
        let second = all.iter().fold(L2Stats::default(), |sum, sample| sum.zip(&sample.second, |a, b| a + b));
        Sample { pool: name.to_owned(), stats, second }
    }

    /// Counts since the earlier sample of the same pool, if there is one.
    #[must_use]
    pub fn since(&self, before: &[Sample]) -> Sample {
        let old = before.iter().find(|old| old.pool == self.pool);
        let stats = old.map_or_else(|| self.stats.clone(), |old| self.stats.since(&old.stats));
        let second = old.map_or(self.second, |old| self.second.since(&old.second));
        Sample { pool: self.pool.clone(), stats, second }
    }
}
