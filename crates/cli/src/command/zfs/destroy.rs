//! Command line of `zfs destroy`.

use cenote_control::zfs::tree::destroy::Destroy as Request;
use cenote_shown::zfs::destroy::Report;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs destroy`
#[derive(Debug, Args)]
#[command(
    after_help = "TARGET is a dataset, DATASET#BOOKMARK, or DATASET@SNAPSHOTS: comma-separated names and \
        ranges FIRST%LAST. A range without an end extends to the oldest or newest snapshot.\n\n\
        Example: cenote zfs destroy -nv tank/home@monday%friday"
)]
pub struct Destroy {
    /// Destroy all descendants too; for snapshots, those of the same name in descendants
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Like -r, and destroy clones, wherever they are
    #[arg(short = 'R')]
    pub with_clones: bool,
    /// Destroy nothing; with -v or -p, report
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Report destroyed datasets and freed space
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Report in a form for scripts
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Accepted for compatibility: as with OpenZFS on Linux, busy file systems stay mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// Destroy held or cloned snapshots once their holds and clones are gone
    #[arg(short = 'd', long)]
    pub defer: bool,
    /// Dataset, DATASET#BOOKMARK or DATASET@SNAPSHOTS
    pub target: String,
}

impl Destroy {
    /// Runs the command. Like OpenZFS, it lists the datasets before it destroys them.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let tells = (self.verbose || self.parsable) && !self.target.contains('#');
        if self.dry_run || tells {
            let planned = session.control().run(self.request(true)).await?;
            if tells {
                let report = Report { dry_run: self.dry_run, parsable: self.parsable };
                session.show(|| report.text(&planned.answer), || report.json(&planned.answer))?;
            }
            if self.dry_run {
                return Ok(planned.outcome);
            }
        }
        Ok(session.control().run(self.request(false)).await?.outcome)
    }

    fn request(&self, dry_run: bool) -> Request {
        Request {
            target: self.target.clone(),
            recursive: self.recursive,
            with_clones: self.with_clones,
            defer: self.defer,
            dry_run,
            measure: dry_run && (self.verbose || self.parsable),
        }
    }
}
