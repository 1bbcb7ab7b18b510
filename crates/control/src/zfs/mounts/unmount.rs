//! `zfs unmount`: unmounts file systems.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::permissions::{FOR_ADMINS, Permissions};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Unmount file systems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unmount {
    /// The file system or its mount point; none: all.
    #[serde(default)]
    pub name: Option<String>,
    /// Also unload keys no longer needed.
    #[serde(default)]
    pub unload_keys: bool,
}

impl Verb for Unmount {
    const NAME: &'static str = "zfs unmount";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// Unmounting is for administrators: it can't be delegated.
    async fn permissions(&self, _session: &Session) -> Result<Permissions, ControlError> {
        Err(ControlError::Refused(format!("cannot unmount: {FOR_ADMINS}")))
    }

    /// # Errors
    /// No daemon; the file system is not mounted, or is in use.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let why =
            "no daemon runs: start `cenote serve`, or mount one file system with `cenote mount DATASET DIR`";
        let pools = session.pools().ok_or_else(|| ControlError::Refused(why.into()))?.all();
        let Some(name) = &self.name else {
            let mut outcome = Outcome::Done;
            for pool in pools {
                if let Err(error) = pool.mounts.unmount_below(None, false).await {
                    session.caller().note_bare(error.to_string());
                    outcome = Outcome::Failed;
                } else if self.unload_keys {
                    session.unload_keys(&pool, None).await?;
                }
            }
            return Ok(outcome.into());
        };
        let is_meant = |mounted: &str, dir: &Path| match name.starts_with('/') {
            true => dir == Path::new(name),
            false => mounted == name,
        };
        for pool in pools {
            let mounted = pool.mounts.list().into_iter().find(|(mounted, dir)| is_meant(mounted, dir));
            if let Some((mounted, _)) = mounted {
                let unmounted = pool.mounts.unmount_below(Some(&mounted), false).await;
                unmounted.map_err(|error| ControlError::Refused(error.to_string()))?;
                if self.unload_keys {
                    session.unload_keys(&pool, Some(&mounted)).await?;
                }
                return Ok(().into());
            }
        }
        Err(ControlError::Refused(format!("cannot unmount '{name}': not currently mounted")))
    }
}
