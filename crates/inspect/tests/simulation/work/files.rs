//! Changes of files.

use std::sync::Arc;

use cenote_format::units::ObjectId;
use cenote_fs::write::{NewFile, NewKind, RenameMode, SetAttr, SetXattr};
use cenote_fs::{Change, FileKind, FsWriter};

use super::{Worker, content};
use crate::model::Node;
use crate::pools::now;

/// Names in a directory: few, so that they are reused.
const NAMES: u64 = 12;
const XATTR: &str = "user.cut";

impl Worker {
    pub(super) async fn change_files(&mut self, head: &str, fs: &FsWriter) {
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: now(&self.rt) };
        let (dir, name) = self.place(head);
        let there = self.files(head)[&dir].names.get(&name).copied();
        match (there, self.rng.below(8)) {
            (None, _) => self.make(head, fs, change, dir, &name).await,
            (Some(id), 0..=1) => self.remove(head, fs, change, dir, &name, id).await,
            (Some(id), 2) => self.rename(head, fs, change, (dir, &name), id).await,
            (Some(id), 3) => self.dress(head, fs, change, id).await,
            (Some(id), _) => self.write(head, fs, change, id).await,
        }
        if self.rng.below(2) == 0 {
            self.free_unlinked(head, fs, change).await;
        }
    }

    fn files(&mut self, head: &str) -> &mut std::collections::BTreeMap<ObjectId, Node> {
        self.world.heads.get_mut(head).unwrap().files()
    }

    fn place(&mut self, head: &str) -> (ObjectId, Vec<u8>) {
        let is_dir = |(id, node): (&ObjectId, &Node)| (node.kind == FileKind::Directory).then_some(*id);
        let dirs: Vec<ObjectId> = self.files(head).iter().filter_map(is_dir).collect();
        let dir = dirs[self.rng.below(dirs.len() as u64) as usize];
        (dir, format!("name{}", self.rng.below(NAMES)).into_bytes())
    }

    async fn make(&mut self, head: &str, fs: &FsWriter, change: Change<'_>, dir: ObjectId, name: &[u8]) {
        let (kind, new) = match self.rng.below(8) {
            0 => (FileKind::Directory, NewKind::Directory),
            1 => (FileKind::Symlink, NewKind::Symlink(b"somewhere")),
            _ => (FileKind::Regular, NewKind::Regular),
        };
        let new = NewFile { kind: new, mode: 0o640, umask: 0, uid: 7, gid: 8 };
        let id = fs.create(change, dir, name, &new).await.unwrap();
        let files = self.files(head);
        let mut node = Node::new(kind, 0o640);
        if kind == FileKind::Symlink {
            node.content = Arc::new(b"somewhere".to_vec());
        }
        files.insert(id, node);
        let parent = files.get_mut(&dir).unwrap();
        parent.names.insert(name.to_vec(), id);
        parent.links += u64::from(kind == FileKind::Directory);
        if kind == FileKind::Regular {
            self.write(head, fs, change, id).await;
        }
    }

    async fn remove(
        &mut self,
        head: &str,
        fs: &FsWriter,
        change: Change<'_>,
        dir: ObjectId,
        name: &[u8],
        id: ObjectId,
    ) {
        let node = &self.files(head)[&id];
        let is_dir = node.kind == FileKind::Directory;
        if !node.names.is_empty() {
            return;
        }
        let gone = match is_dir {
            true => Some(fs.rmdir(change, dir, name).await.unwrap()),
            false => fs.unlink(change, dir, name).await.unwrap(),
        };
        assert_eq!(gone, Some(id));
        let files = self.files(head);
        files.remove(&id);
        let parent = files.get_mut(&dir).unwrap();
        parent.names.remove(name);
        parent.links -= u64::from(is_dir);
        self.unlinked.push((head.to_owned(), id));
    }

    /// Renames a file to an unused name, in a directory not below it.
    async fn rename(
        &mut self,
        head: &str,
        fs: &FsWriter,
        change: Change<'_>,
        (dir, name): (ObjectId, &[u8]),
        id: ObjectId,
    ) {
        let (to_dir, to_name) = self.place(head);
        let files = self.files(head);
        let is_dir = files[&id].kind == FileKind::Directory;
        if files[&to_dir].names.contains_key(&to_name) || (is_dir && to_dir != dir) {
            return;
        }
        let mode = RenameMode::NoReplace;
        assert_eq!(fs.rename(change, (dir, name), (to_dir, &to_name), mode).await.unwrap(), None);
        let files = self.files(head);
        files.get_mut(&dir).unwrap().names.remove(name);
        files.get_mut(&to_dir).unwrap().names.insert(to_name, id);
    }

    /// Changes the mode or an extended attribute, which may need a spill block.
    async fn dress(&mut self, head: &str, fs: &FsWriter, change: Change<'_>, id: ObjectId) {
        if self.rng.below(2) == 0 {
            let permissions = self.rng.below(0o1000) as u32;
            let set = SetAttr { mode: Some(permissions), ..SetAttr::default() };
            fs.set_attr(change, id, &set).await.unwrap();
            self.files(head).get_mut(&id).unwrap().permissions = permissions;
        } else {
            let len = [10, 300, 3000][self.rng.below(3) as usize];
            let value = content(&mut self.rng, len);
            fs.set_xattr(change, id, XATTR.as_bytes(), Some(&value), SetXattr::Any).await.unwrap();
            self.files(head).get_mut(&id).unwrap().xattr = Some(value);
        }
    }

    async fn write(&mut self, head: &str, fs: &FsWriter, change: Change<'_>, id: ObjectId) {
        if self.files(head)[&id].kind != FileKind::Regular {
            return;
        }
        let reach = [500, 5000, 60_000][self.rng.below(3) as usize];
        let start = self.rng.below(reach) as usize;
        if self.rng.below(5) == 0 {
            let set = SetAttr { size: Some(start as u64), ..SetAttr::default() };
            fs.set_attr(change, id, &set).await.unwrap();
            let node = self.files(head).get_mut(&id).unwrap();
            Arc::make_mut(&mut node.content).resize(start, 0);
            return;
        }
        let len = 1 + self.rng.below(reach) as usize;
        let data = content(&mut self.rng, len);
        fs.write(change, id, start as u64, data.clone().into()).await.unwrap();
        let node = self.files(head).get_mut(&id).unwrap();
        let content = Arc::make_mut(&mut node.content);
        content.resize(content.len().max(start + len), 0);
        content[start..start + len].copy_from_slice(&data);
    }

    async fn free_unlinked(&mut self, head: &str, fs: &FsWriter, change: Change<'_>) {
        for (_, id) in self.unlinked.extract_if(.., |(of, _)| of == head) {
            assert!(fs.free_unlinked(change, id).await.unwrap());
        }
    }
}
