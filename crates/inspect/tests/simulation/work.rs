//! Random operations on a pool and on its model, one by one, while txgs are synced in the background.
//!
//! Locking: the background sync and the worker both acknowledge states. The list of acknowledgements is
//! locked before the journal, and neither lock is held across an await.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_engine::{Engine, OpenDataset};
use cenote_format::units::{ObjectId, Txg};
use cenote_fs::{FileKind, FsOptions, FsWriter, VolumeWriter};
use cenote_object::{Edit, Result};
use cenote_runtime::{JoinHandle, Rng, Runtime};
use cenote_tasks::InUse;
use cenote_testkit::image::Image;
use parking_lot::Mutex;

use crate::journal::Moment;
use crate::model::{Content, History, Node, World};
use crate::pools::{Disks, Layout, POOL, create, fill, now};
use crate::run::{Commit, Run};

mod datasets;
mod files;

/// When a state of the history was known to be on disk.
pub type Acks = Arc<Mutex<Vec<(Moment, usize)>>>;

/// Performs random operations on a pool.
pub struct Worker {
    commits: Vec<Commit>,
    rt: Runtime,
    engine: Engine,
    disks: Disks,
    rng: Rng,
    world: World,
    pub history: History,
    pub acks: Acks,
    writers: BTreeMap<String, Writer>,
    /// Files without names not freed yet.
    unlinked: Vec<(String, ObjectId)>,
    background: Option<JoinHandle<Result<()>>>,
    names: u64,
}

/// An open dataset.
#[derive(Clone)]
enum Writer {
    Files(FsWriter),
    Volume(OpenDataset, Arc<VolumeWriter>),
}

impl Worker {
    /// Starts on a pool that holds `world` on disk.
    pub async fn begin(rt: &Runtime, engine: Engine, disks: &Disks, world: World) -> Worker {
        let txg = engine.mos().await.unwrap().uberblock().txg;
        Worker {
            commits: Vec::new(),
            rt: rt.clone(),
            engine,
            disks: disks.clone(),
            rng: rt.rng(),
            history: History::begin(txg, world.clone()),
            // An earlier worker may have used names.
            names: txg.0 * 1000,
            world,
            acks: Acks::default(),
            writers: BTreeMap::new(),
            unlinked: Vec::new(),
            background: None,
        }
    }

    /// Syncs, and goes on as a new worker: from here on the power may be cut. Also returns the images of the
    /// disks.
    pub async fn cut_from_here(mut self) -> (Worker, Vec<Image>) {
        self.sync().await;
        let (rt, engine, disks) = (self.rt.clone(), self.engine.clone(), self.disks.clone());
        let (world, before) = (self.world().clone(), disks.images());
        disks.take_journal();
        drop(self);
        (Worker::begin(&rt, engine, &disks, world).await, before)
    }

    /// A new pool after `steps` operations; the last `spares` disks are not part of it.
    pub async fn on_new_pool(
        rt: &Runtime,
        layout: &Layout,
        spares: usize,
        steps: usize,
    ) -> (Disks, Engine, Worker) {
        let (shape, count) = (layout.shape(), layout.disk_count());
        let disks = Disks::new(rt, shape, vec![Image::new(shape.size_bytes); count + spares]);
        let apart: Vec<usize> = (count..count + spares).collect();
        let engine = create(rt, layout, &disks.devices_but(&apart)).await;
        let world = Worker::new_world(&engine).await;
        let mut worker = Worker::begin(rt, engine.clone(), &disks, world).await;
        worker.run(steps).await;
        (disks, engine, worker)
    }

    /// A new pool with an empty file system.
    pub async fn new_world(engine: &Engine) -> World {
        let dataset = engine.dataset(POOL).await.unwrap();
        let fs = FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap();
        let mut world = World::default();
        world.heads.insert(POOL.into(), empty_files(fs.root()));
        world
    }

