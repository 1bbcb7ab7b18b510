//! `zpool detach`: takes a device out of a mirror, or ends a replacement.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_detach`), including the wording.

use cenote_engine::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::meant::leaf;
use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Detach a device from a mirror, end a replacement, or return a spare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Detach {
    /// Pool.
    pub pool: String,
    /// A device of a mirror or replacement: path, last path component, or guid.
    pub device: String,
}

impl Verb for Detach {
    const NAME: &'static str = "zpool detach";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No such device; no other device has all its data.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let what = format!("detach {}", self.device);
        let work = async |engine: &Engine| {
            let leaf = leaf(session.caller(), &engine.pool(), &self.device)?
                .ok_or_else(|| ControlError::Refused(format!("cannot {what}: no such device in pool")))?;
            cenote_tasks::detach(engine, leaf).await.map_err(cannot(&what))
        };
        Ok(session.change_pool(&self.pool, work).await?.into())
    }
}
