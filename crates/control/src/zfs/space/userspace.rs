//! `zfs userspace`: the space and quotas of users.

use cenote_fs::SpaceBy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::owners::{Space, owners, permissions};
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show the space and quota of users in a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Userspace {
    /// The file system or snapshot.
    pub dataset: String,
    /// Show groups too.
    #[serde(default)]
    pub all: bool,
}

impl Userspace {
    fn kinds(&self) -> &'static [SpaceBy] {
        if self.all { &[SpaceBy::User, SpaceBy::Group] } else { &[SpaceBy::User] }
    }
}

impl Verb for Userspace {
    const NAME: &'static str = "zfs userspace";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Always;
    const SEES_ALL: bool = true;
    type Answer = Vec<Space>;

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        permissions(session, &self.dataset, self.kinds()).await
    }

    /// # Errors
    /// It is missing, or has no files.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Space>>, ControlError> {
        Ok(owners(session, &self.dataset, self.kinds()).await?.into())
    }
}
