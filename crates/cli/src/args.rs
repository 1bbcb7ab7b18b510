//! What can be typed. Each command's own options stand beside the command; here is what all share.
//!
//! `cenote zpool …` and `cenote zfs …` take the verbs and flags that administrators know. Called as
//! `zpool` or `zfs` (by a link of that name) the program is that tool.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::command;

mod deferred;
pub use deferred::Deferred;

/// Opens OpenZFS pools without a kernel module: makes, lists, reads, writes, scans, verifies and rescues them.
#[derive(Debug, Parser)]
#[command(name = "cenote", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 done, 1 failed, 2 misused, 3 damaged data found.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Common {
    /// Where the disks are: a folder, an image file or a device; repeatable [default: this machine's block devices]
    #[arg(short = 'd', long = "disks", value_name = "DIR|FILE|DEVICE", global = true)]
    pub disks: Vec<PathBuf>,
    /// Key of an encryption root: DATASET=pass:TEXT, hex:HEX, file:PATH or env:NAME; repeatable
    #[arg(long = "key", value_name = "DATASET=KEY", global = true)]
    pub keys: Vec<String>,
    /// Apply the intent logs in memory: what an import for writing would show
    #[arg(long, global = true)]
    pub replay: bool,
    /// Look at the pool as it was at this transaction group (the newest at or before it)
    #[arg(long, value_name = "N", global = true, conflicts_with = "rewind")]
    pub txg: Option<u64>,
    /// Go back to the newest transaction group whose tree is whole
    #[arg(short = 'F', long, global = true)]
    pub rewind: bool,
    /// Look at the pool's checkpoint
    #[arg(long, global = true, conflicts_with_all = ["txg", "rewind"])]
    pub checkpoint: bool,
    /// Output for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// Memory for cached blocks
    #[arg(long, value_name = "SIZE", default_value = "256M", global = true)]
    pub cache: String,
    /// Threads [default: one a core]
    #[arg(long, value_name = "N", global = true)]
    pub threads: Option<usize>,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Pools: create, add, attach, set, upgrade, export, destroy...; import, status, list, get, history, events
    #[command(subcommand)]
    Zpool(Deferred<command::zpool::Zpool>),
    /// Datasets: create, destroy, snapshot, clone, set, hold...; list, get, diff, holds
    #[command(subcommand)]
    Zfs(Deferred<command::zfs::Zfs>),
    /// List a folder of a dataset or snapshot
    Ls(Deferred<command::files::Ls>),
    /// Show all attributes of a file
    Stat(Deferred<command::files::Stat>),
    /// Write files' contents to standard output
    Cat(Deferred<command::files::Cat>),
    /// Copy files or trees out of a pool or into one, with times, modes, owners, links, xattrs, ACLs and holes
    Cp(Deferred<command::cp::Cp>),
    /// Make folders in a pool
    Mkdir(Deferred<command::change::Mkdir>),
    /// Remove files or trees from a pool
    Rm(Deferred<command::change::Rm>),
    /// Find files by name, type, size, age
    Find(Deferred<command::find::Find>),
    /// Space taken by folders
    Du(Deferred<command::files::Du>),
    /// Volumes: copy one out
    #[command(subcommand)]
    Volume(Deferred<command::volume::VolumeCommand>),
    /// List every file of datasets and snapshots, straight from the disks
    Scan(Deferred<command::scan::Scan>),
    /// Read every copy and parity column of every block and check them, and check space
    Verify(Deferred<command::verify::Verify>),
    /// Copy out everything that can still be read from a damaged pool
    Rescue(Deferred<command::rescue::Rescue>),
    /// Measure storage: studies with their evidence, comparisons, advice, reports
    #[command(subcommand)]
    Lab(Deferred<command::lab::Lab>),
    /// Show any on-disk structure, like zdb
    Dump(Deferred<command::dump::Dump>),
    /// See it work: a small pool that ships with the program, and a disk taken away
    Demo(Deferred<command::demo::Demo>),
    /// Write completions for a shell to standard output
    Completions(Deferred<command::completions::Completions>),
}

/// The longest command that is noted in a pool's history, `HIS_MAX_RECORD_LEN`.
const MAX_NOTED_BYTES: usize = 128 << 10;

