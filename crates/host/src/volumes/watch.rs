//! Notices which volumes there are, for those who keep something for each: a block device, a socket.
//!
//! Idea: nothing about volumes changes without a txg. So all are listed only if some pool has come, gone, or
//! has a new one.

use std::sync::Arc;
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_format::units::{Guid, Txg};

use super::{VolumeInfo, list};
use crate::pools::{OpenPool, Pools};

/// How soon a new volume is noticed.
pub const LOOK: Duration = Duration::from_secs(2);

/// Who looks from time to time.
pub struct Watch {
    pools: Arc<Pools>,
    /// The pools and their txgs when the volumes were listed.
    seen: Option<Vec<(Guid, Txg)>>,
}

impl Watch {
    /// The first look finds all.
    pub fn new(pools: &Arc<Pools>) -> Watch {
        Watch { pools: pools.clone(), seen: None }
    }

    /// All volumes, if they may be others than at the last look; or `anyway`.
    #[boxed]
    pub async fn look(&mut self, anyway: bool) -> Option<Vec<VolumeInfo>> {
        let of = |pool: Arc<OpenPool>| (pool.guid(), pool.engine.pool().uberblock().txg);
        let now: Vec<_> = self.pools.all().into_iter().map(of).collect();
        if !anyway && self.seen.as_ref() == Some(&now) {
            return None;
        }
        // What can't be read now may be so the next time.
        let all = list(&self.pools).await.ok()?;
        self.seen = Some(now);
        Some(all)
    }
}
