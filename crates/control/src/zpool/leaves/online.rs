//! `zpool online`: brings devices back into use and resilvers them.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_online`), including the wording.

use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{VdevState, VdevStatus};
use cenote_tasks::{Back, bring_back, expand};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::meant::named;
use crate::error::ControlError;
use crate::refusal::cannot;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zpool::activity::scans::scan;

/// Bring devices back into use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Online {
    /// Pool.
    pub pool: String,
    /// Devices: path, last path component, or guid.
    pub devices: Vec<String>,
    /// Use each device's additional space.
    #[serde(default)]
    pub expand: bool,
}

impl Verb for Online {
    const NAME: &'static str = "zpool online";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No such device.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        session.resume(&self.pool, &format!("online {}", self.devices.join(", "))).await?;
        let work = async |engine: &Engine| {
            for typed in &self.devices {
                let leaf = named(session.caller(), engine, "online", typed)?;
                let devices = session.returning(engine, Some(leaf)).await?;
                let done = bring_back(engine, Some(leaf), Back::Online, devices).await;
                done.map_err(cannot(format!("online {typed}")))?;
                if self.expand {
                    expand(engine, Some(leaf)).await.map_err(cannot(format!("expand {typed}")))?;
                }
                warn(session, engine, leaf, typed);
            }
            scan(session, engine, false).await
        };
        Ok(session.change_pool(&self.pool, work).await?.into())
    }
}

/// Warns if a device is online in the tree but missing.
fn warn(session: &Session, engine: &Engine, leaf: Guid, typed: &str) {
    let health = engine.pool().status();
    let mut state = VdevState::Online;
    health.root.walk(&mut |vdev: &VdevStatus| {
        if vdev.guid == leaf {
            state = vdev.state;
        }
    });
    if state == VdevState::Online {
        return;
    }
    let caller = session.caller();
    caller.note_bare(format!("warning: device '{typed}' onlined, but remains in {state} state"));
    caller.note_bare(match state {
        VdevState::Faulted => "use 'zpool clear' to restore a faulted device",
        _ => "use 'zpool replace' to replace devices that are no longer present",
    });
}
