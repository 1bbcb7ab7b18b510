//! Data that needs more reads than the dnode: link targets, extended attributes, content hashes.
//!
//! Locking: the reading tasks push results under one mutex, held for one push, and emptied after their end.

use std::sync::Arc;

use cenote_format::units::ObjectId;
use cenote_fs::manifest::{ContentHash, XattrHash, hash_content, sha256};
use cenote_fs::{Attr, FileKind, Filesystem};

use super::ScanNeeds;
use super::row::{Extra, RowBatch, ScanProblem};
use super::walk::{Walk, runtime};
use crate::{InspectError, Result};

pub(super) async fn read_extras(walk: &Walk, batch: &mut RowBatch) {
    let rt = runtime(&walk.target).clone();
    let wanted: Vec<(usize, ObjectId, Attr)> =
        batch.rows.iter().enumerate().map(|(index, row)| (index, row.object, row.attr)).collect();
    let (fs, needs) = (walk.target.filesystem.clone(), walk.needs);
    let results = std::sync::Mutex::new(Vec::with_capacity(wanted.len()));
    let results = Arc::new(results);
    let collected = results.clone();
    let read = rt
        .for_each_bounded(2 * rt.parallelism(), wanted, move |(index, object, attr)| {
            let (fs, results) = (fs.clone(), collected.clone());
            async move {
                let extra = read_extra(&fs, needs, object, &attr).await;
                results
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .push((index, object, extra));
                Ok::<(), InspectError>(())
            }
        })
        .await;
    if let Err(error) = read {
        batch.problems.push(ScanProblem { path: Vec::new(), object: ObjectId(0), error });
    }
    let results = std::mem::take(&mut *results.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    for (index, object, extra) in results {
        let problem = match &extra {
            Ok(extra) => extra.content.as_ref().and_then(unreadable),
            Err(error) => Some(error.clone()),
        };
        if let Some(error) = problem {
            let path = batch.path(&batch.rows[index]).to_vec();
            batch.problems.push(ScanProblem { path, object, error });
        }
        batch.rows[index].extra = extra.ok().map(Box::new);
    }
}

fn unreadable(content: &ContentHash) -> Option<InspectError> {
    if content.is_complete() {
        return None;
    }
    let mut text = String::new();
    content.append_to(&mut text);
    Some(InspectError::Content { unreadable: text })
}

async fn read_extra(fs: &Filesystem, needs: ScanNeeds, object: ObjectId, attr: &Attr) -> Result<Extra> {
    let mut extra = Extra::default();
    if needs.targets && attr.kind() == FileKind::Symlink {
        extra.target = Some(fs.read_link(object).await?);
    }
    if needs.xattrs && Filesystem::may_have_xattrs(attr) {
        let hash = |x: cenote_fs::Xattr| XattrHash {
            len: x.value.len() as u64,
            sha256: sha256(&x.value),
            name: x.name,
        };
        extra.xattrs = fs.xattrs(object).await?.into_iter().map(hash).collect();
    }
    if needs.hashes && attr.kind() == FileKind::Regular {
        extra.content = Some(hash_content(&fs.open_file(object).await?).await?);
    }
    Ok(extra)
}
