//! What the caches of pools in use do, and what another size would bring.
//!
//! Hit ratios of other sizes come from a sample of the look-ups (`cenote_policy::live`) and have its error.

mod outlook;

use cenote_cache::CacheStats;
use cenote_engine::{Engine, L2Stats};

pub use outlook::{Advice, Outlook, Sized, hit_ratio};

/// The cache of a pool, or of all: what was counted since it was opened, or since an earlier sample.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The pool.
    pub pool: String,
    /// Its cache.
    pub stats: CacheStats,
    /// Its cache devices.
    pub second: L2Stats,
}

impl Sample {
    /// Looks at a pool's cache.
    pub fn take(pool: &str, engine: &Engine) -> Sample {
        let (stats, second) = (engine.cache().stats(), engine.cache_devices().stats());
        Sample { pool: pool.to_owned(), stats, second }
    }

    /// All together, under this name.
    pub fn sum(name: &str, all: &[Sample]) -> Sample {
        let mut stats = CacheStats::default();
        all.iter().for_each(|sample| stats.add(&sample.stats));
        let second = all.iter().fold(L2Stats::default(), |sum, sample| sum.zip(&sample.second, |a, b| a + b));
        Sample { pool: name.to_owned(), stats, second }
    }

    /// What was counted since one of these; of a pool that is not among them, everything.
    #[must_use]
    pub fn since(&self, before: &[Sample]) -> Sample {
        let old = before.iter().find(|old| old.pool == self.pool);
        let stats = old.map_or_else(|| self.stats.clone(), |old| self.stats.since(&old.stats));
        let second = old.map_or(self.second, |old| self.second.since(&old.second));
        Sample { pool: self.pool.clone(), stats, second }
    }
}
