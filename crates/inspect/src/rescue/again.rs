//! A second chance for what was lost: the same path in older trees, or in a snapshot.

use cenote_dataset::Dataset;
use cenote_fs::{Filesystem, LastLink};

use super::dataset::{self, Opened};
use super::*;
use crate::copy::Pieces;

/// Snapshots that are looked into for a whole version of a file, newest first.
const SNAPSHOTS_TRIED: usize = 8;

/// Where the losses of a dataset are to be made good. What that needs is opened once for all of them.
pub(super) struct Again<'a> {
    /// The dataset.
    pub name: &'a str,
    /// The tree that it was copied from.
    txg: Txg,
    /// The destination.
    root: &'a Folder,
    /// The dataset in the trees looked at so far, by the tree's index; `None`: not to be had there.
    older: Vec<Option<Filesystem>>,
    /// Its newest snapshots with their names, newest first, once one was asked for.
    snapshots: Option<Vec<(String, Filesystem)>>,
}

impl<'a> Again<'a> {
    pub(super) fn new(name: &'a str, txg: Txg, root: &'a Folder) -> Again<'a> {
        Again { name, txg, root, older: Vec::new(), snapshots: None }
    }

    /// Copies what was lost from the newest older tree that gives it whole; says which. What trees give in part stays, too.
    pub(super) async fn copy_from_older(
        &mut self,
        trees: &mut Trees,
        runtime: &Runtime,
        metadata: bool,
        loss: &Loss,
    ) -> Option<Txg> {
        for index in 0..trees.len() {
            if self.older.len() == index {
                let opened = self.open_older(trees, index).await;
                self.older.push(opened);
            }
            let Some(filesystem) = &self.older[index] else { continue };
            if copy_path(runtime, metadata, filesystem, self, &loss.path).await {
                return Some(trees.txg(index));
            }
        }
        None
    }

    async fn open_older(&self, trees: &mut Trees, index: usize) -> Option<Filesystem> {
        if trees.txg(index) >= self.txg {
            return None;
        }
        let dataset = trees.get(index).await.ok()?.dataset(self.name).await.ok()?;
        filesystem(&dataset).await
    }

    /// The newest snapshot in which the file at this path can be read from start to end: `pool/a@s`.
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

/// Copies one path with all below it; whether nothing of its content was lost.
async fn copy_path(
    runtime: &Runtime,
    metadata: bool,
    filesystem: &Filesystem,
    place: &Again<'_>,
    path: &[u8],
) -> bool {
    let Ok(object) = filesystem.resolve(path, LastLink::Keep).await else { return false };
    let inbox = Arc::new(Inbox::default());
    let copier = copier(runtime, &inbox, metadata);
    let source = CopySource { filesystem: filesystem.clone(), object, path: path.to_vec() };
    let Ok(mut folder) = dataset::folder_of(place.root, place.name) else { return false };
    let mut parts: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|part| !part.is_empty()).collect();
    let Some(last) = parts.pop() else {
        copier.copy_into(&source, &folder).await;
        return is_whole(&inbox);
    };
    for part in parts {
        let entered = Name::new(part).ok_or(Errno::INVAL).and_then(|name| folder.make(&name, Mode::RWXU));
        match entered {
            Ok(inner) => folder = inner,
            Err(_) => return false,
        }
    }
    let Some(name) = Name::new(last) else { return false };
    copier.copy(&source, &folder, &name).await;
    is_whole(&inbox)
}

fn is_whole(inbox: &Inbox) -> bool {
    inbox.take().losses.iter().all(|loss| !loss.is_content() || is_there_already(loss))
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
