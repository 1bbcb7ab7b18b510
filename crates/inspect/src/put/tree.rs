//! The walk over the source: a folder's files in order, its subfolders from a stack, its own metadata last.
//!
//! Locking: one task walks; the atomics are the putter's counters.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cenote_engine::Need;
use cenote_format::units::ObjectId;
use cenote_fs::write::{NewFile, NewKind, RenameMode};
use cenote_fs::{DirEntry, FileKind};
use rustix::io::Errno;

use super::source::Source;
use super::{Counters, Putter};
use crate::copy::{LossKind, Reason};
use crate::error::Result;

/// The name of an incomplete file whose final name is taken.
const TEMPORARY: &[u8] = b".cenote.part";

/// One walk, with the files of several names it has met.
pub(super) struct Walk<'a, S> {
    putter: &'a Putter,
    links: HashMap<(u64, u64), ObjectId>,
    stack: Vec<Step<S>>,
}

enum Step<S> {
    /// A folder in `parent`, or the named source: to be copied into a directory.
    Enter { parent: Arc<S>, name: OsString, path: PathBuf, dir: ObjectId },
    /// The folder's contents are complete.
    Finish { folder: Arc<S>, path: PathBuf, dir: ObjectId },
}

impl<'a, S: Source> Walk<'a, S> {
    pub fn new(putter: &'a Putter) -> Walk<'a, S> {
        Walk { putter, links: HashMap::new(), stack: Vec::new() }
    }

    /// Copies the named source and everything below it.
    pub async fn put(mut self, source: S, path: &Path, dir: ObjectId, name: &[u8]) -> Result<()> {
        match source.kind() {
            FileKind::Directory => {
                if let Some(made) = self.make_folder(&source, path, dir, name).await? {
                    self.fill(Arc::new(source), path, made).await?;
                }
            }
            _ => self.file(&source, path, dir, name).await?,
        }
        self.run().await
    }

    pub async fn put_into(mut self, source: S, path: &Path, dir: ObjectId) -> Result<()> {
        self.fill(Arc::new(source), path, dir).await?;
        self.run().await
    }

    async fn run(&mut self) -> Result<()> {
        while let Some(step) = self.stack.pop() {
            if self.putter.is_stopped() {
                break;
            }
            match step {
                Step::Finish { folder, path, dir } => self.putter.dress(&*folder, &path, dir).await,
                Step::Enter { parent, name, path, dir } => {
                    let folder = match parent.enter(name.as_bytes()).await {
                        Ok(folder) if folder.kind() == FileKind::Directory => folder,
                        Ok(_) => {
                            self.putter.lost(&path, LossKind::File, Errno::NOTDIR);
                            continue;
                        }
                        Err(reason) => {
                            self.putter.lost(&path, LossKind::File, reason);
                            continue;
                        }
                    };
                    if let Some(made) = self.make_folder(&folder, &path, dir, name.as_bytes()).await? {
                        self.fill(Arc::new(folder), &path, made).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies the files of a folder and puts its subfolders on the stack.
    async fn fill(&mut self, folder: Arc<S>, path: &Path, dir: ObjectId) -> Result<()> {
        let names = match folder.names().await {
            Ok(names) => names,
            Err(reason) => {
                self.putter.lost(path, LossKind::Entries, reason);
                Vec::new()
            }
        };
        self.stack.push(Step::Finish { folder: folder.clone(), path: path.into(), dir });
        for name in names {
            if self.putter.is_stopped() {
                return Ok(());
            }
            let below = path.join(&name);
            match folder.enter(name.as_bytes()).await {
                Ok(file) if file.kind() == FileKind::Directory => {
                    self.stack.push(Step::Enter { parent: folder.clone(), name, path: below, dir });
                }
                Ok(file) => self.file(&file, &below, dir, name.as_bytes()).await?,
                Err(reason) => self.putter.lost(&below, LossKind::File, reason),
            }
        }
        Ok(())
    }

    /// The directory to copy a folder into: a new or an existing one.
    async fn make_folder(
        &mut self,
        source: &S,
        path: &Path,
        dir: ObjectId,
        name: &[u8],
    ) -> Result<Option<ObjectId>> {
        let putter = self.putter;
        putter.make_room().await?;
        let found = match putter.fs.lookup(dir, name).await? {
            Some(entry) if is_folder(putter, &entry).await? => Ok(entry.object),
            Some(_) => {
                putter.lost(path, LossKind::File, Errno::EXIST);
                return Ok(None);
            }
            None => {
                putter.count(|counters| &counters.folders, 1);
                let new = putter.new_file(source, NewKind::Directory);
                let name = name.to_vec();
                let made = putter.change(move |fs, change| {
                    Box::pin(async move { fs.create(change, dir, &name, &new).await })
                });
                made.await
            }
        };
        Ok(found.map_err(|error| putter.lost(path, LossKind::File, error)).ok())
    }

    /// Copies a file of any other type.
    async fn file(&mut self, source: &S, path: &Path, dir: ObjectId, name: &[u8]) -> Result<()> {
        let putter = self.putter;
        putter.make_room().await?;
        let there = putter.fs.lookup(dir, name).await?;
        if let Some(entry) = &there {
            let is_folder = is_folder(putter, entry).await?;
            if is_folder || !putter.options.replace {
                let why = if is_folder { Errno::ISDIR } else { Errno::EXIST };
                putter.lost(path, LossKind::File, why);
                return Ok(());
            }
        }
        // An existing file stays until the new one is complete.
        let first_name = if there.is_some() { TEMPORARY } else { name };
        if there.is_some() && putter.fs.lookup(dir, TEMPORARY).await?.is_some() {
            putter.remove(dir, TEMPORARY, false).await?; // left by an interrupted copy
        }
        let key = source.link_key();
        let known = key.and_then(|key| self.links.get(&key).copied());
        let made = match known {
            Some(object) => putter.link(object, dir, first_name).await.map_err(Reason::from),
            None => self.make(source, dir, first_name).await,
        };
        let object = match made {
            Ok(object) => object,
            Err(error) => {
                putter.lost(path, LossKind::File, error);
                return Ok(());
            }
        };
        if known.is_none() && !putter.put_whole(source, path, dir, first_name, object).await? {
            return Ok(());
        }
        if there.is_some() {
            let name = name.to_vec();
            let renamed = putter.change(move |fs, change| {
                Box::pin(async move {
                    fs.rename(change, (dir, TEMPORARY), (dir, &name), RenameMode::Replace).await
                })
            });
            match renamed.await {
                Ok(Some(old)) => putter.free(old).await?,
                Ok(None) => {}
                Err(error) => putter.lost(path, LossKind::File, error),
            }
        }
        if let Some(key) = key {
            self.links.insert(key, object);
        }
        putter.count(|counters| counter(counters, source, known.is_some()), 1);
        Ok(())
    }

    /// Creates an empty file of the source's type.
    async fn make(&self, source: &S, dir: ObjectId, name: &[u8]) -> Result<ObjectId, Reason> {
        let putter = self.putter;
        let device = source.device();
        let target = match source.kind() {
            FileKind::Symlink => source.target().await?,
            _ => Vec::new(),
        };
        let kind = match source.kind() {
            FileKind::Symlink => NewKind::Symlink(&[]),
            FileKind::Regular => NewKind::Regular,
            FileKind::Fifo => NewKind::Fifo,
            FileKind::Socket => NewKind::Socket,
            FileKind::CharDevice => NewKind::CharDevice(device.0, device.1),
            FileKind::BlockDevice => NewKind::BlockDevice(device.0, device.1),
            _ => return Err(Reason::Because("files of this type can't be created")),
        };
        let (new, name) = (putter.new_file(source, kind), name.to_vec());
        let made = putter.change(move |fs, change| {
            Box::pin(async move {
                let kind = match kind {
                    NewKind::Symlink(_) => NewKind::Symlink(&target),
                    other => other,
                };
                fs.create(change, dir, &name, &NewFile { kind, ..new }).await
            })
        });
        made.await.map_err(Reason::from)
    }
}

impl Putter {
    async fn link(&self, object: ObjectId, dir: ObjectId, name: &[u8]) -> cenote_fs::Result<ObjectId> {
        let name = name.to_vec();
        let linked =
            self.change(move |fs, change| Box::pin(async move { fs.link(change, object, dir, &name).await }));
        linked.await.map(|()| object)
    }

    fn new_file<'k>(&self, source: &impl Source, kind: NewKind<'k>) -> NewFile<'k> {
        let (mode, (uid, gid)) = match (self.options.metadata, kind) {
            (true, NewKind::Symlink(_)) => (0o777, source.owner()),
            // Accessible only to its owner until its metadata is set.
            (true, _) => (source.permissions() & 0o700, source.owner()),
            (false, NewKind::Directory) => (0o755, self.options.owner),
            (false, _) => (0o644, self.options.owner),
        };
        NewFile { kind, mode, umask: 0, uid, gid }
    }

    /// Copies the metadata to an object, if the options ask for it.
    async fn dress(&self, source: &impl Source, path: &Path, object: ObjectId) {
        if self.options.metadata {
            source.dress(self, path, object).await;
        }
    }

    /// Gives a new file content and metadata. If the content is incomplete, removes it and returns false.
    async fn put_whole(
        &self,
        source: &impl Source,
        path: &Path,
        dir: ObjectId,
        name: &[u8],
        object: ObjectId,
    ) -> Result<bool> {
        let whole = match source.kind() {
            FileKind::Regular => source.put_content(self, path, object).await,
            _ => Ok(true),
        };
        if let Ok(true) = whole {
            self.dress(source, path, object).await;
            return Ok(true);
        }
        let name = name.to_vec();
        let unlinked = self.change_with(Need::Free, move |fs, change| {
            Box::pin(async move { fs.unlink(change, dir, &name).await })
        });
        match unlinked.await {
            Ok(Some(last)) => self.free(last).await?,
            Ok(None) => {}
            Err(error) => self.lost(path, LossKind::File, error),
        }
        whole
    }
}

async fn is_folder(putter: &Putter, entry: &DirEntry) -> Result<bool> {
    Ok(match entry.kind {
        Some(kind) => kind == FileKind::Directory,
        None => putter.fs.view().attr(entry.object).await?.is_dir(),
    })
}

fn counter<'c>(counters: &'c Counters, source: &impl Source, is_link: bool) -> &'c AtomicU64 {
    match source.kind() {
        _ if is_link => &counters.hard_links,
        FileKind::Regular => &counters.files,
        _ => &counters.others,
    }
}
