//! A file system in memory with POSIX semantics: the reference for the real one.

use std::collections::BTreeMap;

use cenote_format::units::ObjectId;
use cenote_fs::Refusal;
use cenote_fs::attr::{FileKind, Timestamp};
use cenote_fs::write::RenameMode;

pub type Name = Vec<u8>;
type Done<T = ()> = Result<T, Refusal>;

/// A file.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub kind: FileKind,
    pub permissions: u32,
    pub owner: (u32, u32),
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// The bytes of a file, or the target of a link.
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    pub names: BTreeMap<Name, ObjectId>,
    pub links: u64,
    pub parent: ObjectId,
}

/// All files, by the numbers of the real ones.
pub struct Model {
    pub nodes: BTreeMap<ObjectId, Node>,
    pub now: Timestamp,
}

impl Model {
    pub fn node(&mut self, id: ObjectId) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    pub fn find(&self, dir: ObjectId, name: &[u8]) -> Option<ObjectId> {
        self.nodes[&dir].names.get(name).copied()
    }

    fn kind(&self, id: ObjectId) -> FileKind {
        self.nodes[&id].kind
    }

    pub fn is_dir(&self, id: ObjectId) -> bool {
        self.kind(id) == FileKind::Directory
    }

    fn touch(&mut self, id: ObjectId) {
        self.node(id).ctime = self.now;
    }

    fn enter(&mut self, dir: ObjectId, name: &[u8], id: ObjectId) {
        let (is_dir, now) = (self.is_dir(id), self.now);
        let parent = self.node(dir);
        parent.names.insert(name.to_vec(), id);
        parent.links += u64::from(is_dir);
        (parent.mtime, parent.ctime) = (now, now);
    }

    fn leave(&mut self, dir: ObjectId, name: &[u8]) -> ObjectId {
        let now = self.now;
        let id = self.node(dir).names.remove(name).unwrap();
        let is_dir = self.is_dir(id);
        let parent = self.node(dir);
        parent.links -= u64::from(is_dir);
        (parent.mtime, parent.ctime) = (now, now);
        id
    }

    /// The result that creating a name would have.
    pub fn can_create(&self, dir: ObjectId, name: &[u8]) -> Done {
        if !self.is_dir(dir) {
            return Err(Refusal::NotDirectory);
        }
        if self.find(dir, name).is_some() { Err(Refusal::Exists) } else { Ok(()) }
    }

    pub fn create(&mut self, dir: ObjectId, name: &[u8], id: ObjectId, node: Node) {
        self.nodes.insert(id, node);
        self.enter(dir, name, id);
    }

    pub fn link(&mut self, id: ObjectId, dir: ObjectId, name: &[u8]) -> Done {
        if !self.is_dir(dir) {
            return Err(Refusal::NotDirectory);
        }
        if self.is_dir(id) {
            return Err(Refusal::NotPermitted);
        }
        if self.find(dir, name).is_some() {
            return Err(Refusal::Exists);
        }
        self.enter(dir, name, id);
        let node = self.node(id);
        node.links += 1;
        node.parent = dir;
        self.touch(id);
        Ok(())
    }

    /// Removes a link; returns the file if that was its last.
    fn drop_link(&mut self, id: ObjectId) -> Option<ObjectId> {
        let is_dir = self.is_dir(id);
        let node = self.node(id);
        node.links = if is_dir { 0 } else { node.links - 1 };
        if node.links == 0 {
            self.nodes.remove(&id);
            return Some(id);
        }
        self.touch(id);
        None
    }

    pub fn remove(&mut self, dir: ObjectId, name: &[u8], as_dir: bool) -> Done<Option<ObjectId>> {
        let id = self.find(dir, name).ok_or(Refusal::NotFound)?;
        match (as_dir, self.is_dir(id)) {
            (false, true) => return Err(Refusal::IsDirectory),
            (true, false) => return Err(Refusal::NotDirectory),
            (true, true) if !self.nodes[&id].names.is_empty() => return Err(Refusal::NotEmpty),
            _ => {}
        }
        self.leave(dir, name);
        Ok(self.drop_link(id))
    }

