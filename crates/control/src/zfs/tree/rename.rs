//! `zfs rename`: renames datasets and snapshots.

use cenote_dataset::Mos;
use cenote_object::DatasetError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::above::create_ancestors;
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::MOUNT;

/// Rename a dataset or snapshot. A dataset is renamed with its descendants; a snapshot stays in its dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rename {
    /// Dataset or snapshot.
    pub from: String,
    /// New full name.
    pub to: String,
    /// Create missing parents.
    #[serde(default)]
    pub parents: bool,
    /// Include descendants' snapshots of that name.
    #[serde(default)]
    pub recursive: bool,
    /// Keep mounts where they are.
    #[serde(default)]
    pub no_remount: bool,
}

impl Verb for Rename {
    const NAME: &'static str = "zfs rename";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to(format!("rename '{}'", self.from));
        let mos = session.pool_to_ask(&self.from).await?;
        for (from, to) in self.renames(&mos).await? {
            permissions.need(&dataset(&mos, &from).await?, &["rename", MOUNT]);
            match to.split_once('@') {
                Some((head, _)) => permissions.need(&dataset(&mos, head).await?, &["create", MOUNT]),
                None => permissions.make(&mos, &to, &[]).await?,
            }
        }
        Ok(permissions)
    }

    /// # Errors
    /// The target is missing or in use; the new name is taken.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        if self.recursive && !self.from.contains('@') {
            let why = "source dataset for recursive rename must be a snapshot";
            return Err(ControlError::Usage(why.into()));
        }
        let (to, what) = (&self.to, format!("rename '{}'", self.from));
        if pool_of(&self.from) != pool_of(to) {
            return Err(ControlError::Refused(format!("cannot {what}: datasets must be within same pool")));
        }
        let renamed = session.change_pool(pool_of(to), async |engine| {
            let mos = engine.mos().await?;
            dataset(&mos, &self.from).await?;
            if self.from == *to {
                return Ok(());
            }
            let uppermost = match self.parents {
                true => create_ancestors(session, engine, to).await?,
                false => None,
            };
            if let (Some(made), Some(pool)) = (uppermost, session.held_by_name(pool_of(to))) {
                // If mounted later, they would hide the mounts below them.
                session.mount_below(&pool, Some(&made)).await?;
            }
            let renamed = match self.recursive {
                true => cenote_tasks::rename_snapshots(engine, self.renames(&mos).await?).await,
                false if self.from.contains('@') => cenote_tasks::rename(engine, &self.from, to).await,
                false if self.no_remount => {
                    let renamed = cenote_tasks::rename(engine, &self.from, to).await;
                    if let Some(pool) = session.held_by_name(pool_of(to)).filter(|_| renamed.is_ok()) {
                        let kept = pool.mounts.keep_renamed(to).await;
                        kept.map_err(|error| ControlError::Refused(error.to_string()))?;
                    }
                    renamed
                }
                false => match cenote_tasks::check_outside(&self.from, to) {
                    Err(error) => Err(error),
                    Ok(()) => {
                        let rename = async || Ok(cenote_tasks::rename(engine, &self.from, to).await);
                        session.with_unmounted(&self.from, rename).await?
                    }
                },
            };
            renamed.map_err(|error| match error {
                // This concerns the new name, not the old one.
                DatasetError::Unsuitable { .. } | DatasetError::OverLimit { .. } => {
                    cannot(format!("rename to '{to}'"))(error)
                }
                error => cannot(what)(error),
            })
        });
        Ok(renamed.await?.into())
    }
}

impl Rename {
    /// All old and new names.
    async fn renames(&self, mos: &Mos) -> Result<Vec<(String, String)>, ControlError> {
        match self.recursive {
            true => renames_below(mos, &self.from, &self.to).await,
            false => Ok(vec![(self.from.clone(), self.to.clone())]),
        }
    }
}

/// Old and new names of the snapshots named like `from`, in its dataset and its descendants.
async fn renames_below(mos: &Mos, from: &str, to: &str) -> Result<Vec<(String, String)>, ControlError> {
    let (path, old) = from.split_once('@').unwrap_or((from, ""));
    let (target, new) = to.split_once('@').unwrap_or((to, ""));
    if target != path {
        return Ok(vec![(from.into(), to.into())]);
    }
    let mut renames = Vec::new();
    for head in dataset(mos, path).await?.descendants().await? {
        if head.snapshot(old).await?.is_some() {
            renames.push((format!("{}@{old}", head.name()), format!("{}@{new}", head.name())));
        }
    }
    Ok(renames)
}
