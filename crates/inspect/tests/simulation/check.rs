//! Checks that a pool equals the model and has no errors.

use std::collections::BTreeMap;

use cenote_dataset::{Dataset, Mos};
use cenote_format::dnode::ObjectType;
use cenote_format::units::ObjectId;
use cenote_fs::{FileKind, Filesystem, FsError, Volume};
use cenote_inspect::verify::{Finding, VerifyOptions, verify};
use cenote_object::Objset;
use cenote_pool::Pool;
use cenote_testkit::image::{Image, save};
use cenote_testkit::zdb_verdict;

use crate::model::{Content, Node, World};
use crate::pools::POOL;

type Outcome = Result<(), String>;

/// Facts about a dataset that may differ from the model.
#[derive(Debug, Clone, Copy)]
pub enum Known {
    /// It exists.
    Nothing,
    /// This file exists as in the model.
    File(ObjectId),
}

/// Datasets that may differ from the model, by name.
pub type Unsure = BTreeMap<String, Known>;

/// Checks that the pool has exactly the model's content, except for `unsure`.
pub async fn compare(mos: &Mos, world: &World, unsure: &Unsure) -> Outcome {
    let heads = mos.all_datasets().await.unwrap();
    let (mut shown, mut snapshots_shown) = (0, 0);
    for head in &heads {
        let expected = world.heads.get(head.name()).ok_or_else(|| format!("{} is there", head.name()))?;
        match unsure.get(head.name()) {
            None => compare_content(head, expected).await?,
            Some(Known::File(id)) => compare_one_file(head, *id, expected).await?,
            Some(Known::Nothing) => {}
        }
        shown += 1;
        for snapshot in head.snapshots().await.unwrap() {
            let expected = world.snapshots.get(snapshot.name());
            let expected = expected.ok_or_else(|| format!("{} is there", snapshot.name()))?;
            compare_content(&snapshot, expected).await?;
            snapshots_shown += 1;
        }
    }
    if (shown, snapshots_shown) == (world.heads.len(), world.snapshots.len()) {
        return Ok(());
    }
    let heads: Vec<_> = heads.iter().map(Dataset::name).collect();
    Err(format!("there are only {heads:?} and {snapshots_shown} snapshots"))
}

async fn compare_content(dataset: &Dataset, expected: &Content) -> Outcome {
    let objset = dataset.objset().await.map_err(|error| error.to_string())?;
    let differs = |why: String| format!("{}: {why}", dataset.name());
    let unreadable = |error: FsError| differs(error.to_string());
    match expected {
        Content::Volume(bytes) => {
            let volume = Volume::open(objset).await.map_err(unreadable)?;
            let read = volume.read(0, bytes.len() as u64).await.map_err(unreadable)?;
            if read[..] == bytes[..] { Ok(()) } else { Err(differs("the volume".into())) }
        }
        Content::Files(files) => {
            let fs = Filesystem::open(objset.clone()).await.map_err(unreadable)?;
            for (id, node) in files.iter() {
                compare_file(&fs, *id, node).await.map_err(|why| differs(format!("object {id}: {why}")))?;
            }
            let (found, expected) = (count_files(&objset).await, files.len());
            let unlinked = fs.unlinked().await.unwrap().len();
            let why = || differs(format!("{found} files instead of {expected} and {unlinked} without names"));
            if found == expected + unlinked { Ok(()) } else { Err(why()) }
        }
    }
}

async fn compare_one_file(dataset: &Dataset, id: ObjectId, expected: &Content) -> Outcome {
    let Content::Files(files) = expected else { return Err("a volume has no files".into()) };
    let fs = Filesystem::open(dataset.objset().await.unwrap()).await.unwrap();
    compare_file(&fs, id, &files[&id])
        .await
        .map_err(|why| format!("{}: {id}, committed: {why}", dataset.name()))
}

async fn compare_file(fs: &Filesystem, id: ObjectId, node: &Node) -> Outcome {
    let attr = fs.attr(id).await.map_err(|error| error.to_string())?;
    if (attr.kind(), attr.permissions(), attr.links) != (node.kind, node.permissions, node.links) {
        return Err(format!("{attr:?}, not {node:?}"));
    }
    let xattrs = fs.xattrs(id).await.unwrap();
    if xattrs.iter().map(|xattr| &xattr.value[..]).ne(node.xattr.as_deref()) {
        return Err("extended attributes".into());
    }
    let is_equal = match node.kind {
        FileKind::Directory => {
            let entries = fs.list(id).await.unwrap();
            entries
                .iter()
                .map(|entry| (&entry.name[..], entry.object))
                .collect::<std::collections::BTreeMap<_, _>>()
                == node.names.iter().map(|(name, id)| (&name[..], *id)).collect()
        }
        FileKind::Symlink => fs.read_link(id).await.unwrap() == *node.content,
        _ => {
            let file = fs.open_file(id).await.unwrap();
            attr.size == node.content.len() as u64 && file.read(0, attr.size).await.unwrap() == *node.content
        }
    };
    if is_equal { Ok(()) } else { Err("content".into()) }
}

/// Files and directories, with and without names.
async fn count_files(objset: &Objset) -> usize {
    let mut count = 0;
    let mut dnodes = objset.dnodes(ObjectId(1), objset.last_object());
    while let Some(batch) = dnodes.next_batch().await {
        count += batch.unwrap().dnodes.iter().filter(|(_, dnode)| dnode.bonus_type == ObjectType::SA).count();
    }
    count
}

/// Checks that every block is intact and that allocated and referenced space agree.
pub async fn check_sound(mos: &Mos) -> Outcome {
    let options = VerifyOptions { max_findings: 4, ..VerifyOptions::default() };
    let report = verify(mos, options, |_| {}).await.map_err(|error| error.to_string())?;
    // The tests remove devices.
    let is_expected = |finding: &Finding| matches!(finding, Finding::Redundancy(_));
    if report.findings.iter().all(is_expected) && report.more_findings == 0 && report.complete {
        return Ok(());
    }
    Err(report.findings.iter().map(|finding| format!("{finding}; ")).collect())
}

/// No disk has a checksum error.
pub fn check_blameless(pool: &Pool) -> Outcome {
    let blamed: Vec<_> =
        pool.counters().errors().into_iter().filter(|(_, errors)| errors.checksum > 0).collect();
    if blamed.is_empty() { Ok(()) } else { Err(format!("healthy disks are blamed: {blamed:?}")) }
}

/// `zdb` reads every block and finds no leaks. Passes if not installed, unless `CENOTE_REQUIRE_ZDB` is set.
pub fn ask_zdb(images: &[Image]) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    save(images, folder.path());
    zdb_verdict(folder.path(), POOL).map_err(|said| format!("zdb: {said}"))
}
