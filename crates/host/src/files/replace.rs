//! Replaces the tree of a mounted dataset: `zfs rollback`.
//!
//! ```text
//!   write back changes through mappings belong to the old tree
//!   pause      no new operations, wait for current ones
//!   compare    the kernel's nodes in the old tree and the new one
//!   let go     the dataset is closed: it gets its other tree
//!   take up    the mount opens the dataset again; vanished nodes are stale
//!   go on      and tell the kernel to drop outdated caches
//! ```
//!
//! Idea: the mount stays, and so do open files that exist in both trees. Files are the same if number and
//! generation are. The kernel is notified of possibly cached names and contents of the nodes it holds; it
//! asks for all others anyway.
//!
//! Source: OpenZFS `zfs_vfsops_os.c` (`zfs_suspend_fs`, `zfs_resume_fs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::{FileKind, Filesystem, FsError, FsWriter};
use cenote_fuse::Node;

use super::node::TreeId;
use super::tell::Notice;
use super::tree::Tree;
use super::{Files, Pool};

/// Nodes whose cached state may be outdated.
#[derive(Default)]
struct Differences {
    /// Gone, or other files.
    stale: BTreeMap<ObjectId, Node>,
    /// The same files, perhaps with other content.
    same: Vec<(Node, ObjectId)>,
    dirs: Vec<Node>,
    names: Vec<(Node, Bytes)>,
}

impl Files {
    /// Runs `work` to replace the dataset's tree with that of its snapshot `to`, while it stays mounted.
    ///
    /// # Errors
    /// `to` can't be read; the dataset can't be reopened: then the mount serves the old tree read-only.
    pub async fn replace_tree<T, E>(
        &self,
        to: &Dataset,
        work: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, FsError> {
        let Pool::Live(engine) = &self.0.pool else { return Ok(work().await) };
        let to = Filesystem::open(to.objset().await?).await?;
        let paused = match self.0.notifier.get().cloned() {
            Some(notifier) => {
                self.write_all_back(&notifier).await;
                Some(notifier.pause().await)
            }
            None => None,
        };
        let quiet = self.0.quiet.write().await;
        let before = self.head().view();
        let differences = self.compare(&before, &to).await?;
        *self.0.head.write() = Tree::Fixed(before);
        let done = work().await;
        if done.is_ok() {
            // Before taking up the tree, which frees its unlinked files.
            differences.stale.values().for_each(|node| self.0.references.make_stale(*node));
            differences.same.iter().for_each(|(_, object)| self.0.references.relink(*object));
        }
        self.take_up(engine).await?;
        drop((quiet, paused));
        if done.is_ok() {
            self.0.tell(differences.notices());
            self.settled().await;
        }
        Ok(done)
    }

    /// Closes the dataset under its users: from now on all operations fail.
    #[boxed]
    pub async fn abandon(&self) {
        let paused = match self.0.notifier.get().cloned() {
            Some(notifier) => Some(notifier.pause().await),
            None => None,
        };
        let _quiet = self.0.quiet.write().await;
        self.0.is_abandoned.store(true, Ordering::Release);
        let before = self.head().view();
        *self.0.head.write() = Tree::Fixed(before);
        drop(paused);
    }

    async fn take_up(&self, engine: &Engine) -> Result<(), FsError> {
        let fs = FsWriter::shared(engine, &self.name()).await?.held_by(self.0.me.clone());
        fs.free_all_unlinked(engine).await?;
        *self.0.head.write() = Tree::Live(engine.clone(), fs);
        Ok(())
    }

    async fn compare(&self, from: &Filesystem, to: &Filesystem) -> Result<Differences, FsError> {
        let mut found = Differences::default();
        let (mut dirs, mut stale_dirs) = (vec![(Node::ROOT, self.root())], Vec::new());
        found.same.push((Node::ROOT, self.root()));
        for (node, held) in self.0.references.of_tree(TreeId::Head) {
            let is_dir = |attr: &cenote_fs::Attr| attr.kind() == FileKind::Directory;
            match to.attr(held.object).await {
                _ if node == Node::ROOT => {}
                // Unlinked files are freed when the tree is opened.
                Ok(new) if new.generation == held.generation && new.links > 0 => {
                    found.same.push((node, held.object));
                    dirs.extend(is_dir(&new).then_some((node, held.object)));
                }
                _ => {
                    found.stale.insert(held.object, node);
                    let was_dir = from.attr(held.object).await.is_ok_and(|old| is_dir(&old));
                    stale_dirs.extend(was_dir.then_some((node, held.object)));
                }
            }
        }
        for (node, object) in dirs {
            let (old, new) = (names(from, object).await?, names(to, object).await?);
            let all: BTreeSet<&Bytes> = old.keys().chain(new.keys()).collect();
            let is_other = |name: &Bytes| {
                let old = old.get(name);
                old != new.get(name) || old.is_some_and(|object| found.stale.contains_key(object))
            };
            found
                .names
                .extend(all.into_iter().filter(|name| is_other(name)).map(|name| (node, name.clone())));
            found.dirs.push(node);
        }
        for (node, object) in stale_dirs {
            let gone = names(from, object).await?.into_keys();
            found.names.extend(gone.map(|name| (node, name)));
        }
        Ok(found)
    }
}

impl Differences {
    fn notices(self) -> impl Iterator<Item = Notice> {
        let names = self.names.into_iter().map(|(dir, name)| Notice::Name(dir, name));
        let dirs = self.dirs.into_iter().map(Notice::Listing);
        let nodes = self.stale.into_values().chain(self.same.into_iter().map(|(node, _)| node));
        names.chain(dirs).chain(nodes.map(Notice::Node))
    }
}

async fn names(fs: &Filesystem, dir: ObjectId) -> Result<BTreeMap<Bytes, ObjectId>, FsError> {
    let entries = fs.list(dir).await?;
    Ok(entries.into_iter().map(|entry| (entry.name, entry.object)).collect())
}
