//! `zfs unallow`: revokes delegated permissions.

use std::collections::BTreeSet;

use cenote_dataset::Mos;
use cenote_tasks::Withdrawn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::grant::{Grantee, To};
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// Revoke delegated permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unallow {
    /// Dataset.
    pub dataset: String,
    /// Grantees and reach.
    pub grantees: Vec<Grantee>,
    /// Permissions; empty: all.
    #[serde(default)]
    pub permissions: Option<BTreeSet<String>>,
    /// Include all descendants.
    #[serde(default)]
    pub recursive: bool,
}

impl Verb for Unallow {
    const NAME: &'static str = "zfs unallow";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to(format!("set permissions on '{}'", self.dataset));
        let mos = session.pool_to_ask(&self.dataset).await?;
        // A delegated user may revoke only its own permissions.
        let own = To::User(session.caller().who.uid.into());
        if self.grantees.iter().any(|grantee| grantee.to != own) {
            return Err(permissions.denied());
        }
        for name in self.datasets(&mos).await? {
            permissions.need(&dataset(&mos, &name).await?, &["allow"]);
        }
        Ok(permissions)
    }

    /// # Errors
    /// The dataset is missing; an unknown permission.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let name = &self.dataset;
        self.grantees.iter().try_for_each(Grantee::check)?;
        let taken = session.change_pool(pool_of(name), async |engine| {
            let datasets = self.datasets(&engine.mos().await?).await?;
            let taken = cenote_tasks::unallow(engine, &datasets, self.withdrawn()).await;
            taken.map_err(cannot(format!("set permissions on '{name}'")))
        });
        Ok(taken.await?.into())
    }
}

impl Unallow {
    /// All affected datasets.
    async fn datasets(&self, mos: &Mos) -> Result<Vec<String>, ControlError> {
        let head = dataset(mos, &self.dataset).await?;
        let all = if self.recursive { head.descendants().await? } else { vec![head] };
        Ok(all.iter().map(|dataset| dataset.name().to_owned()).collect())
    }

    /// The permissions to revoke, by grantee.
    fn withdrawn(&self) -> Vec<Withdrawn> {
        let of_grantee = |grantee: &Grantee| -> Vec<Withdrawn> {
            match &self.permissions {
                None => vec![(grantee.key(false), None), (grantee.key(true), None)],
                Some(names) => {
                    let stored = grantee.stored(names).into_iter();
                    stored.map(|(key, names)| (key, Some(names))).collect()
                }
            }
        };
        self.grantees.iter().flat_map(of_grantee).collect()
    }
}
