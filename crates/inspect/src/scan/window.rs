//! One window: from directories to entries, from entries to rows.
//!
//! Entries of many directories are collected in one list and sorted by object number, so that each block of
//! dnodes is opened once for all.
//!
//! Locking: each worker owns its [`Batches`]. Workers share the [`Walk`], whose methods take its lock, and
//! the bounded channel to the sink, which slows them down to its speed.

use std::sync::Arc;

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::Dnode;
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::zap::MicroZap;
use cenote_format::znode::Dirent;
use cenote_fs::{Attr, Decoded, Filesystem};
use cenote_pool::PoolError;
use cenote_runtime::WorkKind;
use futures::future::BoxFuture;

use super::extras::read_extras;
use super::row::{Row, RowBatch, ScanProblem, join};
use super::walk::{Directory, Walk, runtime};
use crate::{InspectError, Result};

/// Entries looked up together: about 6 MB with their names.
const WINDOW_ENTRIES: usize = 128 * 1024;
const BATCH_ROWS: usize = 8 * 1024;
/// Directories whose blocks are read together.
const ZAP_READS: usize = 512;

/// Names and object numbers from directories, not looked up yet.
#[derive(Debug, Default)]
pub(super) struct Entries {
    directories: Vec<Arc<[u8]>>,
    names: Vec<u8>,
    list: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    object: ObjectId,
    directory: u32,
    name: u32,
    name_len: u32,
}

impl Entries {
    fn clear(&mut self) {
        self.directories.clear();
        self.names.clear();
        self.list.clear();
    }

    fn enter(&mut self, path: &[u8]) {
        self.directories.push(path.into());
    }

    /// Adds an entry of the last directory entered. `object` is its object number.
    fn add(&mut self, name: &[u8], object: ObjectId) {
        let (at, directory) = (self.names.len() as u32, self.directories.len().saturating_sub(1) as u32);
        self.names.extend_from_slice(name);
        self.list.push(Entry { object, directory, name: at, name_len: name.len() as u32 });
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.name as usize;
        self.names.get(start..start + entry.name_len as usize).unwrap_or_default()
    }

    fn directory(&self, entry: &Entry) -> &[u8] {
        self.directories.get(entry.directory as usize).map_or(&[], |path| path)
    }
}

/// Renders a batch at once, then hands it to the sink; false if the sink wants no more rows.
pub(super) type SendBatch = dyn Fn(&RowBatch) -> BoxFuture<'static, bool> + Send + Sync;

/// Rows of one worker on their way to the sink; their memory is reused.
pub(super) struct Batches<'a> {
    walk: &'a Walk,
    send: &'a SendBatch,
    /// The sink wants no more rows.
    is_closed: bool,
    batch: RowBatch,
    /// Empty between windows.
    entries: Entries,
}

impl<'a> Batches<'a> {
    pub fn new(walk: &'a Walk, send: &'a SendBatch) -> Self {
        let batch = RowBatch::new(walk.target.clone());
        Batches { walk, send, is_closed: false, batch, entries: Entries::default() }
    }

    /// Whether the sink wants no more rows.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    async fn send(&mut self) {
        if self.batch.rows.is_empty() && self.batch.problems.is_empty() {
            return;
        }
        if self.walk.needs.any() {
            read_extras(self.walk, &mut self.batch).await;
        }
        let sent = (self.send)(&self.batch);
        self.batch.clear();
        self.is_closed |= !sent.await;
    }

    fn problem(&mut self, dir: &[u8], name: &[u8], object: ObjectId, error: impl Into<InspectError>) {
        let mut path = Vec::new();
        join(&mut path, dir, name);
        self.batch.problems.push(ScanProblem { path, object, error: error.into() });
    }
}

/// The row of the root directory, which no directory lists.
pub(super) async fn root(walk: &Walk) -> Result<RowBatch> {
    let fs = &walk.target.filesystem;
    let mut batch = RowBatch::new(walk.target.clone());
    let attr = fs.attr(walk.folder).await?;
    let mut block = Blkptr::HOLE;
    fs.objset().gather(&[walk.folder], &mut |found| block = *found.block).await;
    walk.meets_first(walk.folder);
    batch.push(b"", b".", |path| row(walk, path, walk.folder, attr, &block));
    if walk.needs.any() {
        read_extras(walk, &mut batch).await;
    }
    Ok(batch)
}

