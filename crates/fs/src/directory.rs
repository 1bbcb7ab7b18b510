//! Directories and paths.
//!
//! Idea: a directory is a ZAP from names to numbers ([`Dirent`]). `.` and `..` are not stored. Paths are
//! resolved name by name. To find an object's path, its recorded parent is searched for the child's number,
//! and so on up to the root.
//!
//! Source: OpenZFS `zfs_znode.h` (`ZFS_DIRENT_*`), `zfs_dir.c`, `zfs_znode.c` (`zfs_obj_to_path`).

use std::pin::Pin;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::units::ObjectId;
use cenote_format::znode::Dirent;
use cenote_object::zap::{Cursor, Entries, fold};

use crate::attr::FileKind;
use crate::error::{FsError, Result};
use crate::filesystem::{CaseSensitivity, Filesystem};
use crate::overlay::Node;

/// Looks up names, perhaps under locks.
pub(crate) trait Names: Sync {
    fn look_up<'a>(&'a self, dir: ObjectId, name: &'a [u8]) -> LookedUp<'a>;
}

pub(crate) type LookedUp<'a> = Pin<Box<dyn Future<Output = Result<Option<DirEntry>>> + Send + 'a>>;

impl Names for Filesystem {
    fn look_up<'a>(&'a self, dir: ObjectId, name: &'a [u8]) -> LookedUp<'a> {
        Box::pin(self.lookup(dir, name))
    }
}

/// Maximum number of symbolic links followed in one path, as in Linux.
const MAX_LINKS: u32 = 40;
/// Maximum number of parents between an object and the root. Deeper trees mean damage.
pub(crate) const MAX_DEPTH: usize = 65_536;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name as stored.
    pub name: Bytes,
    /// The object it names.
    pub object: ObjectId,
    /// The object's type; `None` if the entry does not store it (version 1).
    pub kind: Option<FileKind>,
}

impl DirEntry {
    /// Decodes a directory's value.
    pub fn decode(name: Bytes, value: u64) -> DirEntry {
        let Dirent { object, kind } = Dirent::from_word(value);
        DirEntry { name, object, kind }
    }
}

/// Whether a symbolic link at the end of a path is followed. Links before the end always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    /// The link itself is meant.
    Keep,
    /// The link's target is meant.
    Follow,
}

/// An iteration over a directory, in the order of the ZAP and then of the overlay.
pub struct ReadDir<'a> {
    entries: Option<Entries>,
    overlay: Option<&'a Node>,
}

impl ReadDir<'_> {
    /// The next entries; `None` after the last. A batch may be empty.
    ///
    /// # Errors
    /// A block of the directory can't be read.
    #[boxed]
    pub async fn next_batch(&mut self) -> Result<Option<Vec<DirEntry>>> {
        if let Some(entries) = &mut self.entries {
            let Some(batch) = entries.next_batch().await.transpose()? else {
                self.entries = None;
                let added = self.overlay.take().map(|node| node.names.values().flatten().cloned().collect());
                return Ok(added);
            };
            let decoded = batch
                .into_iter()
                .filter_map(|entry| Some(DirEntry::decode(entry.name, entry.value.as_u64()?)));
            let shadowed = |name: &[u8]| self.overlay.is_some_and(|node| node.names.contains_key(name));
            return Ok(Some(decoded.filter(|entry| !shadowed(&entry.name)).collect()));
        }
        Ok(self.overlay.take().map(|node| node.names.values().flatten().cloned().collect()))
    }
}

