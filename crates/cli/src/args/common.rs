//! Options that every command takes, before or after its verb.
//!
//! Idea: these options may be typed anywhere; those in several positions are combined. A verb's own option
//! keeps its letter: `-d` of `zfs destroy` defers; disks then need `--disks`, or `-d` before the verb.

use std::ffi::OsString;
use std::path::PathBuf;

use cenote_policy::PolicyName;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// Their heading in help.
pub const HEADING: &str = "Options of every command";
/// Heading of options that the daemon does not accept: they name files or run endlessly.
pub const HERE: &str = "Options without the daemon";

pub use cenote_serve::config::MAX_THREADS;

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = HEADING)]
pub struct Common {
    /// Search this folder, image file, device or remote disk (nbd://HOST/EXPORT) for pools; repeatable
    /// [default: CENOTE_DISKS, separated by ':'; if unset, all block devices]
    #[arg(short = 'd', long = "disks", value_name = "DIR|FILE|DEVICE")]
    pub disks: Vec<PathBuf>,
    /// Key of an encryption root: DATASET=pass:TEXT, hex:HEX, file:PATH or env:NAME; repeatable
    #[arg(long = "key", value_name = "DATASET=KEY")]
    pub keys: Vec<String>,
    /// Replay the intent logs in memory, as an import for writing would
    #[arg(long)]
    pub replay: bool,
    /// Open the pool as of this txg, or the newest before it
    #[arg(long, value_name = "N", conflicts_with = "rewind")]
    pub txg: Option<u64>,
    /// Open the newest txg whose tree is intact
    #[arg(short = 'F', long)]
    pub rewind: bool,
    /// Open the pool's checkpoint
    #[arg(long, conflicts_with_all = ["txg", "rewind"])]
    pub checkpoint: bool,
    /// Print JSON, errors included
    #[arg(short = 'j', long)]
    pub json: bool,
    /// Memory for cached blocks [default: 128M]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<String>,
    /// Cache policy: lru, arc, zol-0.6.2, zol-0.6.3, openzfs-2.3, s3-fifo, sieve, w-tinylfu or lirs [default:
    /// openzfs-2.3]
    #[arg(long, value_name = "NAME", value_parser = PolicyName::living)]
    pub cache_policy: Option<PolicyName>,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=MAX_THREADS.into()))]
    pub threads: Option<u16>,
    /// Print help
    #[arg(short = 'h', short_alias = '?', long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Common {
    /// Combines the options typed before and after the verb.
    pub fn gather(matches: &ArgMatches) -> Result<Common, clap::Error> {
        let mut common = Common::from_arg_matches(matches)?;
        // An unknown verb has words but no options.
        if let Some((_, below)) = matches.subcommand()
            && matches!(below.try_contains_id("json"), Ok(true))
        {
            common.add(Common::gather(below)?);
        }
        Ok(common)
    }

    /// Lists are joined; a single value is replaced by the later one.
    fn add(&mut self, later: Common) {
        self.disks.extend(later.disks);
        self.keys.extend(later.keys);
        self.replay |= later.replay;
        self.txg = later.txg.or(self.txg);
        self.rewind |= later.rewind;
        self.checkpoint |= later.checkpoint;
        self.json |= later.json;
        self.cache = later.cache.or(self.cache.take());
        self.cache_policy = later.cache_policy.or(self.cache_policy);
        self.threads = later.threads.or(self.threads);
    }
}

/// The line of a verb's help about the common options, which would bury its own.
const ELSEWHERE: &str = "Options of every command (--disks, --key, --json ...): see `cenote help options`.";

/// `cenote help options`, if that was typed: the common options alone.
pub fn help(argv: &[OsString]) -> Option<clap::Error> {
    let [_, words @ ..] = argv else { return None };
    if words != ["help", "options"] {
        return None;
    }
    let shown = Command::new("cenote")
        .about("Options of every command, before or after its verb")
        .override_usage("cenote [OPTIONS] <COMMAND>")
        .disable_help_flag(true);
    Common::augment_args(shown).try_get_matches_from(["cenote", "--help"]).err()
}

/// Adds the common options to a command and its subcommands, except where they define one themselves. The
/// help of a verb shows only `--help` of them.
pub fn with_common(mut command: Command) -> Command {
    let after = command.get_after_help().map(|text| format!("\n\n{text}")).unwrap_or_default();
    if !after.contains(ELSEWHERE) {
        command = command.after_help(format!("{ELSEWHERE}{after}"));
    }
    for option in Common::augment_args(Command::default()).get_arguments() {
        if command.get_arguments().all(|own| own.get_id() != option.get_id()) {
            let has_letter = |own: &Arg| letters(own).any(|it| option.get_short() == Some(it));
            let is_taken = command.get_arguments().any(has_letter);
            let option = if is_taken { option.clone().short(None) } else { option.clone() };
            let is_help = option.get_id() == "help";
            command = command.arg(match is_help {
                true => option.help_heading(None::<&str>),
                false => option.hide(true),
            });
        }
    }
    // Commands without options are described later, and get the common ones then.
    command.mut_subcommands(
        |below| if below.get_arguments().next().is_some() { with_common(below) } else { below },
    )
}

fn letters(option: &Arg) -> impl Iterator<Item = char> {
    option
        .get_short_and_visible_aliases()
        .unwrap_or_default()
        .into_iter()
        .chain(option.get_all_short_aliases().unwrap_or_default())
}