fn row(walk: &Walk, path: std::ops::Range<u32>, object: ObjectId, attr: Attr, block: &Blkptr) -> Row {
    let class = block
        .dvas()
        .next()
        .and_then(|dva| walk.target.filesystem.objset().pool().tree().vdevs().class_of(dva.vdev));
    Row::new(path, object, attr, block.logical_birth(), class)
}

/// Lists directories and describes all their entries.
pub(super) async fn list(walk: &Walk, mut directories: Vec<Directory>, batches: &mut Batches<'_>) {
    directories.sort_unstable_by_key(|directory| directory.object);
    for directories in directories.chunks(ZAP_READS) {
        let mut entries = std::mem::take(&mut batches.entries);
        let mut large = Vec::new();
        read_small(walk, directories, &mut entries, &mut large, batches).await;
        for index in large {
            read_large(walk, &directories[index], &mut entries, batches).await;
        }
        rows(walk, &mut entries, batches).await;
        entries.clear();
        batches.entries = entries;
    }
    batches.send().await;
}

/// Reads directories of a single block (micro ZAPs) all at once; collects the larger ones in `large`.
async fn read_small(
    walk: &Walk,
    directories: &[Directory],
    entries: &mut Entries,
    large: &mut Vec<usize>,
    batches: &mut Batches<'_>,
) {
    let fs = &walk.target.filesystem;
    let objset = fs.objset();
    let unknown = |directory: &&Directory| directory.block.is_none();
    let ids: Vec<ObjectId> = directories.iter().filter(unknown).map(|directory| directory.object).collect();
    let mut dnodes = Vec::with_capacity(ids.len());
    objset.gather(&ids, &mut |found| dnodes.push(found.dnode)).await;

    let mut dnodes = dnodes.into_iter();
    let mut requests = Vec::with_capacity(directories.len());
    let mut small = Vec::with_capacity(directories.len());
    for (index, directory) in directories.iter().enumerate() {
        let block = match &directory.block {
            Some(block) => Some(**block),
            None => match dnodes.next() {
                Some(Ok(dnode)) => only_block(fs, directory.object, &dnode),
                Some(Err(error)) if !fs.is_replayed(directory.object) => {
                    batches.problem(&directory.path, b"", directory.object, error);
                    continue;
                }
                _ => None,
            },
        };
        match block {
            Some(bp) => {
                requests.push((bp, objset.context(directory.object, 0, BlockId(0))));
                small.push((index, bp.endian()));
            }
            None => large.push(index),
        }
    }
    let mut small = small.into_iter();
    let mut each = |block: std::result::Result<Bytes, PoolError>| {
        let Some((index, endian)) = small.next() else { return };
        let directory = &directories[index];
        match block.map(|block| MicroZap::decode(block, endian)) {
            Ok(Ok(zap)) => {
                entries.enter(&directory.path);
                for entry in zap.entries() {
                    entries.add(entry.name, Dirent::from_word(entry.value).object);
                }
            }
            // A single block, but not a micro ZAP: the general reader handles it.
            Ok(Err(_)) => large.push(index),
            Err(error) => batches.problem(&directory.path, b"", directory.object, error),
        }
    };
    objset.pool().read_each(requests, &mut each).await;
    runtime(&walk.target).work(WorkKind::Parse, entries.names.len() as u64).await;
}

/// The pointer to a directory's block, if it has only one. `None` for a replayed directory, whose disk state
/// is outdated.
fn only_block(fs: &Filesystem, object: ObjectId, dnode: &Dnode) -> Option<Blkptr> {
    let bp = dnode.blkptr(0);
    let is_one = dnode.levels == 1 && dnode.max_block_id == BlockId(0) && !bp.is_hole();
    (is_one && !fs.is_replayed(object)).then_some(bp)
}

