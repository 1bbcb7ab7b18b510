//! Command line of `zfs send`.

use cenote_control::zfs::send::Send as Request;
use clap::{ArgAction, Args};

use crate::message::say_bare;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// OpenZFS's text: scripts look for these words.
const USAGE: &str = "\
cenote zfs send [-DLPbcehnpsVvw] [-i|-I snapshot] [-R [-X dataset[,dataset]...]] <snapshot>
       cenote zfs send [-DnVvPLecw] [-i snapshot|bookmark] <filesystem|volume|snapshot>
       cenote zfs send [-DnVvPLec] [-i bookmark|snapshot] --redact <bookmark> <snapshot>
       cenote zfs send [-nVvPe] -t <receive_resume_token>
       cenote zfs send [-PnVv] --saved <filesystem|volume>";

/// `zfs send`
#[derive(Debug, Args)]
#[command(
    override_usage = USAGE,
    after_help = "The stream goes to standard output, which must not be a terminal. -n sends nothing; -nv \
        prints the exact length of each stream.\n\n\
        Examples:\n  \
        cenote zfs send tank/home@monday > monday.zs\n  \
        cenote zfs send -Lec -i @monday tank/home@friday > friday.zs"
)]
pub struct Send {
    /// Only changes since this snapshot or bookmark (@NAME, #NAME, or a full name)
    #[arg(short = 'i', value_name = "FROM", conflicts_with = "all_from")]
    pub from: Option<String>,
    /// Like -i, with a stream for each snapshot in between
    #[arg(short = 'I', value_name = "FROM")]
    pub all_from: Option<String>,
    /// Send all descendants, with their snapshots up to this one, and properties
    #[arg(short = 'R', long)]
    pub replicate: bool,
    /// With -R, skip datasets that lack the snapshot
    #[arg(short = 's', long)]
    pub skip_missing: bool,
    /// With -R, skip these datasets, comma-separated, and all their descendants
    #[arg(short = 'X', long, value_name = "DATASETS", value_delimiter = ',')]
    pub exclude: Vec<String>,
    /// Send properties
    #[arg(short = 'p', long)]
    pub props: bool,
    /// Send received properties, not those in effect
    #[arg(short = 'b', long)]
    pub backup: bool,
    /// Send holds
    #[arg(short = 'h', long)]
    pub holds: bool,
    /// Send blocks of more than 128 KiB unsplit
    #[arg(short = 'L', long)]
    pub large_block: bool,
    /// Send embedded blocks as such
    #[arg(short = 'e', long)]
    pub embed: bool,
    /// Send blocks compressed as they are on disk
    #[arg(short = 'c', long)]
    pub compressed: bool,
    /// Send encrypted blocks as they are on disk; needs no key; implies -Lec
    #[arg(short = 'w', long)]
    pub raw: bool,
    /// Send properties of encrypted datasets with -p or -R though their blocks are sent in the clear
    #[arg(short = 'U', long)]
    pub no_preserve_encryption: bool,
    /// Resume a receive that broke off, by its receive_resume_token
    #[arg(short = 't', long = "resume", value_name = "TOKEN")]
    pub token: Option<String>,
    /// Send the kept part of an interrupted receive
    #[arg(short = 'S', long)]
    pub saved: bool,
    /// Send nothing
    #[arg(short = 'n', long)]
    pub dryrun: bool,
    /// Report the streams, and progress each second
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub verbose: u8,
    /// Report in a form for scripts
    #[arg(short = 'P', long)]
    pub parsable: bool,
    /// Accepted for compatibility: a daemon has no title
    #[arg(short = 'V', long, hide = true)]
    pub proctitle: bool,
    /// Accepted for compatibility: streams are not deduplicated
    #[arg(short = 'D', long, hide = true)]
    pub dedup: bool,
    /// Leave out the blocks listed in this bookmark of `zfs redact`
    #[arg(long, short = 'd', value_name = "BOOKMARK")]
    pub redact: Option<String>,
    /// Snapshot, or a file system or volume in its state on disk
    #[arg(required_unless_present = "token")]
    pub snapshot: Option<String>,
}

impl Send {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (parsable, dry_run) = (self.parsable, self.dryrun);
        if self.dedup {
            say_bare(
                "WARNING: deduplicated send is no longer supported.  A regular,\n\
                 non-deduplicated stream will be generated.\n",
            );
        }
        if session.json() && !dry_run {
            return Err(CliError::Usage("--json and the stream can't both go to standard output".into()));
        }
        let sent = session.control().run(self.request(session.json())).await?.answer;
        if session.json() {
            print_json(&sent)?;
        } else if dry_run {
            for line in sent.lines(parsable) {
                print(line + "\n")?;
            }
        }
        Ok(Outcome::Done)
    }

    fn request(self, is_json: bool) -> Request {
        let between = self.all_from.is_some();
        Request {
            target: self.snapshot.unwrap_or_default(),
            from: self.all_from.or(self.from),
            between,
            replicate: self.replicate,
            skip_missing: self.skip_missing,
            exclude: self.exclude,
            props: self.props,
            backup: self.backup,
            holds: self.holds,
            large_blocks: self.large_block,
            embedded: self.embed,
            compressed: self.compressed,
            raw: self.raw,
            in_clear: self.no_preserve_encryption,
            token: self.token,
            saved: self.saved,
            redact: self.redact,
            dry_run: self.dryrun,
            verbose: self.verbose > 0 || self.parsable || self.proctitle || is_json,
            progress: self.verbose > 0,
            parsable: self.parsable,
        }
    }
}
