//! Names and files agree, as read from the dnodes on disk, beside the mount and its caches:
//!
//! * a file has as many links as names lead to it, and at least one;
//! * nobody has a file open at rest, so none without names is left: the unlinked set is empty;
//! * a name leads to a file.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cenote_dataset::{Dataset, DatasetKind};
use cenote_format::units::ObjectId;
use cenote_fs::{FileKind, Filesystem, FsError};

use super::Violation;
use crate::machine::daemon::Daemon;

/// Files without names are freed soon after their last use.
const LOOKS: usize = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Checks all file systems of a pool that nobody uses.
///
/// # Errors
/// Names and files differ, or can't be read.
pub async fn check(daemon: &Daemon, pool: &str) -> Result<(), Violation> {
    let Some(open) = daemon.pools.get(pool) else { return Ok(()) };
    let unreadable = |error: String| Violation(format!("the dnodes can't be read: {error}"));
    let mut wrong = Vec::new();
    for _ in 0..LOOKS {
        open.engine.sync_all().await.map_err(|error| unreadable(error.to_string()))?;
        let mos = open.engine.mos().await.map_err(|error| unreadable(error.to_string()))?;
        wrong.clear();
        for dataset in mos.all_datasets().await.map_err(|error| unreadable(error.to_string()))? {
            let kind = dataset.kind().await.map_err(|error| unreadable(error.to_string()))?;
            if kind == DatasetKind::Filesystem {
                let differences = differences(&dataset).await;
                wrong.extend(differences.map_err(|error| unreadable(error.to_string()))?);
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        daemon.runtime().sleep(LOOK_INTERVAL).await;
    }
    Err(Violation(format!("names and files differ: {}", wrong.join("; "))))
}

async fn differences(dataset: &Dataset) -> Result<Vec<String>, FsError> {
    let fs = Filesystem::open(dataset.objset().await?).await?;
    let mut wrong = Vec::new();
    let mut say = |object: ObjectId, why: String| wrong.push(format!("{} {object:?} {why}", dataset.name()));
    let unlinked: BTreeSet<ObjectId> = fs.unlinked().await?.into_iter().collect();
    unlinked.iter().for_each(|object| say(*object, "is left in the unlinked set".into()));
    let mut names = names(&fs).await?;
    let mut dnodes = fs.objset().dnodes(ObjectId(1), ObjectId(u64::MAX));
    while let Some(batch) = dnodes.next_batch().await {
        for (object, dnode) in batch?.dnodes {
            if !Filesystem::is_file(&dnode) || fs.master().shares == Some(object) {
                continue;
            }
            let (count, attr) = (names.remove(&object).unwrap_or(0), fs.attr(object).await?);
            let is_dir = attr.kind() == FileKind::Directory;
            match count {
                _ if unlinked.contains(&object) => {}
                0 => say(object, format!("has no name: {attr:?}")),
                _ if !is_dir && attr.links != count => {
                    say(object, format!("has {} links and {count} names", attr.links));
                }
                _ => {}
            }
        }
    }
    names
        .into_iter()
        .for_each(|(object, count)| say(object, format!("has {count} names and does not exist")));
    Ok(wrong)
}

/// Counts names, also those in directories of extended attributes.
async fn names(fs: &Filesystem) -> Result<BTreeMap<ObjectId, u64>, FsError> {
    let mut names = BTreeMap::from([(fs.root(), 1)]);
    let mut left = vec![fs.root()];
    while let Some(object) = left.pop() {
        let attr = match fs.attr(object).await {
            Err(FsError::NoObject { .. }) => continue,
            found => found?,
        };
        if let Some(dir) = attr.xattr_dir {
            names.insert(dir, 1);
            left.push(dir);
        }
        if attr.kind() != FileKind::Directory {
            continue;
        }
        for entry in fs.list(object).await? {
            let count = names.entry(entry.object).or_insert(0);
            *count += 1;
            // A file with several names is looked at once.
            if *count == 1 {
                left.push(entry.object);
            }
        }
    }
    Ok(names)
}
