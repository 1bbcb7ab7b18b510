//! Files of a dataset.
//!
//! Idea: trees are compared by hashes, made when first asked for and dropped by each change. See
//! [`super::data`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_fuse::Errno;

use super::call::Path;
use super::data::{Cached, Data};

/// A file, for ever.
pub type FileId = u64;

type Result<T> = std::result::Result<T, Errno>;

/// The number of every root.
pub const ROOT: FileId = 0;

/// The files of a dataset, also files that only descriptors keep.
#[derive(Debug, Clone)]
pub struct Tree {
    /// By number.
    files: BTreeMap<FileId, Arc<File>>,
    hash: Cached,
}

/// A file of any kind.
#[derive(Debug, Clone)]
pub struct File {
    /// Its kind and content.
    pub body: Body,
    /// Permissions.
    pub mode: u32,
    /// Names that lead to it.
    pub links: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Bytes>,
    hash: Cached,
}

/// Its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Bytes.
    Regular(Data),
    /// Names.
    Directory(BTreeMap<String, FileId>),
    /// Target.
    Symlink(String),
}

impl File {
    /// A new file.
    pub fn new(body: Body) -> File {
        let mode = match body {
            Body::Regular(_) => 0o644,
            Body::Directory(_) => 0o755,
            Body::Symlink(_) => 0o777,
        };
        File { body, mode, links: 1, xattrs: BTreeMap::new(), hash: Cached::default() }
    }

    /// An empty directory.
    pub fn directory() -> File {
        File::new(Body::Directory(BTreeMap::new()))
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    fn names(&self) -> Result<&BTreeMap<String, FileId>> {
        match &self.body {
            Body::Directory(names) => Ok(names),
            _ => Err(Errno::NOTDIR),
        }
    }
}

impl Default for Tree {
    fn default() -> Tree {
        let files = BTreeMap::from([(ROOT, Arc::new(File::directory()))]);
        Tree { files, hash: Cached::default() }
    }
}

impl Tree {
    /// The file at a path.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, path: &[String]) -> Result<FileId> {
        let mut at = ROOT;
        for name in path {
            at = *self.files[&at].names()?.get(name).ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    /// The directory of a path, and the last name.
    fn place<'a>(&self, path: &'a [String]) -> Result<(FileId, &'a str)> {
        let (name, above) = path.split_last().ok_or(Errno::INVAL)?;
        let dir = self.find(above)?;
        self.files[&dir].names()?;
        Ok((dir, name))
    }

    fn at(&self, (dir, name): (FileId, &str)) -> Option<FileId> {
        self.files[&dir].names().ok()?.get(name).copied()
    }

    /// A file with or without a name.
    ///
    /// # Errors
    /// It is gone.
    pub fn file(&self, id: FileId) -> Result<&Arc<File>> {
        self.files.get(&id).ok_or(Errno::STALE)
    }

    /// All files, by number.
    pub fn files(&self) -> &BTreeMap<FileId, Arc<File>> {
        &self.files
    }

    /// Adds or replaces a file.
    pub fn put(&mut self, id: FileId, file: File) {
        self.hash = Cached::default();
        self.files.insert(id, Arc::new(file));
    }

    fn change(&mut self, id: FileId) -> &mut File {
        self.hash = Cached::default();
        let file = Arc::make_mut(self.files.get_mut(&id).expect("the caller found it"));
        file.hash = Cached::default();
        file
    }

    fn names_of(&mut self, dir: FileId) -> &mut BTreeMap<String, FileId> {
        match &mut self.change(dir).body {
            Body::Directory(names) => names,
            _ => unreachable!("the caller checked that it is a directory"),
        }
    }

    /// Adds a new file.
    ///
    /// # Errors
    /// As POSIX says.
    pub fn make(&mut self, path: &[String], id: FileId, body: Body) -> Result<()> {
        let (dir, name) = self.place(path)?;
        if self.at((dir, name)).is_some() {
            return Err(Errno::EXIST);
        }
        self.put(id, File::new(body));
        self.names_of(dir).insert(name.into(), id);
        Ok(())
    }

