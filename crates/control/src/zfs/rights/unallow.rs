//! `zfs unallow`: takes delegated permissions back.

use std::collections::BTreeSet;

use cenote_dataset::Mos;
use cenote_tasks::Withdrawn;
use serde::{Deserialize, Serialize};

use super::grant::{Grantee, To};
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// What is to be taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unallow {
    /// The dataset.
    pub dataset: String,
    /// From whom, and where.
    pub grantees: Vec<Grantee>,
    /// Which permissions; none: all.
    #[serde(default)]
    pub permissions: Option<BTreeSet<String>>,
    /// In everything below, too.
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
        // What others have is not to be taken from them.
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
    /// The dataset is not there; there is no such permission.
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
    /// All datasets that are concerned.
    async fn datasets(&self, mos: &Mos) -> Result<Vec<String>, ControlError> {
        let head = dataset(mos, &self.dataset).await?;
        let all = if self.recursive { head.descendants().await? } else { vec![head] };
        Ok(all.iter().map(|dataset| dataset.name().to_owned()).collect())
    }

    /// What is to be taken, and from whom.
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
