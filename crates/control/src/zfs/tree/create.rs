//! `zfs create`: file systems and volumes.

use cenote_dataset::{DatasetKind, Mos, Value};
use cenote_engine::Engine;
use cenote_tasks::{Fill, Settings, check_settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::above::{create_ancestors, nearest_above};
use super::fill;
use crate::error::{ControlError, Outcome};
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{NewDatasets, Session, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::properties::settings::{self, Setting};
use crate::zfs::properties::volume_size::{self, DEFAULT_BLOCK_BYTES};

/// Create a file system or volume. The daemon mounts new file systems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Create {
    /// New dataset.
    pub name: String,
    /// A volume; none: a file system.
    #[serde(default)]
    pub volume: Option<NewVolume>,
    /// Properties.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// Create missing parents; an existing dataset is no error.
    #[serde(default)]
    pub parents: bool,
    /// Report only; create nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Leave the file system unmounted; new parents are mounted.
    #[serde(default)]
    pub no_mount: bool,
}

/// A volume to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewVolume {
    /// Its size, rounded up to whole blocks.
    pub size_bytes: u64,
    /// Its block size; none: `volblocksize`, or one that suits the pool.
    #[serde(default)]
    pub block_bytes: Option<u64>,
    /// Reserve no space.
    #[serde(default)]
    pub sparse: bool,
}

/// The created dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Created {
    /// It existed already, which was allowed: nothing was created.
    pub existed: bool,
    /// Own properties.
    pub settings: Vec<Stored>,
}

/// A property as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stored {
    /// Name.
    pub property: String,
    /// Value.
    pub value: Value,
}

/// The dataset to create.
struct Plan {
    kind: DatasetKind,
    settings: Settings,
    fill: Fill,
}

impl Verb for Create {
    const NAME: &'static str = "zfs create";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = Created;

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to(self.what());
        let mut settings = self.settings.clone();
        if self.volume.is_some_and(|volume| !volume.sparse) {
            settings.push(Setting { property: "refreservation".into(), value: "auto".into() });
        }
        permissions.make(&session.pool_to_ask(&self.name).await?, &self.name, &settings).await?;
        Ok(permissions)
    }

    /// # Errors
    /// The dataset exists, its parent is missing, or a property is invalid.
    async fn carry_out(self, session: &Session) -> Result<Answered<Created>, ControlError> {
        let pool = pool_of(&self.name);
        let (mut settings, mut existed) = (Settings::new(), false);
        let outcome = match self.dry_run {
            true => {
                let mos = session.open_pool_without_asking(pool).await?;
                settings = self.checked(session, &mos).await?.settings;
                Outcome::Done
            }
            false => {
                let work = async |engine: &Engine| {
                    let mos = engine.mos().await?;
                    existed = self.parents && mos.dataset(&self.name).await.is_ok();
                    if !existed {
                        let plan = self.checked(session, &mos).await?;
                        settings = plan.settings.clone();
                        self.create(session, engine, plan).await?;
                    }
                    Ok(())
                };
                let new = match self.no_mount {
                    true => NewDatasets::StayBelow(&self.name),
                    false => NewDatasets::AreMounted,
                };
                session.change_pool_with(pool, new, work).await?
            }
        };
        let settings = settings.into_iter().map(|(property, value)| Stored { property, value });
        Ok(Answered { answer: Created { existed, settings: settings.collect() }, outcome })
    }
}

impl Create {
    async fn create(&self, session: &Session, engine: &Engine, plan: Plan) -> Result<(), ControlError> {
        let Plan { kind, settings, fill } = plan;
        if self.parents {
            create_ancestors(session, engine, &self.name).await?;
        }
        let made = match kind {
            DatasetKind::Volume => cenote_tasks::create_volume(engine, &self.name, settings, fill).await,
            _ => cenote_tasks::create_filesystem(engine, &self.name, settings, fill).await,
        };
        made.map_err(cannot(self.what()))
    }

    async fn checked(&self, session: &Session, mos: &Mos) -> Result<Plan, ControlError> {
        let plan = self.plan(session, mos).await?;
        check_settings(&self.name, plan.kind, &plan.settings).map_err(cannot(self.what()))?;
        Ok(plan)
    }

    fn what(&self) -> String {
        format!("create '{}'", self.name)
    }

    fn refused(&self, why: impl std::fmt::Display) -> ControlError {
        ControlError::Refused(format!("cannot {}: {why}", self.what()))
    }

    async fn plan(&self, session: &Session, mos: &Mos) -> Result<Plan, ControlError> {
        match self.volume {
            Some(volume) => self.plan_volume(session, mos, volume),
            None => {
                let mut settings =
                    settings::read_all(&self.settings, None).map_err(|why| self.refused(why))?;
                let parent = nearest_above(mos, &self.name).await?;
                let new = settings::filesystem(&mut settings, fill::as_parent(&parent).await?)
                    .map_err(|why| self.refused(why))?;
                let mut quotas = fill::quotas_of_parent(&parent).await?;
                quotas.extend(settings::take_quotas(&mut settings));
                let fill = fill::filesystem(session, new, fill::has_projects(mos).await?, quotas);
                Ok(Plan { kind: DatasetKind::Filesystem, settings, fill })
            }
        }
    }

    /// Plans a volume; its size is rounded up to whole blocks.
    fn plan_volume(&self, session: &Session, mos: &Mos, volume: NewVolume) -> Result<Plan, ControlError> {
        let refused = |why: String| self.refused(why);
        // `auto` depends on block size and copies, which are parsed first.
        let typed = settings::read_all(&self.settings, Some(0)).map_err(refused)?;
        let number = |name| settings::number_of(&typed, name);
        let block_bytes = volume.block_bytes.or_else(|| number("volblocksize"));
        let block_bytes = block_bytes.unwrap_or_else(|| volume_size::default_block_bytes(mos));
        if block_bytes < DEFAULT_BLOCK_BYTES {
            let best = volume_size::default_block_bytes(mos);
            session.caller().note_bare(format!(
                "Warning: volblocksize ({block_bytes}) is less than the default minimum block size \
                 ({DEFAULT_BLOCK_BYTES}).\nTo reduce wasted space a volblocksize of {best} is recommended."
            ));
        }
        if !block_bytes.is_power_of_two() || u32::try_from(block_bytes).is_err() {
            return Err(self.refused("'volblocksize' must be power of 2 from 512B to 16M"));
        }
        let size_bytes = match number("volsize") {
            Some(bytes) if !bytes.is_multiple_of(block_bytes) => {
                return Err(self.refused("volume size must be a multiple of volume block size"));
            }
            Some(bytes) => bytes,
            None => {
                let whole = volume.size_bytes.checked_next_multiple_of(block_bytes);
                whole.ok_or_else(|| self.refused("volume size exceeds limit for this system"))?
            }
        };
        let promise = volume_size::reservation(mos, size_bytes, block_bytes, number("copies").unwrap_or(1));
        let mut settings = settings::read_all(&self.settings, Some(promise)).map_err(refused)?;
        let mut add = |name: &str, number| {
            if !settings.iter().any(|(other, _)| other == name) {
                settings.push((name.into(), Value::Number(number)));
            }
        };
        add("volsize", size_bytes);
        add("volblocksize", block_bytes);
        if !volume.sparse {
            add("refreservation", promise);
        }
        let fill = fill::volume(size_bytes, block_bytes as u32);
        Ok(Plan { kind: DatasetKind::Volume, settings, fill })
    }
}
