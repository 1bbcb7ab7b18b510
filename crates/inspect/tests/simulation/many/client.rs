//! A client: it changes its own files in a directory shared with others, in turn, and notes every state of
//! its files.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_dataset::Dataset;
use cenote_engine::Need;
use cenote_format::units::ObjectId;
use cenote_fs::write::{Changing, NewFile, NewKind, RenameMode, SetAttr};
use cenote_fs::{Change, Filesystem, FsWriter};
use cenote_runtime::Rng;
use parking_lot::Mutex;

use super::{Head, Stage};
use crate::journal::Moment;

const NAMES: u64 = 5;
const MOST_BYTES: u64 = 12_000;
const UID: u64 = 7;

/// A client's files.
pub type Tree = BTreeMap<String, Arc<Vec<u8>>>;

/// The states of a client's files.
#[derive(Clone)]
pub struct Record {
    pub head: Head,
    /// In order, with the moment of each request. Some may never have existed: their operations were dropped.
    pub states: Vec<(Moment, Tree)>,
    /// The state that its files are in.
    pub current: usize,
    /// When states were known to be durable.
    durable: Vec<(Moment, usize)>,
    /// Commits: when requested, when done.
    commits: Vec<(Moment, Option<Moment>)>,
}

impl Record {
    pub fn new(head: Head) -> Record {
        let states = vec![(0, Tree::new())];
        Record { head, states, current: 0, durable: Vec::new(), commits: Vec::new() }
    }

    /// The possible states of its files after a power cut at this moment.
    fn possible(&self, at: Option<Moment>) -> std::ops::Range<usize> {
        let Some(at) = at else { return self.current..self.current + 1 };
        let known = self.durable.iter().take_while(|(done, _)| *done <= at);
        let from = known.map(|(_, state)| *state).max().unwrap_or(0);
        from..self.states.iter().take_while(|(asked, _)| *asked <= at).count().max(from + 1)
    }

    /// Checks that the files are in a possible state.
    pub async fn check(&self, fs: &Filesystem, number: usize, at: Option<Moment>) -> Result<(), String> {
        let found = read(fs, number).await?;
        let possible = self.possible(at);
        if self.is_one_of(possible.clone(), &found) {
            return Ok(());
        }
        let states = &self.states[possible.clone()];
        let is_possible = |name: &String| could_be(states, name, found.get(name));
        let names = states.iter().flat_map(|(_, tree)| tree.keys()).chain(found.keys());
        let wrong: Vec<&String> = names.filter(|name| !is_possible(name)).collect();
        let shape = |tree: &Tree| {
            tree.iter().map(|(name, bytes)| format!("{name}: {}", bytes.len())).collect::<Vec<_>>()
        };
        match at.is_some() && wrong.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{wrong:?}: {:?} is none of {possible:?}, {:?}",
                shape(&found),
                states.iter().map(|(_, tree)| shape(tree)).collect::<Vec<_>>()
            )),
        }
    }

    pub fn is_one_of(&self, states: std::ops::Range<usize>, found: &Tree) -> bool {
        self.states[states].iter().any(|(_, tree)| tree == found)
    }
}

/// Whether this file, or its absence, is possible after a power cut. Uncommitted changes may be partly in the
/// log: names come in order, but content later, and in pieces.
fn could_be(states: &[(Moment, Tree)], name: &str, found: Option<&Arc<Vec<u8>>>) -> bool {
    let mut was = states.iter().map(|(_, tree)| tree.get(name));
    if was.clone().any(|was| was == found) {
        return true;
    }
    let has_changed = was.clone().any(|is| is != states[0].1.get(name));
    let Some(bytes) = found.filter(|_| has_changed && was.any(|was| was.is_some())) else { return false };
    let written: Vec<_> = states.iter().flat_map(|(_, tree)| tree.values()).collect();
    let was_written = |at, byte| written.iter().any(|content| content.get(at) == Some(byte));
    bytes.iter().enumerate().all(|(at, byte)| *byte == 0 || was_written(at, byte))
}