/// Reads a directory of many blocks, and hands entries on whenever a window is full.
async fn read_large(walk: &Walk, directory: &Directory, entries: &mut Entries, batches: &mut Batches<'_>) {
    let id = directory.object;
    let fs = &walk.target.filesystem;
    let mut reader = match fs.read_dir(id).await {
        Ok(reader) => reader,
        Err(error) => return batches.problem(&directory.path, b"", id, error),
    };
    entries.enter(&directory.path);
    loop {
        match reader.next_batch().await {
            Ok(Some(batch)) => batch.iter().for_each(|entry| entries.add(&entry.name, entry.object)),
            Ok(None) => return,
            // Continues after the unreadable part.
            Err(error) => batches.problem(&directory.path, b"", id, error),
        }
        if entries.list.len() >= WINDOW_ENTRIES {
            let full = std::mem::take(entries);
            if let Some(mut full) = walk.share(full) {
                rows(walk, &mut full, batches).await;
            }
            entries.enter(&directory.path);
        }
    }
}

/// Looks up entries and describes them.
pub(super) async fn rows(walk: &Walk, entries: &mut Entries, batches: &mut Batches<'_>) {
    // Most directories list files in creation order: the sort benefits from such runs.
    entries.list.sort_by_key(|entry| entry.object);
    let entries = &*entries;
    for list in entries.list.chunks(BATCH_ROWS) {
        let ids: Vec<ObjectId> = list.iter().map(|entry| entry.object).collect();
        let mut found = Vec::new();
        let mut postponed = Vec::new();
        let mut next = list.iter();
        let fs = &walk.target.filesystem;
        fs.objset()
            .gather(&ids, &mut |gathered| {
                let Some(entry) = next.next() else { return };
                let (dir, name) = (entries.directory(entry), entries.name(entry));
                let decoded = gathered.dnode.map_err(InspectError::from).and_then(|dnode| {
                    let attr = decode(fs, entry.object, &dnode)?;
                    if attr.is_some_and(|attr| attr.is_dir()) {
                        found.push((*entry, only_block(fs, entry.object, &dnode)));
                    }
                    Ok(attr)
                });
                match decoded {
                    Ok(Some(attr)) => {
                        batches
                            .batch
                            .push(dir, name, |path| row(walk, path, entry.object, attr, gathered.block));
                    }
                    Ok(None) => postponed.push((*entry, *gathered.block)),
                    Err(error) if fs.is_replayed(entry.object) => {
                        drop(error);
                        postponed.push((*entry, *gathered.block));
                    }
                    Err(error) => batches.problem(dir, name, entry.object, error),
                }
            })
            .await;
        for (entry, block) in postponed {
            let (dir, name) = (entries.directory(&entry), entries.name(&entry));
            match fs.attr(entry.object).await {
                Ok(attr) => {
                    batches.batch.push(dir, name, |path| row(walk, path, entry.object, attr, &block));
                    if attr.is_dir() {
                        found.push((entry, None));
                    }
                }
                Err(error) => batches.problem(dir, name, entry.object, error),
            }
        }
        walk.found(directories(walk, entries, found, batches));
        if batches.batch.rows.len() >= BATCH_ROWS / 2 {
            batches.send().await;
        }
    }
    batches.send().await;
}

/// Attributes from the dnode alone; `None` if that is not enough (a spill block, or changes in the intent
/// log).
fn decode(fs: &Filesystem, object: ObjectId, dnode: &Dnode) -> Result<Option<Attr>> {
    if fs.is_replayed(object) {
        return Ok(None);
    }
    match Attr::decode(fs.sa_registry(), dnode)? {
        Decoded::Done(attr) => Ok(Some(attr)),
        Decoded::NeedsSpill => Ok(None),
    }
}

/// The directories among entries met for the first time.
fn directories(
    walk: &Walk,
    entries: &Entries,
    found: Vec<(Entry, Option<Blkptr>)>,
    batches: &mut Batches<'_>,
) -> Vec<Directory> {
    let mut directories = Vec::with_capacity(found.len());
    for (entry, block) in found {
        let (dir, name) = (entries.directory(&entry), entries.name(&entry));
        if !walk.meets_first(entry.object) {
            let why = "the directory has more than one name; it was listed under the first only";
            batches.problem(dir, name, entry.object, InspectError::Request(why.into()));
            continue;
        }
        let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
        join(&mut path, dir, name);
        directories.push(Directory { object: entry.object, path: path.into(), block: block.map(Box::new) });
    }
    directories
}
