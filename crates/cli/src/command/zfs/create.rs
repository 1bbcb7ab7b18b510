//! Command line of `zfs create`.

use cenote_control::zfs::properties::settings::{Setting, size};
use cenote_control::zfs::tree::create::{Create as Request, Created, NewVolume};
use cenote_shown::zfs::create::Report;
use clap::Args;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::Session;

/// `zfs create`
#[derive(Debug, Args)]
#[command(after_help = "A volume reserves its whole size unless -s is given. The daemon mounts new file \
    systems.\n\n\
    Examples:\n  \
    cenote zfs create -p -o compression=zstd tank/home/ada\n  \
    cenote zfs create -s -V 10G tank/disk")]
pub struct Create {
    /// Create missing parents too; an existing dataset is no error
    #[arg(short = 'p')]
    pub parents: bool,
    /// Property to set; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Create a volume of this size
    #[arg(short = 'V', value_name = "SIZE")]
    pub volume: Option<String>,
    /// Create a sparse volume, without a reservation
    #[arg(short = 's', requires = "volume")]
    pub sparse: bool,
    /// Block size of the volume, like volblocksize
    #[arg(short = 'b', value_name = "SIZE", requires = "volume")]
    pub block: Option<String>,
    /// Leave the file system unmounted; new parents are mounted
    #[arg(short = 'u', conflicts_with = "volume")]
    pub no_mount: bool,
    /// Create nothing; with -v or -P, report the new dataset
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Report the new dataset
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Report it in a form for scripts
    #[arg(short = 'P')]
    pub parsable: bool,
    /// New dataset
    pub name: String,
}

impl Create {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let answered = session.control().run(self.request()?).await?;
        let (created, outcome) = (answered.answer, answered.outcome);
        match self.dry_run {
            _ if created.existed => Ok(outcome),
            true => self.print_report(session, &created).map(|()| outcome),
            // The dataset exists even if the report can't be printed.
            false => Ok(outcome.printed(self.print_report(session, &created))),
        }
    }

    fn request(&self) -> Result<Request, CliError> {
        let refused = |why| CliError::Refused(format!("cannot create '{}': {why}", self.name));
        let block_bytes = self.block.as_deref().map(size).transpose().map_err(refused)?;
        let volume = |size_bytes| NewVolume { size_bytes, block_bytes, sparse: self.sparse };
        Ok(Request {
            name: self.name.clone(),
            volume: self.volume.as_deref().map(size).transpose().map_err(refused)?.map(volume),
            settings: Setting::parse_all(&self.options).map_err(refused)?,
            parents: self.parents,
            dry_run: self.dry_run,
            no_mount: self.no_mount,
        })
    }

    /// Prints a report, if requested.
    fn print_report(&self, session: &Session, created: &Created) -> Result<(), CliError> {
        if !self.verbose && !self.parsable {
            return Ok(());
        }
        let &Create { dry_run, parents, parsable, .. } = self;
        let report = Report { name: &self.name, dry_run, parents, parsable, options: &self.options };
        session.show(|| report.text(created), || report.json(created))
    }
}
