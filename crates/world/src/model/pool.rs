//! Datasets, snapshots and clones, and the effect of a call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use cenote_fuse::Errno;

use super::blocks::Blocks;
use super::call::{Action, Call, CallId, ClientId, Outcome, Slot, Source};
use super::data::Data;
use super::tree::{Body, FileId, Tree};

/// A dataset, for ever: the call that made it.
pub type DatasetId = CallId;

/// The unit of calls on volumes.
pub const BLOCK_BYTES: u64 = 4096;

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    /// Without the root.
    pub datasets: BTreeMap<DatasetId, Arc<Dataset>>,
    open: BTreeMap<(ClientId, Slot), FileId>,
}

/// A file system or volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// Full name.
    pub name: String,
    /// Files or blocks.
    pub content: Content,
    /// Oldest first.
    pub snapshots: Vec<Snapshot>,
    /// The snapshot of which it is a clone.
    pub origin: Option<CallId>,
    /// The last rollback; 0: none.
    pub rollback: CallId,
}

/// Its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A file system.
    Files(Arc<Tree>),
    /// Blocks; empty: zeros.
    Blocks(Arc<Blocks>),
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The call that took it.
    pub id: CallId,
    /// The part behind `@`.
    pub name: String,
    /// As it was then.
    pub content: Content,
    /// Tags.
    pub holds: BTreeSet<String>,
}

impl Dataset {
    fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.name == name)
    }
}

fn done(result: Result<(), Errno>) -> Outcome {
    result.map_or_else(Outcome::Failed, |()| Outcome::Done)
}

fn refused(why: &str) -> Outcome {
    Outcome::Refused(why.into())
}

impl Pool {
    /// Carries out a call.
    pub fn apply(&mut self, id: CallId, call: &Call) -> Outcome {
        match &call.action {
            // A command says in words why it failed.
            Action::CommandRemove { .. } | Action::CommandMake { .. } => match self.use_content(id, call) {
                Outcome::Failed(error) => refused(&error.to_string()),
                outcome => outcome,
            },
            action if call.is_verb() => self.administrate(id, action),
            _ => self.use_content(id, call),
        }
    }

