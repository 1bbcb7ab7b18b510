//! The walk through a tree: folders one after the other, the files in them side by side.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use cenote_format::units::ObjectId;
use cenote_fs::{Attr, DirEntry, FileKind, Filesystem};
use cenote_runtime::AbortOnDrop;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustix::fs::Mode;
use tokio::sync::OnceCell;

use super::dress::{Body, Dress};
use super::folder::{Folder, Name};
use super::links::{FirstCopy, FirstName, Links};
use super::loss::{Loss, LossKind, Reason};
use super::special::Special;
use super::{Copier, CopySource, FILES_AT_ONCE, file};

/// A folder that is being filled.
struct Filling {
    folder: Arc<Folder>,
    /// As losses show it.
    path: Vec<u8>,
    /// From the root of the copy.
    names: Vec<Name>,
    dress: Option<Dress>,
}

/// A folder on the stack: those below it that are still to be copied.
struct Level {
    filling: Arc<Filling>,
    subfolders: Vec<DirEntry>,
}

/// One tree.
struct Tree {
    copier: Copier,
    fs: Filesystem,
    /// The folder that holds the copy.
    root: Folder,
    links: Links,
}

/// The tasks under way and the folders that wait for them.
#[derive(Default)]
struct Work {
    running: FuturesUnordered<AbortOnDrop<()>>,
    filled: Vec<Arc<Filling>>,
}

/// See [`Copier::copy`].
pub(super) async fn copy(copier: &Copier, source: &CopySource, folder: &Folder, name: &Name) {
    if let Err((kind, reason)) = begin(copier, source, folder, name).await {
        copier.lost(Loss { path: source.path.clone(), kind, reason });
    }
}

async fn begin(
    copier: &Copier,
    source: &CopySource,
    folder: &Folder,
    name: &Name,
) -> Result<(), (LossKind, Reason)> {
    let lost = |reason| (LossKind::File, reason);
    let attr = source.filesystem.attr(source.object).await.map_err(|e| lost(e.into()))?;
    let root = folder.again().map_err(|e| lost(e.into()))?;
    let above = Filling {
        folder: Arc::new(folder.again().map_err(|e| lost(e.into()))?),
        path: parent_path(&source.path),
        names: Vec::new(),
        dress: None,
    };
    let tree = Tree { copier: copier.clone(), fs: source.filesystem.clone(), root, links: Links::default() };
    let tree = Arc::new(tree);
    if !attr.is_dir() {
        tree.file(&above, source.object, name, &source.path).await;
        return Ok(());
    }
    let filling = tree.make(&above, source.object, attr, name, source.path.clone()).await.map_err(lost)?;
    tree.walk(filling, source.object).await;
    Ok(())
}

/// See [`Copier::copy_into`].
pub(super) async fn copy_into(copier: &Copier, source: &CopySource, folder: &Folder) {
    let fs = &source.filesystem;
    let opened = async {
        let attr = fs.attr(source.object).await?;
        Ok::<_, Reason>((attr, folder.again()?, folder.again()?))
    };
    match opened.await {
        Err(reason) => {
            copier.lost(Loss { path: source.path.clone(), kind: LossKind::File, reason });
        }
        Ok((attr, root, folder)) => {
            let tree =
                Arc::new(Tree { copier: copier.clone(), fs: fs.clone(), root, links: Links::default() });
            let path = source.path.clone();
            let dress = tree.dress(source.object, attr, &path).await;
            let filling = Filling { folder: Arc::new(folder), path, names: Vec::new(), dress };
            tree.walk(filling, source.object).await;
        }
    }
}

impl Tree {
    fn lost(&self, path: &[u8], kind: LossKind, reason: impl Into<Reason>) {
        self.copier.lost(Loss { path: path.to_vec(), kind, reason: reason.into() });
    }

    async fn dress(&self, id: ObjectId, attr: Attr, path: &[u8]) -> Option<Dress> {
        if !self.copier.options().metadata {
            return None;
        }
        Some(Dress::read(&self.fs, id, attr, path.to_vec(), &|loss| self.copier.lost(loss)).await)
    }

