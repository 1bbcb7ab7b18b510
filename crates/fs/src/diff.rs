//! Changes between a snapshot and a later state of the same file system, like `zfs diff`.
//!
//! Idea: a block pointer carries the txg in which anything below it last changed. So only parts of the tree
//! of dnodes younger than the earlier snapshot are read. In these, each object is compared with its former
//! version: generation (same object, or its number reused), change time, path, links.
//!
//! ```text
//!   in both     same generation  change time equal: nothing; links differ: M (+n); path differs: R; else M
//!               other generation - old, + new
//!   only later  +                 only earlier  -        neither is a file: nothing
//! ```
//!
//! The output is ordered by object number, and lines equal those of `zfs diff -FH`.
//! Source: OpenZFS `dmu_diff.c`, `libzfs_diff.c`, `zfs_znode.c` (`zfs_obj_to_stats`).

mod line;

use std::collections::HashSet;
use std::ops::Range;

use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::dnode::{DNODE_MIN_BYTES, Dnode};
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_object::Object;
use cenote_object::trail::OpenedBlocks;

pub use line::{Change, DiffLine, DiffStyle};

use crate::attr::{Attr, FileKind};
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::path::PathFinder;

/// OpenZFS's placeholder for the path of a file unlinked while open.
const ON_DELETE_QUEUE: &[u8] = b"(on_delete_queue)";

/// Compares `from`, a snapshot created in `from_txg`, with `to`, a later snapshot (possibly of a clone), and
/// passes each line to `sink`.
///
/// # Errors
/// Damage in dnodes or directories, or `sink` failed.
pub async fn diff<E: From<FsError>>(
    from: &Filesystem,
    from_txg: Txg,
    to: &Filesystem,
    mut sink: impl FnMut(DiffLine) -> Result<(), E>,
) -> Result<(), E> {
    let mut differ = Differ { from: Side::new(from).await?, to: Side::new(to).await?, lines: Vec::new() };
    let Some(meta) = to.objset().meta() else { return Ok(()) };
    let mut changes = ChangedDnodes::new(meta, from_txg);
    let mut free: Range<u64> = 0..0;
    while let Some(found) = changes.next().await? {
        for range in found {
            match range {
                Found::Free(range) if range.start == free.end => free.end = range.end,
                Found::Free(range) => differ.removed(std::mem::replace(&mut free, range)).await?,
                Found::InUse(object) => {
                    differ.removed(std::mem::take(&mut free)).await?;
                    differ.compare(object).await?;
                }
            }
        }
        differ.lines.drain(..).try_for_each(&mut sink)?;
    }
    differ.removed(free).await?;
    differ.lines.drain(..).try_for_each(&mut sink)
}

/// One of the two states.
struct Side<'a> {
    fs: &'a Filesystem,
    paths: PathFinder<'a>,
    unlinked: HashSet<ObjectId>,
}

/// An object in one state: its attributes if a file, its path if it has one.
#[derive(Default)]
struct Seen {
    attr: Option<Attr>,
    path: Option<Vec<u8>>,
    on_delete_queue: bool,
}

impl<'a> Side<'a> {
    async fn new(fs: &'a Filesystem) -> Result<Side<'a>> {
        let unlinked = fs.unlinked().await?.into_iter().collect();
        Ok(Side { fs, paths: PathFinder::new(fs), unlinked })
    }

    async fn look(&mut self, id: ObjectId) -> Result<Seen> {
        let attr = match self.fs.attr(id).await {
            Ok(attr) => attr,
            Err(FsError::NoObject { .. } | FsError::Object { .. }) => return Ok(Seen::default()),
            Err(error) => return Err(error),
        };
        let on_delete_queue = self.unlinked.contains(&id);
        let path = if on_delete_queue {
            Some(ON_DELETE_QUEUE.to_vec())
        } else {
            match self.paths.path_of(id, &attr).await {
                Ok(path) => Some([b"/", &path[..]].concat()),
                Err(FsError::Orphan { .. } | FsError::NoObject { .. }) => None,
                Err(error) => return Err(error),
            }
        };
        Ok(Seen { attr: Some(attr), path, on_delete_queue })
    }
}

struct Differ<'a> {
    from: Side<'a>,
    to: Side<'a>,
    lines: Vec<DiffLine>,
}

