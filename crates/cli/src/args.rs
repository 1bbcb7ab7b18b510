//! The command line: the tree of commands. Each defines its own options; shared ones are in `common`.
//!
//! `cenote zpool …` and `cenote zfs …` accept the verbs and flags that administrators know. Run through a
//! link named `zpool` or `zfs`, the program behaves as that tool.

pub mod common;
mod deferred;
mod noted;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use common::Common;
pub use deferred::Deferred;
pub(crate) use deferred::run_typed;
pub use noted::as_noted;

use crate::command;

/// Opens OpenZFS pools without a kernel module: creates, lists, reads, writes, scans, verifies and rescues
/// them.
#[derive(Debug, Parser)]
#[command(name = "cenote", version)]
#[command(arg_required_else_help = true, disable_help_flag = true)]
#[command(after_help = "Examples:\n  \
        cenote zpool status\n  \
        cenote ls -l tank/home@monday:/documents\n  \
        cenote verify -d /mnt/images tank\n\n\
        Exit status: 0 done, 1 failed, 2 used incorrectly, 3 damaged data or lost redundancy \
        found, or a scan without some datasets.")]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
    /// Options that every command takes.
    #[command(flatten)]
    pub common: Common,
    /// The verb's name, as the table of verbs has it.
    #[arg(skip)]
    pub verb: String,
    /// It was called as `zfs` or `zpool`.
    #[arg(skip)]
    pub as_tool: bool,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Manage pools: create, import, export, status, scrub, replace and other verbs of zpool
    #[command(subcommand, version)]
    Zpool(Deferred<command::zpool::Zpool>),
    /// Manage datasets: create, list, snapshot, clone, send, receive and other verbs of zfs
    #[command(subcommand, version)]
    Zfs(Deferred<command::zfs::Zfs>),
    /// List a folder of a dataset or snapshot
    Ls(Deferred<command::files::Ls>),
    /// Show all attributes of a file
    Stat(Deferred<command::files::Stat>),
    /// Write files' contents to standard output
    Cat(Deferred<command::files::Cat>),
    /// Copy files or trees out of a pool or into one, with owners, modes, times, links, xattrs, ACLs and
    /// holes
    Cp(Deferred<command::files::cp::Cp>),
    /// Create folders in a pool
    Mkdir(Deferred<command::files::Mkdir>),
    /// Remove files or trees from a pool
    Rm(Deferred<command::files::Rm>),
    /// Find files by name, type, size, age
    Find(Deferred<command::files::find::Find>),
    /// Show the space that folders use
    Du(Deferred<command::files::Du>),
    /// Mount a dataset or snapshot on a local directory until it is unmounted
    Mount(Deferred<command::mount::MountCommand>),
    /// Run the daemon: keep pools imported, mount their file systems, serve other commands
    Serve(Deferred<Box<command::serve::Serve>>),
    /// Copy volumes out or in; list clients of served volumes
    #[command(subcommand)]
    Volume(Deferred<command::volume::VolumeCommand>),
    /// List every file of datasets and snapshots, straight from the disks
    Scan(Deferred<command::inspect::scan::Scan>),
    /// Read and check every copy and parity column of every block, and check space accounting
    Verify(Deferred<command::inspect::verify::Verify>),
    /// Store blocks again where, and as small as, they would be stored today
    Rebalance(Deferred<command::inspect::rebalance::Rebalance>),
    /// Copy everything that can still be read out of a damaged pool
    Rescue(Deferred<command::inspect::rescue::Rescue>),
    /// Send streams: show, check, list and read files, recompress, repair
    #[command(subcommand)]
    Stream(Deferred<command::stream::Stream>),
    /// Make and update copies of datasets, here or on other machines, by send streams
    Replicate(Deferred<command::replicate::Replicate>),
    /// Measure storage: run studies, compare results, recommend changes, write reports
    #[command(subcommand)]
    Lab(Deferred<command::lab::Lab>),
    /// Record loads, and replay them against cache policies and sizes
    #[command(subcommand)]
    Trace(Deferred<command::trace::TraceCommand>),
    /// Show cache statistics of open pools, like arcstat
    Arcstat(Deferred<command::running::arcstat::Arcstat>),
    /// Show pools, vdevs, latencies and caches live
    Top(Deferred<command::running::top::Top>),
    /// Show counters under OpenZFS's names, as in /proc/spl/kstat/zfs
    Kstat(Deferred<command::running::kstat::Kstat>),
    /// Show or set tunables of open pools: memory, policies, queues
    Tunable(Deferred<command::running::tunable::TunableCommand>),
    /// Pools that move among machines: show, switch, fence
    #[command(subcommand)]
    Ha(Deferred<command::running::ha::HaCommand>),
    /// Inject faults into devices of open pools, like zinject
    Inject(Deferred<command::running::inject::Inject>),
    /// Show feature flags: who can read a pool, and why; or those of a pool
    Features(Deferred<command::inspect::features::Features>),
    /// Show any on-disk structure, like zdb
    Dump(Deferred<command::inspect::dump::Dump>),
    /// Show Cenote at work on a small built-in pool, then with one of its disks missing
    Demo(Deferred<command::demo::Demo>),
    /// Write shell completions to standard output
    Completions(Deferred<command::shell::completions::Completions>),
    /// Write man pages to a directory
    Man(Deferred<command::shell::man::Man>),
    /// Clean up the mounts of a killed process; started by that process
    #[command(hide = true)]
    Guard(Deferred<command::guard::Guard>),
    /// Print completions of the word being typed, for shells
    #[command(hide = true)]
    Complete(Deferred<command::shell::complete::Complete>),
}

