//! `cenote cat`: file contents, read ahead and written in order.

use std::io::Write;

use cenote_fs::{FileKind, LastLink};
use cenote_inspect::copy::{Pieces, write_zeros};

use super::Cat;
use super::place::{PoolFile, PoolFiles, complain};
use crate::outcome::{CliError, Outcome};
use crate::render::parse_bytes;
use crate::session::{Session, raw_stdout};

impl Cat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let bytes = |text: &Option<String>, option: &str| match text {
            None => Ok(None),
            Some(text) => parse_bytes(text).map(Some).ok_or_else(|| {
                CliError::Usage(format!("{option} {text}: give bytes, for example 4096 or 1M"))
            }),
        };
        let start = bytes(&self.offset, "--offset")?.unwrap_or(0);
        let end = bytes(&self.length, "--length")?.map_or(u64::MAX, |len| start.saturating_add(len));
        let mut out = raw_stdout()?;
        let mut places = PoolFiles::new(session);
        let mut outcome = Outcome::Done;
        for target in &self.targets {
            let written = match places.find(target, LastLink::Follow).await {
                Ok(place) => write(&place, start..end, &mut out).await,
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                outcome = outcome.and(complain(target, error)?);
            }
        }
        Ok(outcome)
    }
}

async fn write(place: &PoolFile, range: std::ops::Range<u64>, out: &mut impl Write) -> Result<(), CliError> {
    if place.attr.kind() != FileKind::Regular {
        let what = if place.attr.is_dir() { "a folder" } else { "not a regular file" };
        return Err(CliError::NotFound(format!("is {what}: it has no content to print")));
    }
    let file = place.filesystem.open_file(place.object).await?;
    let mut pieces = Pieces::of_file(&file, range);
    while let Some(piece) = pieces.next().await {
        let written = match piece.data? {
            Some(bytes) => out.write_all(&bytes),
            None => write_zeros(piece.range.end - piece.range.start, |zeros| out.write_all(zeros)),
        };
        written.map_err(CliError::io("standard output"))?;
    }
    Ok(())
}