/// The command line as the pool's history notes it: without keys.
pub fn as_noted(argv: &[OsString]) -> String {
    let mut words = Vec::new();
    let mut is_key = false;
    for word in argv {
        let word = word.to_string_lossy();
        let hide = |key: &str| format!("{}=...", key.split('=').next().unwrap_or_default());
        words.push(match word.strip_prefix("--key=") {
            Some(key) => format!("--key={}", hide(key)),
            None if is_key => hide(&word),
            None => word.to_string(),
        });
        is_key = word == "--key";
    }
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    let mut line = words.join(" ");
    let end = (0..=MAX_NOTED_BYTES.min(line.len())).rev().find(|&end| line.is_char_boundary(end));
    line.truncate(end.unwrap_or(0));
    line
}

/// The words of the command line, with the tool's name put in front if the program is called by a link `zpool` or `zfs`.
pub fn words(mut argv: Vec<OsString>) -> Vec<OsString> {
    let called = argv.first().map(PathBuf::from);
    let name = called.as_deref().and_then(|p| p.file_name()).and_then(|n| n.to_str());
    if let Some(tool @ ("zpool" | "zfs")) = name {
        let tool = OsString::from(tool);
        argv[0] = OsString::from("cenote");
        argv.insert(1, tool);
    }
    depth_words(defer_words(create_words(argv)))
}

/// `-d` of `zpool create` means no features, as OpenZFS has it.
fn create_words(mut argv: Vec<OsString>) -> Vec<OsString> {
    if let Some(verb) = (1..argv.len()).find(|&at| argv[at - 1] == "zpool" && argv[at] == "create") {
        argv[verb + 1..]
            .iter_mut()
            .filter(|word| *word == "-d")
            .for_each(|word| *word = "--no-features".into());
    }
    argv
}

/// `-d` of `zfs destroy` means to defer, as OpenZFS has it, unless something is there by the name that follows: then it is where the disks are.
fn defer_words(mut argv: Vec<OsString>) -> Vec<OsString> {
    let Some(verb) = (1..argv.len()).find(|&at| argv[at - 1] == "zfs" && argv[at] == "destroy") else {
        return argv;
    };
    for at in (verb + 1..argv.len()).rev() {
        let names_disks = argv.get(at + 1).is_some_and(|next| std::path::Path::new(next).exists());
        let Some(flags) = argv[at].to_str().and_then(|word| word.strip_prefix('-')) else { continue };
        let is_flags = !flags.is_empty() && flags.chars().all(|flag| "vpndfrR".contains(flag));
        if !is_flags || !flags.contains('d') || flags.ends_with('d') && names_disks {
            continue;
        }
        let others = flags.replace('d', "");
        argv[at] = "--defer".into();
        if !others.is_empty() {
            argv.insert(at, format!("-{others}").into());
        }
    }
    argv
}