    fn use_content(&mut self, id: CallId, call: &Call) -> Outcome {
        use Action::*;
        let Some(dataset) = call.dataset().and_then(|dataset| self.datasets.get_mut(&dataset)) else {
            return Outcome::Failed(Errno::IO);
        };
        let client = call.client;
        let open = &mut self.open;
        let Dataset { content, snapshots, .. } = Arc::make_mut(dataset);
        let tree = match content {
            Content::Files(tree) => tree,
            Content::Blocks(blocks) => return use_blocks(blocks, &call.action),
        };
        let file = |slot: &Slot| open.get(&(client, *slot)).copied().ok_or(Errno::BADF);
        match &call.action {
            Open { path, slot, creates, excludes, .. } => {
                let found = match tree.find(path) {
                    Ok(_) if *excludes => Err(Errno::EXIST),
                    Ok(found) => match tree.files()[&found].body {
                        Body::Regular(_) => Ok(found),
                        Body::Directory(_) => Err(Errno::ISDIR),
                        Body::Symlink(_) => Err(Errno::LOOP),
                    },
                    Err(Errno::NOENT) if *creates => {
                        let made = Arc::make_mut(tree).make(path, id, Body::Regular(Bytes::new().into()));
                        made.map(|()| id)
                    }
                    Err(error) => Err(error),
                };
                done(found.map(|found| _ = open.insert((client, *slot), found)))
            }
            Make { path, link_to, .. } => {
                let body = match link_to {
                    Some(target) => Body::Symlink(target.clone()),
                    None => Body::Directory(BTreeMap::new()),
                };
                done(Arc::make_mut(tree).make(path, id, body))
            }
            CommandMake { path, .. } => {
                done(Arc::make_mut(tree).make(path, id, Body::Directory(BTreeMap::new())))
            }
            CommandRemove { path, .. } => {
                // It removes empty directories, too.
                let is_dir = tree.find(path).is_ok_and(|found| tree.files()[&found].is_dir());
                let done = done(Arc::make_mut(tree).unlink(path, is_dir));
                self.free_unused(call);
                done
            }
            Unlink { path, is_dir, .. } => {
                let done = done(Arc::make_mut(tree).unlink(path, *is_dir));
                self.free_unused(call);
                done
            }
            Rename { from, to, exchange, .. } => {
                let done = done(Arc::make_mut(tree).rename(from, to, *exchange));
                self.free_unused(call);
                done
            }
            Link { from, to, .. } => done(Arc::make_mut(tree).link(from, to)),
            Chmod { path, mode, .. } => done(Arc::make_mut(tree).chmod(path, *mode)),
            SetXattr { path, name, value, .. } => {
                done(Arc::make_mut(tree).set_xattr(path, name, value.clone()))
            }
            GetXattr { path, name, .. } => match tree.find(path).and_then(|found| tree.file(found)) {
                Ok(file) => match file.xattrs.get(name) {
                    Some(value) => Outcome::Data(value.clone().into()),
                    None => Outcome::Failed(Errno::NODATA),
                },
                Err(error) => Outcome::Failed(error),
            },
            Readlink { path, .. } => match tree.find(path).map(|found| &tree.files()[&found].body) {
                Ok(Body::Symlink(target)) => Outcome::Data(Bytes::from(target.clone()).into()),
                Ok(_) => Outcome::Failed(Errno::INVAL),
                Err(error) => Outcome::Failed(error),
            },
            Stat { path, .. } => match tree.find(path).and_then(|found| tree.file(found)) {
                Ok(file) => {
                    let size = if let Body::Regular(bytes) = &file.body { bytes.len() as u64 } else { 0 };
                    let links = if file.is_dir() { 0 } else { file.links };
                    Outcome::Attr { size, mode: file.mode, links }
                }
                Err(error) => Outcome::Failed(error),
            },
            List { path, .. } => tree.list(path).map_or_else(Outcome::Failed, Outcome::Names),
            Read { slot, offset, len, .. } => {
                let read = file(slot).and_then(|id| tree.read(id, *offset, *len));
                read.map_or_else(Outcome::Failed, |data| Outcome::Data(data.into()))
            }
            Write { slot, offset, data, .. } => {
                done(file(slot).and_then(|id| Arc::make_mut(tree).write(id, *offset, data)))
            }
            Copy { from, offset, slot, to, len, .. } => {
                let data = match from {
                    Source::Open(from) => file(from).and_then(|from| tree.read(from, *offset, *len)),
                    Source::Snapshot(name, path) => read_snapshot(snapshots, name, path, *offset, *len),
                };
                let is_same = matches!(from, Source::Open(from) if file(from) == file(slot));
                done(data.and_then(|data| {
                    let (file, len) = (file(slot)?, data.len() as u64);
                    tree.file(file)?;
                    match len {
                        _ if is_same && to + len > *offset && *to < offset + len => Err(Errno::INVAL),
                        0 => Ok(()),
                        _ => Arc::make_mut(tree).write(file, *to, &data),
                    }
                }))
            }
            Truncate { slot, size, .. } => {
                done(file(slot).and_then(|id| Arc::make_mut(tree).truncate(id, *size)))
            }
            Fsync { slot, .. } => done(file(slot).and_then(|id| tree.file(id).map(drop))),
            Close { slot, .. } => {
                let closed = file(slot).map(drop);
                open.remove(&(client, *slot));
                self.free_unused(call);
                done(closed)
            }
            _ => Outcome::Failed(Errno::INVAL),
        }
    }

    fn free_unused(&mut self, call: &Call) {
        let kept: BTreeSet<FileId> = self.open.values().copied().collect();
        let dataset = call.dataset().and_then(|dataset| self.datasets.get_mut(&dataset));
        if let Some(Content::Files(tree)) = dataset.map(|dataset| &mut Arc::make_mut(dataset).content) {
            Arc::make_mut(tree).free_all(|id| kept.contains(&id));
        }
    }

