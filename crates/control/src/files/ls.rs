//! `ls`: files of folders.

use cenote_format::units::ObjectId;
use cenote_fs::{Attr, FileKind, Filesystem, LastLink};
use cenote_inspect::scan::{RowBatch, ScanNeeds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Target;
use super::listed::{FILES_AT_ONCE, File, Files, give, give_below};
use super::place::{Place, on_each};
use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::verb::{Answered, InParts, Looks, Needs, Verb};

/// List a folder of a dataset or snapshot. A target that is no folder has a row of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ls {
    /// Folders.
    pub targets: Vec<Target>,
    /// Include names that begin with a dot.
    #[serde(default)]
    pub all: bool,
    /// Extent of the listing.
    #[serde(default)]
    pub depth: Depth,
}

/// Extent of a listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// Folder itself.
    Itself,
    /// Files, by name.
    #[default]
    Files,
    /// The folder and its descendants, in disk order.
    All {
        /// Include targets of symbolic links.
        links: bool,
    },
}

impl InParts for Ls {
    type Part = Files;
}

impl Verb for Ls {
    const NAME: &'static str = "ls";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = ();

    /// # Errors
    /// The caller takes no more. Unreadable files are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let list = async |at, place: Place| match self.depth {
            Depth::All { links } if place.attr.is_dir() => {
                let (all, needs) = (self.all, ScanNeeds { targets: links, ..ScanNeeds::default() });
                let outcome = give_below(session, at, &place, needs, move |batch| rows(batch, all)).await?;
                give(session, at, &place, Vec::new(), true).map(|()| outcome)
            }
            Depth::Files if place.attr.is_dir() => self.folder(session, at, &place).await,
            _ => {
                let file = describe(&place.filesystem, Vec::new(), place.object, place.attr).await?;
                give(session, at, &place, vec![file], true).map(|()| Outcome::Done)
            }
        };
        Ok(on_each(session, &self.targets, LastLink::Keep, list).await?.into())
    }
}

impl Ls {
    /// Unreadable files are reported.
    async fn folder(&self, session: &Session, at: usize, place: &Place) -> Result<Outcome, ControlError> {
        let fs = &place.filesystem;
        let mut outcome = Outcome::Done;
        let mut problem = |below: &[u8], error| outcome = outcome.and(place.problem(session, below, error));
        let mut entries = Vec::new();
        match fs.read_dir(place.object).await {
            Err(error) => problem(b"", error),
            Ok(mut reader) => loop {
                match reader.next_batch().await {
                    Ok(Some(batch)) => entries.extend(batch),
                    Ok(None) => break,
                    Err(error) => problem(b"", error),
                }
            },
        }
        entries.retain(|entry| self.all || !entry.name.starts_with(b"."));
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        // An empty folder has a part, too.
        let mut files = Vec::new();
        for (number, entry) in entries.into_iter().enumerate() {
            if number > 0 && number.is_multiple_of(FILES_AT_ONCE) {
                give(session, at, place, std::mem::take(&mut files), false)?;
            }
            let file = match fs.attr(entry.object).await {
                Ok(attr) => describe(fs, entry.name.to_vec(), entry.object, attr).await,
                Err(error) => Err(error),
            };
            match file {
                Ok(file) => files.push(file),
                Err(error) => problem(&entry.name, error),
            }
        }
        give(session, at, place, files, true)?;
        Ok(outcome)
    }
}

fn rows(batch: &RowBatch, all: bool) -> Vec<File> {
    let is_hidden = |path: &[u8]| !all && path.split(|&b| b == b'/').any(|name| name.starts_with(b"."));
    let file = |row| {
        let path = match batch.path(row) {
            b"." => Vec::new(),
            path if is_hidden(path) => return None,
            path => path.to_vec(),
        };
        let link = row.extra.as_ref().and_then(|extra| extra.target.clone());
        Some(File { path, object: row.object, attr: Some(row.attr), link })
    };
    batch.rows.iter().filter_map(file).collect()
}

async fn describe(fs: &Filesystem, path: Vec<u8>, object: ObjectId, attr: Attr) -> cenote_fs::Result<File> {
    let link = if attr.kind() == FileKind::Symlink { Some(fs.read_link(object).await?) } else { None };
    Ok(File { path, object, attr: Some(attr), link })
}
