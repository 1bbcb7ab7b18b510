//! Command lines of the commands on files in pools: `pool/dataset[@snapshot]:/path`.

mod cat;
pub mod cp;
mod du;
pub mod find;
mod ls;
mod stat;

use cenote_control::files::mkdir::Mkdir as MkdirRequest;
use cenote_control::files::rm::Rm as RmRequest;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, Target, TargetParser};

/// `cenote ls`
#[derive(Debug, Args)]
#[command(
    after_help = "Names with a backslash, or with bytes that a terminal would not show, are printed in the \
        quotes of bash, $'a\\tb\\xff'; every command accepts that form.\n\n\
        Example: cenote ls -l tank/home@monday:/projects"
)]
pub struct Ls {
    /// Show type, mode, owner, size and time
    #[arg(short = 'l')]
    pub long: bool,
    /// Include names that begin with a dot
    #[arg(short = 'a')]
    pub all: bool,
    /// List nested folders too
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Print sizes as 1.5K, 2M
    #[arg(short = 'h', long = "human-readable", alias = "human")]
    pub human: bool,
    /// Show object numbers
    #[arg(short = 'i')]
    pub inode: bool,
    /// List the folder itself, not its contents
    #[arg(short = 'd', long = "directory")]
    pub directory: bool,
    /// Print each entry as a complete, unquoted target that ends in a NUL byte: for `xargs -0`
    #[arg(short = '0', long, conflicts_with = "long")]
    pub print0: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_parser = TargetParser, value_name = "DATASET:/PATH")]
    pub targets: Vec<Target>,
}

/// `cenote stat`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote stat --blocks tank/home:/notes.txt")]
pub struct Stat {
    /// Follow a symbolic link at the end of the path
    #[arg(short = 'L')]
    pub follow: bool,
    /// Show the address, size, checksum and birth txg of each block of the file
    #[arg(long)]
    pub blocks: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_parser = TargetParser, value_name = "DATASET:/PATH")]
    pub targets: Vec<Target>,
}

/// `cenote cat`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote cat tank/home@monday:/notes.txt")]
pub struct Cat {
    /// Begin at this byte
    #[arg(long, value_name = "BYTES")]
    pub offset: Option<String>,
    /// Write at most this many bytes
    #[arg(long, value_name = "BYTES")]
    pub length: Option<String>,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_parser = TargetParser, value_name = "DATASET:/PATH")]
    pub targets: Vec<Target>,
}

/// `cenote du`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote du -h -d 1 tank/home:/")]
pub struct Du {
    /// Show only the total of each argument
    #[arg(short = 's')]
    pub summarize: bool,
    /// Show folders down to this depth
    #[arg(short = 'd', long, alias = "max-depth", value_name = "N")]
    pub depth: Option<u32>,
    /// Show content sizes rather than allocated space
    #[arg(long)]
    pub apparent: bool,
    /// Print exact bytes
    #[arg(short = 'b', long)]
    pub bytes: bool,
    /// Print sizes as 1.5K, 2M; the default unless -b is given
    #[arg(short = 'h', long = "human-readable", overrides_with = "bytes")]
    pub human: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_parser = TargetParser, value_name = "DATASET:/PATH")]
    pub targets: Vec<Target>,
}

/// `cenote mkdir`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote mkdir -p tank/home:/projects/new")]
pub struct Mkdir {
    /// Create missing parents too; an existing folder is no error
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_parser = TargetParser, value_name = "TARGET")]
    pub targets: Vec<Target>,
}

/// `cenote rm`
#[derive(Debug, Args)]
#[command(after_help = "Snapshots are not affected.\n\nExample: cenote rm -r tank/home:/projects/old")]
pub struct Rm {
    /// Remove folders with all their contents
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// Accepted for compatibility: empty folders, which need no option
    #[arg(short = 'd')]
    pub empty_folders: bool,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_parser = TargetParser, value_name = "TARGET")]
    pub targets: Vec<Target>,
}

impl Mkdir {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = MkdirRequest { targets: self.targets, parents: self.parents };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Rm {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = RmRequest { targets: self.targets, recursive: self.recursive };
        Ok(session.control().run(request).await?.outcome)
    }
}
