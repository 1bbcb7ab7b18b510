//! Another tree under a mount: `zfs rollback`.
//!
//! ```text
//!   write back what was changed through mappings belongs to the tree that goes
//!   pause      nothing begins, what is under way ends
//!   compare    what the kernel holds, in the tree as it is and in the one that comes
//!   let go     nobody has the dataset open: it gets its other tree
//!   take up    the mount has the dataset open again; what is gone is stale
//!   go on      and the kernel is told what it must not believe any more
//! ```
//!
//! Idea: the mount stays, and so does everything that is open, as long as the same file is there. A file is
//! the same if number and generation are. The kernel is told of names and contents that it may have, in the
//! directories and files that it holds; it asks for all others anyway.
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

/// What the kernel holds and must not believe any more.
#[derive(Default)]
struct Differences {
    /// Gone, or other files.
    stale: BTreeMap<ObjectId, Node>,
    /// The same files, perhaps with other content.
    same: Vec<(Node, ObjectId)>,
    /// Directories whose listings may have been answered.
    dirs: Vec<Node>,
    names: Vec<(Node, Bytes)>,
}

impl Files {
    /// Has `work` give the dataset the tree of `to`, one of its snapshots, while it stays mounted.
    ///
    /// # Errors
    /// `to` can't be read; the dataset can't be opened again: then the mount only reads the old tree.
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
                Some(self.0.runtime.blocking(move || notifier.pause()).await)
            }
            None => None,
        };
        let quiet = self.0.quiet.write().await;
        let before = self.head().view();
        let differences = self.compare(&before, &to).await?;
        *self.0.head.write() = Tree::Fixed(before);
        let done = work().await;
        if done.is_ok() {
            // Before the tree is taken up: what it has no name for is freed then.
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

    /// Takes the dataset away from whoever uses the mount: nobody has it open any more, and all that is done
    /// there fails.
    #[boxed]
    pub async fn abandon(&self) {
        let paused = match self.0.notifier.get().cloned() {
            Some(notifier) => Some(self.0.runtime.blocking(move || notifier.pause()).await),
            None => None,
        };
        let _quiet = self.0.quiet.write().await;
        self.0.is_abandoned.store(true, Ordering::Release);
        let before = self.head().view();
        *self.0.head.write() = Tree::Fixed(before);
        drop(paused);
    }

    /// Opens the dataset again, whatever tree it has now.
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
                // Without a name it is freed as soon as the tree is there.
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
