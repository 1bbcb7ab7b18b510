//! `zpool condense`: does postponed work on the pool's own metadata at once.
//!
//! Idea: the only such work is the log of space maps. Writing it out takes one txg here, so it is over when
//! the verb ends: there is nothing to wait for or to cancel.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_condense`), `spa_log_spacemap.c` (`spa_log_flushall_start`).

use cenote_engine::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::named_or_all;
use crate::error::{ControlError, Outcome};
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Write out the log of space maps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Condense {
    /// Pools; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Kind of metadata; none: all kinds that the pool has.
    #[serde(default)]
    pub kind: Option<Kind>,
    /// Operation.
    #[serde(default)]
    pub order: Order,
}

/// A kind of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The log of space maps.
    LogSpacemap,
}

/// An operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Do it now.
    #[default]
    Start,
    /// Nothing: no such work is under way between two verbs.
    Cancel,
}

impl Verb for Condense {
    const NAME: &'static str = "zpool condense";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// Missing pools are reported, as are those without the kind of metadata that was named.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let (pools, listed) = named_or_all(session, &self.pools, "condense").await?;
        if self.order == Order::Cancel {
            let mut outcome = listed;
            for pool in &pools {
                if let Err(error) = session.find_pool(pool).await {
                    outcome = outcome.and(session.caller().tell(pool, &error));
                }
            }
            return Ok(outcome.into());
        }
        let work = async |engine: &Engine, pool: &String| {
            let has_log = engine.condense_space_log().await.map_err(cannot(format!("condense '{pool}'")))?;
            match self.kind {
                Some(Kind::LogSpacemap) if !has_log => Err(ControlError::Refused(format!(
                    "cannot condense '{pool}': it keeps no log of space maps (feature log_spacemap)"
                ))),
                _ => Ok(Outcome::Done),
            }
        };
        let condensed = session.change_each(&pools, |pool| pool.as_str(), work).await?;
        Ok(listed.and(condensed).into())
    }
}
