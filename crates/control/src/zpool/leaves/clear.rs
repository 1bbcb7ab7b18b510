//! `zpool clear`: resets error counts and brings faulted devices back.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_clear`), including the wording.

use cenote_engine::Engine;
use cenote_tasks::{Back, bring_back};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::meant::named;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zpool::activity::scans::scan;

/// Reset error counts and bring faulted devices back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clear {
    /// The pool. If suspended, it retries.
    pub pool: String,
    /// A device: path, last path component, or guid; none: all.
    #[serde(default)]
    pub device: Option<String>,
}

impl Verb for Clear {
    const NAME: &'static str = "zpool clear";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No such device; the pool does not resume.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        session.resume(&self.pool, &format!("clear errors for {}", self.pool)).await?;
        let work = async |engine: &Engine| {
            let only = match &self.device {
                Some(typed) => Some(named(session.caller(), engine, "clear errors for", typed)?),
                None => None,
            };
            let devices = session.returning(engine, only).await?;
            bring_back(engine, only, Back::Cleared, devices).await?;
            scan(session, engine, false).await
        };
        Ok(session.change_pool(&self.pool, work).await?.into())
    }
}
