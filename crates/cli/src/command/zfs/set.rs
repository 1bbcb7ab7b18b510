//! Command lines of `zfs set`, `inherit`.

use cenote_control::zfs::properties::settings::Setting;
use cenote_control::zfs::properties::{inherit, set};
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs set`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs set compression=zstd quota=10G tank/home")]
pub struct Set {
    /// Don't mount file systems at their new mount points
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
    /// Include all descendants
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
        let settings = Setting::parse_all(options).map_err(CliError::Usage)?;
        let request = set::Set { settings, names: names.to_vec(), no_mount: self.no_mount };
        Ok(session.control().run(request).await?.outcome)
    }

    /// Properties and names.
    fn parts(&self) -> Result<(&[String], &[String]), CliError> {
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

impl Inherit {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Inherit { recursive, received, property, names } = self;
        let request = inherit::Inherit { property, names, recursive, received };
        Ok(session.control().run(request).await?.outcome)
    }
}
