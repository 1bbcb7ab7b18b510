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
           <filesystem|volume|snapshot>
       cenote zfs receive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...
           [-d | -e] <filesystem>
       cenote zfs receive -A <filesystem|volume>
       cenote zfs receive -c [-vn] <filesystem|snapshot>";

/// `zfs receive`
#[derive(Debug, Args)]
#[command(
    override_usage = USAGE,
    after_help = "The stream comes from standard input. If it breaks off, nothing is left of it, or with -s \
    what has come: `zfs get receive_resume_token` then shows the token with which `zfs send -t` goes on.\n\n\
    With -c, nothing is received: blocks of files that this pool has lost are restored from a stream of the \
    same snapshot. A stream of `send -c` (or -w) has them as they are on disk; a block compressed anew may \
    differ from the lost one, and then stays lost. Scrub the pool afterwards.\n\n\
    Example: zfs send tank/home@monday | cenote zfs receive -s -o mountpoint=none backup/home"
)]
pub struct Receive {
    /// Destroy what is in the way: changes and snapshots since the stream's source; with a stream of -R, all
    /// that its sender has no more
    #[arg(short = 'F')]
    pub force: bool,
    /// Append the sent name without its pool to the target, and make file systems that are missing
    #[arg(short = 'd', conflicts_with = "tail")]
    pub prefix: bool,
    /// Append the last part of the sent name to the target
    #[arg(short = 'e')]
    pub tail: bool,
    /// Keep what has come if the stream breaks off
    #[arg(short = 's')]
    pub resumable: bool,
    /// Give up what was kept of a receive that broke off
    #[arg(short = 'A')]
    pub abort: bool,
    /// Leave what is received unmounted
    #[arg(short = 'u')]
    pub no_mount: bool,
    /// Unmount what is in the way though it is in use
    #[arg(short = 'M')]
    pub force_unmount: bool,
    /// Leave out holds
    #[arg(short = 'h')]
    pub skip_holds: bool,
    /// Read the stream, say where it would go, and receive nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Say what is received
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Restore lost blocks of a snapshot from a stream of that snapshot; receive nothing
    #[arg(short = 'c')]
    pub corrective: bool,
    /// Set a property, whatever the stream says; `origin=SNAPSHOT` makes a clone of it; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Leave out a property: what is above applies; repeatable
    #[arg(short = 'x', value_name = "PROPERTY")]
    pub excluded: Vec<String>,
    /// The file system, volume or snapshot
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
