//! Command line of `cenote replicate`.

use std::ffi::OsString;

use cenote_control::replicate::Replicate as Request;
use cenote_control::replicate::plan::Wishes;
use cenote_control::text::parse_bytes;
use cenote_shown::replicate;
use clap::Args;

use crate::daemon;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;
use crate::streams::streams;

/// `cenote replicate`
#[derive(Debug, Clone, Args)]
#[command(after_help = "SRC and DST are POOL/DATASET here, or [USER@]HOST:POOL/DATASET on another machine, \
    which has Cenote or OpenZFS and is reached by ssh. The first run sends everything, later ones the \
    changes since the newest snapshot or bookmark that both sides have, whatever its names. An interrupted \
    run is resumed by the next.\n\n\
    Exit status: 0 all copies are up to date, 1 some are not, 2 used incorrectly, 3 a copy differs \
    (--verify).\n\n\
    Examples:\n  \
    cenote replicate tank/home backup/home\n  \
    cenote replicate -R --raw --bookmark --rate 20M tank root@vault:store/tank")]
pub struct Replicate {
    /// Include all descendants
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Datasets to send at a time; more than 1 needs a daemon or OpenZFS at DST
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Send encrypted blocks as they are on disk; DST needs no key
    #[arg(short = 'w', long)]
    pub raw: bool,
    /// Send properties, too
    #[arg(short = 'p', long)]
    pub props: bool,
    /// Send up to this snapshot [default: the newest]
    #[arg(long, value_name = "NAME")]
    pub snapshot: Option<String>,
    /// Send the newest snapshot alone, without those in between
    #[arg(long)]
    pub newest: bool,
    /// Destroy changes and snapshots of the copy that SRC lacks
    #[arg(short = 'F', long)]
    pub force: bool,
    /// Bookmark the snapshot sent, so that it can be destroyed at SRC
    #[arg(long)]
    pub bookmark: bool,
    /// Hold the snapshot sent on both sides, and release the one before
    #[arg(long)]
    pub hold: bool,
    /// Tag of these holds
    #[arg(long, value_name = "TAG", default_value = "cenote-replicate")]
    pub tag: String,
    /// Most bytes a second, of all streams together
    #[arg(long, value_name = "BYTES")]
    pub rate: Option<String>,
    /// Discard the part that an interrupted run has received, and keep none
    #[arg(long)]
    pub no_resume: bool,
    /// Compare both sides afterwards: guids, and the content sent, which is read again
    #[arg(long)]
    pub verify: bool,
    /// Show the streams that would be sent, and their sizes
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Show progress even if standard error is not a terminal
    #[arg(long)]
    pub progress: bool,
    /// The command that reaches other machines
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub ssh: String,
    /// The dataset to copy
    #[arg(value_name = "SRC")]
    pub source: String,
    /// The copy
    #[arg(value_name = "DST")]
    pub target: String,
}

impl Replicate {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.progress {
            streams().show_progress(true);
        }
        let answered = self.request(session)?.run(session.control()).await?;
        session.show(|| replicate::text(&answered.answer), || &answered.answer)?;
        Ok(answered.outcome)
    }

    fn request(self, session: &Session) -> Result<Request, CliError> {
        let rate = self.rate.map(|typed| {
            let rate = parse_bytes(&typed).filter(|&rate| rate > 0);
            rate.ok_or_else(|| CliError::Usage(format!("--rate {typed}: give bytes a second, such as 20M")))
        });
        // Without a daemon, each receive has its pool for itself.
        let is_here = !self.target.split('/').next().unwrap_or_default().contains(':');
        let is_alone = is_here && !daemon::is_there(session.common());
        Ok(Request {
            source: self.source,
            target: self.target,
            recursive: self.recursive,
            jobs: if is_alone { 1 } else { self.jobs.into() },
            raw: self.raw,
            props: self.props,
            wishes: Wishes { up_to: self.snapshot, newest_only: self.newest, force: self.force },
            bookmark: self.bookmark,
            hold: self.hold.then_some(self.tag),
            rate: rate.transpose()?,
            no_resume: self.no_resume,
            verify: self.verify,
            dry_run: self.dry_run,
            ssh: self.ssh.split_whitespace().map(str::to_owned).collect(),
            own: own(session)?,
        })
    }
}

/// This program, with its options about pools.
fn own(session: &Session) -> Result<Vec<OsString>, CliError> {
    let program = std::env::current_exe().map_err(CliError::io("this program"))?;
    let mut own = vec![program.into_os_string()];
    let common = session.common();
    let mut add = |option: &str, value: OsString| own.extend([option.into(), value]);
    common.disks.iter().for_each(|disk| add("--disks", disk.into()));
    common.keys.iter().for_each(|key| add("--key", key.into()));
    common.cache.iter().for_each(|cache| add("--cache", cache.into()));
    Ok(own)
}
