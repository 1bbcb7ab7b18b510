//! Maps many objects to their paths without reading the same directory for each.
//!
//! Idea: [`Filesystem::path_of`] searches each parent for its child. Callers with many objects (a diff, a
//! list of damaged files) mostly ask for neighbours, so this keeps recently read directories as maps from
//! object to name.
//!
//! Memory: at most [`MAX_NAMES`] names; beyond that, all are dropped.

use std::collections::HashMap;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::units::ObjectId;

use crate::attr::Attr;
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;

/// Maximum number of names kept: some 100 MB.
const MAX_NAMES: usize = 1 << 20;
/// Maximum number of parents between an object and the root.
const MAX_DEPTH: usize = 65_536;

/// Finds paths and caches directories.
pub struct PathFinder<'a> {
    fs: &'a Filesystem,
    dirs: HashMap<ObjectId, Dir>,
    names: usize,
}

struct Dir {
    attr: Attr,
    names: HashMap<ObjectId, Bytes>,
}

impl<'a> PathFinder<'a> {
    /// An empty cache.
    pub fn new(fs: &'a Filesystem) -> PathFinder<'a> {
        PathFinder { fs, dirs: HashMap::new(), names: 0 }
    }

    /// The path of an object from the root, without a leading slash, like [`Filesystem::path_of`].
    ///
    /// # Errors
    /// The object does not exist, or no chain of parents leads to the root.
    #[boxed]
    pub async fn path_of(&mut self, object: ObjectId, attr: &Attr) -> Result<Vec<u8>> {
        let mut names: Vec<Bytes> = Vec::new();
        let (mut at, mut attr) = (object, *attr);
        while attr.parent != at {
            if names.len() == MAX_DEPTH {
                return Err(FsError::Orphan { object });
            }
            let parent = attr.parent;
            if attr.is_xattr() && attr.is_dir() {
                names.push(Bytes::from_static(b"<xattrdir>"));
                attr = self.fs.attr(parent).await?;
            } else {
                let dir = self.dir(parent).await?;
                names.push(dir.names.get(&at).ok_or(FsError::Orphan { object })?.clone());
                attr = dir.attr;
            }
            at = parent;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    async fn dir(&mut self, id: ObjectId) -> Result<&Dir> {
        if !self.dirs.contains_key(&id) {
            let dir = self.read(id).await?;
            if self.names + dir.names.len() > MAX_NAMES {
                self.dirs.clear();
                self.names = 0;
            }
            self.names += dir.names.len();
            self.dirs.insert(id, dir);
        }
        self.dirs.get(&id).ok_or(FsError::NoObject { object: id })
    }

    async fn read(&self, id: ObjectId) -> Result<Dir> {
        let attr = self.fs.attr(id).await?;
        if !attr.is_dir() {
            return Err(FsError::Orphan { object: id });
        }
        let mut names = HashMap::new();
        let mut reader = self.fs.read_dir(id).await?;
        while let Some(batch) = reader.next_batch().await? {
            for entry in batch {
                // Of several names, the first in directory order, as in OpenZFS.
                names.entry(entry.object).or_insert(entry.name);
            }
        }
        Ok(Dir { attr, names })
    }
}
