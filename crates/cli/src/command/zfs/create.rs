//! `zfs create`: file systems and volumes.

use std::collections::HashMap;
use std::fmt::Write as _;

use cenote_dataset::{DatasetKind, Mos, Value};
use cenote_engine::Engine;
use cenote_object::DatasetError;
use cenote_tasks::{Fill, Settings, check_settings};
use clap::Args;
use serde_json::json;

use super::refusal::cannot;
use super::volume_size::{self, DEFAULT_BLOCK_BYTES};
use super::{fill, pool_of, settings};
use crate::command::json::version;
use crate::message::say_bare;
use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, print, print_json};

/// `zfs create`
#[derive(Debug, Args)]
// -V is a volume.
#[command(disable_version_flag = true)]
#[command(after_help = "A volume reserves its whole size unless -s is given. In the daemon, file systems \
    are mounted.\n\n\
    Example: cenote zfs create -p -o compression=zstd tank/home/ada; cenote zfs create -s -V 10G tank/disk")]
pub struct Create {
    /// Create missing parents too; an existing dataset is no error
    #[arg(short = 'p')]
    pub parents: bool,
    /// A property to set; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Create a volume of this size
    #[arg(short = 'V', value_name = "SIZE")]
    pub volume: Option<String>,
    /// Create a sparse volume, without a reservation
    #[arg(short = 's', requires = "volume")]
    pub sparse: bool,
    /// Block size of the volume, like volblocksize
    #[arg(short = 'b', value_name = "SIZE", requires = "volume")]
    pub block: Option<String>,
    /// Accepted for compatibility: nothing is ever mounted
    #[arg(short = 'u', conflicts_with = "volume")]
    pub no_mount: bool,
    /// Say what would be created and create nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Say what is created
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Say it in a form for scripts
    #[arg(short = 'P')]
    pub parsable: bool,
    /// The new dataset
    pub name: String,
}

/// The dataset to create.
struct Plan {
    kind: DatasetKind,
    settings: Settings,
    fill: Fill,
}

