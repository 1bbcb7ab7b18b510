//! `stream ls`: files of folders in a full stream.

use cenote_format::text_or_bytes;
use cenote_format::units::ObjectId;
use cenote_fs::{Attr, FileKind};
use cenote_inspect::sent::{Sent, SentError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Source;
use super::sent::{failed, open};
use crate::error::{ControlError, Outcome};
use crate::files::File;
use crate::parts::Part;
use crate::session::Session;
use crate::verb::{Answered, InParts, Looks, Needs, Verb};

/// Files per part.
const FILES_AT_ONCE: usize = 1024;
/// Entries of a folder sorted by name, which bounds memory.
const SORTED: usize = 1 << 16;

/// A `stream ls` request.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ls {
    /// The stream, a file.
    pub source: Source,
    /// Snapshot, in a package: its name or the end of it. None: the first full stream.
    pub snapshot: Option<String>,
    /// Path from the root.
    #[serde(with = "text_or_bytes")]
    #[schemars(with = "cenote_format::text_or_bytes::TextOrBytes")]
    pub path: Vec<u8>,
    /// Include names that begin with a dot.
    pub all: bool,
    /// Include everything below.
    pub recursive: bool,
}

/// Files in one folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// Files, with paths from the root of the stream's file system.
    pub files: Vec<File>,
}

impl InParts for Ls {
    type Part = Listed;
}

impl Verb for Ls {
    const NAME: &'static str = "stream ls";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No full stream of a file system; no such path. Unreadable files are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let mut sent = open(session, &self.source, self.snapshot.as_deref()).await?;
        let (id, attr) = sent.find(&self.path).map_err(|error| failed(&self.source, error))?;
        let mut listing = Listing { request: &self, session, outcome: Outcome::Done };
        if !attr.is_dir() {
            let file = listing.describe(&mut sent, self.path.clone(), id, attr);
            listing.give(file.into_iter().collect())?;
            return Ok(listing.outcome.into());
        }
        let top = self.path.strip_prefix(b"/").unwrap_or(&self.path);
        let mut folders = vec![(top.to_vec(), id)];
        while let Some((path, id)) = folders.pop() {
            let below = listing.folder(&mut sent, &path, id)?;
            if self.recursive {
                folders.extend(below.into_iter().rev());
            }
        }
        Ok(listing.outcome.into())
    }
}

struct Listing<'a> {
    request: &'a Ls,
    session: &'a Session,
    outcome: Outcome,
}

impl Listing<'_> {
    /// Gives a folder's files; returns the folders among them.
    fn folder(
        &mut self,
        sent: &mut Sent,
        path: &[u8],
        id: ObjectId,
    ) -> Result<Vec<(Vec<u8>, ObjectId)>, ControlError> {
        let (mut entries, mut rest) = (Vec::new(), Vec::new());
        let read = sent.read_dir(id, |name, dirent| {
            if self.request.all || !name.starts_with(b".") {
                let to = if entries.len() < SORTED { &mut entries } else { &mut rest };
                to.push((name.to_vec(), dirent.object));
            }
        });
        if let Err(error) = read {
            self.problem(path, error);
        }
        entries.sort_unstable();
        entries.append(&mut rest);
        let mut folders = Vec::new();
        for chunk in entries.chunks(FILES_AT_ONCE) {
            // By number, since the stream has them in this order.
            let mut order: Vec<usize> = (0..chunk.len()).collect();
            order.sort_unstable_by_key(|at| chunk.get(*at).map(|(_, object)| *object));
            let mut files: Vec<Option<File>> = vec![None; chunk.len()];
            for at in order {
                let Some((name, object)) = chunk.get(at) else { continue };
                let path = [path, if path.is_empty() { b"" } else { b"/" }, name].concat();
                match sent.attr(*object) {
                    Ok(attr) => files[at] = self.describe(sent, path, *object, attr),
                    Err(error) => self.problem(&path, error),
                }
            }
            let files: Vec<File> = files.into_iter().flatten().collect();
            let is_folder = |file: &&File| file.attr.is_some_and(|attr| attr.is_dir());
            folders.extend(files.iter().filter(is_folder).map(|file| (file.path.clone(), file.object)));
            self.give(files)?;
        }
        Ok(folders)
    }

    fn describe(&mut self, sent: &mut Sent, path: Vec<u8>, object: ObjectId, attr: Attr) -> Option<File> {
        let link = match attr.kind() {
            FileKind::Symlink => match sent.read_link(object, &attr) {
                Ok(link) => Some(link),
                Err(error) => {
                    self.problem(&path, error);
                    None
                }
            },
            _ => None,
        };
        Some(File { path, object, attr: Some(attr), link })
    }

    fn give(&self, files: Vec<File>) -> Result<(), ControlError> {
        match files.is_empty() {
            true => Ok(()),
            false => self.session.caller().give(Part::of(Listed { files })),
        }
    }

    fn problem(&mut self, path: &[u8], error: SentError) {
        let error = failed(&self.request.source, error);
        let told = self.session.caller().tell(&String::from_utf8_lossy(path), &error);
        self.outcome = self.outcome.and(told);
    }
}
