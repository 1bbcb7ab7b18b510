//! `cenote stream ls` and `cat`: files in a stream.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use cenote_control::stream::cat::Cat as CatRequest;
use cenote_control::stream::ls::{Listed, Ls as LsRequest};
use clap::Args;
use parking_lot::Mutex;

use super::{refuse_json, source};
use crate::command::files::line::{FileJson, FileLine, in_columns};
use crate::outcome::{CliError, Outcome};
use crate::render::quoted;
use crate::session::{JsonArray, Session, print_bytes};

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

/// How files are shown.
struct Shape {
    long: bool,
    human: bool,
    inodes: bool,
    recursive: bool,
    json: Option<JsonArray>,
}

impl Ls {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (source, files) = source(Some(&self.file))?;
        let shape = Shape {
            long: self.long,
            human: self.human,
            inodes: self.inode,
            recursive: self.recursive,
            json: session.json().then(JsonArray::new),
        };
        let request = LsRequest {
            source,
            snapshot: self.snapshot,
            path: self.path.into_os_string().into_vec(),
            all: self.all,
            recursive: self.recursive,
        };
        let shape = Arc::new(Mutex::new(shape));
        let answered = session.control().bringing(files).run_in_parts(request, &shape, Shape::take).await;
        let json = shape.lock().json.take();
        let outcome = answered?.outcome;
        json.map_or(Ok(()), JsonArray::end)?;
        Ok(outcome)
    }
}

impl Shape {
    fn take(&mut self, Listed { files }: Listed) -> Result<(), CliError> {
        if let Some(json) = &mut self.json {
            return files.iter().try_for_each(|file| {
                let attr = file.attr.unwrap_or_default();
                json.push(&FileJson::new(&file.path, file.object, &attr, file.link.as_deref()))
            });
        }
        let line = |file: &cenote_control::files::File| {
            let name = match file.path.iter().rposition(|byte| *byte == b'/') {
                Some(at) if !self.recursive => file.path.get(at + 1..).unwrap_or_default(),
                _ => &file.path,
            };
            let mut shown = quoted(name);
            if !self.long {
                return FileLine::short(file.object, shown);
            }
            if let Some(link) = &file.link {
                shown = format!("{shown} -> {}", quoted(link));
            }
            FileLine::long(file.object, &file.attr.unwrap_or_default(), shown, self.human)
        };
        let lines: Vec<FileLine> = files.iter().map(line).collect();
        print_bytes(in_columns(&lines, self.inodes))
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
