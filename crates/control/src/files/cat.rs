//! `cat`: writes contents of files to the caller's standard output.

use std::ops::Range;

use cenote_fs::{FileKind, LastLink};
use cenote_inspect::copy::Pieces;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use super::Target;
use super::place::{Place, on_each};
use crate::error::{ControlError, Outcome};
use crate::pipe::Outlet;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Write files' contents to standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cat {
    /// Files.
    pub targets: Vec<Target>,
    /// First byte.
    #[serde(default)]
    pub start_bytes: u64,
    /// Maximum bytes; none: all.
    #[serde(default)]
    pub length_bytes: Option<u64>,
}

impl Verb for Cat {
    const NAME: &'static str = "cat";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = ();

    /// # Errors
    /// The output can't be written. Unreadable files are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let named = || ControlError::io("standard output");
        let output = session.caller().console.output().map_err(named())?;
        let range = self.start_bytes
            ..self.length_bytes.map_or(u64::MAX, |length| self.start_bytes.saturating_add(length));
        let mut out = match Outlet::new(output) {
            Ok(out) => out,
            Err(error) => return ended(named()(error)),
        };
        let written = on_each(session, &self.targets, LastLink::Follow, async |_, place| {
            write(&place, range.clone(), &mut out).await.map(|()| Outcome::Done)
        });
        written.await.map_or_else(ended, |outcome| Ok(outcome.into()))
    }
}

/// A reader that has seen enough is no failure.
fn ended(error: ControlError) -> Result<Answered<()>, ControlError> {
    if error.is_broken_pipe() { Ok(Outcome::Done.into()) } else { Err(error) }
}

async fn write(place: &Place, range: Range<u64>, out: &mut Outlet) -> Result<(), ControlError> {
    if place.attr.kind() != FileKind::Regular {
        let what = if place.attr.is_dir() { "a folder" } else { "not a regular file" };
        return Err(ControlError::NotFound(format!("is {what}: it has no content to print")));
    }
    let file = place.filesystem.open_file(place.object).await?;
    let mut pieces = Pieces::of_file(&file, range);
    while let Some(piece) = pieces.next().await {
        let written = match piece.data? {
            Some(bytes) => out.write_all(&bytes).await,
            None => out.write_zeros(piece.range.end - piece.range.start).await,
        };
        written.map_err(ControlError::io("standard output"))?;
    }
    Ok(())
}