    fn administrate(&mut self, id: CallId, action: &Action) -> Outcome {
        use Action::*;
        match action {
            Create { name, volume_blocks } => {
                let content = match volume_blocks {
                    Some(count) => {
                        Content::Blocks(Arc::new(vec![Data::from(Bytes::new()); *count as usize].into()))
                    }
                    None => Content::Files(Arc::default()),
                };
                self.add(id, name, content, None)
            }
            Pool { .. } | Device { .. } => Outcome::Done,
            Clone { dataset, snapshot, name } => {
                let Some(of) = self.datasets.get(dataset).and_then(|dataset| dataset.snapshot(snapshot))
                else {
                    return refused("there is no such snapshot");
                };
                let (mut content, origin) = (of.content.clone(), of.id);
                if let Content::Files(tree) = &mut content {
                    Arc::make_mut(tree).free_all(|_| false);
                }
                self.add(id, name, content, Some(origin))
            }
            Receive { dataset, snapshot, name, received } => {
                let Some(of) = self.datasets.get(dataset).and_then(|dataset| dataset.snapshot(snapshot))
                else {
                    return refused("there is no such snapshot");
                };
                let content = of.content.clone();
                let mut live = content.clone();
                if let Content::Files(tree) = &mut live {
                    Arc::make_mut(tree).free_all(|_| false);
                }
                let (name_of_snapshot, holds) = (received.clone(), BTreeSet::new());
                let snapshot = self::Snapshot { id, name: name_of_snapshot, content, holds };
                let snapshots = vec![snapshot];
                let new = Dataset { name: name.clone(), content: live, snapshots, origin: None, rollback: 0 };
                self.datasets.insert(id, Arc::new(new));
                Outcome::Done
            }
            Promote { dataset } => self.promote(*dataset),
            Destroy { dataset } => {
                let Some(doomed) = self.datasets.get(dataset) else { return refused("there is no dataset") };
                if !doomed.snapshots.is_empty() {
                    return refused("it has snapshots");
                }
                self.datasets.remove(dataset);
                Outcome::Done
            }
            Snapshot { dataset, .. }
            | DestroySnapshot { dataset, .. }
            | Rollback { dataset, .. }
            | RenameDataset { dataset, .. }
            | Hold { dataset, .. }
            | Release { dataset, .. }
            | Set { dataset, .. }
            | Inherit { dataset, .. } => self.change_dataset(id, *dataset, action),
            _ => refused("it is not a verb"),
        }
    }

    fn add(&mut self, id: DatasetId, name: &str, content: Content, origin: Option<CallId>) -> Outcome {
        let new = Dataset { name: name.into(), content, snapshots: Vec::new(), origin, rollback: 0 };
        self.datasets.insert(id, Arc::new(new));
        Outcome::Done
    }

    fn change_dataset(&mut self, id: CallId, dataset: DatasetId, action: &Action) -> Outcome {
        use Action::*;
        let clones: BTreeSet<CallId> = self.datasets.values().filter_map(|dataset| dataset.origin).collect();
        let Some(dataset) = self.datasets.get_mut(&dataset) else { return refused("there is no dataset") };
        let dataset = Arc::make_mut(dataset);
        let at = |name: &str| dataset.snapshots.iter().position(|snapshot| snapshot.name == name);
        match action {
            Snapshot { name, .. } => {
                let (name, content) = (name.clone(), dataset.content.clone());
                dataset.snapshots.push(super::Snapshot { id, name, content, holds: BTreeSet::new() });
            }
            DestroySnapshot { name, .. } => {
                let Some(at) = at(name) else { return refused("there is no such snapshot") };
                let doomed = &dataset.snapshots[at];
                if !doomed.holds.is_empty() || clones.contains(&doomed.id) {
                    return refused("it is held, or has clones");
                }
                dataset.snapshots.remove(at);
            }
            Rollback { name, .. } => {
                let Some(at) = at(name) else { return refused("there is no such snapshot") };
                if at + 1 < dataset.snapshots.len() {
                    return refused("there are newer snapshots");
                }
                dataset.content = dataset.snapshots[at].content.clone();
                dataset.rollback = id;
                if let Content::Files(tree) = &mut dataset.content {
                    // Files that had lost their names before the snapshot are freed, open or not.
                    Arc::make_mut(tree).free_all(|_| false);
                }
            }
            RenameDataset { name, .. } => dataset.name.clone_from(name),
            Hold { snapshot, tag, .. } => {
                let Some(at) = at(snapshot) else { return refused("there is no such snapshot") };
                if !dataset.snapshots[at].holds.insert(tag.clone()) {
                    return refused("the tag exists");
                }
            }
            Release { snapshot, tag, .. } => {
                let Some(at) = at(snapshot) else { return refused("there is no such snapshot") };
                if !dataset.snapshots[at].holds.remove(tag) {
                    return refused("there is no such tag");
                }
            }
            _ => {}
        }
        Outcome::Done
    }

