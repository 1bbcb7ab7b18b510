//! `zpool export`: closes pools and marks them as exported.

use cenote_host::pools::InUse;
use cenote_pool::PoolState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Close pools and mark them as exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Export {
    /// Pools; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Export a pool that another machine has not exported; in the daemon, disconnect clients of its volumes,
    /// and let a suspended pool go without the changes not yet on disk.
    #[serde(default)]
    pub force: bool,
}

impl Verb for Export {
    const NAME: &'static str = "zpool export";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// A pool is missing. Pools in use are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let mut outcome = Outcome::Done;
        let in_use = if self.force { InUse::ClientsGo } else { InUse::Stays };
        let (waiting, pools) = match session.pools() {
            Some(pools) => self.pools.iter().cloned().partition(|name| session.forgets(pools, name)),
            None => (Vec::new(), self.pools.clone()),
        };
        if !waiting.is_empty() {
            session.note_pools(|| "the next start of the daemon looks for them again".into()).await;
            if pools.is_empty() {
                return Ok(outcome.into());
            }
        }
        for found in session.pools_to_change(&pools).await? {
            let exported = async {
                if let Some(pool) = session.held(&found) {
                    let gone = session.let_go(&pool, PoolState::Exported, in_use).await;
                    return gone.map(|()| Outcome::Done);
                }
                if !self.force {
                    session.check_unused(&found)?;
                }
                session.change_found(&found, PoolState::Exported, async |_| Ok(())).await
            };
            let exported = exported.await;
            outcome =
                outcome.and(exported.unwrap_or_else(|error| session.caller().tell(found.name(), &error)));
        }
        Ok(outcome.into())
    }
}
