//! Command lines of `zpool scrub`, `zpool resilver`.

use cenote_control::text::parse_date;
use cenote_control::zpool::activity::resilver;
use cenote_control::zpool::activity::scrub::{self, Dates, Order};
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool scrub`
#[derive(Debug, Args)]
#[command(after_help = "Reads and verifies every copy and parity column of every block, and rewrites wrong \
    ones. The daemon works in the background and yields to other I/O: `cenote zpool status` shows its \
    progress. Without a daemon, the command ends when all is done. If interrupted, the scrub resumes in the \
    daemon, with the same command, or in OpenZFS at import.\n\n\
    -e reads only blocks listed by `cenote zpool status -v`; those that are whole again or freed leave the \
    list. If paused, `zpool scrub -e` resumes. Needs the feature head_errlog.\n\n\
    -t finds blocks that match their checksums but do not decrypt or decompress; nothing repairs these. \
    Blocks without a loaded key are verified as usual.\n\n\
    -S and -E verify blocks by the dates of their births. DATE is YYYY-MM-DD or 'YYYY-MM-DD HH:MM', in \
    UTC; -E includes that day or minute. The pool notes the txg of every tenth minute, for about two days, \
    then of each day and month; the scrub begins and ends at the nearest noted txgs outside the range.\n\n\
    Exit status: 3 if blocks could not be repaired (without a daemon, or with -w).\n\n\
    Examples:\n  \
    cenote zpool scrub tank\n  \
    cenote zpool scrub -a -w\n  \
    cenote zpool scrub -S 2026-11-01 -E '2026-11-21 12:00' tank")]
pub struct Scrub {
    /// Pause; `zpool scrub` resumes
    #[arg(short = 'p', conflicts_with_all = ["stop", "wait"])]
    pub pause: bool,
    /// Cancel
    #[arg(short = 's', conflicts_with = "wait")]
    pub stop: bool,
    /// Wait for the end
    #[arg(short = 'w')]
    pub wait: bool,
    /// Only blocks born after the last complete scrub
    #[arg(short = 'C', conflicts_with_all = ["pause", "stop", "errors"])]
    pub since_last: bool,
    /// Only blocks in the error log
    #[arg(short = 'e', conflicts_with_all = ["pause", "stop"])]
    pub errors: bool,
    /// Also decrypt, where keys are loaded, and decompress
    #[arg(short = 't', conflicts_with_all = ["pause", "stop", "errors"])]
    pub thorough: bool,
    /// Only blocks born at this date or later
    #[arg(short = 'S', value_name = "DATE")]
    pub from: Option<String>,
    /// Only blocks born at this date or before
    #[arg(short = 'E', value_name = "DATE")]
    pub until: Option<String>,
    /// All pools
    #[arg(short = 'a')]
    pub all: bool,
    /// Pools
    #[arg(required_unless_present = "all")]
    pub pools: Vec<String>,
}

/// `zpool resilver`
#[derive(Debug, Args)]
#[command(
    after_help = "A device lacks blocks if it was away during writes or has joined a mirror; the pool \
        records which. They are rebuilt from other devices, verified and written: by the daemon in the \
        background, otherwise before the command ends. If no device lacks anything, nothing is written.\n\n\
        Example: cenote zpool resilver tank"
)]
pub struct Resilver {
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

/// A date's start and length.
fn seconds(typed: &str) -> Result<(u64, u64), CliError> {
    parse_date(typed).ok_or_else(|| CliError::Usage("Failed to parse the date.".into()))
}

impl Scrub {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let order = match () {
            () if self.pause => Order::Pause,
            () if self.stop => Order::Stop,
            () if self.errors => Order::StartErrors,
            () if self.since_last => Order::StartSinceLast,
            () => Order::Start,
        };
        let from = self.from.as_deref().map(seconds).transpose()?;
        let until = self.until.as_deref().map(seconds).transpose()?;
        let dates =
            Dates { from_s: from.map(|(start, _)| start), until_s: until.map(|(start, long)| start + long) };
        dates.check(order)?;
        let request =
            scrub::Scrub { pools: self.pools, order, dates, wait: self.wait, thorough: self.thorough };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Resilver {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = resilver::Resilver { pools: self.pools };
        Ok(session.control().run(request).await?.outcome)
    }
}
