//! Retries losses: the same path in older trees, or in a snapshot.

use std::sync::Arc;

use cenote_dataset::Dataset;
use cenote_format::units::Txg;
use cenote_fs::{Filesystem, LastLink, OpenFile};
use rustix::fs::Mode;

use super::dataset::{self, Opened};
use super::record::Report;
use super::scribe::Scribe;
use super::trees::Trees;
use crate::copy::{Copier, CopySource, Folder, Name, Pieces};
use crate::error::Result;

/// Most snapshots searched for a complete version of a file, newest first.
const SNAPSHOTS_TRIED: usize = 8;

/// Recovers the losses of one dataset; older trees and snapshots are opened once for all.
pub(super) struct Again<'a> {
    /// The dataset.
    pub name: &'a str,
    /// The tree that the dataset was copied from.
    txg: Txg,
    /// The destination.
    root: &'a Folder,
    /// Where losses are recorded.
    pub report: &'a Report,
    /// By tree: the dataset, once opened; `None` if unavailable there.
    older: Vec<Option<Filesystem>>,
    /// Its newest snapshots with their names, newest first, once needed.
    snapshots: Option<Vec<(String, Filesystem)>>,
}

impl<'a> Again<'a> {
    pub(super) fn new(name: &'a str, txg: Txg, root: &'a Folder, report: &'a Report) -> Again<'a> {
        Again { name, txg, root, report, older: Vec::new(), snapshots: None }
    }

    /// Copies a loss from the newest older tree that has it complete; returns that tree's txg. Keeps partial
    /// copies from other trees, too.
    ///
    /// # Errors
    /// The report can't be written.
    pub(super) async fn copy_from_older(
        &mut self,
        trees: &mut Trees,
        copier: &Copier,
        path: &[u8],
    ) -> Result<Option<Txg>> {
        for index in 0..trees.len() {
            if self.older.len() == index {
                let opened = self.open_older(trees, index).await;
                self.older.push(opened);
            }
            let Some(filesystem) = &self.older[index] else { continue };
            let scribe = Arc::new(Scribe::of_rest(self.report, self.name));
            let was_made = copy_path(&copier.telling(scribe.clone()), filesystem, self, path).await;
            if was_made && scribe.take()?.losses.is_empty() {
                return Ok(Some(trees.txg(index)));
            }
        }
        Ok(None)
    }

    async fn open_older(&self, trees: &mut Trees, index: usize) -> Option<Filesystem> {
        if trees.txg(index) >= self.txg {
            return None;
        }
        let dataset = trees.get(index).await.ok()?.dataset(self.name).await.ok()?;
        filesystem(&dataset).await
    }

    /// The newest snapshot in which the whole file at this path is readable: `pool/a@s`.
    pub(super) async fn in_snapshot(&mut self, dataset: &Dataset, path: &[u8]) -> Option<String> {
        if self.snapshots.is_none() {
            self.snapshots = Some(newest_snapshots(dataset).await);
        }
        for (name, filesystem) in self.snapshots.iter().flatten() {
            let Ok(object) = filesystem.resolve(path, LastLink::Keep).await else { continue };
            let Ok(file) = filesystem.open_file(object).await else { continue };
            if !file.attr().is_dir() && reads_well(&file).await {
                return Some(name.clone());
            }
        }
        None
    }
}

async fn newest_snapshots(dataset: &Dataset) -> Vec<(String, Filesystem)> {
    let snapshots = dataset.snapshots().await.unwrap_or_default();
    let mut opened = Vec::new();
    for snapshot in snapshots.iter().rev().take(SNAPSHOTS_TRIED) {
        opened.extend(filesystem(snapshot).await.map(|filesystem| (snapshot.name().to_owned(), filesystem)));
    }
    opened
}

async fn filesystem(dataset: &Dataset) -> Option<Filesystem> {
    match dataset::open(dataset).await {
        Ok(Opened::Filesystem { filesystem, .. }) => Some(filesystem),
        _ => None,
    }
}

/// Copies one path with everything below it and reports losses. Returns whether the path and a folder for it
/// exist.
async fn copy_path(copier: &Copier, filesystem: &Filesystem, place: &Again<'_>, path: &[u8]) -> bool {
    let Ok(object) = filesystem.resolve(path, LastLink::Keep).await else { return false };
    let source = CopySource { filesystem: filesystem.clone(), object, path: path.to_vec() };
    let Ok(mut folder) = dataset::folder_of(place.root, place.name) else { return false };
    let mut parts: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|part| !part.is_empty()).collect();
    let Some(last) = parts.pop() else {
        copier.copy_into(&source, &folder).await;
        return true;
    };
    for part in parts {
        match folder.make(&Name::or_stand_in(part), Mode::RWXU) {
            Ok(inner) => folder = inner,
            Err(_) => return false,
        }
    }
    copier.copy(&source, &folder, &Name::or_stand_in(last)).await;
    true
}

async fn reads_well(file: &OpenFile) -> bool {
    let mut pieces = Pieces::of_file(file, 0..file.attr().size);
    while let Some(piece) = pieces.next().await {
        if piece.data.is_err() {
            return false;
        }
    }
    true
}