/// Whether a command line that can't be parsed seems to ask for JSON.
pub fn asks_for_json(argv: &[OsString]) -> bool {
    argv.iter().take_while(|word| *word != "--").any(|word| word == "--json" || word == "-j")
}

/// For `zpool` and `zfs`, `-?` after a verb is an invalid option, as scripts expect: usage, and status 2. So
/// is `-h` if the program was called as that tool, whose verbs have none (`zpool iostat` is the exception).
fn refuse_short_help(command: &mut clap::Command, argv: &[OsString], as_tool: bool) -> Option<clap::Error> {
    let [_, tool, verb, words @ ..] = argv else { return None };
    let (tool, verb) = (tool.to_str().filter(|tool| ["zpool", "zfs"].contains(tool))?, verb.to_str()?);
    let is_asked = |letter: &str| words.iter().take_while(|word| *word != "--").any(|word| word == letter);
    if !(is_asked("-?") || as_tool && is_asked("-h")) {
        return None;
    }
    command.build();
    let verb = command.find_subcommand_mut(tool)?.find_subcommand_mut(verb)?;
    let is_help = |arg: &clap::Arg| arg.get_short() == Some('h') && arg.get_id() == "help";
    let has_none = || verb.get_name() != "iostat" && verb.get_arguments().any(is_help);
    let letter = if is_asked("-?") { Some('?') } else { has_none().then_some('h') }?;
    Some(verb.error(clap::error::ErrorKind::UnknownArgument, format!("invalid option '{letter}'")))
}

/// Suggests `zpool status` for `cenote status`. `first`: the first word after the program's name.
fn with_tool(mut error: clap::Error, first: Option<&str>) -> clap::Error {
    let is_unknown = |word: &&str| {
        let unknown = error.get(ContextKind::InvalidSubcommand);
        unknown == Some(&ContextValue::String((*word).to_owned()))
    };
    let Some(verb) = first.filter(is_unknown) else { return error };
    let tools = tools_with(verb);
    if !tools.is_empty() {
        let verbs = tools.iter().map(|tool| format!("{tool} {verb}")).collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(verbs));
    }
    error
}

/// The tools that have this verb.
fn tools_with(verb: &str) -> Vec<&'static str> {
    let tools = [
        ("zpool", command::zpool::Zpool::augment_subcommands(clap::Command::new("zpool"))),
        ("zfs", command::zfs::Zfs::augment_subcommands(clap::Command::new("zfs"))),
    ];
    let has = tools.into_iter().filter(|(_, known)| known.find_subcommand(verb).is_some());
    has.map(|(tool, _)| tool).collect()
}

impl Cli {
    /// Reads the command line. Run through a link named `zpool` or `zfs`, the program behaves as that tool.
    pub fn read(mut argv: Vec<OsString>) -> Result<Cli, clap::Error> {
        let called = argv.first().and_then(|program| Path::new(program).file_name()?.to_str());
        let tool = called.filter(|called| ["zpool", "zfs"].contains(called)).map(OsString::from);
        let as_tool = tool.is_some();
        if let Some(tool) = tool {
            argv[0] = "cenote".into();
            argv.insert(1, tool);
        }
        if let Some(help) = common::help(&argv) {
            return Err(help);
        }
        let mut command = Cli::command();
        if let Some(refused) = refuse_short_help(&mut command, &argv, as_tool) {
            return Err(refused);
        }
        let first = argv.get(1).and_then(|word| word.to_str()).map(str::to_owned);
        let parsed = command.try_get_matches_from_mut(argv);
        let matches = parsed.map_err(|error| with_tool(error, first.as_deref()))?;
        let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        Ok(Cli { common: Common::gather(&matches)?, verb: verb(&matches), as_tool, ..cli })
    }
}

/// The names of a command and of those above it: `zfs list`.
fn verb(matches: &ArgMatches) -> String {
    let below =
        |matches: &ArgMatches| matches.subcommand().map(|(name, below)| (name.to_owned(), below.clone()));
    let names = std::iter::successors(below(matches), |(_, matches)| below(matches));
    names.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}
