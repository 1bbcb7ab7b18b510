//! `zfs create`: file systems and volumes.

use std::fmt::Write as _;

use cenote_dataset::dsl::{Settings, check_settings};
use cenote_dataset::engine::{Engine, FillRoot};
use cenote_dataset::{DatasetError, DatasetKind, Mos, Value};
use clap::Args;

use super::refusal::cannot;
use super::volume_size::DEFAULT_BLOCK_BYTES;
use super::{fill, pool_of, settings, volume_size};
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// `zfs create`
#[derive(Debug, Args)]
// -V is a volume.
#[command(disable_version_flag = true)]
#[command(after_help = "A volume is promised its whole size unless -s is given. Nothing is mounted.\n\n\
    Example: cenote zfs create -p -o compression=zstd tank/home/ada; cenote zfs create -s -V 10G tank/disk")]
pub struct Create {
    /// Missing parents too; no error if it is there already
    #[arg(short = 'p')]
    pub parents: bool,
    /// Property; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// A volume of this size
    #[arg(short = 'V', value_name = "SIZE")]
    pub volume: Option<String>,
    /// A volume that is promised no space (sparse)
    #[arg(short = 's', requires = "volume")]
    pub sparse: bool,
    /// Blocks of the volume, as volblocksize
    #[arg(short = 'b', value_name = "SIZE", requires = "volume")]
    pub block: Option<String>,
    /// Accepted for habit: nothing is ever mounted
    #[arg(short = 'u', conflicts_with = "volume")]
    pub no_mount: bool,
    /// Say what would be made and make nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Say what is made
    #[arg(short = 'v')]
    pub verbose: bool,
    /// The same for programs
    #[arg(short = 'P')]
    pub parsable: bool,
    /// The new dataset
    pub name: String,
}

/// What is to be made.
struct Plan {
    kind: DatasetKind,
    settings: Settings,
    fill: FillRoot,
}

impl Create {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let pool = pool_of(&self.name);
        if self.dry_run {
            let mos = session.open_pool_without_asking(pool).await?;
            let plan = self.plan(session, &mos).await?;
            check_settings(&self.name, plan.kind, &plan.settings).map_err(cannot(self.what()))?;
            print(self.report(&plan.settings))?;
            return Ok(Outcome::Done);
        }
        session
            .change_pool(pool, async |engine| {
                let mos = engine.mos().await?;
                if self.parents && mos.dataset(&self.name).await.is_ok() {
                    return Ok(());
                }
                let Plan { kind, settings, fill } = self.plan(session, &mos).await?;
                check_settings(&self.name, kind, &settings).map_err(cannot(self.what()))?;
                if self.parents {
                    create_ancestors(session, engine, &self.name).await?;
                }
                let report = self.report(&settings);
                let made = match kind {
                    DatasetKind::Volume => engine.create_volume(&self.name, settings, fill).await,
                    _ => engine.create_filesystem(&self.name, settings, fill).await,
                };
                made.map_err(cannot(self.what()))?;
                print(report)
            })
            .await
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
                let fill = fill::filesystem(session, new, fill::has_projects(mos).await?);
                Ok(Plan { kind: DatasetKind::Filesystem, settings, fill })
            }
        }
    }

    /// The size is rounded up to whole blocks.
    fn plan_volume(&self, mos: &Mos, size: &str) -> Result<Plan, CliError> {
        let refused = |why: String| self.refused(why);
        let wanted = settings::size(size).map_err(refused)?;
        // What `auto` means is known only when blocks and copies are.
        let typed = settings::parse(&self.options, Some(0)).map_err(refused)?;
        let number = |name| settings::number_of(&typed, name);
        let block_bytes = match &self.block {
            Some(typed) => settings::size(typed).map_err(refused)?,
            None => number("volblocksize").unwrap_or_else(|| volume_size::default_block_bytes(mos)),
        };
        if block_bytes < DEFAULT_BLOCK_BYTES {
            let best = volume_size::default_block_bytes(mos);
            eprintln!(
                "Warning: volblocksize ({block_bytes}) is less than the default minimum block size ({DEFAULT_BLOCK_BYTES}).\n\
                 To reduce wasted space a volblocksize of {best} is recommended."
            );
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

    fn report(&self, settings: &Settings) -> String {
        let mut out = String::new();
        if !self.verbose && !self.parsable {
            return out;
        }
        let (verb, name) = (if self.dry_run { "would create" } else { "create" }, &self.name);
        let _ = match (self.parsable, self.parents) {
            (true, true) => write!(out, "create_ancestors\t{name}\ncreate\t{name}\n"),
            (true, false) => writeln!(out, "create\t{name}"),
            (false, true) => write!(out, "{verb} ancestors of {name}\n{verb} {name}\n"),
            (false, false) => writeln!(out, "{verb} {name}"),
        };
        for (property, value) in settings {
            // Blocks of the usual size are not worth a word.
            if property == "volblocksize" && *value == Value::Number(DEFAULT_BLOCK_BYTES) {
                continue;
            }
            let value = match value {
                Value::Number(number) => number.to_string(),
                Value::Text(text) => text.clone(),
            };
            let value = self.typed(property).unwrap_or(&value);
            let _ = match self.parsable {
                true => writeln!(out, "property\t{property}\t{value}"),
                false => writeln!(out, "\t{property}={value}"),
            };
        }
        out
    }

    /// What was typed for a property.
    fn typed(&self, property: &str) -> Option<&str> {
        let mut pairs = self.options.iter().filter_map(|option| option.split_once('='));
        pairs.find(|(name, _)| *name == property).map(|(_, value)| value)
    }
}

/// Makes the file systems above a dataset that are missing.
pub async fn create_ancestors(session: &Session, engine: &Engine, name: &str) -> Result<(), CliError> {
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
        let fill = fill::filesystem(session, new, fill::has_projects(&mos).await?);
        let made = engine.create_filesystem(ancestor, Settings::new(), fill).await;
        made.map_err(cannot(format!("create '{ancestor}'")))?;
    }
    Ok(())
}

/// The dataset that a new one comes to lie below, or would if what is missing between were made.
async fn nearest_above(mos: &Mos, name: &str) -> Result<cenote_dataset::Dataset, CliError> {
    let mut at = name;
    while let Some((above, _)) = at.rsplit_once('/') {
        at = above;
        if let Ok(found) = mos.dataset(above).await {
            return Ok(found);
        }
    }
    Ok(mos.root_dataset().await?)
}
