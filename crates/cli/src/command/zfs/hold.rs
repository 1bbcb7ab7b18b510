//! Command lines of `zfs hold`, `release`, `bookmark`, `redact`.

use cenote_control::zfs::points;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs hold`
#[derive(Debug, Args)]
#[command(
    after_help = "A held snapshot can't be destroyed.\n\nExample: cenote zfs hold -r keep tank/home@monday"
)]
pub struct Hold {
    /// The snapshots to hold
    #[command(flatten)]
    pub tagged: Tagged,
}

/// `zfs release`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs release -r keep tank/home@monday")]
pub struct Release {
    /// The snapshots to release
    #[command(flatten)]
    pub tagged: Tagged,
}

/// Snapshots and the tag of their hold.
#[derive(Debug, Args)]
pub struct Tagged {
    /// Include snapshots of the same name in all descendants
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Tag of the hold
    pub tag: String,
    /// Snapshots
    #[arg(required = true)]
    pub snapshots: Vec<String>,
}

/// `zfs bookmark`
#[derive(Debug, Args)]
#[command(after_help = "Either name may omit the dataset.\n\n\
    With -r, snapshots of the same name in the datasets below are bookmarked, too, all in one txg; datasets \
    without one are left out.\n\n\
    Example: cenote zfs bookmark tank/home@monday '#monday'")]
pub struct Bookmark {
    /// Include the datasets below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Snapshot, or an existing bookmark
    pub source: String,
    /// New bookmark, DATASET#NAME
    pub bookmark: String,
}

/// `zfs redact`
#[derive(Debug, Args)]
#[command(
    after_help = "Clone the snapshot, overwrite or remove the secrets in the clone, and snapshot that. \
    A block of a file that differs in all redaction snapshots goes on the bookmark's list, and `zfs send \
    --redact` leaves it out: the received file has a hole there. Names, attributes and other metadata are \
    never left out.\n\n\
    Examples:\n  \
    cenote zfs redact tank/home@monday public tank/clean@1\n  \
    cenote zfs send --redact public tank/home@monday | cenote zfs receive pool/public"
)]
pub struct Redact {
    /// The snapshot
    pub snapshot: String,
    /// The new bookmark's own name
    pub bookmark: String,
    /// Snapshots of clones without the secrets
    #[arg(required = true)]
    pub redaction_snapshots: Vec<String>,
}

impl Redact {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Redact { snapshot, bookmark, redaction_snapshots } = self;
        let request = points::redact::Redact { snapshot, bookmark, redaction_snapshots };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Hold {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Tagged { recursive, tag, snapshots } = self.tagged;
        let request = points::hold::Hold { tag, snapshots, recursive };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Release {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Tagged { recursive, tag, snapshots } = self.tagged;
        let request = points::release::Release { tag, snapshots, recursive };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Bookmark {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (source, bookmark) = self.full_names().map_err(CliError::Usage)?;
        let request = points::bookmark::Bookmark { source, bookmark, recursive: self.recursive };
        Ok(session.control().run(request).await?.outcome)
    }

    /// Source and bookmark with their datasets.
    fn full_names(&self) -> Result<(String, String), String> {
        let (source, mark) = (&self.source, &self.bookmark);
        let Some(of_source) = source.find(['@', '#']) else {
            return Err(format!("invalid source name '{source}': must contain a '@' or '#'"));
        };
        let Some(of_mark) = mark.find('#') else {
            return Err(format!("invalid bookmark name '{mark}': must contain a '#'"));
        };
        match (of_source, of_mark) {
            (0, 0) => Err("either source or bookmark must be specified as full dataset paths".into()),
            (0, at) => Ok((format!("{}{source}", &mark[..at]), mark.clone())),
            (at, 0) => Ok((source.clone(), format!("{}{mark}", &source[..at]))),
            _ => Ok((source.clone(), mark.clone())),
        }
    }
}