/// `-d N` of `zfs list` and `zfs get` means a depth, as OpenZFS has it: if N is a number and nothing is there by that name.
fn depth_words(mut argv: Vec<OsString>) -> Vec<OsString> {
    let is = |index: usize, names: &[&str]| {
        argv.get(index).and_then(|word| word.to_str()).is_some_and(|word| names.contains(&word))
    };
    let Some(verb) = (1..argv.len()).find(|&at| is(at, &["zfs"]) && is(at + 1, &["list", "get"])) else {
        return argv;
    };
    let is_depth = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !std::path::Path::new(text).exists()
    };
    for at in verb + 2..argv.len() {
        let Some(word) = argv[at].to_str() else { continue };
        let next = argv.get(at + 1).and_then(|next| next.to_str());
        if word == "-d" && next.is_some_and(is_depth) {
            argv[at] = "--depth".into();
        } else if let Some(depth) = word.strip_prefix("-d").filter(|text| is_depth(text)) {
            argv[at] = format!("--depth={depth}").into();
        }
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    /// Structures of `dump` have theirs together.
    #[test]
    fn every_command_has_an_example_in_its_help() {
        fn look(command: &clap::Command) {
            let has_example =
                || command.get_after_help().is_some_and(|text| text.to_string().contains("Example"));
            if command.get_name() == "help" {
                return;
            }
            if command.get_name() == "dump" || !command.has_subcommands() {
                assert!(has_example(), "{}", command.get_name());
                return;
            }
            command.get_subcommands().for_each(look);
        }
        let mut all = <Cli as clap::CommandFactory>::command();
        all.build();
        look(&all);
    }

    #[test]
    fn the_history_notes_no_keys() {
        let argv: Vec<OsString> = "/usr/bin/cenote --key t/a=pass:x zfs create --key=t=hex:00 t/b"
            .split(' ')
            .map(OsString::from)
            .collect();
        assert_eq!(as_noted(&argv), "cenote --key t/a=... zfs create --key=t=... t/b");
    }

    #[test]
    fn a_link_named_zpool_is_zpool() {
        let argv = ["/usr/local/bin/zpool", "list"].map(OsString::from).to_vec();
        assert_eq!(words(argv), ["cenote", "zpool", "list"]);
    }

    fn parse(line: &str) -> Cli {
        let parsed = Cli::try_parse_from(words(line.split(' ').map(OsString::from).collect()));
        parsed.unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    #[test]
    fn capital_f_rewinds_unless_it_is_a_value_or_of_diff() {
        for line in
            ["cenote -F ls tank:/", "cenote ls -F tank:/", "zpool import -DF", "zfs diff --rewind a@b"]
        {
            assert!(parse(line).common.rewind, "{line}");
        }
        let diff = parse("zfs diff -F a@b");
        assert!(!diff.common.rewind);
        assert!(
            matches!(diff.command, Command::Zfs(Deferred(command::zfs::Zfs::Diff(diff))) if diff.classify)
        );
        let find = parse("cenote find --size -F tank:/");
        assert!(!find.common.rewind);
        assert!(matches!(find.command, Command::Find(Deferred(find)) if find.size.as_deref() == Some("-F")));
        let ls = parse("cenote ls -- -F");
        assert!(!ls.common.rewind);
        assert!(matches!(ls.command, Command::Ls(Deferred(ls)) if ls.targets == ["-F"]));
    }

    #[test]
    fn d_of_create_is_no_features() {
        let create = parse("cenote zpool create -d -o feature@lz4_compress=enabled tank a");
        assert!(create.common.disks.is_empty());
        let Command::Zpool(Deferred(command::zpool::Zpool::Create(create))) = create.command else {
            panic!()
        };
        assert!(create.no_features && create.vdevs == ["a"]);
    }

    #[test]
    fn d_of_destroy_defers_unless_it_names_disks() {
        let words = |line: &str| -> Vec<String> {
            let argv = line.split(' ').map(OsString::from).collect();
            super::words(argv).into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        assert_eq!(words("zfs destroy -d t@a")[2..], ["destroy", "--defer", "t@a"]);
        assert_eq!(words("zfs destroy -rdv t@a")[2..], ["destroy", "-rv", "--defer", "t@a"]);
        assert_eq!(words("zfs destroy -d / t@a")[2..], ["destroy", "-d", "/", "t@a"]);
        assert_eq!(words("zfs destroy t@a -d /tmp")[2..], ["destroy", "t@a", "-d", "/tmp"]);
        parse("zfs destroy -dr t@a");
    }

    #[test]
    fn capital_t_of_import_is_the_group_to_look_at() {
        for line in ["zpool import -T 5", "zpool import --txg 5 tank", "zpool --txg 5 import tank"] {
            assert_eq!(parse(line).common.txg, Some(5), "{line}");
        }
        assert!(Cli::try_parse_from(["cenote", "zpool", "import", "-T", "5", "-F"]).is_err());
    }

    #[test]
    fn a_number_after_d_is_a_depth_for_zfs_list_and_get_only() {
        let words = |line: &str| -> Vec<String> {
            let argv = line.split(' ').map(OsString::from).collect();
            super::words(argv).into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        assert_eq!(words("cenote zfs list -d 1 -d disks")[3..], ["--depth", "1", "-d", "disks"]);
        assert_eq!(words("/bin/zfs get -d2 all")[3..], ["--depth=2", "all"]);
        assert_eq!(words("cenote zfs holds -d 1")[3..], ["-d", "1"]);
        assert_eq!(words("cenote ls -d 1 zfs")[2..], ["-d", "1", "zfs"]);
    }
}
