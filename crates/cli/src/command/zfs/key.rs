//! `zfs change-key`, `load-key`: keys of encrypted datasets.
//!
//! No key stays loaded after a command ends, so loading a key can only mean checking it.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_change_key`, `load_key_callback`).

use cenote_dataset::{Dataset, KeySource};
use clap::Args;

use super::refusal::cannot;
use super::{pool_of, settings};
use crate::command::not_yet;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// Properties that `change-key -o` may set.
const OF_KEYS: [&str; 3] = ["keyformat", "keylocation", "pbkdf2iters"];

/// `zfs change-key`
#[derive(Debug, Args)]
#[command(after_help = "The new key is prompted for, piped in, or the second one that --key gives for the \
    dataset.\n\n\
    Example: cenote zfs change-key --key tank/a=pass:OLD --key tank/a=pass:NEW tank/a")]
pub struct ChangeKey {
    /// Inherit the key of the parent: the dataset is then no longer an encryption root
    #[arg(short = 'i', conflicts_with = "options")]
    pub inherit: bool,
    /// Accepted for compatibility: the current key is always asked for
    #[arg(short = 'l')]
    pub load: bool,
    /// keyformat, keylocation or pbkdf2iters; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// An encryption root, or a dataset that becomes one
    pub name: String,
}

/// `zfs load-key`
#[derive(Debug, Args)]
#[command(
    after_help = "Each command takes keys from --key, keylocation=file:// or the terminal; none stays \
        loaded.\n\n\
        Example: cenote zfs load-key -n --key tank/a=pass:TEXT tank/a"
)]
pub struct LoadKey {
    /// Only check the key; this is all that Cenote can do
    #[arg(short = 'n')]
    pub try_only: bool,
    /// Include the encryption roots below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Location of the key, overriding the property `keylocation`: prompt or file:///PATH
    #[arg(short = 'L', value_name = "KEYLOCATION")]
    pub location: Option<String>,
    /// All encryption roots of all pools
    #[arg(short = 'a', conflicts_with = "name")]
    pub all: bool,
    /// An encryption root
    #[arg(required_unless_present = "all")]
    pub name: Option<String>,
}

/// How many keys were checked, and how many are correct.
#[derive(Default)]
struct Tally {
    tried: usize,
    right: usize,
    outcome: Outcome,
}

impl ChangeKey {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let what = format!("change key of '{}'", self.name);
        let refused = |why: String| CliError::Refused(format!("cannot {what}: {why}"));
        let settings = settings::parse(&self.options, None).map_err(refused)?;
        if let Some((name, _)) = settings.iter().find(|(name, _)| !OF_KEYS.contains(&name.as_str())) {
            return Err(refused(format!("'{name}' is not a key property")));
        }
        session
            .change_pool(pool_of(&self.name), async |engine| {
                let changed = match self.inherit {
                    true => cenote_tasks::inherit_key(engine, &self.name).await,
                    false => cenote_tasks::change_key(engine, &self.name, settings).await,
                };
                changed.map_err(cannot(&what))
            })
            .await
    }
}

impl LoadKey {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if !self.try_only {
            let instead = "No key stays loaded after a command ends. Give it to each command with --key, or \
                set keylocation=file:///PATH; `zfs load-key -n` checks it";
            return Err(not_yet::option("zfs load-key", instead));
        }
        let keys = self.keys(session)?;
        let mut tally = Tally::default();
        match &self.name {
            Some(name) => {
                let found = session.find_pool(pool_of(name)).await?;
                let top = session.open_with(&found, keys).await?.dataset(name).await?;
                if !self.recursive && root_of(&top).await?.is_none() {
                    let why = "it is not an encryption root";
                    return Err(CliError::Refused(format!("cannot load key of '{name}': {why}")));
                }
                if !self.recursive {
                    return try_key(&top).await.map(|()| Outcome::Done);
                }
                tally.try_all(top.descendants().await?).await?;
            }
            None => {
                for found in session.find_pools(&[]).await? {
                    match session.open_with(&found, keys.clone()).await {
                        Ok(mos) => tally.try_all(mos.all_datasets().await?).await?,
                        Err(error) => tally.outcome = tally.outcome.and(error.tell(found.name())),
                    }
                }
            }
        }
        print(format!("{} / {} keys are correct\n", tally.right, tally.tried))?;
        Ok(tally.outcome)
    }

    fn keys(&self, session: &Session) -> Result<KeySource, CliError> {
        match self.location.as_deref() {
            None => Ok(session.keys()),
            Some(place) if place == "prompt" || place.starts_with("file:///") => Ok(session.keys_at(place)),
            Some(place) if place.starts_with("http://") || place.starts_with("https://") => {
                let instead = "Download the key to a file and use -L file:///PATH";
                Err(not_yet::option(&format!("zfs load-key -L {place}"), instead))
            }
            Some(place) => Err(CliError::Usage(format!("-L {place}: use prompt or file:///PATH"))),
        }
    }
}

impl Tally {
    async fn try_all(&mut self, datasets: Vec<Dataset>) -> Result<(), CliError> {
        for dataset in datasets {
            if root_of(&dataset).await?.is_none() {
                continue;
            }
            self.tried += 1;
            match try_key(&dataset).await {
                Ok(()) => self.right += 1,
                Err(error) => self.outcome = self.outcome.and(error.tell(dataset.name())),
            }
        }
        Ok(())
    }
}

async fn try_key(root: &Dataset) -> Result<(), CliError> {
    root.key().await?;
    print(format!("{}: key is correct\n", root.name()))
}

/// The name of a dataset's encryption root, if it is one itself.
async fn root_of(dataset: &Dataset) -> Result<Option<String>, CliError> {
    let info = dataset.dir().encryption().await?;
    Ok(info.map(|info| info.root).filter(|root| root == dataset.name()))
}