/// A dataset's files.
pub async fn open(dataset: &Dataset) -> Result<Filesystem, String> {
    let objset = dataset.objset().await.map_err(|error| error.to_string())?;
    Filesystem::open(objset).await.map_err(|error| error.to_string())
}

fn prefix(number: usize) -> String {
    format!("client{number}-")
}

/// A client's current files.
pub async fn read(fs: &Filesystem, number: usize) -> Result<Tree, String> {
    let mut tree = Tree::new();
    for entry in fs.list(fs.root()).await.map_err(|error| error.to_string())? {
        let name = String::from_utf8(entry.name.to_vec()).unwrap();
        if !name.starts_with(&prefix(number)) {
            continue;
        }
        let file = fs.open_file(entry.object).await.map_err(|error| format!("{name}: {error}"))?;
        let content = file.read(0, file.attr().size).await.map_err(|error| format!("{name}: {error}"))?;
        tree.insert(name, Arc::new(content.to_vec()));
    }
    Ok(tree)
}

/// Works on its files.
pub struct Client {
    stage: Arc<Stage>,
    number: usize,
    fs: FsWriter,
    record: Arc<Mutex<Record>>,
    rng: Rng,
}

type Operation = Box<dyn for<'a> FnOnce(&'a FsWriter, Change<'a>) -> Changing<'a, ()> + Send>;

impl Client {
    pub fn new(stage: &Arc<Stage>, number: usize, fs: &FsWriter, record: &Arc<Mutex<Record>>) -> Client {
        let rng = stage.rt.rng();
        Client { stage: stage.clone(), number, fs: fs.clone(), record: record.clone(), rng }
    }

    pub async fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.stage.clone().think(&mut self.rng).await;
            match self.rng.below(5) {
                0 => self.commit().await,
                1 => assert_eq!(self.read().await, self.tree(), "client {}", self.number),
                _ => self.change().await,
            }
        }
    }

    fn tree(&self) -> Tree {
        let record = self.record.lock();
        record.states[record.current].1.clone()
    }

    /// Reads its files, while others change the directory.
    async fn read(&self) -> Tree {
        let mut tree = Tree::new();
        for entry in self.fs.list(self.fs.root()).await.unwrap() {
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            if name.starts_with(&prefix(self.number)) {
                let file = self.fs.view().open_file(entry.object).await.unwrap();
                tree.insert(name, Arc::new(file.read(0, file.attr().size).await.unwrap().to_vec()));
            }
        }
        tree
    }

    async fn commit(&mut self) {
        let (asked, number, current) = {
            let asked = self.stage.now();
            let mut record = self.record.lock();
            record.commits.push((asked, None));
            (asked, record.commits.len() - 1, record.current)
        };
        let (stage, fs) = (self.stage.clone(), self.fs.clone());
        if let Some(done) = stage.ask(&mut self.rng, "a commit", fs.commit(None)).await {
            done.unwrap();
            let now = stage.now();
            let mut record = self.record.lock();
            assert!(asked <= now);
            record.commits[number].1 = Some(now);
            record.durable.push((now, current));
        }
    }

    /// Changes a file in the open txg.
    async fn change(&mut self) {
        let before = self.tree();
        let (after, operation) = self.operation(&before);
        {
            let asked = self.stage.now();
            self.record.lock().states.push((asked, after.clone()));
        }
        let (stage, fs) = (self.stage.clone(), self.fs.clone());
        let need = Need::Write(2 * MOST_BYTES);
        let done = stage.ask(&mut self.rng, "a change", fs.change(&stage.engine, need, operation)).await;
        let is_done = match done {
            Some(done) => {
                done.unwrap();
                true
            }
            None => {
                let found = self.read().await;
                assert!(
                    found == after || found == before,
                    "client {}: a dropped change is there in part",
                    self.number
                );
                found == after
            }
        };
        let asked = stage.now();
        let mut record = self.record.lock();
        if !is_done {
            record.states.push((asked, before));
        }
        record.current = record.states.len() - 1;
    }

    /// A random operation, and the files after it.
    fn operation(&mut self, before: &Tree) -> (Tree, Operation) {
        let mut name = || format!("{}{}", prefix(self.number), self.rng.below(NAMES));
        let (name, to) = (name(), name());
        let mut after = before.clone();
        let Some(content) = before.get(&name).cloned() else {
            let data = self.data();
            after.insert(name.clone(), Arc::new(data.to_vec()));
            return (after, Box::new(move |fs, change| Box::pin(make(fs, change, name, data))));
        };
        match self.rng.below(5) {
            0 => {
                after.remove(&name);
                (after, Box::new(move |fs, change| Box::pin(remove(fs, change, name))))
            }
            1 if name != to => {
                let moved = after.remove(&name).unwrap();
                after.insert(to.clone(), moved);
                (after, Box::new(move |fs, change| Box::pin(rename(fs, change, name, to))))
            }
            2 => {
                let size = self.rng.below(MOST_BYTES) as usize;
                let mut cut = content.to_vec();
                cut.resize(size, 0);
                after.insert(name.clone(), Arc::new(cut));
                (after, Box::new(move |fs, change| Box::pin(resize(fs, change, name, size as u64))))
            }
            _ => {
                let (data, at) = (self.data(), self.rng.below(MOST_BYTES) as usize);
                let mut written = content.to_vec();
                written.resize(written.len().max(at + data.len()), 0);
                written[at..at + data.len()].copy_from_slice(&data);
                after.insert(name.clone(), Arc::new(written));
                (after, Box::new(move |fs, change| Box::pin(write(fs, change, name, at as u64, data))))
            }
        }
    }

    fn data(&mut self) -> Bytes {
        let mut data = vec![0; 1 + self.rng.below(MOST_BYTES) as usize];
        self.rng.fill(&mut data);
        data.into()
    }
}