    fn is_inside(&self, id: ObjectId, mut dir: ObjectId) -> bool {
        loop {
            if dir == id {
                return true;
            }
            let parent = self.nodes.get(&dir).map(|node| node.parent);
            match parent {
                Some(parent) if parent != dir => dir = parent,
                _ => return false,
            }
        }
    }

    pub fn rename(
        &mut self,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
        mode: RenameMode,
    ) -> Done<Option<ObjectId>> {
        let source = self.find(from.0, from.1).ok_or(Refusal::NotFound)?;
        let target = self.find(to.0, to.1);
        if self.is_dir(source) && self.is_inside(source, to.0) {
            return Err(Refusal::Invalid);
        }
        let Some(target) = target else {
            if mode == RenameMode::Exchange {
                return Err(Refusal::NotFound);
            }
            self.leave(from.0, from.1);
            self.settle(to, source);
            return Ok(None);
        };
        if mode == RenameMode::NoReplace {
            return Err(Refusal::Exists);
        }
        if source == target {
            return Ok(None);
        }
        if mode == RenameMode::Exchange {
            if self.is_dir(target) && self.is_inside(target, from.0) {
                return Err(Refusal::Invalid);
            }
            self.leave(from.0, from.1);
            self.leave(to.0, to.1);
            self.settle(to, source);
            self.settle(from, target);
            return Ok(None);
        }
        match (self.is_dir(source), self.is_dir(target)) {
            (true, false) => return Err(Refusal::NotDirectory),
            (false, true) => return Err(Refusal::IsDirectory),
            (true, true) if !self.nodes[&target].names.is_empty() => return Err(Refusal::NotEmpty),
            _ => {}
        }
        self.leave(to.0, to.1);
        let gone = self.drop_link(target);
        self.leave(from.0, from.1);
        self.settle(to, source);
        Ok(gone)
    }

    fn settle(&mut self, (dir, name): (ObjectId, &[u8]), id: ObjectId) {
        self.enter(dir, name, id);
        self.node(id).parent = dir;
        self.touch(id);
    }

    fn content(&mut self, id: ObjectId) -> Done<&mut Vec<u8>> {
        match self.kind(id) {
            FileKind::Regular => Ok(&mut self.node(id).content),
            FileKind::Directory => Err(Refusal::IsDirectory),
            _ => Err(Refusal::Invalid),
        }
    }

    fn changed(&mut self, id: ObjectId) {
        let now = self.now;
        let node = self.node(id);
        (node.mtime, node.ctime) = (now, now);
    }

    pub fn write(&mut self, id: ObjectId, offset: usize, data: &[u8]) -> Done {
        let content = self.content(id)?;
        if !data.is_empty() {
            content.resize(content.len().max(offset + data.len()), 0);
            content[offset..offset + data.len()].copy_from_slice(data);
            self.changed(id);
        }
        Ok(())
    }

    pub fn truncate(&mut self, id: ObjectId, size: usize) -> Done {
        self.content(id)?.resize(size, 0);
        self.changed(id);
        Ok(())
    }

    pub fn punch(&mut self, id: ObjectId, range: std::ops::Range<usize>) -> Done {
        let content = self.content(id)?;
        let end = range.end.min(content.len());
        if range.start < end {
            content[range.start..end].fill(0);
        }
        self.changed(id);
        Ok(())
    }

    pub fn set_xattr(&mut self, id: ObjectId, name: &str, value: Option<&[u8]>) -> Done {
        let xattrs = &mut self.node(id).xattrs;
        match value {
            Some(value) => _ = xattrs.insert(name.into(), value.to_vec()),
            None => _ = xattrs.remove(name).ok_or(Refusal::NoData)?,
        }
        self.touch(id);
        Ok(())
    }
}