    /// Adds a name.
    ///
    /// # Errors
    /// As POSIX says.
    pub fn link(&mut self, from: &[String], to: &[String]) -> Result<()> {
        let old = self.find(from)?;
        let (dir, name) = self.place(to)?;
        if self.at((dir, name)).is_some() {
            return Err(Errno::EXIST);
        }
        if self.files[&old].is_dir() {
            return Err(Errno::PERM);
        }
        self.change(old).links += 1;
        self.names_of(dir).insert(name.into(), old);
        Ok(())
    }

    /// Removes a name.
    ///
    /// # Errors
    /// As POSIX says.
    pub fn unlink(&mut self, path: &[String], is_dir: bool) -> Result<()> {
        let (dir, name) = self.place(path)?;
        let victim = self.at((dir, name)).ok_or(Errno::NOENT)?;
        match (self.files[&victim].names(), is_dir) {
            (Ok(_), false) => return Err(Errno::ISDIR),
            (Err(_), true) => return Err(Errno::NOTDIR),
            (Ok(names), true) if !names.is_empty() => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        self.names_of(dir).remove(name);
        self.drop_link(victim);
        Ok(())
    }

    fn drop_link(&mut self, id: FileId) {
        let file = self.change(id);
        file.links -= 1;
        if file.is_dir() {
            file.links = 0;
        }
    }

    /// Moves a name, or exchanges two.
    ///
    /// # Errors
    /// As POSIX says.
    pub fn rename(&mut self, from: &[String], to: &[String], exchange: bool) -> Result<()> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        let old = self.at(from).ok_or(Errno::NOENT)?;
        let new = self.at(to);
        let is_dir = |tree: &Tree, id: FileId| tree.files[&id].is_dir();
        match new {
            None if exchange => return Err(Errno::NOENT),
            Some(new) if new == old => return Ok(()),
            Some(new) if exchange => {
                self.names_of(from.0).insert(from.1.into(), new);
                self.names_of(to.0).insert(to.1.into(), old);
                return Ok(());
            }
            Some(new) if is_dir(self, new) && !is_dir(self, old) => return Err(Errno::ISDIR),
            Some(new) if !is_dir(self, new) && is_dir(self, old) => return Err(Errno::NOTDIR),
            Some(new) if self.files[&new].names().is_ok_and(|names| !names.is_empty()) => {
                return Err(Errno::NOTEMPTY);
            }
            _ => {}
        }
        self.names_of(from.0).remove(from.1);
        self.names_of(to.0).insert(to.1.into(), old);
        if let Some(new) = new {
            self.drop_link(new);
        }
        Ok(())
    }