impl Differ<'_> {
    fn emit(&mut self, change: Change, attr: &Attr) {
        self.lines.push(DiffLine { change, kind: attr.kind(), ctime: attr.ctime });
    }

    /// Reports all files that the earlier state has in this range of numbers.
    async fn removed(&mut self, range: Range<u64>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let mut dnodes = self.from.fs.objset().dnodes(ObjectId(range.start), ObjectId(range.end));
        while let Some(batch) = dnodes.next_batch().await {
            for (id, _) in batch?.dnodes {
                if Some(id) == self.from.fs.master().shares {
                    continue;
                }
                let seen = self.from.look(id).await?;
                if let (Some(attr), Some(path), false) = (&seen.attr, seen.path, seen.on_delete_queue) {
                    self.emit(Change::Removed(path), attr);
                }
            }
        }
        Ok(())
    }

    /// Compares an object of the later state with the earlier object of the same number.
    async fn compare(&mut self, id: ObjectId) -> Result<()> {
        if Some(id) == self.from.fs.master().shares {
            return Ok(());
        }
        let (old, new) = (self.from.look(id).await?, self.to.look(id).await?);
        let delta = link_delta(old.attr.as_ref(), new.attr.as_ref());
        match (old.attr.zip(old.path), new.attr.zip(new.path)) {
            (None, None) => {}
            (None, Some((attr, path))) if delta == 0 => self.emit(Change::Added(path), &attr),
            (Some((attr, path)), None) if delta == 0 => self.emit(Change::Removed(path), &attr),
            (None, Some((attr, path))) | (Some((attr, path)), None) => {
                self.emit(Change::Links(path, delta), &attr);
            }
            (Some((was, old_path)), Some((is, new_path))) => {
                let recreated = was.generation != is.generation || was.kind() != is.kind();
                if recreated {
                    self.emit(Change::Removed(old_path), &was);
                    self.emit(Change::Added(new_path), &is);
                } else if was.ctime == is.ctime {
                } else if delta != 0 {
                    self.emit(Change::Links(if delta > 0 { old_path } else { new_path }, delta), &is);
                } else if old_path == new_path {
                    self.emit(Change::Modified(new_path), &is);
                } else {
                    self.emit(Change::Renamed(old_path, new_path), &is);
                }
            }
        }
        Ok(())
    }
}

/// The change in the link count of a file with links in both states; directories' links are not counted.
fn link_delta(old: Option<&Attr>, new: Option<&Attr>) -> i64 {
    match (old, new) {
        (Some(old), Some(new)) if old.links != 0 && new.links != 0 => {
            let is_dir = [old, new].iter().any(|attr| attr.kind() == FileKind::Directory);
            if is_dir { 0 } else { new.links.wrapping_sub(old.links).cast_signed() }
        }
        _ => 0,
    }
}

/// Object numbers whose dnodes may have changed.
enum Found {
    /// No object has any of these numbers now.
    Free(Range<u64>),
    /// An object has this number.
    InUse(ObjectId),
}

/// A descent through the tree of dnodes, left to right, that skips parts older than a txg.
struct ChangedDnodes {
    meta: Object,
    since: Txg,
    /// Blocks still to visit, the next one last.
    pending: Vec<(u8, BlockId, Blkptr)>,
    opened: OpenedBlocks,
}

impl ChangedDnodes {
    fn new(meta: Object, since: Txg) -> ChangedDnodes {
        let top = meta.dnode().levels - 1;
        let roots = meta.dnode().blkptrs().enumerate().map(|(i, bp)| (top, BlockId(i as u64), bp));
        let mut pending: Vec<_> = roots.collect();
        pending.reverse();
        ChangedDnodes { meta, since, pending, opened: OpenedBlocks::default() }
    }

    /// The objects below the next pointer; `None` after the last.
    async fn next(&mut self) -> Result<Option<Vec<Found>>> {
        let Some((level, block, bp)) = self.pending.pop() else { return Ok(None) };
        let born = bp.logical_birth();
        // A hole without a birth txg predates feature hole_birth, or has always existed: in that case no
        // object was lost in it.
        if born <= self.since && !(bp.is_hole() && born == Txg(0)) {
            return Ok(Some(Vec::new()));
        }
        let slots = u64::from(self.meta.dnode().data_block_bytes) / DNODE_MIN_BYTES as u64;
        if bp.is_hole() {
            let span =
                slots.checked_shl(self.meta.dnode().fanout_shift() * u32::from(level)).unwrap_or(u64::MAX);
            let first = block.0.saturating_mul(span);
            return Ok(Some(vec![Found::Free(first..first.saturating_add(span))]));
        }
        if bp.level() != level || !self.opened.first(&bp) {
            return Err(self.meta.damaged("a block of its tree leads back into the tree").into());
        }
        let bytes = self.meta.read_metadata(level, block, &bp).await?;
        if level == 0 {
            return dnodes_in(&self.meta, &bytes, block.0.saturating_mul(slots), bp.endian()).map(Some);
        }
        let first = block.0.checked_shl(self.meta.dnode().fanout_shift()).unwrap_or(u64::MAX);
        for (i, raw) in bytes.chunks_exact(BLKPTR_BYTES).enumerate().rev() {
            let child = Blkptr::decode(raw, bp.endian())
                .map_err(|source| FsError::Format { object: self.meta.id(), source })?;
            self.pending.push((level - 1, BlockId(first.saturating_add(i as u64)), child));
        }
        Ok(Some(Vec::new()))
    }
}

/// Which slots of a block of dnodes are in use.
fn dnodes_in(
    meta: &Object,
    bytes: &bytes::Bytes,
    first: u64,
    endian: cenote_format::bytes::Endian,
) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut slot = 0;
    while (slot + 1) * DNODE_MIN_BYTES <= bytes.len() {
        let id = first + slot as u64;
        let dnode = Dnode::decode(bytes.slice(slot * DNODE_MIN_BYTES..), endian);
        match dnode.map_err(|source| meta.objset().format(ObjectId(id), source))? {
            Some(dnode) => {
                found.push(Found::InUse(ObjectId(id)));
                slot += usize::from(dnode.slots.max(1));
            }
            None => {
                found.push(Found::Free(id..id + 1));
                slot += 1;
            }
        }
    }
    Ok(found)
}
