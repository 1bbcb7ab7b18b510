//! `cenote scan`: lists every file of datasets and snapshots, straight from dnodes and directories.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use cenote_control::inspect::scan::{Format as Form, Scan as Request, Scanned, Separator as End};
use cenote_shown::inspect::scan;
use cenote_shown::json;
use clap::{Args, ValueEnum};

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, Target, TargetParser, raw_stdout};
use crate::streams::streams;

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
        let is_at_terminal = self.output.is_none() && streams().stdout_screen().is_some();
        if self.format == Format::Parquet && is_at_terminal {
            return Err(CliError::Usage("--format parquet: name a file with --output".into()));
        }
        if self.progress {
            streams().show_progress(true);
        } else if is_at_terminal && self.format != Format::Summary {
            // No moving progress line among rows on the same terminal.
            streams().show_progress(false);
        }
        let Some(path) = self.output.clone() else {
            return self.ask(session, None).await;
        };
        let named = || CliError::io(self.output_name());
        // An existing file may hold a user's data: it stays.
        if path.symlink_metadata().is_ok() {
            let why = "exists already: name a new file";
            return Err(CliError::Usage(format!("{} {why}", self.output_name())));
        }
        let file = File::create_new(&path).map_err(named())?;
        let done = self.ask(session, Some(file)).await;
        if done.is_err() || path.metadata().is_ok_and(|file| file.len() == 0) {
            // A partial list would be mistaken for a complete one.
            std::fs::remove_file(&path).ok();
        }
        done
    }

    /// The output's name in messages.
    fn output_name(&self) -> String {
        self.output.as_ref().map_or_else(|| "standard output".into(), |path| path.display().to_string())
    }

    async fn ask(&self, session: &Session, file: Option<File>) -> Result<Outcome, CliError> {
        let is_summary = self.format == Format::Summary;
        let sent = file.as_ref().filter(|_| !is_summary).map(File::try_clone).transpose();
        let sent = sent.map_err(CliError::io(self.output_name()))?;
        let request = Request {
            targets: self.targets.clone(),
            recursive: self.recursive,
            latest: self.latest,
            snapshots: self.snapshot.clone(),
            columns: self.columns.clone(),
            hash: self.hash,
            format: self.format(),
            output: sent.as_ref().map(|_| self.output_name()),
        };
        let files = sent.into_iter().map(Into::into).collect();
        let answered = session.control().run_with_files(request, files).await?;
        let Scanned { datasets, summary } = answered.answer;
        let Some(summary) = summary else { return Ok(answered.outcome) };
        let text = match session.json() {
            true => json::lines(&scan::json(&summary)).map_err(|error| CliError::io("JSON")(error.into()))?,
            false => scan::text(&summary, datasets),
        };
        let written = file.unwrap_or(raw_stdout()?).write_all(text.as_bytes());
        Ok(answered.outcome.printed(written.map_err(CliError::io(self.output_name()))))
    }

    fn format(&self) -> Form {
        match self.format {
            Format::Summary => Form::Summary { depth: self.top },
            Format::Tsv => Form::Tsv { separator: self.separator.into(), has_header: !self.no_header },
            Format::Manifest => Form::Manifest,
            Format::Jsonl => Form::Jsonl,
            Format::Parquet => Form::Parquet,
        }
    }
}

impl From<Separator> for End {
    fn from(separator: Separator) -> End {
        match separator {
            Separator::Newline => End::Newline,
            Separator::Nul => End::Nul,
            Separator::Fs => End::Fs,
        }
    }
}
