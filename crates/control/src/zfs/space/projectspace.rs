//! `zfs projectspace`: the space and quotas of projects.

use cenote_fs::SpaceBy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::owners::{Space, owners, permissions};
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show the space and quota of projects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Projectspace {
    /// The file system or snapshot.
    pub dataset: String,
}

impl Verb for Projectspace {
    const NAME: &'static str = "zfs projectspace";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Always;
    const SEES_ALL: bool = true;
    type Answer = Vec<Space>;

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        permissions(session, &self.dataset, &[SpaceBy::Project]).await
    }

    /// # Errors
    /// It is missing, or has no files.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Space>>, ControlError> {
        Ok(owners(session, &self.dataset, &[SpaceBy::Project]).await?.into())
    }
}
