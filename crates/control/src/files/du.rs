//! `du`: the space that folders use.
//!
//! Each file's size is added to its folder, cut to the displayed depth, and at the end to all ancestors. A
//! file with hard links counts once, under the path that sorts first, so the figures do not depend on the
//! scan order.

use std::collections::{BTreeMap, HashMap};

use cenote_format::text_or_bytes;
use cenote_format::units::ObjectId;
use cenote_fs::{Attr, FileKind, LastLink};
use cenote_inspect::scan::{RowBatch, ScanNeeds, ScanProblem, scan_below};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Target;
use super::listed::{FILES_AT_ONCE, join};
use super::place::{Place, on_each};
use crate::error::{ControlError, Outcome};
use crate::parts::Part;
use crate::session::Session;
use crate::verb::{Answered, InParts, Looks, Needs, Verb};

/// Show the space that folders use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Du {
    /// Folders, or files.
    pub targets: Vec<Target>,
    /// Depth of folders with their own totals; none: all.
    #[serde(default)]
    pub depth: Option<u32>,
    /// Count content sizes, not allocated space.
    #[serde(default)]
    pub apparent: bool,
}

/// A folder's total.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Total {
    /// `pool/dataset@snapshot:/path`.
    #[serde(with = "text_or_bytes")]
    #[schemars(with = "text_or_bytes::TextOrBytes")]
    pub path: Vec<u8>,
    /// Of all files below it.
    pub bytes: u64,
}

impl InParts for Du {
    type Part = Vec<Total>;
}

impl Verb for Du {
    const NAME: &'static str = "du";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = ();

    /// # Errors
    /// The caller takes no more. Unreadable files are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let count = async |_, place: Place| {
            let (totals, outcome) = self.count(session, &place).await?;
            let give = |totals: &[Total]| session.caller().give(Part::of(totals.to_vec()));
            totals.chunks(FILES_AT_ONCE).try_for_each(give).map(|()| outcome)
        };
        Ok(on_each(session, &self.targets, LastLink::Keep, count).await?.into())
    }
}

#[derive(Default)]
struct Sums {
    folders: HashMap<Vec<u8>, u64>,
    linked: Vec<(ObjectId, Vec<u8>, u64)>,
    problems: Vec<ScanProblem>,
}

impl Du {
    async fn count(&self, session: &Session, place: &Place) -> Result<(Vec<Total>, Outcome), ControlError> {
        let depth = self.depth.map_or(usize::MAX, |levels| levels as usize);
        let apparent = self.apparent;
        if !place.attr.is_dir() {
            let total = Total { path: place.shown.clone(), bytes: size(&place.attr, apparent) };
            return Ok((vec![total], Outcome::Done));
        }
        let mut folders: HashMap<Vec<u8>, u64> = HashMap::new();
        let mut linked: HashMap<ObjectId, (Vec<u8>, u64)> = HashMap::new();
        let mut outcome = Outcome::Done;
        let render = move |batch: &RowBatch| sums(batch, depth, apparent);
        scan_below(&place.scan_target(), place.object, ScanNeeds::default(), render, |sums: Sums| {
            for (folder, bytes) in sums.folders {
                *folders.entry(folder).or_default() += bytes;
            }
            for (object, path, bytes) in sums.linked {
                let first = linked.entry(object).or_insert_with(|| (path.clone(), bytes));
                if path < first.0 {
                    *first = (path, bytes);
                }
            }
            for problem in sums.problems {
                outcome = outcome.and(place.problem(session, &problem.path, problem.error));
            }
            Ok(())
        })
        .await?;
        for (path, bytes) in linked.into_values() {
            *folders.entry(cut(parent(&path), depth).to_vec()).or_default() += bytes;
        }
        Ok((totals(place, folders), outcome))
    }
}

fn sums(batch: &RowBatch, depth: usize, apparent: bool) -> Sums {
    let mut sums = Sums { problems: batch.problems.clone(), ..Sums::default() };
    for row in &batch.rows {
        let (path, bytes) = (batch.path(row), size(&row.attr, apparent));
        if row.attr.links > 1 && !row.attr.is_dir() {
            sums.linked.push((row.object, path.to_vec(), bytes));
            continue;
        }
        let folder = match (row.attr.is_dir(), path) {
            (true, b".") => b"",
            (true, folder) => folder,
            (false, file) => parent(file),
        };
        let folder = cut(folder, depth);
        match sums.folders.get_mut(folder) {
            Some(sum) => *sum += bytes,
            None => {
                sums.folders.insert(folder.to_vec(), bytes);
            }
        }
    }
    sums
}

/// Adds each folder's bytes to all folders above it. The sort order puts children before parents.
fn totals(place: &Place, folders: HashMap<Vec<u8>, u64>) -> Vec<Total> {
    let mut totals: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (folder, bytes) in folders {
        let mut at: &[u8] = &folder;
        loop {
            *totals.entry([at, b"\xff"].concat()).or_default() += bytes;
            if at.is_empty() {
                break;
            }
            at = parent(at);
        }
    }
    let total = |(key, bytes): (Vec<u8>, u64)| Total {
        // The final byte of each key only sorts the folder after its children.
        path: join(&place.shown, &key[..key.len() - 1]),
        bytes,
    };
    totals.into_iter().map(total).collect()
}

fn size(attr: &Attr, apparent: bool) -> u64 {
    match (apparent, attr.kind()) {
        (false, _) => attr.allocated_bytes(),
        (true, FileKind::Regular | FileKind::Symlink) => attr.size,
        (true, _) => 0,
    }
}

/// The folder of `path`; empty at the starting folder.
fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&b| b == b'/').unwrap_or(0)]
}

/// The first `depth` components of a path.
fn cut(path: &[u8], depth: usize) -> &[u8] {
    if depth == 0 {
        return b"";
    }
    let mut slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    let end = slashes.nth(depth - 1).unwrap_or(path.len());
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_to_a_depth() {
        for (path, depth, expected) in [
            (&b"a/b/c"[..], 0, &b""[..]),
            (b"a/b/c", 1, b"a"),
            (b"a/b/c", 2, b"a/b"),
            (b"a/b/c", 3, b"a/b/c"),
            (b"a", usize::MAX, b"a"),
            (b"", 1, b""),
        ] {
            assert_eq!(cut(path, depth), expected);
        }
        assert_eq!((parent(b"a/b"), parent(b"a")), (&b"a"[..], &b""[..]));
    }
}
