//! Carries out calls on files and volumes: the client's end of the kernel and of the disk protocols.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cenote_fuse::Errno;

use super::Stage;
use crate::machine::kernel::{Descriptor, How, Mount};
use crate::machine::volume::{Connection, Protocol, Reply};
use crate::model::call::Slot;
use crate::model::{Action, BLOCK_BYTES, CallId, ClientId, DatasetId, Outcome, Source};

/// Before a file of a snapshot is read, it is open for so much time at most, or a part of it: txgs close
/// meanwhile.
const LONGEST_OPEN: Duration = Duration::from_millis(2560);

/// The share of calls on a volume after which the connection ends.
const ENDS_CONNECTION: f64 = 0.1;

/// A client's open files and connections.
pub struct Performer {
    stage: Stage,
    client: ClientId,
    files: BTreeMap<Slot, Open>,
    volumes: BTreeMap<DatasetId, Connection>,
}

struct Open {
    dataset: DatasetId,
    descriptor: Arc<Descriptor>,
    is_shared: bool,
}

fn outcome(done: Result<(), Errno>) -> Outcome {
    done.map_or_else(Outcome::Failed, |()| Outcome::Done)
}

fn data(done: Result<Vec<u8>, Errno>) -> Outcome {
    done.map_or_else(Outcome::Failed, |data| Outcome::Data(data.into()))
}

impl Performer {
    /// Without open files.
    pub fn new(stage: Stage, client: ClientId) -> Performer {
        Performer { stage, client, files: BTreeMap::new(), volumes: BTreeMap::new() }
    }

    /// Its open files.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.files.keys().copied()
    }

    /// The dataset of an open file, and whether others may use it.
    pub fn open_file(&self, slot: Slot) -> Option<(DatasetId, bool)> {
        self.files.get(&slot).map(|open| (open.dataset, open.is_shared))
    }

    /// Carries out a call, unless its file system is not mounted, its file not open, or its volume not
    /// served. `id`: its number in a script.
    pub async fn perform(&mut self, id: Option<CallId>, action: Action) -> Option<Outcome> {
        use Action::*;
        match &action {
            Open { dataset, path, slot, creates, excludes } => {
                let mount = self.mount(*dataset)?;
                let how = match (creates, excludes) {
                    (_, true) => How::New,
                    (true, false) => How::Any,
                    (false, false) => How::Existing,
                };
                let (dataset, slot, path) = (*dataset, *slot, path.clone());
                if self.files.contains_key(&slot) {
                    return None;
                }
                let id = self.begin(id, action);
                let opened = mount.open(&names(&path), how).await;
                let done = self.end(id, outcome(opened.as_ref().map(drop).map_err(|error| *error)));
                if let Ok(descriptor) = opened {
                    let (descriptor, is_shared) = (Arc::new(descriptor), path[0] == "common");
                    self.files.insert(slot, self::Open { dataset, descriptor, is_shared });
                }
                done
            }
            Read { slot, dataset, .. }
            | Write { slot, dataset, .. }
            | Truncate { slot, dataset, .. }
            | Fsync { slot, dataset }
            | Close { slot, dataset } => {
                let descriptor = self.descriptor(*slot, *dataset)?;
                if let Close { slot, .. } = &action {
                    self.files.remove(slot);
                }
                let id = self.begin(id, action.clone());
                let done = use_file(descriptor, &action).await;
                self.end(id, done)
            }
            Copy { dataset, from, offset, slot, to, len } => {
                let target = self.descriptor(*slot, *dataset)?;
                let source = match from {
                    Source::Open(from) => self.descriptor(*from, *dataset)?,
                    Source::Snapshot(name, path) => {
                        let path = [vec![".zfs", "snapshot", name.as_str()], names(path)].concat();
                        // Without it, the call is not made.
                        let file = Arc::new(self.mount(*dataset)?.open(&path, How::Existing).await.ok()?);
                        // Nobody may destroy it meanwhile.
                        let mut rng = self.stage.runtime.rng();
                        let most = LONGEST_OPEN / (1 << rng.below(8));
                        self.stage.think(&mut rng, most).await;
                        file
                    }
                };
                let (dataset, slot, offset, to, len) = (*dataset, *slot, *offset, *to, *len);
                let reads = match from {
                    Source::Open(slot) => Some(Read { dataset, slot: *slot, offset, len }),
                    Source::Snapshot(..) => None,
                };
                let id = self.begin(id, action);
                let done = target.copy(&source, offset, to, len).await;
                let copied = self.end(id, outcome(done));
                if done != Err(Errno::OPNOTSUPP) {
                    return copied;
                }
                // Two calls: others may change the files between them.
                let read = reads.map(|read| self.begin(None, read));
                let found = source.read(offset, len).await;
                if let Some(read) = read {
                    self.end(read, data(found.clone()));
                }
                let found = found.ok().filter(|found| !found.is_empty())?;
                let write = Write { dataset, slot, offset: to, data: found.into() };
                let id = self.begin(None, write.clone());
                let done = use_file(target, &write).await;
                self.end(id, done)
            }
            ReadBlocks { dataset, .. }
            | WriteBlocks { dataset, .. }
            | ZeroBlocks { dataset, .. }
            | FlushVolume { dataset } => {
                let dataset = *dataset;
                let mut connection = match self.volumes.remove(&dataset) {
                    Some(connection) => connection,
                    None => self.connect(dataset).await?,
                };
                let id = self.begin(id, action.clone());
                // If the connection ended, the call goes on or not: for the oracle it never ends.
                let done = use_blocks(&mut connection, &action).await?;
                // Without clients, others may roll the volume back or destroy it.
                if !self.stage.runtime.rng().chance(ENDS_CONNECTION) {
                    self.volumes.insert(dataset, connection);
                }
                self.end(id, done)
            }
            action => {
                let mount = self.mount(action.names_in()?)?;
                let id = self.begin(id, action.clone());
                let done = use_names(&mount, action).await;
                self.end(id, done)
            }
        }
    }

    fn descriptor(&self, slot: Slot, dataset: DatasetId) -> Option<Arc<Descriptor>> {
        let open = self.files.get(&slot).filter(|open| open.dataset == dataset)?;
        Some(open.descriptor.clone())
    }

    fn begin(&self, id: Option<CallId>, action: Action) -> CallId {
        self.stage.scene.begin(&self.stage.runtime, id, self.client, action)
    }

    fn end(&self, id: CallId, outcome: Outcome) -> Option<Outcome> {
        self.stage.scene.end(&self.stage.runtime, id, &outcome);
        self.stage.note_txgs();
        Some(outcome)
    }

    /// The mount of a dataset, under one of its names.
    fn mount(&self, dataset: DatasetId) -> Option<Arc<Mount>> {
        let names = self.stage.scene.names_of(dataset);
        let kernel = &self.stage.daemon.kernel;
        names.iter().find_map(|name| kernel.mounted_on(&format!("/{name}")).ok())
    }

    /// Connects to a volume, under one of its names, by a protocol of the world's choice.
    async fn connect(&self, dataset: DatasetId) -> Option<Connection> {
        let Stage { daemon, swarm, runtime, scene, .. } = &self.stage;
        let by = Protocol::ALL[super::choose(&mut runtime.rng(), &swarm.protocols)];
        for name in scene.names_of(dataset) {
            if let Some(connection) = Connection::open(daemon, by, &name).await {
                return Some(connection);
            }
        }
        None
    }
}

