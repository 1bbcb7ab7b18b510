//! `zfs change-key`, `load-key`, `unload-key`: keys of encrypted datasets.
//!
//! Keys stay loaded in the daemon, until they are unloaded or the pool is exported. Without a daemon no key
//! outlives a command, so loading one can only mean checking it.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_change_key`, `load_key_callback`), `libzfs_crypto.c`.

use cenote_dataset::KeySource;
use clap::Args;

use super::refusal::cannot;
use super::{pool_of, settings};
use crate::command::not_yet;
use crate::outcome::{CliError, Outcome, Say};
use crate::session::{KeyDomain, Session, key_domains, print};

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
    /// Load the current key first, as the daemon needs it; without a daemon it is always asked for
    #[arg(short = 'l')]
    pub load: bool,
    /// keyformat, keylocation, pbkdf2iters or a property of one's own; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// An encryption root, or a dataset that becomes one
    pub name: String,
}

/// `zfs load-key`
#[derive(Debug, Args)]
#[command(
    after_help = "Keys come from --key, from keylocation, from the terminal or a pipe. They stay loaded in \
        the daemon (`cenote serve`); without one, only -n is possible.\n\n\
        Example: cenote zfs load-key tank/a; cenote zfs load-key -n --key tank/a=pass:TEXT tank/a"
)]
pub struct LoadKey {
    /// Only check the key
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

/// `zfs unload-key`
#[derive(Debug, Args)]
#[command(after_help = "Its file systems have to be unmounted first.\n\n\
    Example: cenote zfs unload-key -r tank")]
pub struct UnloadKey {
    /// Include the encryption roots below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// All encryption roots of all pools
    #[arg(short = 'a', conflicts_with = "name")]
    pub all: bool,
    /// An encryption root
    #[arg(required_unless_present = "all")]
    pub name: Option<String>,
}

impl ChangeKey {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let what = format!("change key of '{}'", self.name);
        let refused = |why: String| CliError::Refused(format!("cannot {what}: {why}"));
        let (own, settings): (Vec<_>, Vec<_>) = settings::parse(&self.options, None)
            .map_err(refused)?
            .into_iter()
            .partition(|(name, _)| name.contains(':'));
        if let Some((name, _)) = settings.iter().find(|(name, _)| !OF_KEYS.contains(&name.as_str())) {
            return Err(refused(format!("'{name}' is not a key property")));
        }
        if let Some(pool) = session.held_by_name(pool_of(&self.name)).filter(|_| self.load) {
            let info = pool.engine.mos().await?.dataset(&self.name).await?.dir().encryption().await?;
            session.load_keys(&pool, info.as_ref().map(|info| info.root.as_str())).await?;
        }
        session
            .change_pool(pool_of(&self.name), async |engine| {
                let changed = match self.inherit {
                    true => cenote_tasks::inherit_key(engine, &self.name).await,
                    false => cenote_tasks::change_key(engine, &self.name, settings).await,
                };
                changed.map_err(cannot(&what))?;
                for (name, value) in own {
                    let set = cenote_tasks::set_property(engine, &self.name, &name, value).await;
                    set.map_err(cannot(&what))?;
                }
                Ok(())
            })
            .await
    }
}

impl LoadKey {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if !self.try_only && session.pools().is_none() {
            let instead = "No daemon runs, and without one no key stays loaded after a command ends: start \
                `cenote serve`, give the key to each command with --key, or set keylocation=file:///PATH; \
                `zfs load-key -n` checks it";
            return Err(CliError::Refused(format!("cannot load keys: {instead}.")));
        }
        let source = self.source(session)?;
        let work = if self.try_only { "correct" } else { "successfully loaded" };
        each(session, self.name.as_deref(), self.recursive, "load", work, async |found, domain| {
            let held = session.held(found);
            match held.filter(|_| !self.try_only) {
                Some(pool) => domain.load(&pool.engine, &source).await,
                None => {
                    domain.check(&session.open_without_asking(found).await?, &source).await?;
                    print(format!("{}: key is correct\n", domain.info.root))
                }
            }
        })
        .await
    }

    fn source(&self, session: &Session) -> Result<KeySource, CliError> {
        match self.location.as_deref() {
            None => Ok(session.keys_to_load(None)),
            Some(place) if place == "prompt" || place.starts_with("file:///") => {
                Ok(session.keys_to_load(Some(place)))
            }
            Some(place) if place.starts_with("http://") || place.starts_with("https://") => {
                let instead = "Download the key to a file and use -L file:///PATH";
                Err(not_yet::option(&format!("zfs load-key -L {place}"), instead))
            }
            Some(place) => Err(CliError::Usage(format!("-L {place}: use prompt or file:///PATH"))),
        }
    }
}

impl UnloadKey {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let why = "cannot unload keys: no daemon runs, and without one no key stays loaded";
        if session.pools().is_none() {
            return Err(CliError::Refused(why.into()));
        }
        let work = "successfully unloaded";
        each(session, self.name.as_deref(), self.recursive, "unload", work, async |found, domain| {
            let pool = session.held(found).ok_or_else(|| CliError::Refused(why.into()))?;
            domain.unload(&pool.engine, &pool.mounts).await
        })
        .await
    }
}

/// Does something with the key of one encryption root, of those below it too, or of all. Of several, each is
/// tried, and at the end it is said with how many it worked.
async fn each(
    session: &Session,
    name: Option<&str>,
    recursive: bool,
    verb: &str,
    done: &str,
    work: impl AsyncFn(&cenote_pool::FoundPool, &KeyDomain) -> Result<(), CliError>,
) -> Result<Outcome, CliError> {
    let found = match name {
        Some(name) => vec![session.find_pool(pool_of(name)).await?],
        None => session.find_pools(&[]).await?,
    };
    let (mut tried, mut right, mut outcome) = (0, 0, Outcome::Done);
    for found in &found {
        let mos = match session.open_without_asking(found).await {
            Ok(mos) => mos,
            Err(error) if name.is_none() => {
                outcome = outcome.and(error.tell(found.name()));
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut domains = key_domains(&mos, name).await?;
        if let Some(name) = name.filter(|_| !recursive) {
            let info = mos.dataset(name).await?.dir().encryption().await?;
            let why = match info {
                None => format!("'{name}' is not encrypted."),
                Some(info) if info.root != name => {
                    format!("Keys must be {verb}ed for encryption root of '{name}' ({}).", info.root)
                }
                Some(_) => {
                    domains.retain(|domain| domain.info.root == name);
                    return match domains.first() {
                        Some(domain) => work(found, domain).await.map(|()| Outcome::Done),
                        None => Ok(Outcome::Failed),
                    };
                }
            };
            return Err(CliError::Refused(format!("Key {verb} error: {why}")));
        }
        for domain in &domains {
            tried += 1;
            match work(found, domain).await {
                Ok(()) => right += 1,
                Err(error) => outcome = outcome.and(error.tell(&domain.info.root)),
            }
        }
    }
    let keys = if done == "correct" { "keys are" } else { "key(s)" };
    if tried > 0 {
        print(format!("{right} / {tried} {keys} {done}\n"))?;
    }
    Ok(outcome)
}
