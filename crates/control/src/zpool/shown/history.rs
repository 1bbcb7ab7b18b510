//! `zpool history`: commands run on a pool, and its internal events.

use cenote_format::nvlist::Nvlist;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show the commands run on pools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// By name or guid; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
}

/// A pool's records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recorded {
    /// Pool's name.
    pub pool: String,
    /// The records as on disk, oldest first (`cenote_format::history` has their keys).
    pub records: Vec<Nvlist>,
}

impl Verb for History {
    const NAME: &'static str = "zpool history";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Always;
    const SEES_ALL: bool = true;
    type Answer = Vec<Recorded>;

    /// # Errors
    /// None of the named pools is found. Unreadable histories are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Recorded>>, ControlError> {
        let (pools, mut outcome) = session.find_pools_to_show(&self.pools).await?;
        let mut all = Vec::new();
        for found in pools {
            let records = async { Ok(session.open_without_asking(&found).await?.history().await?) };
            match records.await {
                Ok(records) => all.push(Recorded { pool: found.name().into(), records }),
                Err::<_, ControlError>(error) => {
                    outcome = outcome.and(session.caller().tell(found.name(), &error));
                }
            }
        }
        Ok(Answered { answer: all, outcome })
    }
}