impl Create {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let pool = pool_of(&self.name);
        if self.dry_run {
            let mos = session.open_pool_without_asking(pool).await?;
            let plan = self.plan(session, &mos).await?;
            check_settings(&self.name, plan.kind, &plan.settings).map_err(cannot(self.what()))?;
            self.print_report(session, &plan.settings)?;
            return Ok(Outcome::Done);
        }
        session
            .change_pool(pool, async |engine| {
                let mos = engine.mos().await?;
                if self.parents && mos.dataset(&self.name).await.is_ok() {
                    return Ok(Outcome::Done);
                }
                let Plan { kind, settings, fill } = self.plan(session, &mos).await?;
                check_settings(&self.name, kind, &settings).map_err(cannot(self.what()))?;
                if self.parents {
                    create_ancestors(session, engine, &self.name).await?;
                }
                let typed = settings.clone();
                let made = match kind {
                    DatasetKind::Volume => {
                        cenote_tasks::create_volume(engine, &self.name, settings, fill).await
                    }
                    _ => cenote_tasks::create_filesystem(engine, &self.name, settings, fill).await,
                };
                made.map_err(cannot(self.what()))?;
                Ok(Outcome::Done.printed(self.print_report(session, &typed)))
            })
            .await
    }

    /// The properties that are set.
    pub(super) fn settings(&self) -> Vec<String> {
        let reserves = self.volume.is_some() && !self.sparse;
        let promise = reserves.then(|| "refreservation=auto".to_owned());
        self.options.iter().cloned().chain(promise).collect()
    }

    fn what(&self) -> String {
        format!("create '{}'", self.name)
    }

    fn refused(&self, why: impl std::fmt::Display) -> CliError {
        CliError::Refused(format!("cannot {}: {why}", self.what()))
    }

    async fn plan(&self, session: &Session, mos: &Mos) -> Result<Plan, CliError> {
        match &self.volume {
            Some(size) => self.plan_volume(mos, size),
            None => {
                let mut settings = settings::parse(&self.options, None).map_err(|why| self.refused(why))?;
                let parent = fill::as_parent(&nearest_above(mos, &self.name).await?).await?;
                let new = settings::filesystem(&mut settings, parent).map_err(|why| self.refused(why))?;
                let quotas = settings::take_quotas(&mut settings);
                let fill = fill::filesystem(session, new, fill::has_projects(mos).await?, quotas);
                Ok(Plan { kind: DatasetKind::Filesystem, settings, fill })
            }
        }
    }

    /// Plans a volume; its size is rounded up to whole blocks.
    fn plan_volume(&self, mos: &Mos, size: &str) -> Result<Plan, CliError> {
        let refused = |why: String| self.refused(why);
        let wanted = settings::size(size).map_err(refused)?;
        // The meaning of `auto` depends on block size and copies, which are parsed first.
        let typed = settings::parse(&self.options, Some(0)).map_err(refused)?;
        let number = |name| settings::number_of(&typed, name);
        let block_bytes = match &self.block {
            Some(typed) => settings::size(typed).map_err(refused)?,
            None => number("volblocksize").unwrap_or_else(|| volume_size::default_block_bytes(mos)),
        };
        if block_bytes < DEFAULT_BLOCK_BYTES {
            let best = volume_size::default_block_bytes(mos);
            say_bare(format_args!(
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
            given => given.unwrap_or_else(|| wanted.next_multiple_of(block_bytes)),
        };
        let promise = volume_size::reservation(mos, size_bytes, block_bytes, number("copies").unwrap_or(1));
        let mut settings = settings::parse(&self.options, Some(promise)).map_err(refused)?;
        let mut add = |name: &str, number| {
            if !settings.iter().any(|(other, _)| other == name) {
                settings.push((name.into(), Value::Number(number)));
            }
        };
        add("volsize", size_bytes);
        add("volblocksize", block_bytes);
        if !self.sparse {
            add("refreservation", promise);
        }
        let fill = fill::volume(size_bytes, block_bytes as u32);
        Ok(Plan { kind: DatasetKind::Volume, settings, fill })
    }

    /// Prints what is created, if that was asked for.
    fn print_report(&self, session: &Session, settings: &Settings) -> Result<(), CliError> {
        let properties = settings.iter().filter(|(property, value)| {
            // Blocks of the default size are not worth mentioning.
            property != "volblocksize" || *value != Value::Number(DEFAULT_BLOCK_BYTES)
        });
        let properties = properties.map(|(property, value)| {
            let value = match value {
                Value::Number(number) => number.to_string(),
                Value::Text(text) => text.clone(),
            };
            (property.as_str(), self.typed(property).map_or(value, str::to_owned))
        });
        match () {
            () if !self.verbose && !self.parsable => Ok(()),
            () if session.json() => print_json(&json!({
                "output_version": version("zfs create"),
                "dry_run": self.dry_run,
                "create_ancestors": self.parents,
                "create": self.name,
                "properties": properties.collect::<HashMap<_, _>>(),
            })),
            () => print(self.report(properties)),
        }
    }

    fn report<'s>(&self, properties: impl Iterator<Item = (&'s str, String)>) -> String {
        let mut out = String::new();
        let (verb, name) = (if self.dry_run { "would create" } else { "create" }, &self.name);
        let _ = match (self.parsable, self.parents) {
            (true, true) => write!(out, "create_ancestors\t{name}\ncreate\t{name}\n"),
            (true, false) => writeln!(out, "create\t{name}"),
            (false, true) => write!(out, "{verb} ancestors of {name}\n{verb} {name}\n"),
            (false, false) => writeln!(out, "{verb} {name}"),
        };
        for (property, value) in properties {
            let _ = match self.parsable {
                true => writeln!(out, "property\t{property}\t{value}"),
                false => writeln!(out, "\t{property}={value}"),
            };
        }
        out
    }

    /// The value typed for a property.
    fn typed(&self, property: &str) -> Option<&str> {
        let mut pairs = self.options.iter().filter_map(|option| option.split_once('='));
        pairs.find(|(name, _)| *name == property).map(|(_, value)| value)
    }
}

/// Creates the missing file systems above a dataset; answers the uppermost of them.
pub async fn create_ancestors(
    session: &Session,
    engine: &Engine,
    name: &str,
) -> Result<Option<String>, CliError> {
    let mut uppermost = None;
    let above = name.match_indices('/').map(|(at, _)| &name[..at]);
    for ancestor in above {
        let mos = engine.mos().await?;
        match mos.dataset(ancestor).await {
            Err(DatasetError::NoDataset { .. }) => {}
            found => {
                found?;
                continue;
            }
        }
        let new = fill::as_parent(&nearest_above(&mos, ancestor).await?).await?;
        let fill = fill::filesystem(session, new, fill::has_projects(&mos).await?, Vec::new());
        let made = cenote_tasks::create_filesystem(engine, ancestor, Settings::new(), fill).await;
        made.map_err(cannot(format!("create '{ancestor}'")))?;
        uppermost.get_or_insert_with(|| ancestor.to_owned());
    }
    Ok(uppermost)
}

/// The nearest existing ancestor of a new dataset.
pub(super) async fn nearest_above(mos: &Mos, name: &str) -> Result<cenote_dataset::Dataset, CliError> {
    let mut at = name;
    while let Some((above, _)) = at.rsplit_once('/') {
        at = above;
        if let Ok(found) = mos.dataset(above).await {
            return Ok(found);
        }
    }
    Ok(mos.root_dataset().await?)
}
