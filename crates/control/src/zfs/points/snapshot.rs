//! `zfs snapshot`: snapshots of several datasets at the same moment.

use std::collections::HashSet;

use cenote_dataset::Mos;
use cenote_object::DatasetError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::head_of;
use crate::zfs::properties::settings::{self, Setting};

/// Take snapshots, all at the same moment. If one snapshot fails, none is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// `DATASET@NAME`, all in one pool.
    pub snapshots: Vec<String>,
    /// Include everything below.
    #[serde(default)]
    pub recursive: bool,
    /// User properties.
    #[serde(default)]
    pub settings: Vec<Setting>,
}

impl Verb for Snapshot {
    const NAME: &'static str = "zfs snapshot";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to("create snapshots ");
        let mos = session.pool_to_ask(self.pool()?).await?;
        for name in self.names(&mos).await? {
            let head = dataset(&mos, head_of(&name)).await?;
            permissions.need(&head, &["snapshot"]);
            permissions.set(&head, &self.settings)?;
        }
        Ok(permissions)
    }

    /// # Errors
    /// A dataset is missing; a snapshot exists.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let settings = settings::read_all(&self.settings, None).map_err(usage)?;
        let taken = session.change_pool(self.pool()?, async |engine| {
            let names = self.names(&engine.mos().await?).await?;
            cenote_tasks::snapshot_with(engine, &names, settings)
                .await
                .map_err(|error| refused(error, &names))
        });
        Ok(taken.await?.into())
    }
}

impl Snapshot {
    /// The common pool.
    fn pool(&self) -> Result<&str, ControlError> {
        let mut pools = self.snapshots.iter().map(pool_of);
        let first = pools.next().ok_or_else(|| usage("none is named".into()))?;
        match pools.all(|pool| pool == first) {
            true => Ok(first),
            false => Err(usage("they must be in one pool".into())),
        }
    }

    /// All snapshots to take.
    async fn names(&self, mos: &Mos) -> Result<Vec<String>, ControlError> {
        let mut names = Vec::new();
        for typed in &self.snapshots {
            let Some((path, own)) = typed.split_once('@') else {
                let text = format!("'{typed}' is not a snapshot; use DATASET@SNAPSHOT");
                return Err(ControlError::Usage(text));
            };
            let head = dataset(mos, path).await?;
            let heads = if self.recursive { head.descendants().await? } else { vec![head] };
            names.extend(heads.iter().map(|head| format!("{}@{own}", head.name())));
        }
        // Duplicates are taken once.
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(names)
    }
}

fn usage(why: String) -> ControlError {
    ControlError::Usage(format!("cannot create snapshots: {why}"))
}

/// Names the snapshot that failed, if one is to blame, and says that none was taken, if several were
/// requested.
fn refused(error: DatasetError, names: &[String]) -> ControlError {
    let what = match (&error, names) {
        (DatasetError::DatasetExists { name }, _) => format!("create snapshot '{name}'"),
        (_, [one]) => format!("create snapshot '{one}'"),
        _ => "create snapshots".into(),
    };
    match (cannot(what)(error), names) {
        (ControlError::Refused(why), [_, _, ..]) => {
            ControlError::Refused(why + "\nno snapshots were created")
        }
        (error, _) => error,
    }
}
