//! `cenote du`: the space that folders use.
//!
//! A scan yields every file. Its size is added to its folder, cut to the displayed depth, and at the end to
//! all folders above. A file with several names counts once, under the name whose path sorts first, so the
//! figures do not depend on the scan order.

use std::collections::{BTreeMap, HashMap};

use cenote_format::units::ObjectId;
use cenote_fs::{Attr, FileKind, LastLink};
use cenote_inspect::scan::{RowBatch, ScanNeeds, ScanProblem, scan_below};
use serde::Serialize;

use super::Du;
use super::place::{PoolFile, PoolFiles, complain};
use crate::outcome::{CliError, Outcome};
use crate::render::{json_name, nice_bytes, quoted};
use crate::session::{Session, print, print_json};

/// A folder's total.
struct Total {
    path: Vec<u8>,
    bytes: u64,
}

/// A total for JSON.
#[derive(Serialize)]
struct TotalJson {
    path: String,
    bytes: u64,
}

/// The sums of a batch of rows.
#[derive(Default)]
struct Sums {
    folders: HashMap<Vec<u8>, u64>,
    linked: Vec<(ObjectId, Vec<u8>, u64)>,
    problems: Vec<ScanProblem>,
}

impl Du {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let depth = if self.summarize { 0 } else { self.depth.map_or(usize::MAX, |n| n as usize) };
        let mut places = PoolFiles::new(session);
        let mut outcome = Outcome::Done;
        let mut totals = Vec::new();
        for target in &self.targets {
            let counted = match places.find(target, LastLink::Keep).await {
                Ok(place) => self.count(&place, depth).await,
                Err(error) => Err(error),
            };
            match counted {
                Ok((counted, how)) => {
                    outcome = outcome.and(how);
                    totals.extend(counted);
                }
                Err(error) => outcome = outcome.and(complain(target, error)?),
            }
        }
        if session.json() {
            let json = |total: &Total| TotalJson { path: json_name(&total.path), bytes: total.bytes };
            print_json(&totals.iter().map(json).collect::<Vec<_>>())?;
            return Ok(outcome);
        }
        let size = |bytes: u64| if self.bytes { bytes.to_string() } else { nice_bytes(bytes) };
        let lines = totals.iter().map(|total| format!("{}\t{}\n", size(total.bytes), quoted(&total.path)));
        print(lines.collect::<String>())?;
        Ok(outcome)
    }

    async fn count(&self, place: &PoolFile, depth: usize) -> Result<(Vec<Total>, Outcome), CliError> {
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
                outcome = outcome.and(place.problem(&problem.path, problem.error));
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

/// Sums a batch by folder.
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
fn totals(place: &PoolFile, folders: HashMap<Vec<u8>, u64>) -> Vec<Total> {
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
    let shown = |key: &[u8]| match key {
        b"" => place.shown.clone(),
        below => place.below(below),
    };
    let total = |(key, bytes): (Vec<u8>, u64)| Total {
        // The final byte of each key only sorts the folder after its children.
        path: shown(&key[..key.len() - 1]),
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

/// The folder that holds `path`; empty for the folder where counting starts.
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
