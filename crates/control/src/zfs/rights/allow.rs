//! `zfs allow`: delegates permissions to unprivileged users, or lists delegations.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_allow_unallow_impl`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::grant::Grant;
use crate::error::{ControlError, Outcome};
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// Delegate permissions to users, or show delegated permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Allow {
    /// Dataset.
    pub dataset: String,
    /// The grants; none: list delegations.
    #[serde(default)]
    pub grants: Option<Vec<Grant>>,
}

/// Delegations of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delegation {
    /// Dataset.
    pub dataset: String,
    /// Permissions and sets by grantee.
    pub grants: Vec<Grant>,
}

impl Verb for Allow {
    const NAME: &'static str = "zfs allow";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Sometimes;
    /// Delegations of the dataset and its ancestors, where any exist.
    type Answer = Vec<Delegation>;

    fn only_looks(&self) -> bool {
        self.grants.is_none()
    }

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let name = &self.dataset;
        let mut permissions = Permissions::to(format!("set permissions on '{name}'"));
        let Some(grants) = &self.grants else { return Ok(permissions) };
        let head = dataset(&session.pool_to_ask(name).await?, name).await?;
        // A delegated user may pass on permissions, but not `allow` itself.
        if grants.iter().any(|grant| grant.permissions.contains("allow")) {
            return Err(permissions.denied());
        }
        permissions.need(&head, &["allow"]);
        for permission in grants.iter().flat_map(|grant| &grant.permissions) {
            permissions.need(&head, &[permission]);
        }
        Ok(permissions)
    }

    /// # Errors
    /// The dataset is missing; an unknown permission.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Delegation>>, ControlError> {
        let name = &self.dataset;
        let Some(grants) = &self.grants else { return Ok(shown(session, name).await?.into()) };
        grants.iter().try_for_each(|grant| grant.grantee.check())?;
        let allowed = session.change_pool(pool_of(name), async |engine| {
            dataset(&engine.mos().await?, name).await?;
            let stored = grants.iter().flat_map(|grant| grant.grantee.stored(&grant.permissions));
            let delegated = stored.collect();
            let allowed = cenote_tasks::allow(engine, name, delegated).await;
            allowed.map_err(cannot(format!("set permissions on '{name}'")))
        });
        let outcome: Outcome = allowed.await?;
        Ok(Answered { answer: Vec::new(), outcome })
    }
}

async fn shown(session: &Session, name: &str) -> Result<Vec<Delegation>, ControlError> {
    let shown = dataset(&session.open_pool_without_asking(pool_of(name)).await?, name).await?;
    let (mut all, mut at) = (Vec::new(), Some(shown.dir()));
    while let Some(dir) = at {
        let grants: Vec<Grant> = dir.delegated().await?.into_iter().map(Grant::from).collect();
        if !grants.is_empty() {
            all.push(Delegation { dataset: dir.name().into(), grants });
        }
        at = dir.parent();
    }
    Ok(all)
}
