//! `zpool offline`: takes devices out of use.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_offline`), including the wording.

use cenote_engine::Engine;
use cenote_tasks::{Away, take_out};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::meant::named;
use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Take devices out of use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Offline {
    /// Pool.
    pub pool: String,
    /// Devices: path, last path component, or guid.
    pub devices: Vec<String>,
    /// The kind of offline state.
    #[serde(default)]
    pub how: How,
}

/// The kind of offline state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Until brought online.
    #[default]
    Offline,
    /// At most until export.
    Temporarily,
    /// Faulted, until cleared.
    Faulted,
}

impl Verb for Offline {
    const NAME: &'static str = "zpool offline";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No such device; no other device has all its data.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let how = match self.how {
            How::Faulted => Away::Faulted,
            How::Temporarily if session.held_by_name(&self.pool).is_none() => {
                return Err(ControlError::Refused(
                    "-t lasts until the pool is exported, which is the end of this command: leave it out, or \
                     keep the pool open with `cenote serve`"
                        .into(),
                ));
            }
            How::Temporarily => Away::OfflineForNow,
            How::Offline => Away::Offline,
        };
        let work = async |engine: &Engine| {
            for typed in &self.devices {
                let leaf = named(session.caller(), engine, "offline", typed)?;
                take_out(engine, leaf, how).await.map_err(cannot(format!("offline {typed}")))?;
            }
            Ok(())
        };
        Ok(session.change_pool(&self.pool, work).await?.into())
    }
}
