//! Command line of `zfs upgrade`.

use cenote_control::zfs::properties::upgrade::{Upgrade as Request, Versions};
use cenote_format::features::ZPL_VERSION;
use cenote_shown::zfs::upgrade;
use clap::Args;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::Session;

/// `zfs upgrade`
#[derive(Debug, Args)]
#[command(
    after_help = "Without names, lists file systems of other versions than this program's. An upgrade \
        changes the form of new directory entries and attributes; old ones follow when they change. A file \
        system in use is not upgraded; the daemon mounts it again afterwards.\n\n\
        Examples:\n  \
        cenote zfs upgrade\n  \
        cenote zfs upgrade -r tank/home"
)]
pub struct Upgrade {
    /// All file systems of all pools
    #[arg(short = 'a', conflicts_with_all = ["names", "known"])]
    pub all: bool,
    /// Include everything below
    #[arg(short = 'r', conflicts_with = "known")]
    pub recursive: bool,
    /// List the versions
    #[arg(short = 'v', conflicts_with = "names")]
    pub known: bool,
    /// Version to raise to [default: the newest]
    #[arg(short = 'V', value_name = "VERSION", conflicts_with = "known")]
    pub version: Option<String>,
    /// File systems, or paths in mounted file systems
    pub names: Vec<String>,
}

impl Upgrade {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.known {
            return session.show(upgrade::known, upgrade::known_json).map(|()| Outcome::Done);
        }
        let is_listing = !self.all && self.names.is_empty();
        if is_listing && (self.recursive || self.version.is_some()) {
            return Err(CliError::Usage("-r and -V go with -a or names of file systems".into()));
        }
        let version = self.version.as_deref().map(version).transpose()?;
        let names = (!is_listing).then(|| self.names.clone());
        let request = Request { names, recursive: self.recursive, version };
        let answered = session.control().run(request).await?;
        let versions = &answered.answer;
        let shown = session.show(|| upgrade::text(versions), || upgrade::json(versions));
        match versions {
            Versions::Listed(_) => shown.map(|()| answered.outcome),
            // They are upgraded even if that can't be printed.
            Versions::Upgraded(_) => Ok(answered.outcome.printed(shown)),
        }
    }
}

fn version(typed: &str) -> Result<u64, CliError> {
    let number = if typed == "current" { Some(ZPL_VERSION) } else { typed.parse().ok() };
    let known = number.filter(|number| (1..=ZPL_VERSION).contains(number));
    known.ok_or_else(|| CliError::Usage(format!("invalid version {typed}")))
}
