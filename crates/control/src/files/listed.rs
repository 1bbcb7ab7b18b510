//! Files in listings.

use cenote_format::text_or_bytes;
use cenote_format::units::ObjectId;
use cenote_fs::Attr;
use cenote_inspect::scan::{RowBatch, ScanNeeds, ScanProblem, scan_below};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::place::Place;
use crate::error::{ControlError, Outcome};
use crate::parts::Part;
use crate::session::Session;

/// Files per part.
pub(super) const FILES_AT_ONCE: usize = 1024;

/// A part of a listing: files of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Files {
    /// Index of the target in the request.
    pub target: usize,
    /// Target's file, `pool/dataset@snapshot:/path`.
    #[serde(with = "text_or_bytes")]
    #[schemars(with = "text_or_bytes::TextOrBytes")]
    pub place: Vec<u8>,
    /// Files.
    pub files: Vec<File>,
    /// Of `ls`: the last part of this target.
    #[serde(default)]
    pub is_last: bool,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct File {
    /// The path relative to the target; empty for the target itself.
    #[serde(with = "text_or_bytes")]
    #[schemars(with = "text_or_bytes::TextOrBytes")]
    pub path: Vec<u8>,
    /// Object number.
    pub object: ObjectId,
    /// Attributes, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attr: Option<Attr>,
    /// The target of a symbolic link, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_or_bytes::maybe")]
    #[schemars(with = "Option<cenote_format::text_or_bytes::TextOrBytes>")]
    pub link: Option<Vec<u8>>,
}

impl Files {
    /// A file's path, `pool/dataset@snapshot:/path`.
    pub fn full_path(&self, file: &File) -> Vec<u8> {
        join(&self.place, &file.path)
    }
}

pub(super) fn join(place: &[u8], below: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if below.is_empty() || place.ends_with(b"/") { b"" } else { b"/" };
    [place, slash, below].concat()
}

/// Gives a target's files to the caller.
pub(super) fn give(
    session: &Session,
    target: usize,
    place: &Place,
    files: Vec<File>,
    is_last: bool,
) -> Result<(), ControlError> {
    session.caller().give(Part::of(Files { target, place: place.shown.clone(), files, is_last }))
}

/// Gives the files below a folder that `select` makes from rows, in disk order.
pub(super) async fn give_below(
    session: &Session,
    target: usize,
    place: &Place,
    needs: ScanNeeds,
    select: impl Fn(&RowBatch) -> Vec<File> + Send + Sync + 'static,
) -> Result<Outcome, ControlError> {
    let (caller, shown) = (session.caller().clone(), place.shown.clone());
    let part = move |batch: &RowBatch| {
        let files = select(batch);
        let part = (!files.is_empty())
            .then(|| Part::of(Files { target, place: shown.clone(), files, is_last: false }));
        (part.map(|part| caller.ready(part)).transpose(), batch.problems.clone())
    };
    let mut outcome = Outcome::Done;
    let take = |(part, problems): (Result<Option<Part>, ControlError>, Vec<ScanProblem>)| {
        for problem in problems {
            outcome = outcome.and(place.problem(session, &problem.path, problem.error));
        }
        Ok(part?.map_or(Ok(()), |part| session.caller().give(part))?)
    };
    scan_below(&place.scan_target(), place.object, needs, part, take).await?;
    Ok(outcome)
}
