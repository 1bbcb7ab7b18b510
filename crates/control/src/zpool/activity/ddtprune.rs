//! `zpool ddtprune`: takes old blocks with one reference out of deduplication tables.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_ddt_prune`), including the wording.

use cenote_engine::Engine;
use cenote_tasks::{Prune, prune_dedup};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

const DAY_S: u64 = 86_400;

/// Take the oldest blocks with one reference out of the deduplication tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ddtprune {
    /// Pool.
    pub pool: String,
    /// Entries to take out.
    pub amount: Amount,
}

/// Entries to take out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Those of this age.
    Days(u64),
    /// About this share of them, the oldest first.
    Percent(u64),
}

/// The result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pruned {
    /// Entries taken out.
    pub entries: u64,
}

impl Verb for Ddtprune {
    const NAME: &'static str = "zpool ddtprune";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = Pruned;

    /// # Errors
    /// The pool is missing, or its tables have no ages; a wrong amount.
    async fn carry_out(self, session: &Session) -> Result<Answered<Pruned>, ControlError> {
        let wrong = |why: &str| Err(ControlError::Usage(why.into()));
        let what = match self.amount {
            Amount::Days(0) => return wrong("invalid days value"),
            Amount::Days(days) => Prune::OlderThan(days.saturating_mul(DAY_S)),
            Amount::Percent(percent @ 1..=100) => Prune::Percent(percent),
            Amount::Percent(_) => return wrong("invalid percentage value"),
        };
        let mut answer = Pruned::default();
        let prune = async |engine: &Engine| {
            let pruned = prune_dedup(engine, what).await;
            let entries = pruned.map_err(cannot(format!("prune dedup table on '{}'", self.pool)))?;
            answer = Pruned { entries };
            Ok(())
        };
        let outcome = session.change_pool(&self.pool, prune).await?;
        Ok(Answered { answer, outcome })
    }
}
