//! Manifests: one line per file, in the format of the golden pools, so that Cenote's view can be compared
//! with the kernel's byte for byte.
//!
//! Idea: list the tree, then describe its files in parallel. Rows are sorted by the bytes of their paths, so
//! all paths are kept: about 100 bytes per file. Content is streamed, one mebibyte at a time for each file in
//! progress.

mod content;
mod row;

use std::collections::{HashSet, VecDeque};
use std::future::Future;

use cenote_boxed::boxed;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_runtime::AbortOnDrop;

pub use content::{
    Content, ContentHash, RangeHash, WHOLE_HASH_LIMIT_BYTES, hash_content, hash_range, sha256,
};
pub use row::{MANIFEST_HEADER, ManifestRow, XattrHash, escape_path};

use crate::attr::FileKind;
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;

/// `ZFSCTL_INO_SNAPDIRS`: Linux numbers the roots of mounted snapshots downwards from here.
const ZFSCTL_INO_SNAPDIRS: u64 = 0x0000_ffff_ffff_fffc;

/// The inode number that Linux shows for the root of a mounted snapshot.
pub fn snapshot_root_ino(snapshot: DatasetId) -> ObjectId {
    ObjectId(ZFSCTL_INO_SNAPDIRS.saturating_sub(snapshot.0))
}

/// Contents of a manifest.
#[derive(Debug, Clone, Copy, Default)]
pub struct ManifestOptions {
    /// Omit content hashes.
    pub without_content: bool,
    /// Number the root as Linux does for a mounted snapshot with this dataset id.
    pub snapshot: Option<DatasetId>,
}

/// A path and its object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    path: Vec<u8>,
    object: ObjectId,
}

/// Describes every file of a file system and passes the rows, sorted by path, to `sink`.
///
/// # Errors
/// A directory or a file's attributes can't be read (unreadable content is noted in its row), or `sink`
/// failed.
pub async fn manifest<E: From<FsError>>(
    fs: &Filesystem,
    options: ManifestOptions,
    mut sink: impl FnMut(ManifestRow) -> Result<(), E>,
) -> Result<(), E> {
    let mut listed = list_tree(fs).await?.into_iter();
    let runtime = fs.objset().pool().runtime().clone();
    let mut under_way: VecDeque<AbortOnDrop<Result<ManifestRow>>> = VecDeque::new();
    loop {
        while under_way.len() < 2 * runtime.parallelism() {
            let Some(Listed { path, object }) = listed.next() else { break };
            let fs = fs.clone();
            let task = async move { describe(&fs, path, object, options).await };
            under_way.push_back(runtime.spawn(task).abort_on_drop());
        }
        let Some(task) = under_way.pop_front() else { return Ok(()) };
        let row =
            task.await.map_err(|_| FsError::Attributes { why: "were not read: the program is stopping" })?;
        sink(row?)?;
    }
}

/// The whole manifest as text, including the header.
///
/// # Errors
/// Those of [`manifest`].
#[boxed]
pub async fn manifest_text(fs: &Filesystem, options: ManifestOptions) -> Result<String> {
    let mut text = String::from(MANIFEST_HEADER);
    manifest(fs, options, |row| {
        row.append_to(&mut text);
        Ok::<(), FsError>(())
    })
    .await?;
    Ok(text)
}

/// All paths, sorted by bytes.
async fn list_tree(fs: &Filesystem) -> Result<Vec<Listed>> {
    let mut listed = vec![Listed { path: b".".to_vec(), object: fs.root() }];
    let mut dirs = vec![(Vec::new(), fs.root())];
    // A directory has one name. Meeting one twice means damage, and it could be its own ancestor.
    let mut entered = HashSet::from([fs.root()]);
    while let Some((prefix, dir)) = dirs.pop() {
        let mut reader = fs.read_dir(dir).await?;
        while let Some(batch) = reader.next_batch().await? {
            for entry in batch {
                let path = [&prefix[..], &entry.name].concat();
                let is_dir = match entry.kind {
                    Some(kind) => kind == FileKind::Directory,
                    None => fs.attr(entry.object).await?.is_dir(),
                };
                if is_dir && entered.insert(entry.object) {
                    dirs.push(([&path[..], b"/"].concat(), entry.object));
                }
                listed.push(Listed { path, object: entry.object });
            }
        }
    }
    listed.sort_unstable();
    Ok(listed)
}

async fn describe(
    fs: &Filesystem,
    path: Vec<u8>,
    object: ObjectId,
    options: ManifestOptions,
) -> Result<ManifestRow> {
    let file = fs.open_file(object).await?;
    let attr = *file.attr();
    let wanted = attr.kind() == FileKind::Regular && !options.without_content;
    let content = if wanted { Some(hash_content(&file).await?) } else { None };
    let target = if attr.kind() == FileKind::Symlink { Some(fs.read_link(object).await?) } else { None };
    let ino = match options.snapshot {
        Some(dataset) if object == fs.root() => snapshot_root_ino(dataset),
        _ => object,
    };
    Ok(ManifestRow { path, ino, attr, content, target, xattrs: hash_xattrs(fs.xattrs(object)).await? })
}

async fn hash_xattrs(
    xattrs: impl Future<Output = Result<Vec<crate::xattr::Xattr>>>,
) -> Result<Vec<XattrHash>> {
    let hash = |x: crate::xattr::Xattr| XattrHash {
        name: x.name,
        len: x.value.len() as u64,
        sha256: sha256(&x.value),
    };
    Ok(xattrs.await?.into_iter().map(hash).collect())
}
