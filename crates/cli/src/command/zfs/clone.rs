//! `zfs clone`: a snapshot as a file system or volume of its own; with -r, a whole tree of them.

use cenote_dataset::{Dataset, DatasetKind, Mos};
use cenote_object::DatasetError;
use cenote_tasks::Settings;
use clap::Args;

use super::create::create_ancestors;
use super::refusal::cannot;
use super::set::{check_has_owners, limit_owner};
use super::{pool_of, settings, volume_size};
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, dataset};

/// `zfs clone`
#[derive(Debug, Args)]
#[command(
    after_help = "With -r, every dataset below that has a snapshot of that name is cloned to the same \
        relative path below the new one, all in one transaction group; `zfs destroy -r` removes them again. \
        A dataset without that snapshot is skipped, with all below it.\n\n\
        Example: cenote zfs clone -r tank/home@monday tank/look"
)]
pub struct Clone {
    /// Create missing parents too; an existing dataset is no error
    #[arg(short = 'p')]
    pub parents: bool,
    /// Include the snapshots of the same name of everything below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Accepted for compatibility: nothing is ever mounted
    #[arg(short = 'u')]
    pub no_mount: bool,
    /// A property to set; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// DATASET@SNAPSHOT
    pub snapshot: String,
    /// The new dataset
    pub name: String,
}

impl Clone {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let what = format!("create '{}'", self.name);
        if pool_of(&self.snapshot) != pool_of(&self.name) {
            return Err(CliError::Refused(format!("cannot {what}: source and target pools differ")));
        }
        session
            .change_pool(pool_of(&self.name), async |engine| {
                let mos = engine.mos().await?;
                let mut settings = self.settings(&mos).await?;
                let quotas = settings::take_quotas(&mut settings);
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
                    for quota in &quotas {
                        let what = format!("set property for '{name}'");
                        limit_owner(engine, name, *quota).await.map_err(cannot(&what))?;
                    }
                }
                Ok(())
            })
            .await
    }

    async fn settings(&self, mos: &Mos) -> Result<Settings, CliError> {
        let origin = dataset(mos, &self.snapshot).await?;
        // Snapshots have no `volblocksize`.
        let head = dataset(mos, self.snapshot.split('@').next().unwrap_or_default()).await?;
        let number = async |of: &Dataset, name| -> Result<Option<u64>, CliError> {
            Ok(of.property(name).await?.and_then(|property| property.number()))
        };
        let promise = match (number(&origin, "volsize").await?, number(&head, "volblocksize").await?) {
            (Some(size), Some(block)) => Some(volume_size::reservation(mos, size, block, 1)),
            _ => None,
        };
        settings::parse(&self.options, promise)
            .map_err(|why| CliError::Refused(format!("cannot create '{}': {why}", self.name)))
    }

    /// Snapshots and the names of their clones, parents first.
    pub(super) async fn clones(&self, mos: &Mos) -> Result<Vec<(String, String)>, CliError> {
        let Some((path, own)) = self.snapshot.split_once('@') else {
            return Err(CliError::Usage(format!(
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
