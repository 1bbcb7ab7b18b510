//! A second chance for what was lost: the same path in older trees, or in a snapshot.

use cenote_dataset::Dataset;
use cenote_fs::{Filesystem, LastLink};

use super::dataset::{self, Opened};
use super::*;
use crate::copy::Pieces;

/// Snapshots that are looked into for a whole version of a file, newest first.
const SNAPSHOTS_TRIED: usize = 8;

/// Where the losses of a dataset are to be made good.
pub(super) struct Place<'a> {
    /// The dataset.
    pub name: &'a str,
    /// The tree that it was copied from.
    pub txg: Txg,
    /// The destination.
    pub root: &'a Folder,
}

/// Copies what was lost from the newest older tree that gives it whole; says which. What trees give in part stays, too.
pub(super) async fn from_older(
    trees: &mut Trees,
    runtime: &Runtime,
    metadata: bool,
    place: &Place<'_>,
    loss: &Loss,
) -> Option<Txg> {
    for index in 0..trees.len() {
        let txg = trees.txg(index);
        if txg >= place.txg {
            continue;
        }
        let Ok(mos) = trees.get(index).await else { continue };
        let Ok(dataset) = mos.dataset(place.name).await else { continue };
        let Ok(Opened::Filesystem { filesystem, .. }) = dataset::open(&dataset).await else { continue };
        if copy_path(runtime, metadata, &filesystem, place, &loss.path).await {
            return Some(txg);
        }
    }
    None
}

/// Copies one path with all below it; whether nothing of its content was lost.
async fn copy_path(
    runtime: &Runtime,
    metadata: bool,
    filesystem: &Filesystem,
    place: &Place<'_>,
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

/// The newest snapshot in which the file at this path can be read from start to end: `pool/a@s`.
pub(super) async fn in_snapshot(dataset: &Dataset, path: &[u8]) -> Option<String> {
    if dataset.is_snapshot() {
        return None;
    }
    let snapshots = dataset.snapshots().await.ok()?;
    for snapshot in snapshots.iter().rev().take(SNAPSHOTS_TRIED) {
        let Ok(Opened::Filesystem { filesystem, .. }) = dataset::open(snapshot).await else { continue };
        let Ok(object) = filesystem.resolve(path, LastLink::Keep).await else { continue };
        let Ok(file) = filesystem.open_file(object).await else { continue };
        if !file.attr().is_dir() && reads_well(&file).await {
            return Some(snapshot.name().to_owned());
        }
    }
    None
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
