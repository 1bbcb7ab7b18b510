//! `cenote scan`: lists every file of datasets and snapshots, straight from dnodes and directories.

mod output;
mod select;
mod summary;

use std::path::PathBuf;

use cenote_inspect::scan::{Column, Columns};
use clap::{Args, ValueEnum};

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, Target, TargetParser};

/// `cenote scan`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote scan -r --format tsv --columns path,size,mtime tank > files.tsv")]
pub struct Scan {
    /// Scan all datasets below too
    #[arg(short = 'r', long)]
    pub recursive: bool,
    /// Scan the newest snapshot of each dataset instead of the live dataset
    #[arg(long, conflicts_with = "snapshot")]
    pub latest: bool,
    /// Scan snapshots whose names match, instead of the live dataset; repeatable
    #[arg(long, value_name = "GLOB")]
    pub snapshot: Vec<String>,
    /// Columns, comma-separated: dataset, snapshot, path, type, mode, uid, gid, size, allocated, nlink,
    /// atime, mtime, ctime, btime, rdev, target, xattrs, flags, projid, ino, birth_txg, class
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Add the SHA-256 of each file's content (reads all data)
    #[arg(long)]
    pub hash: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "summary")]
    pub format: Format,
    /// Row terminator in tsv
    #[arg(long, value_enum, default_value = "newline")]
    pub separator: Separator,
    /// No header row in tsv
    #[arg(long)]
    pub no_header: bool,
    /// In the summary: totals of folders down to this depth
    #[arg(long, value_name = "DEPTH", default_value_t = 1)]
    pub top: u32,
    /// Write to this file instead of standard output (required for parquet)
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show progress even if the output goes to a terminal
    #[arg(long)]
    pub progress: bool,
    /// Pools, datasets or snapshots
    #[arg(required = true, value_parser = TargetParser, value_name = "DATASET[@SNAPSHOT]")]
    pub targets: Vec<Target>,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables of totals: by folder, owner, age, size, vdev class
    Summary,
    /// One row per file, tabs between columns, bytes outside printable ASCII as \xNN
    Tsv,
    /// The columns and notation of the golden pools' manifests, sorted by path, with content hashes
    Manifest,
    /// One JSON object per line
    Jsonl,
    /// Apache Parquet
    Parquet,
}

/// Row terminators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Separator {
    /// A line feed
    Newline,
    /// A NUL byte; paths are then not escaped
    Nul,
    /// The ASCII file separator, 0x1C; paths are then not escaped
    Fs,
}

impl Scan {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        self.columns()?; // reports a wrong name before disks are searched
        use_small_pages();
        let (mut targets, mut outcome) = (Vec::new(), Outcome::Done);
        for target in &self.targets {
            let (found, told) = select::targets(session, &self, target).await?;
            targets.extend(found);
            outcome = outcome.and(told);
        }
        if targets.is_empty() && outcome != Outcome::Done {
            return Ok(outcome);
        }
        if targets.is_empty() {
            return Err(CliError::NotFound(
                "no file system or snapshot matches; `cenote zfs list -t all` shows them".into(),
            ));
        }
        Ok(output::write(session, &self, targets).await?.and(outcome))
    }

    /// The selected columns, with the hash if `--hash` is given.
    fn columns(&self) -> Result<Columns, CliError> {
        let mut columns = match self.columns.is_empty() {
            true => Columns::default().0,
            false => self
                .columns
                .iter()
                .map(|name| name.parse().map_err(CliError::Usage))
                .collect::<Result<Vec<_>, _>>()?,
        };
        if self.hash && !columns.contains(&Column::Sha256) {
            columns.push(Column::Sha256);
        }
        Ok(Columns(columns))
    }
}

/// A scan's memory is many small pieces. In huge pages it takes half as much again, and the kernel zeroes
/// each page first: a quarter of the run time in a virtual machine. On bare metal, a short scan is a few per
/// cent slower without huge pages.
fn use_small_pages() {
    // A kernel that does not know huge pages, or can't disable them, is fine too.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