    /// Makes a folder in another.
    async fn make(
        &self,
        above: &Filling,
        id: ObjectId,
        attr: Attr,
        name: &Name,
        path: Vec<u8>,
    ) -> Result<Filling, Reason> {
        let mode = if self.copier.options().metadata { Mode::RWXU } else { Mode::from_raw_mode(0o777) };
        let folder = above.folder.make(name, mode)?;
        self.copier.count(|counters| &counters.folders, 1);
        let names = above.names.iter().chain([name]).cloned().collect();
        let dress = self.dress(id, attr, &path).await;
        Ok(Filling { folder: Arc::new(folder), path, names, dress })
    }

    /// Copies all that is in a folder.
    async fn walk(self: Arc<Self>, filling: Filling, id: ObjectId) {
        let mut work = Work::default();
        // A folder has one name. One that is met twice is damage, and could be its own ancestor.
        let mut entered = HashSet::from([id]);
        let mut stack = vec![self.list(Arc::new(filling), id, &mut work).await];
        while let Some(level) = stack.last_mut() {
            let Some(entry) = level.subfolders.pop() else {
                work.filled.extend(stack.pop().map(|level| level.filling));
                self.dress_filled(&mut work);
                continue;
            };
            let path = join(&level.filling.path, &entry.name);
            if !entered.insert(entry.object) {
                self.lost(&path, LossKind::File, Reason::Because("this folder has several names"));
                continue;
            }
            match self.enter(&level.filling, &entry, path.clone()).await {
                Ok(filling) => stack.push(self.list(Arc::new(filling), entry.object, &mut work).await),
                Err(reason) => self.lost(&path, LossKind::File, reason),
            }
        }
        while work.running.next().await.is_some() {}
        self.dress_filled(&mut work);
    }

    async fn enter(&self, above: &Filling, entry: &DirEntry, path: Vec<u8>) -> Result<Filling, Reason> {
        let name = Name::new(&entry.name).ok_or(Reason::Because("such a name can't be made here"))?;
        let attr = self.fs.attr(entry.object).await?;
        if !attr.is_dir() {
            return Err(Reason::Because("it is no folder, although its entry says so"));
        }
        self.make(above, entry.object, attr, &name, path).await
    }

    /// Starts copying the files of a folder and lists its subfolders.
    async fn list(self: &Arc<Self>, filling: Arc<Filling>, id: ObjectId, work: &mut Work) -> Level {
        let mut subfolders = Vec::new();
        let mut reader = match self.fs.read_dir(id).await {
            Ok(reader) => reader,
            Err(error) => {
                self.lost(&filling.path, LossKind::Entries, error);
                return Level { filling, subfolders };
            }
        };
        loop {
            let mut batch = match reader.next_batch().await {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => {
                    self.lost(&filling.path, LossKind::Entries, error);
                    continue;
                }
            };
            // Neighbours on disk one after the other.
            batch.sort_unstable_by_key(|entry| entry.object);
            for entry in batch {
                let kind = match entry.kind {
                    Some(kind) => kind,
                    // Old file systems don't say; what can't be read will be told as a file.
                    None => self.fs.attr(entry.object).await.map_or(FileKind::Regular, |attr| attr.kind()),
                };
                if kind == FileKind::Directory {
                    subfolders.push(entry);
                } else {
                    self.start(&filling, entry, work).await;
                }
            }
        }
        Level { filling, subfolders }
    }

    /// Starts copying a file, when there is room.
    async fn start(self: &Arc<Self>, filling: &Arc<Filling>, entry: DirEntry, work: &mut Work) {
        while work.running.len() >= FILES_AT_ONCE {
            work.running.next().await;
            self.dress_filled(work);
        }
        let (tree, filling) = (self.clone(), filling.clone());
        let task = self.copier.runtime().spawn(async move {
            let path = join(&filling.path, &entry.name);
            match Name::new(&entry.name) {
                Some(name) => tree.file(&filling, entry.object, &name, &path).await,
                None => tree.lost(&path, LossKind::File, Reason::Because("such a name can't be made here")),
            }
        });
        work.running.push(task.abort_on_drop());
    }

    /// Dresses the folders that nobody writes into any more.
    fn dress_filled(&self, work: &mut Work) {
        for filling in std::mem::take(&mut work.filled) {
            match Arc::try_unwrap(filling) {
                Err(in_use) => work.filled.push(in_use),
                Ok(Filling { folder, dress: Some(dress), .. }) => {
                    let lost = |loss| self.copier.lost(loss);
                    dress.put_on(&Body::Open(folder.as_fd()), &lost);
                    dress.set_flags(Some(folder.as_fd()), &lost);
                }
                Ok(_) => {}
            }
        }
    }

