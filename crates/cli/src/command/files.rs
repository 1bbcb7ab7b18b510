//! `ls`, `stat`, `cat` and `du` on `pool/dataset[@snapshot]:/path`.

mod cat;
mod du;
mod line;
mod ls;
mod place;
mod stat;

use clap::Args;

pub use line::{FileJson, long_lines};
pub use place::{Place, Places, complain};

/// `cenote ls`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote ls -l tank/home@monday:/projects")]
pub struct Ls {
    /// Type, mode, owner, size and time of each
    #[arg(short = 'l')]
    pub long: bool,
    /// Names that begin with a dot too
    #[arg(short = 'a')]
    pub all: bool,
    /// Folders within folders too
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Sizes as 1.5K, 2M
    #[arg(short = 's', long = "human")]
    pub human: bool,
    /// Object numbers
    #[arg(short = 'i')]
    pub inode: bool,
    /// The folder itself, not what is in it
    #[arg(long = "directory")]
    pub directory: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_name = "DATASET:/PATH")]
    pub targets: Vec<String>,
}

/// `cenote stat`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote stat --blocks tank/home:/notes.txt")]
pub struct Stat {
    /// Follow a symbolic link at the end
    #[arg(short = 'L')]
    pub follow: bool,
    /// Where each block of the file lies, its size, checksum and birth
    #[arg(long)]
    pub blocks: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_name = "DATASET:/PATH")]
    pub targets: Vec<String>,
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
    #[arg(required = true, value_name = "DATASET:/PATH")]
    pub targets: Vec<String>,
}

/// `cenote du`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote du -s --depth 1 tank/home:/")]
pub struct Du {
    /// Only the total of each argument
    #[arg(short = 's')]
    pub summarize: bool,
    /// Folders this many levels down
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// Sizes of contents rather than space taken
    #[arg(long)]
    pub apparent: bool,
    /// Exact bytes
    #[arg(short = 'b', long)]
    pub bytes: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_name = "DATASET:/PATH")]
    pub targets: Vec<String>,
}
