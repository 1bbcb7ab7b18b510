//! Another tree under a mount: `zfs rollback`.
//!
//! ```text
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

use super::node::{Named, TreeId, number};
use super::tree::Tree;
use super::{Files, Pool};

/// What the kernel holds and must not believe any more.
#[derive(Default)]
struct Differences {
    /// Gone, or other files.
    stale: BTreeSet<Node>,
    /// The same files, perhaps with other content.
    same: Vec<Node>,
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
        let notifier = self.0.notifier.get().cloned();
        let paused = match notifier.clone() {
            Some(notifier) => Some(self.0.runtime.blocking(move || notifier.pause()).await),
            None => None,
        };
        let quiet = self.0.quiet.write().await;
        let differences = self.compare(&self.head().view(), &to).await?;
        let before = self.head().view();
        *self.0.head.write() = Tree::Fixed(before);
        let done = work().await;
        self.take_up(engine).await?;
        if done.is_ok() {
            differences.stale.iter().for_each(|node| self.0.references.make_stale(*node));
            differences.same.iter().for_each(|node| self.0.references.relink(*node));
        }
        drop((quiet, paused));
        if let Some(notifier) = notifier.filter(|_| done.is_ok()) {
            let Differences { stale, same, names } = differences;
            let tell = move || {
                stale.into_iter().chain(same).for_each(|node| notifier.changed(node));
                names.iter().for_each(|(dir, name)| notifier.name_changed(*dir, name));
            };
            self.0.runtime.blocking(tell).await;
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
        let fs = FsWriter::shared(engine, &self.name()).await?;
        fs.free_all_unlinked(engine).await?;
        *self.0.head.write() = Tree::Live(engine.clone(), fs);
        Ok(())
    }

    async fn compare(&self, from: &Filesystem, to: &Filesystem) -> Result<Differences, FsError> {
        let mut found = Differences::default();
        let mut dirs = Vec::new();
        for node in self.0.references.of_tree(TreeId::HEAD) {
            let Some(Named::File(TreeId::HEAD, object)) = self.named(node) else { continue };
            match (from.attr(object).await, to.attr(object).await) {
                // Without a name it is freed as soon as the tree is there.
                (Ok(old), Ok(new)) if old.generation == new.generation && new.links > 0 => {
                    found.same.push(node);
                    if new.kind() == FileKind::Directory {
                        dirs.push((node, object));
                    }
                }
                _ => drop(found.stale.insert(node)),
            }
        }
        for (node, object) in dirs {
            let (old, new) = (names(from, object).await?, names(to, object).await?);
            let is_other = |name: &Bytes, object: &ObjectId, others: &BTreeMap<Bytes, ObjectId>| {
                let is_stale = found.stale.contains(&number(TreeId::HEAD, *object, self.root()));
                is_stale || others.get(name) != Some(object)
            };
            let gone = old.iter().filter(|(name, object)| is_other(name, object, &new));
            let come = new.iter().filter(|(name, _)| !old.contains_key(*name));
            let names: Vec<_> = gone.chain(come).map(|(name, _)| (node, name.clone())).collect();
            found.names.extend(names);
        }
        Ok(found)
    }
}

async fn names(fs: &Filesystem, dir: ObjectId) -> Result<BTreeMap<Bytes, ObjectId>, FsError> {
    let entries = fs.list(dir).await?;
    Ok(entries.into_iter().map(|entry| (entry.name, entry.object)).collect())
}
