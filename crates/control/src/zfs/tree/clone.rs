//! `zfs clone`: makes a file system or volume from a snapshot; recursively, a whole tree.

use cenote_dataset::{Dataset, DatasetKind, Mos};
use cenote_object::DatasetError;
use cenote_tasks::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::above::create_ancestors;
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{NewDatasets, Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::properties::quota::{check_has_owners, limit_owner};
use crate::zfs::properties::set::resize;
use crate::zfs::properties::settings::{self, Setting};
use crate::zfs::properties::volume_size;

/// Create clones of snapshots; with -r, of a whole tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clone {
    /// `DATASET@SNAPSHOT`.
    pub snapshot: String,
    /// New dataset.
    pub name: String,
    /// Create missing parents; an existing dataset is no error.
    #[serde(default)]
    pub parents: bool,
    /// Also clone every descendant with a snapshot of that name to the same relative path, all in one txg. A
    /// dataset without that snapshot is skipped with its descendants.
    #[serde(default)]
    pub recursive: bool,
    /// Properties of the new datasets.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// Leave the clones unmounted; new parents are mounted.
    #[serde(default)]
    pub no_mount: bool,
}

impl Verb for Clone {
    const NAME: &'static str = "zfs clone";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to(format!("create '{}'", self.name));
        let mos = session.pool_to_ask(&self.name).await?;
        for (origin, name) in self.clones(&mos).await? {
            permissions.need(&dataset(&mos, &origin).await?, &["clone"]);
            permissions.make(&mos, &name, &self.settings).await?;
        }
        Ok(permissions)
    }

    /// # Errors
    /// The snapshot is missing; a new dataset exists; a property is invalid.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let what = format!("create '{}'", self.name);
        if pool_of(&self.snapshot) != pool_of(&self.name) {
            return Err(ControlError::Refused(format!("cannot {what}: source and target pools differ")));
        }
        let new = match self.no_mount {
            true => NewDatasets::StayBelow(&self.name),
            false => NewDatasets::AreMounted,
        };
        let cloned = session.change_pool_with(pool_of(&self.name), new, async |engine| {
            let mos = engine.mos().await?;
            let mut settings = self.stored(&mos).await?;
            let quotas = settings::take_quotas(&mut settings);
            let size_bytes = self.take_size(&mos, &mut settings).await?;
            let clones = self.clones(&mos).await?;
            let names: Vec<String> = clones.iter().map(|(_, clone)| clone.clone()).collect();
            if !quotas.is_empty() {
                for (snapshot, _) in &clones {
                    let origin = snapshot.split('@').next().unwrap_or_default();
                    check_has_owners(mos.dataset(origin).await?).await.map_err(cannot(&what))?;
                }
            }
            if self.parents {
                if mos.dataset(&self.name).await.is_ok() {
                    return Ok(());
                }
                create_ancestors(session, engine, &self.name).await?;
            }
            let made = cenote_tasks::clone_snapshots(engine, clones, settings).await;
            made.map_err(|error| match &error {
                DatasetError::DatasetExists { name } => cannot(format!("create '{name}'"))(error.clone()),
                _ => cannot(what)(error),
            })?;
            for name in &names {
                let what = format!("set property for '{name}'");
                for quota in &quotas {
                    limit_owner(engine, name, *quota).await.map_err(cannot(&what))?;
                }
                if let Some(bytes) = size_bytes {
                    resize(engine, name, bytes).await.map_err(cannot(&what))?;
                }
            }
            Ok(())
        });
        Ok(cloned.await?.into())
    }
}

impl Clone {
    async fn stored(&self, mos: &Mos) -> Result<Settings, ControlError> {
        let origin = dataset(mos, &self.snapshot).await?;
        // Snapshots have no `volblocksize`.
        let head = dataset(mos, self.snapshot.split('@').next().unwrap_or_default()).await?;
        let number = async |of: &Dataset, name| -> Result<Option<u64>, ControlError> {
            Ok(of.property(name).await?.and_then(|property| property.number()))
        };
        let promise = match (number(&origin, "volsize").await?, number(&head, "volblocksize").await?) {
            (Some(size), Some(block)) => Some(volume_size::reservation(mos, size, block, 1)),
            _ => None,
        };
        settings::read_all(&self.settings, promise)
            .map_err(|why| ControlError::Refused(format!("cannot create '{}': {why}", self.name)))
    }

    /// Takes the size of a cloned volume out of the settings: the volume itself stores it.
    async fn take_size(&self, mos: &Mos, settings: &mut Settings) -> Result<Option<u64>, ControlError> {
        let head = dataset(mos, self.snapshot.split('@').next().unwrap_or_default()).await?;
        let Some(block) = head.property("volblocksize").await?.and_then(|property| property.number()) else {
            return Ok(None);
        };
        let size_bytes = settings::number_of(settings, "volsize");
        settings.retain(|(property, _)| property != "volsize");
        if let Some(size_bytes) = size_bytes {
            volume_size::check(size_bytes, block)
                .map_err(|why| ControlError::Refused(format!("cannot create '{}': {why}", self.name)))?;
        }
        Ok(size_bytes)
    }

    /// Snapshots and the names of their clones, parents first.
    async fn clones(&self, mos: &Mos) -> Result<Vec<(String, String)>, ControlError> {
        let Some((path, own)) = self.snapshot.split_once('@') else {
            return Err(ControlError::Usage(format!(
                "'{}' is not a snapshot; use DATASET@SNAPSHOT",
                self.snapshot
            )));
        };
        let mut clones = vec![(self.snapshot.clone(), self.name.clone())];
        let mut pending =
            if self.recursive { dataset(mos, path).await?.children().await? } else { Vec::new() };
        pending.reverse();
        while let Some(head) = pending.pop() {
            let Some(snapshot) = head.snapshot(own).await? else { continue };
            let below = head.name().strip_prefix(path).unwrap_or_default();
            clones.push((snapshot.name().to_owned(), format!("{}{below}", self.name)));
            if head.kind().await? == DatasetKind::Filesystem {
                pending.extend(head.children().await?.into_iter().rev());
            }
        }
        Ok(clones)
    }
}
