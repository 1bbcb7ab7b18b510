//! `zpool reguid`: changes a pool's guid.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_reguid`), including the wording.

use cenote_engine::Engine;
use cenote_format::units::Guid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Give a pool a new guid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reguid {
    /// Pool.
    pub pool: String,
    /// The new guid; none: random.
    #[serde(default)]
    pub guid: Option<u64>,
}

impl Verb for Reguid {
    const NAME: &'static str = "zpool reguid";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// Another pool has that guid; a device is missing.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let what = format!("reguid '{}'", self.pool);
        let refused = |why: &str| ControlError::Refused(format!("cannot {what}: {why}"));
        if self.guid == Some(0) {
            return Err(refused("0 is no guid"));
        }
        if let Some(guid) = self.guid.map(Guid) {
            let open = session.pools().is_some_and(|pools| pools.by_guid(guid).is_some());
            // Without a daemon, the pools are those on disk.
            let found = !open && session.pools().is_none() && {
                let discovery = session.discover().await;
                discovery.pools.iter().any(|pool| pool.guid() == guid)
            };
            if open || found {
                return Err(refused("a pool with that guid exists already"));
            }
        }
        let work = async |engine: &Engine| {
            cenote_tasks::change_guid(engine, self.guid.map(Guid)).await.map_err(cannot(&what))
        };
        let outcome = session.change_pool(&self.pool, work).await?;
        if let Some((pool, pools)) = session.held_by_name(&self.pool).zip(session.pools()) {
            pool.post(&pools.events, "sysevent.fs.zfs.pool_reguid");
        }
        Ok(outcome.into())
    }
}
