//! `top`: pools, vdevs, queue classes, latencies and caches of the daemon at one moment.

use cenote_cache::CacheStats;
use cenote_engine::L2Stats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};
use crate::zpool::shown::iostat::Counted;

/// All pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Top {}

/// A pool at one moment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    /// Vdevs and queues.
    pub counted: Counted,
    /// Cache.
    pub cache: CacheStats,
    /// Cache devices.
    pub second: L2Stats,
    /// Dirty data in bytes.
    pub dirty_bytes: u64,
}

impl Verb for Top {
    const NAME: &'static str = "top";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    const RUNS: Runs = Runs::AtTerminal;
    const SEES_ALL: bool = true;
    type Answer = Vec<Seen>;

    /// # Errors
    /// No daemon; the space of a pool can't be read.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Seen>>, ControlError> {
        let Some(pools) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), so no pool is in use";
            return Err(ControlError::Refused(format!("cannot show pools: {why}")));
        };
        let mut seen = Vec::new();
        for pool in pools.all() {
            seen.push(Seen {
                counted: Counted::now(&pool).await?,
                cache: pool.engine.cache().stats(),
                second: pool.engine.l2arc().devices().stats(),
                dirty_bytes: pool.engine.load().dirty_bytes(),
            });
        }
        Ok(seen.into())
    }
}
