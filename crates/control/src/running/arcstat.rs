//! `arcstat`: cache statistics of the daemon's pools, and predictions for other cache sizes.
//!
//! Predicted hit ratios come from a sample of the look-ups (`cenote_policy::live`) and have its error.
//!
//! Source: OpenZFS's `arcstat` and `arc_summary`.

pub mod outlook;

use cenote_host::pools::OpenPool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cenote_cache::{CacheStats, ClassStats, PrefetchStats};
pub use cenote_engine::L2Stats;

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};
use outlook::Outlook;

/// Show cache statistics of open pools, like arcstat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Arcstat {
    /// Include predictions and advice.
    pub outlook: bool,
}

/// The cache of one or all pools: counts since opening, or since an earlier sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Pool.
    pub pool: String,
    /// Cache.
    pub stats: CacheStats,
    /// Cache devices.
    pub second: L2Stats,
    /// Predictions and advice, if requested.
    pub outlook: Option<Outlook>,
}

impl Verb for Arcstat {
    const NAME: &'static str = "arcstat";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    const RUNS: Runs = Runs::InDaemon;
    const SEES_ALL: bool = true;
    type Answer = Vec<Sample>;

    /// # Errors
    /// No daemon.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Sample>>, ControlError> {
        let Some(pools) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), so no pool is in use";
            return Err(ControlError::Refused(format!("cannot show caches: {why}")));
        };
        let sample = |pool: &OpenPool| {
            let cache = pool.engine.cache();
            let (stats, second) = (cache.stats(), pool.engine.l2arc().devices().stats());
            let outlook = self.outlook.then(|| Outlook::of(cache, &stats, &second));
            Sample { pool: pool.name.clone(), stats, second, outlook }
        };
        Ok(pools.all().iter().map(|pool| sample(pool)).collect::<Vec<_>>().into())
    }
}

impl Sample {
    /// The sum of all, under this name.
    pub fn sum(name: &str, all: &[Sample]) -> Sample {
        let mut stats = CacheStats::default();
        all.iter().for_each(|sample| stats.add(&sample.stats));
        let second = all.iter().fold(L2Stats::default(), |sum, sample| sum.zip(&sample.second, |a, b| a + b));
        Sample { pool: name.to_owned(), stats, second, outlook: None }
    }

    /// The counts since an earlier sample; everything for pools without one.
    #[must_use]
    pub fn since(&self, before: &[Sample]) -> Sample {
        let old = before.iter().find(|old| old.pool == self.pool);
        let stats = old.map_or_else(|| self.stats.clone(), |old| self.stats.since(&old.stats));
        let second = old.map_or(self.second, |old| self.second.since(&old.second));
        Sample { pool: self.pool.clone(), stats, second, outlook: None }
    }
}
