//! `zpool sync`: writes a txg.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Write a txg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sync {
    /// Pools; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
}

impl Verb for Sync {
    const NAME: &'static str = "zpool sync";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// A pool is missing, or can't be written.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        for found in session.pools_to_change(&self.pools).await? {
            match session.held(&found) {
                // No change, and no history record.
                Some(pool) => pool.engine.acting_for(session.caller().who.uid).force_sync().await?,
                None => {
                    session.change_unused(&found, async |engine| Ok(engine.force_sync().await?)).await?;
                }
            }
        }
        Ok(().into())
    }
}
