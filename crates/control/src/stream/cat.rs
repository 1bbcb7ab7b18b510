//! `stream cat`: writes the contents of files in a full stream to standard output.

use cenote_format::text_or_bytes;
use cenote_fs::FileKind;
use cenote_inspect::sent::{Piece, Sent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use super::Source;
use super::sent::{failed, open};
use crate::error::{ControlError, Outcome};
use crate::pipe::Outlet;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// A `stream cat` request.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cat {
    /// The stream, a file.
    pub source: Source,
    /// Snapshot, in a package: its name or the end of it. None: the first full stream.
    pub snapshot: Option<String>,
    /// Paths from the root.
    #[serde(with = "text_or_bytes::each")]
    #[schemars(with = "Vec<cenote_format::text_or_bytes::TextOrBytes>")]
    pub paths: Vec<Vec<u8>>,
}

impl Verb for Cat {
    const NAME: &'static str = "stream cat";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No full stream of a file system; the output can't be written. Unreadable files are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let named = || ControlError::io("standard output");
        let output = session.caller().console.output().map_err(named())?;
        let mut out = Outlet::new(output).map_err(named())?;
        let mut sent = open(session, &self.source, self.snapshot.as_deref()).await?;
        let mut outcome = Outcome::Done;
        for path in &self.paths {
            match self.write(&mut sent, path, &mut out).await {
                Ok(()) => {}
                // A reader that has seen enough is no failure.
                Err(error) if error.is_broken_pipe() => break,
                Err(error @ ControlError::Inspect(cenote_inspect::InspectError::Io { .. })) => {
                    return Err(error);
                }
                Err(error) => {
                    outcome = outcome.and(session.caller().tell(&String::from_utf8_lossy(path), &error));
                }
            }
        }
        Ok(outcome.into())
    }
}

impl Cat {
    async fn write(&self, sent: &mut Sent, path: &[u8], out: &mut Outlet) -> Result<(), ControlError> {
        let failed = |error| failed(&self.source, error);
        let (object, attr) = sent.find(path).map_err(failed)?;
        if attr.kind() != FileKind::Regular {
            let what = match attr.kind() {
                FileKind::Directory => "a folder",
                FileKind::Symlink => "a symbolic link, which is not followed",
                _ => "not a regular file",
            };
            return Err(ControlError::NotFound(format!("is {what}: it has no content to print")));
        }
        let mut content = sent.content(object, 0..attr.size).map_err(failed)?;
        while let Some(piece) = content.next(sent).map_err(failed)? {
            let written = match piece {
                Piece::Data(bytes) => out.write_all(&bytes).await,
                Piece::Hole(count) => out.write_zeros(count).await,
            };
            written.map_err(ControlError::io("standard output"))?;
        }
        Ok(())
    }
}
