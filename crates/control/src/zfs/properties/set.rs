//! `zfs set`: gives properties values.

use cenote_dataset::{Dataset, DatasetKind, Value};
use cenote_engine::{Engine, Need};
use cenote_format::features::{ZPL_VERSION, spa_version_for};
use cenote_fs::{FsError, VolumeWriter};
use cenote_object::DatasetError;
use cenote_tasks::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quota::limit_owner;
use super::settings::{self, OwnerQuota, Setting};
use super::upgrade::raise;
use super::volume_size;
use crate::error::{ControlError, Outcome};
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// Set properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Set {
    /// Properties and values.
    pub settings: Vec<Setting>,
    /// Datasets or snapshots.
    pub names: Vec<String>,
    /// Do not mount at a changed mount point.
    #[serde(default)]
    pub no_mount: bool,
}

impl Verb for Set {
    const NAME: &'static str = "zfs set";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to("set properties");
        for name in &self.names {
            permissions.and_to(format!("set property for '{name}'"));
            permissions.set(&dataset(&session.pool_to_ask(name).await?, name).await?, &self.settings)?;
        }
        Ok(permissions)
    }

    /// # Errors
    /// No settings. Other failures are reported, and the other datasets are still set.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let Set { settings, names, no_mount } = &self;
        if settings.is_empty() {
            return Err(ControlError::Usage("missing property=value argument(s)".into()));
        }
        let set = async |engine: &Engine, name: &String| set_all(session, engine, settings, name).await;
        let outcome = session.change_each(names, pool_of, set).await?;
        let is_mountpoint = settings.iter().any(|setting| setting.property == "mountpoint");
        if is_mountpoint && !no_mount {
            return Ok(outcome.and(session.mount_where_set(names).await?).into());
        }
        Ok(outcome.into())
    }
}

/// Sets properties one by one. A failure does not stop the rest, unless the whole request is invalid.
async fn set_all(
    session: &Session,
    engine: &Engine,
    wanted: &[Setting],
    name: &str,
) -> Result<Outcome, ControlError> {
    let what = format!("set property for '{name}'");
    let refused = |why: String| ControlError::Refused(format!("cannot {what}: {why}"));
    let target = dataset(&engine.mos().await?, name).await?;
    let typed = settings::read_all(wanted, Some(0)).map_err(refused)?;
    let sizes = Sizes::of(&target).await?;
    let mut settings = match &sizes {
        None => settings::read_all(wanted, None).map_err(refused)?,
        Some(sizes) => sizes.settings(&target, wanted, &typed).map_err(refused)?,
    };
    let kind = target.kind().await?;
    let version = settings::number_of(&settings, "version").filter(|_| kind == DatasetKind::Filesystem);
    if version.is_some() {
        settings.retain(|(property, _)| property != "version");
    }
    let has_owners = settings.iter().any(|(property, _)| cenote_tasks::is_of_owner(property));
    if has_owners && kind != DatasetKind::Filesystem {
        return Err(refused("property doesn't apply to datasets of this type".into()));
    }
    cenote_tasks::check_changes(name, kind, &settings).map_err(cannot(&what))?;
    if let Some(version) = version {
        set_version(session, engine, &target, version).await?;
    }
    let mut outcome = Outcome::Done;
    for (property, value) in settings {
        let set = match (&property[..], &value) {
            ("volsize", Value::Number(bytes)) if sizes.is_some() => resize(engine, name, *bytes).await,
            (owner, Value::Number(limit)) if cenote_tasks::is_of_owner(owner) => {
                match OwnerQuota::parse(owner, *limit) {
                    Some(quota) => limit_owner(engine, name, quota).await,
                    None => Err(DatasetError::unsuitable(name, "invalid property")),
                }
            }
            _ => cenote_tasks::set_property(engine, name, &property, value).await,
        };
        if let Err(error) = set.map_err(cannot(&what)) {
            outcome = outcome.and(session.caller().tell(name, &error));
            // A volume grows only if its reservation can grow, too.
            if !typed.iter().any(|(other, _)| *other == property) {
                break;
            }
        }
    }
    Ok(outcome)
}

/// Upgrades a file system.
async fn set_version(
    session: &Session,
    engine: &Engine,
    target: &Dataset,
    wanted: u64,
) -> Result<(), ControlError> {
    let name = target.name();
    let current = target.property("version").await?.and_then(|property| property.number());
    let current = current.unwrap_or(ZPL_VERSION);
    let needed = spa_version_for(wanted);
    let why = match wanted {
        _ if wanted == current => return Ok(()),
        _ if wanted < current => format!("can not downgrade; already at version {current}"),
        _ if target.mos().uberblock().version < needed => format!("pool must be at version {needed} first"),
        _ => return raise(session, engine, name, wanted).await,
    };
    Err(ControlError::Refused(format!("cannot set property for '{name}': {why}")))
}

/// Sizes that determine a volume's refreservation.
struct Sizes {
    volsize: u64,
    block: u64,
    promised: u64,
}

impl Sizes {
    /// `None` for a file system or snapshot.
    async fn of(target: &Dataset) -> Result<Option<Sizes>, ControlError> {
        if target.is_snapshot() {
            return Ok(None);
        }
        let number = async |name| -> Result<Option<u64>, ControlError> {
            Ok(target.property(name).await?.and_then(|property| property.number()))
        };
        let promised = number("refreservation").await?.unwrap_or(0);
        let sizes = (number("volsize").await?, number("volblocksize").await?);
        let (Some(volsize), Some(block)) = sizes else { return Ok(None) };
        Ok(Some(Sizes { volsize, block: block.max(1), promised }))
    }

    /// The settings of a volume. `auto` becomes the reservation for its size; a refreservation of that amount
    /// grows and shrinks with the volume.
    fn settings(&self, target: &Dataset, wanted: &[Setting], typed: &Settings) -> Result<Settings, String> {
        let needs = |size| volume_size::reservation(target.mos(), size, self.block, 1);
        let size = settings::number_of(typed, "volsize");
        size.map_or(Ok(()), |size| volume_size::check(size, self.block))?;
        let mut settings = settings::read_all(wanted, Some(needs(size.unwrap_or(self.volsize))))?;
        let follows = self.promised == needs(self.volsize)
            && settings::number_of(&settings, "refreservation").is_none();
        if let (Some(size), true) = (size, follows) {
            let promise = ("refreservation".into(), Value::Number(needs(size)));
            match size > self.volsize {
                true => settings.insert(0, promise),
                false => settings.push(promise),
            }
        }
        Ok(settings)
    }
}

/// Resizes a volume.
pub(in crate::zfs) async fn resize(engine: &Engine, name: &str, bytes: u64) -> Result<(), DatasetError> {
    let resized = async {
        let volume = VolumeWriter::shared(engine, name).await?;
        let resizing = volume.clone();
        let resize = move |edit| async move { resizing.resize(&edit, bytes).await };
        engine.change(volume.live(), Need::Free, resize).await
    };
    match resized.await {
        Ok(()) => engine.sync_own().await,
        Err(FsError::Dataset(error)) => Err(error),
        Err(other) => Err(DatasetError::Unsuitable { name: name.into(), why: other.to_string().into() }),
    }
}
