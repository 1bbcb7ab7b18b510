//! `zpool evacuate`: copies a device to another one while it still works.

use cenote_engine::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{joining, why_not};
use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zpool::activity::scans::scan;
use crate::zpool::leaves::meant::leaf;

/// Replace a device that still works but may soon fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evacuate {
    /// Pool.
    pub pool: String,
    /// A device: path, last path component, or guid.
    pub device: String,
    /// New device.
    pub new_device: String,
    /// Accept a device with contents.
    #[serde(default)]
    pub force: bool,
    /// Wait for the end, as without a daemon.
    #[serde(default)]
    pub wait: bool,
}

impl Verb for Evacuate {
    const NAME: &'static str = "zpool evacuate";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No such device; the new one is unusable or has contents.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let what = format!("evacuate {} to {}", self.device, self.new_device);
        let work = async |engine: &Engine| {
            let mos = engine.mos().await?;
            let old = leaf(session.caller(), mos.pool(), &self.device)?.ok_or_else(|| {
                ControlError::Refused(format!("cannot {what}: {}", why_not(session, &mos, &self.device)))
            })?;
            let new = joining(session, &mos, &self.new_device, self.force).await?;
            cenote_tasks::evacuate(engine, old, new).await.map_err(cannot(&what))?;
            scan(session, engine, self.wait).await
        };
        Ok(session.change_pool(&self.pool, work).await?.into())
    }
}
