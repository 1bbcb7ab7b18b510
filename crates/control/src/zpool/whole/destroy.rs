//! `zpool destroy`: marks a pool as destroyed. Its labels stay until its devices are used again.

use cenote_host::pools::InUse;
use cenote_pool::PoolState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Destroy a pool; its devices may then be reused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Destroy {
    /// Pool.
    pub pool: String,
    /// Accept a pool not exported by another machine; in the daemon, disconnect clients of its volumes.
    #[serde(default)]
    pub force: bool,
}

impl Verb for Destroy {
    const NAME: &'static str = "zpool destroy";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// It is missing or in use.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let found = session.find_pool(&self.pool).await?;
        let in_use = if self.force { InUse::ClientsGo } else { InUse::Stays };
        if let Some(pool) = session.held(&found) {
            session.let_go(&pool, PoolState::Destroyed, in_use).await?;
            return Ok(().into());
        }
        if !self.force {
            session.check_unused(&found)?;
        }
        Ok(session.change_found(&found, PoolState::Destroyed, async |_| Ok(())).await?.into())
    }
}
