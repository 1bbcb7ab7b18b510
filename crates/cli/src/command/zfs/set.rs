//! `zfs set`, `inherit`.

use cenote_dataset::{Dataset, DatasetKind, Value};
use cenote_engine::{Engine, Need};
use cenote_format::props::AppliesTo;
use cenote_fs::{FsError, FsWriter, VolumeWriter};
use cenote_object::DatasetError;
use cenote_tasks::{Instead, Settings};
use clap::Args;

use super::refusal::cannot;
use super::settings::OwnerQuota;
use super::{pool_of, settings, volume_size};
use crate::outcome::{CliError, Outcome, Say};
use crate::session::{Session, dataset};

/// `zfs set`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs set compression=zstd quota=10G tank/home/ada tank/home/bob")]
pub struct Set {
    /// Don't mount what gets another mount point
    #[arg(short = 'u')]
    pub no_mount: bool,
    /// PROPERTY=VALUE..., then datasets or snapshots
    #[arg(required = true, num_args = 2.., value_names = ["PROPERTY=VALUE", "DATASET"])]
    pub words: Vec<String>,
}

/// `zfs inherit`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs inherit -r compression tank/home")]
pub struct Inherit {
    /// Include everything below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Revert to the received value, if there is one
    #[arg(short = 'S')]
    pub received: bool,
    /// The property
    pub property: String,
    /// Datasets or snapshots
    #[arg(required = true)]
    pub names: Vec<String>,
}

impl Set {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (options, names) = self.parts()?;
        let set = async |engine: &Engine, name: &String| set_all(engine, options, name).await;
        let outcome = session.change_each(names, pool_of, set).await?;
        let is_mountpoint = options.iter().any(|option| option.starts_with("mountpoint="));
        if is_mountpoint && !self.no_mount {
            return Ok(outcome.and(mount(session, names).await?));
        }
        Ok(outcome)
    }

    /// Properties and names.
    pub(super) fn parts(&self) -> Result<(&[String], &[String]), CliError> {
        let count = self.words.iter().take_while(|word| word.contains('=')).count();
        let (options, names) = self.words.split_at(count);
        if options.is_empty() {
            return Err(CliError::Usage("missing property=value argument(s)".into()));
        }
        if names.is_empty() {
            return Err(CliError::Usage("missing dataset name(s)".into()));
        }
        if names.iter().any(|name| name.contains('=')) {
            return Err(CliError::Usage("invalid argument order: properties come first".into()));
        }
        Ok((options, names))
    }
}

/// Whoever says where something is mounted wants it mounted.
async fn mount(session: &Session, names: &[String]) -> Result<Outcome, CliError> {
    let mut outcome = Outcome::Done;
    for name in names {
        if let Some(pool) = session.held_by_name(pool_of(name)) {
            outcome = outcome.and(session.mount_below(&pool, Some(name)).await?);
        }
    }
    Ok(outcome)
}

/// Sets properties one by one. A failure does not stop the rest, unless the request is invalid as a whole.
async fn set_all(engine: &Engine, options: &[String], name: &str) -> Result<Outcome, CliError> {
    let what = format!("set property for '{name}'");
    let refused = |why: String| CliError::Refused(format!("cannot {what}: {why}"));
    let target = dataset(&engine.mos().await?, name).await?;
    let typed = settings::parse(options, Some(0)).map_err(refused)?;
    let sizes = Sizes::of(&target).await?;
    let mut settings = match &sizes {
        None => settings::parse(options, None).map_err(refused)?,
        Some(sizes) => sizes.settings(&target, options, &typed).map_err(refused)?,
    };
    if let Some(version) = settings::number_of(&settings, "version")
        && target.property("version").await?.and_then(|property| property.number()) == Some(version)
    {
        // It is what it is already: the only version that can be set.
        settings.retain(|(property, _)| property != "version");
    }
    let kind = target.kind().await?;
    let has_owners = settings.iter().any(|(property, _)| cenote_tasks::is_of_owner(property));
    if has_owners && kind != DatasetKind::Filesystem {
        return Err(refused("property doesn't apply to datasets of this type".into()));
    }
    cenote_tasks::check_changes(name, kind, &settings).map_err(cannot(&what))?;
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
            outcome = outcome.and(error.tell(name));
            // A volume that can't be promised what it would need does not grow.
            if !typed.iter().any(|(other, _)| *other == property) {
                break;
            }
        }
    }
    Ok(outcome)
}

/// The sizes of a volume on which its refreservation depends.
struct Sizes {
    volsize: u64,
    block: u64,
    promised: u64,
}

