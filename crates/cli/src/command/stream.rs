//! Command lines of `cenote stream`: send streams without a pool. Local files are opened here.

mod files;
mod filters;
mod raw;
mod shows;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use cenote_control::stream::Source;
use clap::Subcommand;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote stream` and its verbs.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    cenote stream verify home.zfs\n  \
    cenote stream ls -l home.zfs /documents\n  \
    cenote zfs send tank/home@monday | cenote stream dump -v")]
pub enum Stream {
    /// Show a stream's records and totals, like zstream dump
    Dump(shows::Dump),
    /// Show the content of a resume token
    Token(shows::Token),
    /// Check a stream: checksums, order, structure, sources
    Verify(shows::Verify),
    /// List files in a full stream
    Ls(files::Ls),
    /// Write files of a full stream to standard output
    Cat(files::Cat),
    /// Decompress named blocks whose recorded compression is wrong
    Decompress(filters::Decompress),
    /// Compress all blocks anew
    Recompress(filters::Recompress),
    /// Leave named blocks out
    #[command(alias = "drop_record")]
    DropRecord(filters::DropRecord),
    /// Make a deduplicated stream (zfs send -D) receivable
    Redup(filters::Redup),
    /// Apply streams of a volume to an image file or a device
    Raw(raw::Raw),
}

impl Stream {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        match self {
            Stream::Dump(dump) => dump.run(session).await,
            Stream::Token(token) => token.run(session).await,
            Stream::Verify(verify) => verify.run(session).await,
            Stream::Ls(ls) => ls.run(session).await,
            Stream::Cat(cat) => cat.run(session).await,
            Stream::Decompress(decompress) => decompress.run(session).await,
            Stream::Recompress(recompress) => recompress.run(session).await,
            Stream::DropRecord(drop) => drop.run(session).await,
            Stream::Redup(redup) => redup.run(session).await,
            Stream::Raw(raw) => raw.run(session).await,
        }
    }
}

/// Opens the stream; none or `-`: standard input.
fn source(path: Option<&Path>) -> Result<(Source, Vec<OwnedFd>), CliError> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        return Ok((Source::default(), Vec::new()));
    };
    let shown = path.display().to_string();
    let file = File::open(path);
    let opened = file.and_then(|file| Ok((file.metadata()?.is_dir(), file)));
    let (is_folder, file) = opened.map_err(CliError::io(shown.clone()))?;
    if is_folder {
        return Err(CliError::Usage(format!("{shown} is a folder: name a file")));
    }
    Ok((Source { file: Some(shown) }, vec![file.into()]))
}

/// Refuses `--json` for a verb whose standard output is the stream.
fn refuse_json(session: &Session) -> Result<(), CliError> {
    match session.json() {
        true => Err(CliError::Usage("--json and the stream can't both go to standard output".into())),
        false => Ok(()),
    }
}