async fn find(fs: &FsWriter, name: &str) -> cenote_fs::Result<ObjectId> {
    let entry = fs.lookup(fs.root(), name.as_bytes()).await?;
    Ok(entry.ok_or_else(|| cenote_fs::Refusal::NotFound.named(fs.root(), name.as_bytes()))?.object)
}

async fn make(fs: &FsWriter, change: Change<'_>, name: String, data: Bytes) -> cenote_fs::Result<()> {
    let new = NewFile { kind: NewKind::Regular, mode: 0o600, umask: 0, uid: UID, gid: 8 };
    let id = fs.create(change, fs.root(), name.as_bytes(), &new).await?;
    fs.write(change, id, 0, data).await
}

async fn remove(fs: &FsWriter, change: Change<'_>, name: String) -> cenote_fs::Result<()> {
    if let Some(gone) = fs.unlink(change, fs.root(), name.as_bytes()).await? {
        assert!(fs.free_unlinked(change, gone).await?);
    }
    Ok(())
}

async fn rename(fs: &FsWriter, change: Change<'_>, from: String, to: String) -> cenote_fs::Result<()> {
    let places = ((fs.root(), from.as_bytes()), (fs.root(), to.as_bytes()));
    if let Some(gone) = fs.rename(change, places.0, places.1, RenameMode::Replace).await? {
        assert!(fs.free_unlinked(change, gone).await?);
    }
    Ok(())
}

async fn resize(fs: &FsWriter, change: Change<'_>, name: String, size: u64) -> cenote_fs::Result<()> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.set_attr(change, find(fs, &name).await?, &set).await
}

async fn write(
    fs: &FsWriter,
    change: Change<'_>,
    name: String,
    at: u64,
    data: Bytes,
) -> cenote_fs::Result<()> {
    fs.write(change, find(fs, &name).await?, at, data).await
}
