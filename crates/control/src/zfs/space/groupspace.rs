//! `zfs groupspace`: the space and quotas of groups.

use cenote_fs::SpaceBy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::owners::{Space, owners, permissions};
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Show the space and quota of groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Groupspace {
    /// The file system or snapshot.
    pub dataset: String,
    /// Show users too.
    #[serde(default)]
    pub all: bool,
}

impl Groupspace {
    fn kinds(&self) -> &'static [SpaceBy] {
        if self.all { &[SpaceBy::User, SpaceBy::Group] } else { &[SpaceBy::Group] }
    }
}

impl Verb for Groupspace {
    const NAME: &'static str = "zfs groupspace";
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