impl Filesystem {
    /// Lists a directory.
    ///
    /// # Errors
    /// It does not exist or can't be opened.
    #[boxed]
    pub async fn read_dir(&self, dir: ObjectId) -> Result<ReadDir<'_>> {
        let overlay = self.node(dir);
        let entries = match overlay {
            Some(node) if node.fresh => None,
            _ => Some(self.zap(dir).await?.entries()),
        };
        Ok(ReadDir { entries, overlay })
    }

    /// All entries of a directory, sorted by the bytes of their names. Memory grows with the directory.
    ///
    /// # Errors
    /// Those of [`Filesystem::read_dir`] and [`ReadDir::next_batch`].
    #[boxed]
    pub async fn list(&self, dir: ObjectId) -> Result<Vec<DirEntry>> {
        let mut reader = self.read_dir(dir).await?;
        let mut all = Vec::new();
        while let Some(batch) = reader.next_batch().await? {
            all.extend(batch);
        }
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// The next entries of a directory after a cursor, in hash order, each with the cursor after it; empty at
    /// the end. Entries added or removed meanwhile do not move the others.
    ///
    /// # Errors
    /// The directory does not exist or can't be read.
    #[boxed]
    pub async fn list_from(&self, dir: ObjectId, from: Cursor) -> Result<Vec<(DirEntry, Cursor)>> {
        if self.node(dir).is_some() {
            // A log replayed in memory no longer changes: an entry's index is as stable as its hash.
            let all = self.list(dir).await?.into_iter().zip(1..).skip(from.0 as usize);
            return Ok(all.map(|(entry, number)| (entry, Cursor(number))).collect());
        }
        let entries = self.zap(dir).await?.entries_from(from).await?;
        let decoded = entries.into_iter().filter_map(|(entry, behind)| {
            Some((DirEntry::decode(entry.name, entry.value.as_u64()?), behind))
        });
        Ok(decoded.collect())
    }

    /// Looks up a name according to the file system's case and normalization rules.
    ///
    /// # Errors
    /// The directory does not exist or can't be read.
    #[boxed]
    pub async fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<DirEntry>> {
        let fold = self.master().case == CaseSensitivity::Insensitive;
        self.lookup_folding(dir, name, fold).await
    }

    /// Looks up a name with or without regard to case, overriding the file system's setting (but not its
    /// normalization).
    ///
    /// # Errors
    /// Those of [`Filesystem::lookup`].
    #[boxed]
    pub async fn lookup_folding(&self, dir: ObjectId, name: &[u8], fold: bool) -> Result<Option<DirEntry>> {
        let flags = self.master().fold_flags(fold);
        let node = self.node(dir);
        if let Some(node) = node {
            if let Some(entry) = node.find(name, flags) {
                return Ok(Some(entry.clone()));
            }
            if node.fresh {
                return Ok(None);
            }
        }
        let zap = self.zap(dir).await?;
        let found = match flags {
            0 => zap.lookup(name).await?.map(|value| (Bytes::copy_from_slice(name), value)),
            _ => zap.lookup_normalized(name, flags).await?.map(|entry| (entry.name, entry.value)),
        };
        let entry = found.and_then(|(name, value)| Some(DirEntry::decode(name, value.as_u64()?)));
        let removed = |e: &DirEntry| node.is_some_and(|node| node.names.contains_key(&e.name));
        Ok(entry.filter(|entry| !removed(entry)))
    }

    /// Resolves a path from the root. Empty components and `.` are ignored.
    ///
    /// # Errors
    /// A component is missing or not a directory; too many links; damage.
    #[boxed]
    pub async fn resolve(&self, path: &[u8], last: LastLink) -> Result<ObjectId> {
        self.walk(path, last, self).await
    }

    /// The same; `names` looks them up.
    #[boxed]
    pub(crate) async fn walk(&self, path: &[u8], last: LastLink, names: &dyn Names) -> Result<ObjectId> {
        let shown = || String::from_utf8_lossy(path).into_owned();
        let mut todo = components(path);
        let mut at = vec![self.root()];
        let mut links = 0;
        while let Some(name) = todo.pop() {
            let dir = at.last().copied().unwrap_or(self.root());
            if !self.attr(dir).await?.is_dir() {
                return Err(FsError::NotDirectory { path: shown() });
            }
            if name == b".." {
                at.truncate(at.len().saturating_sub(1).max(1));
                continue;
            }
            let entry = names.look_up(dir, &name).await?;
            let entry = entry.ok_or_else(|| FsError::NotFound { path: shown() })?;
            let followed = !todo.is_empty() || last == LastLink::Follow;
            if followed && self.attr(entry.object).await?.kind() == FileKind::Symlink {
                links += 1;
                if links > MAX_LINKS {
                    return Err(FsError::LinkLoop { path: shown() });
                }
                let target = self.read_link(entry.object).await?;
                if target.starts_with(b"/") {
                    at.truncate(1);
                }
                todo.extend(components(&target));
                continue;
            }
            at.push(entry.object);
        }
        Ok(at.last().copied().unwrap_or(self.root()))
    }

    /// The path of an object from the root, without a leading slash; empty for the root. Of several hard
    /// links, the one created last. Extended attributes are `PATH/<xattrdir>/NAME`, as in OpenZFS.
    ///
    /// # Errors
    /// The object does not exist, or no chain of parents leads to the root.
    #[boxed]
    pub async fn path_of(&self, object: ObjectId) -> Result<Vec<u8>> {
        let mut names: Vec<Bytes> = Vec::new();
        let mut at = object;
        for _ in 0..MAX_DEPTH {
            let attr = self.attr(at).await?;
            if attr.parent == at {
                names.reverse();
                return Ok(names.join(&b'/'));
            }
            if attr.is_xattr() && attr.is_dir() {
                names.push(Bytes::from_static(b"<xattrdir>"));
            } else {
                let name = self.name_in(attr.parent, at).await?;
                names.push(name.ok_or(FsError::Orphan { object })?);
            }
            at = attr.parent;
        }
        Err(FsError::Orphan { object })
    }

    /// The name of an object in a directory, if it has one there. Scans the directory.
    ///
    /// # Errors
    /// The directory does not exist or can't be read.
    #[boxed]
    pub async fn name_in(&self, dir: ObjectId, object: ObjectId) -> Result<Option<Bytes>> {
        let mut reader = self.read_dir(dir).await?;
        while let Some(batch) = reader.next_batch().await? {
            if let Some(found) = batch.into_iter().find(|entry| entry.object == object) {
                return Ok(Some(found.name));
            }
        }
        Ok(None)
    }
}

impl Node {
    /// A name added by the overlay, in any spelling that `flags` treat as equal; an exact match wins.
    fn find(&self, name: &[u8], flags: u64) -> Option<&DirEntry> {
        if let Some(exact) = self.names.get(name) {
            return exact.as_ref();
        }
        let wanted = (flags != 0).then(|| fold::fold(name, flags))?;
        self.names.values().flatten().find(|entry| fold::fold(&entry.name, flags) == wanted)
    }
}

/// A path's components, last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&b| b == b'/')
        .rev()
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_splits_into_type_and_object() {
        let entry = DirEntry::decode(Bytes::from_static(b"n"), 0xa000_0000_0000_0017);
        assert_eq!((entry.kind, entry.object), (Some(FileKind::Symlink), ObjectId(23)));
        assert_eq!(DirEntry::decode(Bytes::new(), 5).kind, None);
    }

    #[test]
    fn a_path_is_taken_from_its_end() {
        assert_eq!(components(b"//a/./b/"), [b"b".to_vec(), b"a".to_vec()]);
    }
}
