//! Command line of `zfs receive`.

use cenote_control::zfs::properties::settings::{Setting, find};
use cenote_control::zfs::receive::{Naming, Receive as Request};
use cenote_format::props::Prop;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print_json};

/// OpenZFS's text: scripts look for these words.
const USAGE: &str = "\
cenote zfs receive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...
           [--reshare] <filesystem|volume|snapshot>
       cenote zfs receive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...
           [--reshare] [-d | -e] <filesystem>
       cenote zfs receive -A <filesystem|volume>
       cenote zfs receive -c [-vn] <filesystem|snapshot>";

/// `zfs receive`
#[derive(Debug, Args)]
#[command(
    override_usage = USAGE,
    after_help = "The stream comes from standard input. If it breaks off, nothing is kept; with -s, the \
        received part is kept, and `zfs get receive_resume_token` shows the token for `zfs send -t`.\n\n\
        With -c, nothing is received: lost blocks of files are restored from a stream of the same snapshot. \
        A stream of `send -c` or `send -w` has blocks as they are on disk. A block that is compressed again \
        may differ from the lost one, and then stays lost. Scrub the pool afterwards.\n\n\
        A stream has cloned and deduplicated blocks once for each file. With --reshare, a block is compared \
        with equal ones of the stream, and stored once. That needs the feature block_cloning. Blocks of \
        earlier streams are not searched, and a raw stream (`send -w`) is refused.\n\n\
        Example: cenote zfs receive -s -o mountpoint=none tank/copy < monday.zs"
)]
pub struct Receive {
    /// Destroy conflicting changes and snapshots newer than the stream's source; with a stream of `send -R`,
    /// also all that its sender has destroyed
    #[arg(short = 'F')]
    pub force: bool,
    /// Append the sent name without its pool to the target, and create missing file systems
    #[arg(short = 'd', conflicts_with = "tail")]
    pub prefix: bool,
    /// Append the last part of the sent name to the target
    #[arg(short = 'e')]
    pub tail: bool,
    /// Keep the received part if the stream breaks off
    #[arg(short = 's')]
    pub resumable: bool,
    /// Discard the kept part of an interrupted receive
    #[arg(short = 'A')]
    pub abort: bool,
    /// Don't mount received file systems
    #[arg(short = 'u')]
    pub no_mount: bool,
    /// Unmount the target even if it is in use
    #[arg(short = 'M')]
    pub force_unmount: bool,
    /// Skip holds
    #[arg(short = 'h')]
    pub skip_holds: bool,
    /// Read the stream and report its target, but receive nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Report received streams
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Restore lost blocks of a snapshot from a stream of that snapshot; receive nothing
    #[arg(short = 'c')]
    pub corrective: bool,
    /// Store equal blocks of the stream once: files share them, as clones do
    #[arg(long, conflicts_with_all = ["abort", "corrective"])]
    pub reshare: bool,
    /// Set a property, overriding the stream's value; `origin=SNAPSHOT` makes a clone of it; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Leave out a property, so that it is inherited; repeatable
    #[arg(short = 'x', value_name = "PROPERTY")]
    pub excluded: Vec<String>,
    /// File system, volume or snapshot
    pub target: String,
}

impl Receive {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let answered = session.control().run(self.request()?).await?;
        if session.json() {
            print_json(&answered.answer)?;
        }
        Ok(answered.outcome)
    }

    fn request(self) -> Result<Request, CliError> {
        let (mut origin, mut options) = (None, Vec::new());
        for option in self.options {
            match option.strip_prefix("origin=") {
                Some(snapshot) => origin = Some(snapshot.to_owned()),
                None => options.push(option),
            }
        }
        let excluded = self.excluded.iter().map(|typed| name_of(typed)).collect::<Result<Vec<_>, _>>()?;
        let settings = Setting::parse_all(&options).map_err(CliError::Usage)?;
        for Setting { property, .. } in &settings {
            if excluded.contains(&name_of(property)?) {
                return Err(CliError::Usage(format!("property '{property}' specified multiple times")));
            }
        }
        let naming = match (self.prefix, self.tail) {
            (true, _) => Naming::WithoutPool,
            (_, true) => Naming::LastPart,
            _ => Naming::Exact,
        };
        Ok(Request {
            target: self.target,
            naming,
            force: self.force,
            resumable: self.resumable,
            abort: self.abort,
            no_mount: self.no_mount,
            force_unmount: self.force_unmount,
            skip_holds: self.skip_holds,
            dry_run: self.dry_run,
            verbose: self.verbose,
            corrective: self.corrective,
            reshare: self.reshare,
            settings,
            excluded,
            origin,
        })
    }
}

/// A property's stored name.
fn name_of(typed: &str) -> Result<String, CliError> {
    if typed.contains('=') {
        let why = format!("invalid property '{typed}': -x takes a name, without a value");
        return Err(CliError::Usage(why));
    }
    let found = find(typed).map_err(CliError::Usage)?;
    Ok(found.map_or(typed, |prop: &Prop| prop.name).to_owned())
}