    /// Writes, and fills a gap with zeros.
    ///
    /// # Errors
    /// The file is gone.
    pub fn write(&mut self, id: FileId, offset: u64, data: &[u8]) -> Result<()> {
        let Body::Regular(before) = &self.file(id)?.body else { return Err(Errno::ISDIR) };
        let (offset, mut bytes) = (offset as usize, before.to_vec());
        bytes.resize(bytes.len().max(offset + data.len()), 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
        self.change(id).body = Body::Regular(bytes.into());
        Ok(())
    }

    /// Sets the size.
    ///
    /// # Errors
    /// The file is gone.
    pub fn truncate(&mut self, id: FileId, size: u64) -> Result<()> {
        let Body::Regular(before) = &self.file(id)?.body else { return Err(Errno::ISDIR) };
        let mut bytes = before.to_vec();
        bytes.resize(size as usize, 0);
        self.change(id).body = Body::Regular(bytes.into());
        Ok(())
    }

    /// Reads a range, up to the end of the file.
    ///
    /// # Errors
    /// The file is gone.
    pub fn read(&self, id: FileId, offset: u64, len: u64) -> Result<Bytes> {
        let Body::Regular(bytes) = &self.file(id)?.body else { return Err(Errno::ISDIR) };
        let size = bytes.len() as u64;
        Ok(bytes.slice(offset.min(size) as usize..(offset + len).min(size) as usize))
    }

    /// Sets permissions.
    ///
    /// # Errors
    /// There is no such file.
    pub fn chmod(&mut self, path: &[String], mode: u32) -> Result<()> {
        let id = self.find(path)?;
        self.change(id).mode = mode;
        Ok(())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// There is no such file.
    pub fn set_xattr(&mut self, path: &[String], name: &str, value: Bytes) -> Result<()> {
        let id = self.find(path)?;
        self.change(id).xattrs.insert(name.into(), value);
        Ok(())
    }

    /// Names in a directory.
    ///
    /// # Errors
    /// It is none.
    pub fn list(&self, path: &[String]) -> Result<Vec<String>> {
        Ok(self.files[&self.find(path)?].names()?.keys().cloned().collect())
    }

    /// Paths of all regular files.
    pub fn regular_files(&self) -> Vec<Path> {
        let (mut found, mut left) = (Vec::new(), vec![(Path::new(), ROOT)]);
        while let Some((path, id)) = left.pop() {
            match self.files.get(&id).map(|file| &file.body) {
                Some(Body::Directory(names)) => {
                    let below = |(name, id): (&String, &FileId)| {
                        ([&path[..], std::slice::from_ref(name)].concat(), *id)
                    };
                    left.extend(names.iter().map(below));
                }
                Some(Body::Regular(_)) => found.push(path),
                _ => {}
            }
        }
        found
    }

    /// Frees all files without names, unless `kept`.
    pub fn free_all(&mut self, kept: impl Fn(FileId) -> bool) {
        self.hash = Cached::default();
        self.files.retain(|id, file| file.links > 0 || kept(*id));
    }

    /// Has a top-level name lead to a file, or removes it.
    pub fn set_name(&mut self, name: &str, id: Option<FileId>) {
        match id {
            Some(id) => _ = self.names_of(ROOT).insert(name.into(), id),
            None => _ = self.names_of(ROOT).remove(name),
        }
    }

    /// Counts links anew, for a tree whose parts are of several moments.
    pub fn recount(&mut self) {
        let mut links: BTreeMap<FileId, u32> = BTreeMap::from([(ROOT, 1)]);
        let mut left = vec![ROOT];
        while let Some(dir) = left.pop() {
            if let Some(Body::Directory(names)) = self.files.get(&dir).map(|file| &file.body) {
                for id in names.values() {
                    *links.entry(*id).or_default() += 1;
                    left.push(*id);
                }
            }
        }
        let links_of = |id: &FileId| links.get(id).copied().unwrap_or(0);
        let other = |(id, file): (&FileId, &Arc<File>)| (file.links != links_of(id)).then_some(*id);
        let wrong: Vec<FileId> = self.files.iter().filter_map(other).collect();
        wrong.into_iter().for_each(|id| self.change(id).links = links_of(&id));
    }

    fn hash(&self) -> &blake3::Hash {
        self.hash.get(|hasher| {
            for (id, file) in &self.files {
                hasher.update(&id.to_le_bytes()).update(file.hash().as_bytes());
            }
        })
    }
}

impl PartialEq for Tree {
    fn eq(&self, other: &Tree) -> bool {
        self.hash() == other.hash()
    }
}

impl Eq for Tree {}

impl File {
    fn hash(&self) -> &blake3::Hash {
        self.hash.get(|hasher| {
            hasher.update(&self.mode.to_le_bytes()).update(&self.links.to_le_bytes());
            match &self.body {
                Body::Regular(data) => _ = hasher.update(b"f").update(data.hash().as_bytes()),
                Body::Directory(names) => {
                    hasher.update(b"d").update(&names.len().to_le_bytes());
                    for (name, id) in names {
                        sized(hasher, name.as_bytes()).update(&id.to_le_bytes());
                    }
                }
                Body::Symlink(target) => _ = sized(hasher.update(b"l"), target.as_bytes()),
            }
            for (name, value) in &self.xattrs {
                sized(sized(hasher, name.as_bytes()), value);
            }
        })
    }
}

impl PartialEq for File {
    fn eq(&self, other: &File) -> bool {
        self.hash() == other.hash()
    }
}

impl Eq for File {}

/// With its length in front, so that no two lists of pieces are alike.
fn sized<'a>(hasher: &'a mut blake3::Hasher, bytes: &[u8]) -> &'a mut blake3::Hasher {
    hasher.update(&bytes.len().to_le_bytes()).update(bytes)
}
