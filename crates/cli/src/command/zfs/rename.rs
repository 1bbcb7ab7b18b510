//! `zfs rename`.

use cenote_dataset::Mos;
use cenote_object::DatasetError;
use clap::Args;

use super::create::create_ancestors;
use super::pool_of;
use super::refusal::cannot;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, dataset};

/// `zfs rename`
#[derive(Debug, Args)]
#[command(
    after_help = "A dataset is renamed with everything below it. A snapshot stays in its dataset; its new \
        name may be given as the part after the '@' alone.\n\n\
        Example: cenote zfs rename -r tank/home@monday @week-12"
)]
pub struct Rename {
    /// Create missing parents too
    #[arg(short = 'p', conflicts_with_all = ["recursive", "no_remount"])]
    pub parents: bool,
    /// Include the snapshots of that name of everything below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// What is mounted stays mounted where it is
    #[arg(short = 'u')]
    pub no_remount: bool,
    /// Accepted for compatibility: as with OpenZFS on Linux, what is in use stays mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// The dataset or snapshot
    pub from: String,
    /// Its new name
    pub to: String,
}

impl Rename {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.recursive && !self.from.contains('@') {
            return Err(CliError::Usage("source dataset for recursive rename must be a snapshot".into()));
        }
        let to = self.full_name();
        let what = format!("rename '{}'", self.from);
        if pool_of(&self.from) != pool_of(&to) {
            return Err(CliError::Refused(format!("cannot {what}: datasets must be within same pool")));
        }
        session
            .change_pool(pool_of(&to), async |engine| {
                let mos = engine.mos().await?;
                dataset(&mos, &self.from).await?;
                if self.from == to {
                    return Ok(());
                }
                let uppermost = match self.parents {
                    true => create_ancestors(session, engine, &to).await?,
                    false => None,
                };
                if let (Some(made), Some(pool)) = (uppermost, session.held_by_name(pool_of(&to))) {
                    // Mounted later, they would hide what is mounted below them.
                    session.mount_below(&pool, Some(&made)).await?;
                }
                let renamed = match self.recursive {
                    true => cenote_tasks::rename_snapshots(engine, self.renames(&mos).await?).await,
                    false if self.from.contains('@') => cenote_tasks::rename(engine, &self.from, &to).await,
                    false if self.no_remount => {
                        let renamed = cenote_tasks::rename(engine, &self.from, &to).await;
                        if let Some(pool) = session.held_by_name(pool_of(&to)).filter(|_| renamed.is_ok()) {
                            let kept = pool.mounts.keep_renamed(&to).await;
                            kept.map_err(|error| CliError::Refused(error.to_string()))?;
                        }
                        renamed
                    }
                    false => {
                        let rename = async || Ok(cenote_tasks::rename(engine, &self.from, &to).await);
                        session.with_unmounted(&self.from, rename).await?
                    }
                };
                renamed.map_err(|error| match error {
                    // This concerns the new name, not the old one.
                    DatasetError::Unsuitable { .. } | DatasetError::OverLimit { .. } => {
                        cannot(format!("rename to '{to}'"))(error)
                    }
                    error => cannot(what)(error),
                })
            })
            .await
    }

    /// The new name, of which the dataset may be left out if it is a snapshot's.
    fn full_name(&self) -> String {
        match (self.from.split_once('@'), self.to.strip_prefix('@')) {
            (Some((path, _)), Some(own)) => format!("{path}@{own}"),
            (Some((path, _)), None) if !self.to.contains('@') => format!("{path}@{}", self.to),
            _ => self.to.clone(),
        }
    }

    /// All old and new names.
    pub(super) async fn renames(&self, mos: &Mos) -> Result<Vec<(String, String)>, CliError> {
        match self.recursive {
            true => renames_below(mos, &self.from, &self.full_name()).await,
            false => Ok(vec![(self.from.clone(), self.full_name())]),
        }
    }
}

/// Old and new names of the snapshots with the same name as `from`, in its dataset and those below.
async fn renames_below(mos: &Mos, from: &str, to: &str) -> Result<Vec<(String, String)>, CliError> {
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