    /// The clone takes the origin, and the snapshots before it; its origin becomes that of the other.
    fn promote(&mut self, clone: DatasetId) -> Outcome {
        let Some(origin) = self.datasets.get(&clone).and_then(|clone| clone.origin) else {
            return refused("it is not a clone");
        };
        let owner = self.datasets.iter().find_map(|(id, dataset)| {
            let at = dataset.snapshots.iter().position(|snapshot| snapshot.id == origin)?;
            Some((*id, at))
        });
        let Some((owner, at)) = owner else { return refused("its origin is gone") };
        let Some(from) = self.datasets.get_mut(&owner) else { return refused("its origin is gone") };
        let from = Arc::make_mut(from);
        let moved: Vec<Snapshot> = from.snapshots.drain(..=at).collect();
        let above = from.origin.replace(origin);
        if let Some(clone) = self.datasets.get_mut(&clone) {
            let clone = Arc::make_mut(clone);
            clone.snapshots.splice(0..0, moved);
            clone.origin = above;
        }
        Outcome::Done
    }

    /// The file of a descriptor.
    pub fn open_file(&self, client: ClientId, slot: Slot) -> Option<FileId> {
        self.open.get(&(client, slot)).copied()
    }

    /// All descriptors are gone, and so are files that only they kept.
    pub fn close_all(&mut self) {
        self.open.clear();
        for dataset in self.datasets.values_mut() {
            if let Content::Files(tree) = &mut Arc::make_mut(dataset).content {
                Arc::make_mut(tree).free_all(|_| false);
            }
        }
    }
}

fn read_snapshot(
    snapshots: &[Snapshot],
    name: &str,
    path: &[String],
    offset: u64,
    len: u64,
) -> Result<Bytes, Errno> {
    let snapshot = snapshots.iter().find(|snapshot| snapshot.name == name).ok_or(Errno::STALE)?;
    match &snapshot.content {
        Content::Files(tree) => tree.read(tree.find(path)?, offset, len),
        Content::Blocks(_) => Err(Errno::IO),
    }
}

fn use_blocks(blocks: &mut Arc<Blocks>, action: &Action) -> Outcome {
    use Action::*;
    let zero = |block: &Bytes| block.iter().all(|byte| *byte == 0);
    match action {
        ReadBlocks { block, .. } => match blocks.all().get(*block as usize) {
            Some(block) if block.is_empty() => {
                Outcome::Data(Bytes::from(vec![0; BLOCK_BYTES as usize]).into())
            }
            Some(block) => Outcome::Data(block.clone()),
            None => Outcome::Failed(Errno::IO),
        },
        WriteBlocks { block, data, .. } => {
            let all = Arc::make_mut(blocks);
            for at in (0..data.len()).step_by(BLOCK_BYTES as usize) {
                let data = data.slice(at..at + BLOCK_BYTES as usize);
                let data = if zero(&data) { Bytes::new() } else { data };
                if !all.set(*block as usize + at / BLOCK_BYTES as usize, data.into()) {
                    return Outcome::Failed(Errno::IO);
                }
            }
            Outcome::Done
        }
        ZeroBlocks { block, count, .. } => {
            let range = *block as usize..(block + count) as usize;
            if blocks.all().get(range.clone()).is_none() {
                return Outcome::Failed(Errno::IO);
            }
            let all = Arc::make_mut(blocks);
            range.for_each(|at| _ = all.set(at, Bytes::new().into()));
            Outcome::Done
        }
        FlushVolume { .. } => Outcome::Done,
        _ => Outcome::Failed(Errno::INVAL),
    }
}
