//! What is run: cases, and the clients.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_engine::{Engine, Need};
use cenote_format::units::ObjectId;
use cenote_fs::FsWriter;
use cenote_fs::write::{NewFile, NewKind};
use cenote_runtime::{Instant, Rng, Runtime};
use parking_lot::Mutex;

use super::super::model::said;
use crate::render::nice_bytes;

/// Memory for cached blocks.
pub const MEMORY_BYTES: u64 = 16 << 20;
/// The cache device; a small part is labels and logs.
pub const SECOND_BYTES: usize = 96 << 20;
/// The largest working set, which neither memory nor the cache device holds.
pub const LARGEST_BYTES: u64 = 192 << 20;
/// What durable writes go to.
const WRITTEN_BYTES: u64 = 32 << 20;
/// `volblocksize`, of report 002.
pub const BLOCK_BYTES: u64 = 16 << 10;
/// Whole blocks, for which nothing need be read.
const DURABLE_BYTES: u64 = BLOCK_BYTES;
/// What a client takes between operations: its own work and the network's.
const THINKS: Duration = Duration::from_micros(100);
const READERS: u64 = 4;
/// Reads for each durable write.
const READS_A_WRITE: u64 = 10;
/// The longest that a case lasts.
const LASTS: Duration = Duration::from_secs(60);

/// The cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Second {
    None,
    /// Just added.
    Cold,
    /// It was fed with this load before the pool was exported and imported.
    Warm,
}

/// One of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Random reads of so many bytes, after an import.
    Reads { working_set_bytes: u64, second: Second },
    /// Random durable writes.
    Durable { clients: u64, has_log: bool },
}

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    pub reads: u64,
}

impl Case {
    /// In the order of the report: that without the device comes first.
    pub fn all() -> Vec<Case> {
        let sets = [MEMORY_BYTES / 2, 4 * MEMORY_BYTES, LARGEST_BYTES];
        let reads = sets.into_iter().flat_map(|working_set_bytes| {
            [Second::None, Second::Cold, Second::Warm].map(|second| Case::Reads { working_set_bytes, second })
        });
        let durable = [1, 4]
            .into_iter()
            .flat_map(|clients| [false, true].map(|has_log| Case::Durable { clients, has_log }));
        reads.chain(durable).collect()
    }

    /// The file that it works on.
    pub fn file_bytes(self) -> u64 {
        match self {
            Case::Reads { working_set_bytes, .. } => working_set_bytes,
            Case::Durable { .. } => WRITTEN_BYTES,
        }
    }

    /// The device that it is about.
    pub fn device(self) -> &'static str {
        match self {
            Case::Reads { second: Second::None, .. } => "no L2ARC",
            Case::Reads { second: Second::Cold, .. } => "L2ARC, cold",
            Case::Reads { second: Second::Warm, .. } => "L2ARC, warm",
            Case::Durable { has_log: false, .. } => "no SLOG",
            Case::Durable { has_log: true, .. } => "SLOG",
        }
    }

    /// The load, without the device.
    pub fn load(self) -> String {
        match self {
            Case::Reads { working_set_bytes, .. } => format!("reads from {}", nice_bytes(working_set_bytes)),
            Case::Durable { clients: 1, .. } => "durable writes, 1 client".into(),
            Case::Durable { clients, .. } => format!("durable writes, {clients} clients"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.load(), self.device())
    }
}

/// A file system under load.
#[derive(Clone)]
pub struct Bench {
    pub rt: Runtime,
    pub engine: Engine,
    pub fs: FsWriter,
}

/// How long each operation took, sorted, and all of them.
pub struct Took {
    pub each: Vec<Duration>,
    pub whole: Duration,
}

impl Bench {
    /// Makes the file.
    pub async fn fill(&self, file_bytes: u64) -> Result<(), String> {
        let new = NewFile { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let root = self.fs.root();
        let made = self.fs.change(&self.engine, Need::Write(0), move |fs, change| {
            Box::pin(async move { fs.create(change, root, b"volume", &new).await })
        });
        let file = made.await.map_err(said)?;
        let mut rng = Rng::new(2);
        for at in (0..file_bytes).step_by(1 << 20) {
            let mut data = vec![0; 1 << 20];
            rng.fill(&mut data);
            self.write(file, at, data.into()).await?;
        }
        self.engine.sync_all().await.map_err(said)
    }

    pub async fn file(&self) -> Result<ObjectId, String> {
        let found = self.fs.lookup(self.fs.root(), b"volume").await.map_err(said)?;
        found.map(|entry| entry.object).ok_or_else(|| "the file is not there".into())
    }

    async fn write(&self, file: ObjectId, at: u64, data: Bytes) -> Result<(), String> {
        let written = self.fs.change(&self.engine, Need::Write(data.len() as u64), move |fs, change| {
            Box::pin(async move { fs.write(change, file, at, data).await })
        });
        written.await.map_err(said).map(drop)
    }

    /// Random reads by all clients: others in each pass.
    pub async fn reads(&self, working_set_bytes: u64, effort: Effort, pass: u64) -> Result<Took, String> {
        let file = self.fs.view().open_file(self.file().await?).await.map_err(said)?;
        let operation = move |_: Bench, mut rng: Rng| {
            let file = file.clone();
            async move {
                let at = rng.below(working_set_bytes / BLOCK_BYTES) * BLOCK_BYTES;
                file.read(at, BLOCK_BYTES).await.map_err(said).map(drop)
            }
        };
        self.clients((READERS, pass), effort.reads, operation).await
    }

    /// Random writes, each durable before the next of its client.
    pub async fn durable_writes(&self, clients: u64, effort: Effort) -> Result<Took, String> {
        let file = self.file().await?;
        let operation = move |bench: Bench, mut rng: Rng| async move {
            let at = rng.below(WRITTEN_BYTES / DURABLE_BYTES) * DURABLE_BYTES;
            let mut data = vec![0; DURABLE_BYTES as usize];
            rng.fill(&mut data);
            bench.write(file, at, data.into()).await?;
            bench.fs.commit(Some(file)).await.map_err(said)
        };
        self.clients((clients, 0), effort.reads / READS_A_WRITE, operation).await
    }

    /// Runs clients, each of which does one operation after the other, until so many were done in all or time
    /// is over.
    async fn clients<F: Future<Output = Result<(), String>> + Send + 'static>(
        &self,
        (clients, pass): (u64, u64),
        operations: u64,
        operation: impl Fn(Bench, Rng) -> F + Clone + Send + Sync + 'static,
    ) -> Result<Took, String> {
        let (start, each) = (self.rt.now(), Arc::<Mutex<Vec<Duration>>>::default());
        let is_over = move |now: Instant, done: usize| now.since(start) >= LASTS || done as u64 >= operations;
        let client = |n: u64| {
            let (bench, each, operation) = (self.clone(), each.clone(), operation.clone());
            async move {
                let mut seeds = Rng::new(pass << 8 | n);
                while !is_over(bench.rt.now(), each.lock().len()) {
                    bench.rt.sleep(THINKS).await;
                    let from = bench.rt.now();
                    operation(bench.clone(), Rng::new(seeds.below(u64::MAX))).await?;
                    each.lock().push(bench.rt.now().since(from));
                }
                Ok::<_, String>(())
            }
        };
        let tasks: Vec<_> = (0..clients).map(|n| self.rt.spawn(client(n))).collect();
        for task in tasks {
            task.await.map_err(said)??;
        }
        let whole = self.rt.now().since(start);
        let mut each = std::mem::take(&mut *each.lock());
        each.sort_unstable();
        Ok(Took { each, whole })
    }
}
