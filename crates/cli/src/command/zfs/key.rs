//! Command lines of `zfs change-key`, `load-key`, `unload-key`.

use std::path::Path;

use cenote_control::session::read_key;
use cenote_control::zfs::keys::load_key::Place;
use cenote_control::zfs::keys::{Keys, change_key, load_key, unload_key};
use cenote_control::zfs::properties::settings::Setting;
use clap::Args;

use crate::command::not_yet;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// `zfs change-key`
#[derive(Debug, Args)]
#[command(
    after_help = "The new key comes from the terminal, a pipe, or the second --key for the dataset.\n\n\
    Example: cenote zfs change-key --key tank/a=pass:old-secret --key tank/a=pass:new-secret tank/a"
)]
pub struct ChangeKey {
    /// Inherit the parent's key; the dataset is then no longer an encryption root
    #[arg(short = 'i', conflicts_with = "options")]
    pub inherit: bool,
    /// Load the current key into the daemon first; without a daemon, that key is always requested
    #[arg(short = 'l')]
    pub load: bool,
    /// keyformat, keylocation, pbkdf2iters or a user property; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// An encryption root, or a dataset that becomes one
    pub name: String,
}

/// `zfs load-key`
#[derive(Debug, Args)]
#[command(
    // OpenZFS's text: programs look for these words.
    override_usage = "cenote zfs load-key [-rn] [-L <keylocation>] <-a | filesystem|volume>",
    after_help = "Keys come from --key, the property keylocation, the terminal or a pipe. They stay loaded \
        in the daemon (`cenote serve`); without a daemon, only -n is possible.\n\n\
        Examples:\n  \
        cenote zfs load-key tank/a\n  \
        cenote zfs load-key -n --key tank/a=pass:old-secret tank/a"
)]
pub struct LoadKey {
    /// Only check the key
    #[arg(short = 'n')]
    pub try_only: bool,
    /// Include the encryption roots below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Location of the key, instead of the property `keylocation`: prompt or file:///PATH
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
#[command(after_help = "Unmount its file systems first.\n\n\
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
        let ChangeKey { inherit, load, options, name } = self;
        let refused = |why| CliError::Refused(format!("cannot change key of '{name}': {why}"));
        let settings = Setting::parse_all(&options).map_err(refused)?;
        let request = change_key::ChangeKey { name, inherit, load, settings };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl LoadKey {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if (self.recursive || self.all) && self.location.as_deref().is_some_and(|place| place != "prompt") {
            return Err(CliError::Usage("alternate keylocation may only be 'prompt' with -r or -a".into()));
        }
        let request = load_key::LoadKey {
            place: self.place(session)?,
            name: self.name,
            recursive: self.recursive,
            check_only: self.try_only,
        };
        let answered = session.control().run(request).await?;
        if self.try_only {
            let correct = answered.answer.done.iter().map(|root| format!("{root}: key is correct\n"));
            print(correct.collect::<String>())?;
        }
        count(
            &answered.answer,
            if self.try_only { "keys are correct" } else { "key(s) successfully loaded" },
        )?;
        Ok(answered.outcome)
    }

    /// The client reads the file: a daemon opens no file named by its clients.
    fn place(&self, session: &Session) -> Result<Place, CliError> {
        match self.location.as_deref() {
            None => Ok(Place::Stored),
            Some("prompt") => Ok(Place::Prompt),
            Some(place) if place.starts_with("file:///") => {
                let path = &place["file://".len()..];
                let of = self.name.as_deref().map_or_else(|| "keys".into(), |name| format!("key of {name}"));
                let key = read_key(Path::new(path), session.caller());
                let key = key.inspect_err(|error| session.caller().note(format!("{of}: {path}: {error}")));
                Ok(Place::Read(key.ok().map(|key| key.0)))
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
        let request = unload_key::UnloadKey { name: self.name, recursive: self.recursive };
        let answered = session.control().run(request).await?;
        count(&answered.answer, "key(s) successfully unloaded")?;
        Ok(answered.outcome)
    }
}

/// Prints how many of several keys succeeded.
fn count(keys: &Keys, work: &str) -> Result<(), CliError> {
    match keys.tried.filter(|&tried| tried > 0) {
        Some(tried) => print(format!("{} / {tried} {work}\n", keys.done.len())),
        None => Ok(()),
    }
}
