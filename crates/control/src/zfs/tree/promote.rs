//! `zfs promote`: moves the snapshots that a clone depends on into the clone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::MOUNT;

/// Make a clone the owner of the snapshots it depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Promote {
    /// Clone.
    pub clone: String,
}

impl Verb for Promote {
    const NAME: &'static str = "zfs promote";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to(format!("promote '{}'", self.clone));
        let clone = dataset(&session.pool_to_ask(&self.clone).await?, &self.clone).await?;
        permissions.need(&clone, &["promote", MOUNT]);
        let origin = clone.origin().await?;
        origin.into_iter().for_each(|origin| permissions.need(&origin, &["promote"]));
        Ok(permissions)
    }

    /// # Errors
    /// It is no clone; a snapshot name conflicts.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let name = &self.clone;
        let promoted = session.change_pool(pool_of(name), async |engine| {
            dataset(&engine.mos().await?, name).await?;
            cenote_tasks::promote(engine, name).await.map_err(cannot(format!("promote '{name}'")))
        });
        Ok(promoted.await?.into())
    }
}
