//! `zpool resilver`: restores missing data on devices.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_resilver`).

use cenote_engine::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scans::scan;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Write the blocks that devices lack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resilver {
    /// Pools.
    pub pools: Vec<String>,
}

impl Verb for Resilver {
    const NAME: &'static str = "zpool resilver";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// Missing pools are reported. Devices that still lack data are an outcome.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let work = async |engine: &Engine, _: &String| {
            engine.background().scans.order();
            scan(session, engine, false).await
        };
        Ok(session.change_each(&self.pools, |pool| pool.as_str(), work).await?.into())
    }
}