    pub async fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step().await;
        }
        self.wait_for_background().await;
    }

    async fn step(&mut self) {
        match self.rng.below(32) {
            0 => self.sync().await,
            1..=2 => self.sync_in_background().await,
            3..=5 => self.change_datasets().await,
            6..=8 => self.commit().await,
            _ => self.change_content().await,
        }
    }

    /// Changes one file or volume in the open txg.
    async fn change_content(&mut self) {
        let pick = self.rng.below(self.world.heads.len() as u64) as usize;
        let head = self.world.heads.keys().nth(pick).unwrap().clone();
        let writer = self.writer(&head).await;
        let hold = self.engine.hold().await.unwrap();
        let txg = hold.txg();
        match writer {
            Writer::Files(fs) => self.change_files(&head, &fs).await,
            Writer::Volume(dataset, volume) => self.change_volume(&head, &volume, dataset.edit(&hold)).await,
        }
        self.history.note(txg, txg, &self.world);
    }

    async fn writer(&mut self, head: &str) -> Writer {
        if let Some(writer) = self.writers.get(head) {
            return writer.clone();
        }
        let dataset = self.engine.dataset(head).await.unwrap();
        let writer = match self.world.heads[head].is_volume() {
            true => {
                let volume = VolumeWriter::open(dataset.clone()).await.unwrap();
                Writer::Volume(dataset, Arc::new(volume))
            }
            false => {
                let record_bytes = [512, 4096, 16 << 10, 128 << 10][self.rng.below(4) as usize];
                let options = FsOptions { record_bytes, ..FsOptions::default() };
                Writer::Files(FsWriter::open(dataset, options).await.unwrap())
            }
        };
        self.writers.insert(head.to_owned(), writer.clone());
        writer
    }

    async fn change_volume(&mut self, head: &str, volume: &VolumeWriter, edit: Edit) {
        let bytes = self.world.heads.get_mut(head).unwrap().volume();
        let start = self.rng.below(bytes.len() as u64) as usize;
        let len = (self.rng.below(40_000) as usize).min(bytes.len() - start);
        if self.rng.below(4) == 0 {
            volume.write_zeros(&edit, start as u64..(start + len) as u64).await.unwrap();
            bytes[start..start + len].fill(0);
        } else {
            let data = content(&mut self.rng, len);
            volume.write(&edit, start as u64, data.clone().into()).await.unwrap();
            bytes[start..start + len].copy_from_slice(&data);
        }
    }

    /// Commits a dataset, or one of its files.
    async fn commit(&mut self) {
        let pick = self.rng.below(self.world.heads.len() as u64) as usize;
        let head = self.world.heads.keys().nth(pick).unwrap().clone();
        let file = self.any_file(&head).filter(|_| self.rng.below(2) == 0);
        let writer = self.writer(&head).await;
        let asked = self.disks.journal.lock().now;
        let number = self.commits.len();
        self.commits.push(Commit { head, file, state: self.history.last(), asked, done: None });
        match writer {
            Writer::Files(fs) => fs.commit(file).await.unwrap(),
            Writer::Volume(_, volume) => volume.commit().await.unwrap(),
        }
        self.commits[number].done = Some(self.disks.journal.lock().now);
    }

    fn any_file(&mut self, head: &str) -> Option<ObjectId> {
        let Content::Files(files) = &self.world.heads[head] else { return None };
        let pick = self.rng.below(files.len() as u64) as usize;
        files.keys().nth(pick).copied()
    }

    /// Ends the work on disks that were `before` at its start.
    pub fn into_run(self, before: Vec<Image>) -> Run {
        let journal = self.disks.take_journal();
        let acks = self.acks.lock().clone();
        Run { before, journal, history: self.history, acks, commits: self.commits }
    }

    /// The current state, including changes.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub async fn sync(&mut self) {
        let state = self.history.last();
        self.engine.sync_all().await.unwrap();
        acknowledge(&self.disks, &self.acks, state);
    }

    /// Syncs the txg while operations continue.
    async fn sync_in_background(&mut self) {
        self.wait_for_background().await;
        let (engine, disks, acks) = (self.engine.clone(), self.disks.clone(), self.acks.clone());
        let state = self.history.last();
        self.background = Some(self.rt.spawn(async move {
            engine.sync_all().await?;
            acknowledge(&disks, &acks, state);
            Ok(())
        }));
    }

    async fn wait_for_background(&mut self) {
        if let Some(background) = self.background.take() {
            background.await.unwrap().unwrap();
        }
    }

    async fn open_group(&self) -> Txg {
        self.engine.hold().await.unwrap().txg()
    }
}

/// Records that a state of the history is known to be on disk.
fn acknowledge(disks: &Disks, acks: &Acks, state: usize) {
    acks.lock().push((disks.journal.lock().now, state));
}

fn empty_files(root: ObjectId) -> Content {
    Content::Files(Arc::new(BTreeMap::from([(root, Node::new(FileKind::Directory, 0o755))])))
}

/// Compressible, random or zero bytes.
fn content(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    match rng.below(6) {
        0 => {}
        1..=3 => bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 7) as u8),
        _ => rng.fill(&mut bytes),
    }
    bytes
}