impl Sizes {
    /// `None` for a file system or snapshot.
    async fn of(target: &Dataset) -> Result<Option<Sizes>, CliError> {
        if target.is_snapshot() {
            return Ok(None);
        }
        let number = async |name| -> Result<Option<u64>, CliError> {
            Ok(target.property(name).await?.and_then(|property| property.number()))
        };
        let promised = number("refreservation").await?.unwrap_or(0);
        let sizes = (number("volsize").await?, number("volblocksize").await?);
        let (Some(volsize), Some(block)) = sizes else { return Ok(None) };
        Ok(Some(Sizes { volsize, block: block.max(1), promised }))
    }

    /// The settings of a volume. `auto` becomes the reservation its size needs; a refreservation of that
    /// amount grows and shrinks with the volume.
    fn settings(&self, target: &Dataset, options: &[String], typed: &Settings) -> Result<Settings, String> {
        let needs = |size| volume_size::reservation(target.mos(), size, self.block, 1);
        let size = settings::number_of(typed, "volsize");
        if size.is_some_and(|size| !size.is_multiple_of(self.block)) {
            let block = crate::render::nice_bytes(self.block);
            return Err(format!("'volsize' must be a multiple of volume block size ({block})"));
        }
        if size == Some(0) {
            return Err("'volsize' cannot be zero".into());
        }
        let mut settings = settings::parse(options, Some(needs(size.unwrap_or(self.volsize))))?;
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

/// Sets an owner's quota in a file system.
pub(super) async fn limit_owner(engine: &Engine, name: &str, quota: OwnerQuota) -> Result<(), DatasetError> {
    let refused = |why: &str| DatasetError::Unsuitable { name: name.into(), why: why.into() };
    check_has_owners(engine.mos().await?.dataset(name).await?).await?;
    let set = async {
        let fs = FsWriter::shared(engine, name).await?;
        let limited = fs.change(engine, Need::Free, move |fs, change| {
            Box::pin(async move { quota.set(fs, change.edit).await })
        });
        limited.await
    };
    match set.await {
        Ok(()) => engine.sync_own().await,
        Err(FsError::Dataset(error)) => Err(error),
        Err(other) => Err(refused(&other.to_string())),
    }
}

/// Only what is in file systems has owners.
pub(super) async fn check_has_owners(dataset: Dataset) -> Result<(), DatasetError> {
    match dataset.kind().await? {
        DatasetKind::Filesystem => Ok(()),
        _ => {
            let why = "property doesn't apply to datasets of this type";
            Err(DatasetError::unsuitable(dataset.name(), why))
        }
    }
}

async fn resize(engine: &Engine, name: &str, bytes: u64) -> Result<(), DatasetError> {
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

impl Inherit {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let prop = settings::find(&self.property).map_err(CliError::Usage)?;
        let property = prop.map_or(self.property.as_str(), |prop| prop.name);
        if let Some(prop) = prop {
            if prop.is_read_only() || prop.is_one_time() {
                return Err(CliError::Refused(format!("{property} property is read-only")));
            }
            if !prop.is_inheritable() && !self.received {
                return Err(CliError::Refused(not_inherited(property)));
            }
            if self.received && matches!(property, "volsize" | "version") {
                let why = format!("'{property}' property cannot be reverted to a received value");
                return Err(CliError::Refused(why));
            }
        }
        let instead = if self.received { Instead::Received } else { Instead::Inherited };
        let outcome = session
            .change_each(&self.names, pool_of, async |engine, name| {
                let top = dataset(&engine.mos().await?, name).await?;
                let all = if self.recursive { top.descendants().await? } else { vec![top] };
                for dataset in all {
                    let is_volume = dataset.property("volsize").await?.is_some();
                    let applies = if is_volume { AppliesTo::VOL } else { AppliesTo::FS };
                    let what = format!("inherit {property} for '{}'", dataset.name());
                    if prop.is_some_and(|prop| !prop.applies.overlaps(applies)) {
                        if self.recursive {
                            continue;
                        }
                        let why = "property doesn't apply to datasets of this type";
                        return Err(CliError::Refused(format!("cannot {what}: {why}")));
                    }
                    cenote_tasks::inherit(engine, dataset.name(), property, instead)
                        .await
                        .map_err(cannot(what))?;
                }
                Ok(())
            })
            .await?;
        match property {
            "mountpoint" => Ok(outcome.and(mount(session, &self.names).await?)),
            _ => Ok(outcome),
        }
    }
}

fn not_inherited(property: &str) -> String {
    let how = match cenote_tasks::SIZES.contains(&property) {
        true => format!("\nuse 'zfs set {property}=none' to clear"),
        false => String::new(),
    };
    format!("'{property}' property cannot be inherited{how}")
}
