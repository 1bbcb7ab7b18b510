//! Detects new and removed volumes, for protocols with an object per volume: a block device, a socket.
//!
//! Idea: volumes only change in a txg, so they are listed again only after a pool came, went or wrote one.

use std::sync::Arc;
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_format::units::{Guid, Txg};

use super::{VolumeInfo, list};
use crate::pools::{OpenPool, Pools};

/// Interval between checks.
pub const LOOK: Duration = Duration::from_secs(2);

/// Looks for changes repeatedly.
pub struct Watch {
    pools: Arc<Pools>,
    /// Pools and their txgs at the last listing.
    seen: Option<Vec<(Guid, Txg)>>,
}

impl Watch {
    /// The first look reports all volumes.
    pub fn new(pools: &Arc<Pools>) -> Watch {
        Watch { pools: pools.clone(), seen: None }
    }

    /// All volumes, if they may have changed since the last look, or if `anyway`.
    #[boxed]
    pub async fn look(&mut self, anyway: bool) -> Option<Vec<VolumeInfo>> {
        let of = |pool: Arc<OpenPool>| (pool.guid(), pool.engine.pool().uberblock().txg);
        let now: Vec<_> = self.pools.all().into_iter().map(of).collect();
        if !anyway && self.seen.as_ref() == Some(&now) {
            return None;
        }
        // Unreadable now: retry at the next look.
        let all = list(&self.pools).await.ok()?;
        self.seen = Some(now);
        Some(all)
    }
}