async fn use_file(descriptor: Arc<Descriptor>, action: &Action) -> Outcome {
    match action {
        Action::Read { offset, len, .. } => data(descriptor.read(*offset, *len).await),
        Action::Write { offset, data, .. } => outcome(descriptor.write(*offset, data).await),
        Action::Truncate { size, .. } => outcome(descriptor.truncate(*size).await),
        Action::Fsync { .. } => outcome(descriptor.fsync().await),
        // The last owner closes it by dropping it.
        _ => Outcome::Done,
    }
}

async fn use_names(mount: &Arc<Mount>, action: &Action) -> Outcome {
    use Action::*;
    match action {
        Make { path, link_to: None, .. } => outcome(mount.mkdir(&names(path)).await),
        Make { path, link_to: Some(target), .. } => outcome(mount.symlink(&names(path), target).await),
        Unlink { path, is_dir, .. } => outcome(mount.unlink(&names(path), *is_dir).await),
        Rename { from, to, exchange, .. } => outcome(mount.rename(&names(from), &names(to), *exchange).await),
        Link { from, to, .. } => outcome(mount.link(&names(from), &names(to)).await),
        Chmod { path, mode, .. } => outcome(mount.chmod(&names(path), *mode).await),
        SetXattr { path, name, value, .. } => outcome(mount.setxattr(&names(path), name, value).await),
        GetXattr { path, name, .. } => data(mount.getxattr(&names(path), name).await),
        Readlink { path, .. } => data(mount.readlink(&names(path)).await),
        List { path, .. } => mount.list(&names(path)).await.map_or_else(Outcome::Failed, Outcome::Names),
        Stat { path, .. } => match mount.stat(&names(path)).await {
            Ok(attr) => Outcome::Attr {
                size: if attr.is_dir() || attr.is_symlink() { 0 } else { attr.size_bytes },
                mode: attr.permissions(),
                links: if attr.is_dir() { 0 } else { attr.links },
            },
            Err(error) => Outcome::Failed(error),
        },
        _ => Outcome::Failed(Errno::INVAL),
    }
}

/// `None`: the connection ended.
async fn use_blocks(connection: &mut Connection, action: &Action) -> Option<Outcome> {
    let at = |block: &u64| block * BLOCK_BYTES;
    let done = |reply: Reply| reply.map_or_else(Outcome::Failed, |_| Outcome::Done);
    Some(match action {
        Action::ReadBlocks { block, .. } => {
            let read = connection.read(at(block), BLOCK_BYTES).await.ok()?;
            read.map_or_else(Outcome::Failed, |data| Outcome::Data(data.into()))
        }
        Action::WriteBlocks { block, data, is_durable, .. } => {
            done(connection.write(at(block), data, *is_durable).await.ok()?)
        }
        Action::ZeroBlocks { block, count, .. } => {
            done(connection.zero(at(block), count * BLOCK_BYTES).await.ok()?)
        }
        _ => done(connection.flush().await.ok()?),
    })
}

fn names(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}
