//! The walk through a tree: folders one by one, the files in each concurrently.
//!
//! Locking: one task walks and owns the stack; it spawns a task for each file, which share the tree
//! read-only. Names of the same file meet in [`super::links`]. A folder's metadata is set when the walker
//! holds its last reference.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use cenote_format::units::ObjectId;
use cenote_fs::{Attr, DirEntry, FileKind, Filesystem};
use cenote_runtime::AbortOnDrop;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustix::fs::Mode;
use rustix::io::Errno;
use tokio::sync::OnceCell;

use super::dress::{Body, Dress};
use super::folder::{Folder, Name};
use super::links::{FirstCopy, FirstName, Links};
use super::loss::{Loss, LossKind, Reason};
use super::special::Special;
use super::{Copier, CopySource, FILES_AT_ONCE, file};

/// Why a name is refused.
const NO_NAME: &str = "Linux can't store this name: longer than 255 bytes, or not one component";

struct Filling {
    folder: Arc<Folder>,
    /// Its path in reported losses.
    path: Vec<u8>,
    /// Its path from the root of the copy.
    names: Vec<Name>,
    dress: Option<Dress>,
}

/// A folder on the stack, with its subfolders still to be copied.
struct Level {
    filling: Arc<Filling>,
    subfolders: Vec<DirEntry>,
}

struct Tree {
    copier: Copier,
    fs: Filesystem,
    /// The folder that holds the copy.
    root: Folder,
    links: Links,
}

/// The running tasks and the folders that wait for them.
#[derive(Default)]
struct Work {
    running: FuturesUnordered<AbortOnDrop<()>>,
    filled: Vec<Arc<Filling>>,
}

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

    /// Creates a folder in another.
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

    /// Copies all contents of a folder.
    async fn walk(self: Arc<Self>, filling: Filling, id: ObjectId) {
        let mut work = Work::default();
        // A folder has one name. Meeting one twice means damage, and it could be its own ancestor.
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
        let name = self.name(&entry.name, &path).ok_or(Reason::Because(NO_NAME))?;
        let attr = self.fs.attr(entry.object).await?;
        if !attr.is_dir() {
            return Err(Reason::Because("its entry says that it is a folder, but it is not"));
        }
        self.make(above, entry.object, attr, &name, path).await
    }

    /// A stand-in if Linux can't store the name and the options allow it.
    fn name(&self, bytes: &[u8], path: &[u8]) -> Option<Name> {
        let name = Name::new(bytes);
        if name.is_some() || !self.copier.options().stand_ins {
            return name;
        }
        let stand_in = Name::stand_in(bytes);
        self.lost(path, LossKind::Name(stand_in.clone()), Reason::Because(NO_NAME));
        Some(stand_in)
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
        let mut is_whole = true;
        loop {
            let mut batch = match reader.next_batch().await {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => {
                    is_whole = false;
                    self.lost(&filling.path, LossKind::Entries, error);
                    continue;
                }
            };
            // In disk order.
            batch.sort_unstable_by_key(|entry| entry.object);
            for entry in batch {
                let kind = match entry.kind {
                    Some(kind) => kind,
                    // Old file systems don't store the type; an unreadable entry is reported as a file.
                    None => self.fs.attr(entry.object).await.map_or(FileKind::Regular, |attr| attr.kind()),
                };
                if kind == FileKind::Directory {
                    subfolders.push(entry);
                } else {
                    self.start(&filling, entry, work).await;
                }
            }
        }
        if is_whole {
            self.copier.whole(&filling.path);
        }
        Level { filling, subfolders }
    }

    /// Starts copying a file once a task slot is free.
    async fn start(self: &Arc<Self>, filling: &Arc<Filling>, entry: DirEntry, work: &mut Work) {
        while work.running.len() >= FILES_AT_ONCE {
            work.running.next().await;
            self.dress_filled(work);
        }
        let (tree, filling) = (self.clone(), filling.clone());
        let task = self.copier.runtime().spawn(async move {
            let path = join(&filling.path, &entry.name);
            match tree.name(&entry.name, &path) {
                Some(name) => tree.file(&filling, entry.object, &name, &path).await,
                None => tree.lost(&path, LossKind::File, Reason::Because(NO_NAME)),
            }
        });
        work.running.push(task.abort_on_drop());
    }

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

    /// Copies a file that is no folder, or links it to the existing copy.
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
        let linked = first.as_ref().map(|first| self.link(filling, name, path, first));
        match linked {
            Some(Ok(())) => self.copier.count(|counters| &counters.hard_links, 1),
            Some(Err(reason)) => {
                if self.file_alone(filling, id, name, path, attr).await.is_some() {
                    self.lost(path, LossKind::HardLink, reason);
                }
            }
            // The error of the first name may not affect this one; if it does, it is reported again.
            None => {
                if self.file_alone(filling, id, name, path, attr).await.is_some() {
                    let why = Reason::Because("another name of it could not be copied");
                    self.lost(path, LossKind::HardLink, why);
                }
            }
        }
    }

    fn link(&self, filling: &Filling, name: &Name, path: &[u8], first: &FirstCopy) -> Result<(), Reason> {
        let lost_bytes = first.lost.as_ref().map_or(0, Loss::content_bytes);
        let replace = self.copier.standing(&filling.folder, name, path).replace(lost_bytes)?;
        // A look-up of this name must find it among the losses.
        if let Some(lost) = &first.lost {
            self.copier.noted(Loss { path: path.to_vec(), ..lost.clone() })?;
        }
        let (old, folders) = first.names.split_last().ok_or(Reason::Because("it has no name"))?;
        let mut from = self.root.again()?;
        for folder in folders {
            from = from.enter(folder)?;
        }
        filling.folder.place(name, replace, |name| filling.folder.link(&from, old, name))?;
        if first.lost.is_none() {
            self.copier.whole(path);
        }
        Ok(())
    }

    /// Reports losses; returns the content that the copy lacks, `None` if it could not be made.
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
            FileKind::Directory => Err(Reason::Because("it is a folder, but its entry says otherwise")),
            FileKind::Symlink => self.special(filling, id, attr, name, path, dress).await.map(|()| None),
            _ => {
                let made = self.special(filling, id, attr, name, path, dress).await;
                if let Err(Reason::System(errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS))) = made {
                    self.lost(path, LossKind::Node, errno);
                    return None;
                }
                made.map(|()| None)
            }
        };
        done.map_err(|reason| self.lost(path, LossKind::File, reason)).ok()
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
        path: &[u8],
        dress: Option<Dress>,
    ) -> Result<(), Reason> {
        let replace = self.copier.standing(&filling.folder, name, path).replace(0)?;
        let special = match attr.kind() {
            FileKind::Symlink => Special::Symlink(self.fs.read_link(id).await?),
            _ => Special::node(&attr).ok_or(Reason::Because("its type is not known"))?,
        };
        let lost = |loss| self.copier.lost(loss);
        special.make(&filling.folder, name, replace, dress.as_ref(), &lost)?;
        self.copier.count(|counters| &counters.others, 1);
        self.copier.whole(path);
        Ok(())
    }
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder.is_empty() || folder.ends_with(b"/") { b"" } else { b"/" };
    [folder, slash, name].concat()
}

fn parent_path(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
    path[..end].to_vec()
}