    /// Copies one file of any type that is no folder, or links it to the copy that there is.
    async fn file(&self, filling: &Filling, id: ObjectId, name: &Name, path: &[u8]) {
        let attr = match self.fs.attr(id).await {
            Ok(attr) => attr,
            Err(error) => return self.lost(path, LossKind::File, error),
        };
        if attr.links <= 1 {
            self.file_alone(filling, id, name, path, attr).await;
            return;
        }
        let place: Arc<OnceCell<FirstName>> = self.links.of(id);
        let mut first_here = false;
        let first = place
            .get_or_init(async || {
                first_here = true;
                let lost = self.file_alone(filling, id, name, path, attr).await?;
                Some(FirstCopy { names: filling.names.iter().chain([name]).cloned().collect(), lost })
            })
            .await;
        if first_here {
            return;
        }
        let linked = first.as_ref().map(|first| (self.link(filling, name, &first.names), &first.lost));
        match linked {
            Some((Ok(()), lost)) => {
                self.copier.count(|counters| &counters.hard_links, 1);
                // Whoever looks for this name shall find it among the losses.
                if let Some(lost) = lost {
                    self.copier.lost(Loss { path: path.to_vec(), ..lost.clone() });
                }
            }
            Some((Err(reason), _)) => {
                if self.file_alone(filling, id, name, path, attr).await.is_some() {
                    self.lost(path, LossKind::HardLink, reason);
                }
            }
            // What kept the first name from being made need not keep this one; if it does, it is said again.
            None => {
                if self.file_alone(filling, id, name, path, attr).await.is_some() {
                    let why = Reason::Because("another name of it could not be copied");
                    self.lost(path, LossKind::HardLink, why);
                }
            }
        }
    }

    /// Links a name to the copy whose names from the root are `first`.
    fn link(&self, filling: &Filling, name: &Name, first: &[Name]) -> Result<(), Reason> {
        let (old, folders) = first.split_last().ok_or(Reason::Because("it has no name"))?;
        let mut from = self.root.again()?;
        for folder in folders {
            from = from.enter(folder)?;
        }
        let replace = self.copier.options().replace;
        Ok(filling.folder.place(name, replace, |name| filling.folder.link(&from, old, name))?)
    }

    /// Copies one file and tells what is lost of it; none if it could not be copied, else the content that it lacks.
    async fn file_alone(
        &self,
        filling: &Filling,
        id: ObjectId,
        name: &Name,
        path: &[u8],
        attr: Attr,
    ) -> Option<Option<Loss>> {
        let dress = self.dress(id, attr, path).await;
        let done = match attr.kind() {
            FileKind::Regular => self.regular(filling, id, name, path, dress).await,
            FileKind::Directory => Err(Reason::Because("it is a folder, although its entry says otherwise")),
            _ => self.special(filling, id, attr, name, dress).await.map(|()| None),
        };
        match done {
            Ok(lost) => {
                lost.iter().for_each(|loss| self.copier.lost(loss.clone()));
                Some(lost)
            }
            Err(reason) => {
                self.lost(path, LossKind::File, reason);
                None
            }
        }
    }

    async fn regular(
        &self,
        filling: &Filling,
        id: ObjectId,
        name: &Name,
        path: &[u8],
        dress: Option<Dress>,
    ) -> Result<Option<Loss>, Reason> {
        let opened = self.fs.open_file(id).await?;
        file::copy(&self.copier, &opened, &filling.folder, name, path, dress).await
    }

    async fn special(
        &self,
        filling: &Filling,
        id: ObjectId,
        attr: Attr,
        name: &Name,
        dress: Option<Dress>,
    ) -> Result<(), Reason> {
        let special = match attr.kind() {
            FileKind::Symlink => Special::Symlink(self.fs.read_link(id).await?),
            _ => Special::node(&attr).ok_or(Reason::Because("its type is not known"))?,
        };
        let lost = |loss| self.copier.lost(loss);
        special.make(&filling.folder, name, self.copier.options().replace, dress.as_ref(), &lost)?;
        self.copier.count(|counters| &counters.others, 1);
        Ok(())
    }
}

/// The path of `name` in `folder`.
fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder.is_empty() || folder.ends_with(b"/") { b"" } else { b"/" };
    [folder, slash, name].concat()
}

/// What is before the last slash.
fn parent_path(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
    path[..end].to_vec()
}
