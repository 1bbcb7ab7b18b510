//! `zpool reopen`: searches again for missing devices.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_reopen`), including the wording.

use cenote_engine::Engine;
use cenote_tasks::{Back, bring_back, validate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zpool::activity::scans::scan;

/// Look again for missing devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reopen {
    /// Pools.
    pub pools: Vec<String>,
    /// Do not start a resilver.
    #[serde(default)]
    pub no_resilver: bool,
}

impl Verb for Reopen {
    const NAME: &'static str = "zpool reopen";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// A suspended pool does not resume.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        for pool in &self.pools {
            session.resume(pool, &format!("reopen '{pool}'")).await?;
        }
        let work = async |engine: &Engine, _: &String| {
            validate(engine, None).await?;
            let devices = session.returning(engine, None).await?;
            bring_back(engine, None, Back::Reopened, devices).await?;
            if self.no_resilver { Ok(Outcome::Done) } else { scan(session, engine, false).await }
        };
        Ok(session.change_each(&self.pools, |pool| pool.as_str(), work).await?.into())
    }
}
