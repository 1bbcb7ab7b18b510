//! `zfs rename`.

use cenote_dataset::{DatasetError, Mos};
use clap::Args;

use super::create::create_ancestors;
use super::pool_of;
use super::refusal::cannot;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, dataset};

/// `zfs rename`
#[derive(Debug, Args)]
#[command(
    after_help = "A dataset takes all that is below along. A snapshot stays with its dataset; of its new name the part after the '@' will do.\n\n\
    Example: cenote zfs rename -r tank/home@monday @week-12"
)]
pub struct Rename {
    /// Missing parents too
    #[arg(short = 'p', conflicts_with_all = ["recursive", "no_remount"])]
    pub parents: bool,
    /// The snapshots of that name of everything below, too
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Accepted for habit: nothing is ever mounted
    #[arg(short = 'u')]
    pub no_remount: bool,
    /// Accepted for habit: nothing is ever mounted
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
        let to = match (self.from.split_once('@'), self.to.strip_prefix('@')) {
            (Some((path, _)), Some(own)) => format!("{path}@{own}"),
            (Some((path, _)), None) if !self.to.contains('@') => format!("{path}@{}", self.to),
            _ => self.to.clone(),
        };
        let what = format!("rename '{}'", self.from);
        if pool_of(&self.from) != pool_of(&to) {
            return Err(CliError::Refused(format!("cannot {what}: datasets must be within same pool")));
        }
        session
            .change_pool(pool_of(&to), async |engine| {
                let mos = engine.mos().await?;
                dataset(&mos, &self.from).await?;
                if self.parents {
                    create_ancestors(session, engine, &to).await?;
                }
                let renamed = match self.recursive {
                    true => engine.rename_snapshots(renames_below(&mos, &self.from, &to).await?).await,
                    false => engine.rename(&self.from, &to).await,
                };
                renamed.map_err(|error| match error {
                    // About the new name, not the old one.
                    DatasetError::Unsuitable { .. } => cannot(format!("rename to '{to}'"))(error),
                    error => cannot(what)(error),
                })
            })
            .await
    }
}

/// Old and new names of the snapshots called like `from`, of its dataset and those below.
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
