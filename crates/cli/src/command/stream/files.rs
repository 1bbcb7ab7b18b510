//! `cenote stream ls` and `cat`: files in a stream.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use cenote_control::stream::cat::Cat as CatRequest;
use cenote_control::stream::ls::{Listed, Ls as LsRequest};
use cenote_shown::files::Shape;
use cenote_shown::numbers::Numbers;
use cenote_shown::output::Output;
use cenote_shown::stream;
use clap::Args;
use parking_lot::Mutex;

use super::{refuse_json, source};
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, Stdout, stdout};

const HOW: &str = "The stream must be a full one, unencrypted, and in a file: it is read once from end to \
    end and verified, then again where the files are. Memory stays small; nothing is written. In a package, \
    the first full stream is meant, or that of --snapshot.";

/// `cenote stream ls`
#[derive(Debug, Args)]
#[command(after_help = format!(
    "{HOW}\n\nFolders of more than 65536 entries are sorted up to there only.\n\n\
     Example: cenote stream ls -l home.zs /projects"
))]
pub struct Ls {
    /// Show type, mode, owner, size and time
    #[arg(short = 'l')]
    pub long: bool,
    /// Include names that begin with a dot
    #[arg(short = 'a')]
    pub all: bool,
    /// List everything below, with paths
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Print sizes as 1.5K, 2M
    #[arg(short = 'h', long = "human-readable")]
    pub human: bool,
    /// Show object numbers
    #[arg(short = 'i')]
    pub inode: bool,
    /// Snapshot in a package: its name, or the end of it
    #[arg(long, value_name = "SNAPSHOT")]
    pub snapshot: Option<String>,
    /// The stream
    pub file: PathBuf,
    /// Path from the root of the file system
    #[arg(default_value = "/")]
    pub path: PathBuf,
}

/// `cenote stream cat`
#[derive(Debug, Args)]
#[command(after_help = format!("{HOW}\n\nExample: cenote stream cat home.zs /notes.txt"))]
pub struct Cat {
    /// Snapshot in a package: its name, or the end of it
    #[arg(long, value_name = "SNAPSHOT")]
    pub snapshot: Option<String>,
    /// The stream
    pub file: PathBuf,
    /// Paths from the root of the file system
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
}

impl Ls {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (source, files) = source(Some(&self.file))?;
        let shape = Shape {
            long: self.long,
            numbers: Numbers { exact: !self.human, ..Numbers::default() },
            inodes: self.inode,
            colors: false,
        };
        let request = LsRequest {
            source,
            snapshot: self.snapshot,
            path: self.path.into_os_string().into_vec(),
            all: self.all,
            recursive: self.recursive,
        };
        let out = Some(Output::new(stdout(), session.json()));
        let all = Arc::new(Mutex::new((shape, self.recursive, out)));
        let take = |(shape, recursive, out): &mut (Shape, bool, Option<Output<Stdout>>), part: Listed| {
            out.as_mut().map_or(Ok(()), |out| stream::list(&part, *shape, *recursive, out))
        };
        let answered = session.control().bringing(files).run_in_parts(request, &all, take).await;
        let out = all.lock().2.take();
        let outcome = answered?.outcome;
        out.map_or(Ok(()), Output::end)?;
        Ok(outcome)
    }
}

impl Cat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        refuse_json(session)?;
        let (source, files) = source(Some(&self.file))?;
        let paths = self.paths.into_iter().map(|path| path.into_os_string().into_vec()).collect();
        let request = CatRequest { source, snapshot: self.snapshot, paths };
        Ok(session.control().run_with_files(request, files).await?.outcome)
    }
}
