//! `zfs unload-key`: removes keys from the daemon's memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::roots::{Keys, each, permissions};
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Discard keys from the daemon's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnloadKey {
    /// An encryption root; none: all.
    #[serde(default)]
    pub name: Option<String>,
    /// Include the encryption roots below.
    #[serde(default)]
    pub recursive: bool,
}

impl Verb for UnloadKey {
    const NAME: &'static str = "zfs unload-key";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = Keys;

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        permissions(session, "unload", self.name.as_deref(), self.recursive).await
    }

    /// # Errors
    /// No encryption root; its key is not loaded, or in use.
    async fn carry_out(self, session: &Session) -> Result<Answered<Keys>, ControlError> {
        let why = "cannot unload keys: no daemon runs, and without one no key stays loaded";
        let refused = || ControlError::Refused(why.into());
        if session.pools().is_none() {
            return Err(refused());
        }
        each(session, self.name.as_deref(), self.recursive, "unload", async |found, domain| {
            let pool = session.held(found).ok_or_else(refused)?;
            domain.unload(&pool.engine, &pool.mounts).await
        })
        .await
    }
}
