//! `zfs change-key`, `load-key`: keys of encrypted datasets.
//!
//! Nothing stays loaded when a command ends, so to load a key can only mean to try it.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_change_key`, `load_key_callback`).

use cenote_dataset::Dataset;
use clap::Args;

use super::refusal::cannot;
use super::{pool_of, settings};
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// What `change-key -o` may set.
const OF_KEYS: [&str; 3] = ["keyformat", "keylocation", "pbkdf2iters"];

/// `zfs change-key`
#[derive(Debug, Args)]
#[command(
    after_help = "The new key is asked for, comes through a pipe, or is the second that --key gives for the dataset.\n\n\
    Example: cenote zfs change-key --key tank/a=pass:OLD --key tank/a=pass:NEW tank/a"
)]
pub struct ChangeKey {
    /// Take the key of the dataset above: the dataset is no encryption root any more
    #[arg(short = 'i', conflicts_with = "options")]
    pub inherit: bool,
    /// Accepted for habit: the present key is always asked for
    #[arg(short = 'l')]
    pub load: bool,
    /// keyformat, keylocation or pbkdf2iters; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// An encryption root, or a dataset that is to be one
    pub name: String,
}

/// `zfs load-key`
#[derive(Debug, Args)]
#[command(
    after_help = "Keys are given to each command by --key, keylocation=file:// or at the terminal; none stays loaded when it ends.\n\n\
    Example: cenote zfs load-key -n --key tank/a=pass:TEXT tank/a"
)]
pub struct LoadKey {
    /// Try the key: the only thing that can be done with it
    #[arg(short = 'n', required = true)]
    pub try_only: bool,
    /// The encryption roots below, too
    #[arg(short = 'r')]
    pub recursive: bool,
    /// An encryption root
    pub name: String,
}

impl ChangeKey {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let what = format!("change key of '{}'", self.name);
        let refused = |why: String| CliError::Refused(format!("cannot {what}: {why}"));
        let settings = settings::parse(&self.options, None).map_err(refused)?;
        if let Some((name, _)) = settings.iter().find(|(name, _)| !OF_KEYS.contains(&name.as_str())) {
            return Err(refused(format!("'{name}' is no property of keys")));
        }
        session
            .change_pool(pool_of(&self.name), async |engine| {
                let changed = match self.inherit {
                    true => engine.inherit_key(&self.name).await,
                    false => engine.change_key(&self.name, settings).await,
                };
                changed.map_err(cannot(&what))
            })
            .await
    }
}

impl LoadKey {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let mos = session.open_pool(pool_of(&self.name)).await?;
        let top = mos.dataset(&self.name).await?;
        let all = if self.recursive { top.descendants().await? } else { vec![top] };
        let mut report = String::new();
        for dataset in all {
            if let Some(root) = root_of(&dataset).await? {
                dataset.key().await?;
                report += &format!("{root}: key is right\n");
            } else if !self.recursive {
                let why = "keys must be loaded for encryption roots, and this is none";
                return Err(CliError::Refused(format!("cannot load key of '{}': {why}", self.name)));
            }
        }
        print(report)?;
        Ok(Outcome::Done)
    }
}

/// The name of an encryption root; `None` of a dataset that is none.
async fn root_of(dataset: &Dataset) -> Result<Option<String>, CliError> {
    let info = dataset.dir().encryption().await?;
    Ok(info.map(|info| info.root).filter(|root| root == dataset.name()))
}
