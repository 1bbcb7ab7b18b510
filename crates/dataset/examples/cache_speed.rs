//! Measures reads of a file, cached and uncached. `bench/peers/zpool_speed.c` is the same benchmark of
//! OpenZFS's engine, with equal arguments, loads and output.
//!
//! ```text
//! cache_speed FOLDER POOL DATASET OBJECT FILE_BYTES BLOCK_BYTES LOAD TASKS BYTES SECONDS [POLICY [MIB]]
//!
//!   hit-seq, hit-rand   the file is read once, then again for SECONDS, BYTES at a time, in order or anywhere
//!   cold-seq            the file is read once, by THREADS tasks, each its part
//!   cold-rand           pieces of BYTES, anywhere, for SECONDS; none lies in a block that was read before
//!   copy-rand           as hit-rand, without the engine: copies from memory of the file's size
//!   churn               as hit-rand, but half of the reads go to a tenth of the file; for caches that are
//!                       smaller than the file
//! ```
//!
//! Prints reads and megabytes per second, and the processor time per read, which other work on the machine
//! disturbs least.
//!
//! The pool is opened as by a read-only daemon: file blocks are cached and prefetched. Reads copy to the
//! caller's memory, as in OpenZFS.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that only prints")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a measurement that can't go on must stop")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, import};
use cenote_format::units::ObjectId;
use cenote_object::Object;
use cenote_pool::discover;
use cenote_runtime::Runtime;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WARM_BYTES: u64 = 1 << 20;
/// Reads between looks at the clock.
const BATCH: u64 = 64;

#[derive(Clone)]
struct Bench {
    rt: Runtime,
    object: Object,
    file_bytes: u64,
    block_bytes: u64,
    load: String,
    tasks: u64,
    read_bytes: u64,
    run: Duration,
    next_block: Arc<AtomicU64>,
    /// Source of `copy-rand`.
    memory: Arc<[u8]>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, pool, dataset, numbers @ .., seconds] = &args[..args.len().min(10)] else { usage() };
    let [object, file_bytes, block_bytes, load, tasks, read_bytes] = numbers else { usage() };
    let number = |text: &String| text.parse::<u64>().unwrap();
    let policy = args.get(10).map_or("openzfs-2.3", String::as_str).parse().unwrap();
    let cache_mib = args.get(11).map_or(2048, number);
    let cache = CacheOptions { budget_bytes: (cache_mib << 20) as usize, policy, data: true };
    let rt = Runtime::real(None);
    rt.clone().block_on(async {
        let found = discover(&rt, &[PathBuf::from(folder)]).await;
        let found = found.pools.iter().find(|found| found.config.name == *pool).unwrap();
        let mos = import(&rt, found, &ImportOptions { cache, ..ImportOptions::default() }).await.unwrap();
        let objset = mos.dataset(dataset).await.unwrap().objset().await.unwrap();
        let memory_bytes = if load == "copy-rand" { number(file_bytes) } else { 0 };
        let bench = Bench {
            rt: rt.clone(),
            object: objset.object(ObjectId(number(object))).await.unwrap(),
            file_bytes: number(file_bytes),
            block_bytes: number(block_bytes),
            load: load.clone(),
            tasks: number(tasks),
            read_bytes: number(read_bytes),
            run: Duration::from_secs(number(seconds)),
            next_block: Arc::default(),
            memory: vec![1; memory_bytes as usize].into(),
        };
        bench.measure().await;
    });
}

fn usage() -> ! {
    eprintln!(
        "usage: cache_speed FOLDER POOL DATASET OBJECT FILE_BYTES BLOCK_BYTES LOAD TASKS BYTES SECONDS \
         [POLICY [CACHE_MIB]]"
    );
    std::process::exit(2)
}

/// Processor time of this process, in steps of 10 ms.
fn processor_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap() * 10_000_000).sum()
}

impl Bench {
    async fn measure(&self) {
        if self.load.starts_with("hit") || self.load == "churn" {
            for at in (0..self.file_bytes).step_by(WARM_BYTES as usize) {
                self.object.read(at, WARM_BYTES as usize).await.unwrap();
            }
        }
        let (start, used) = (self.rt.now(), processor_ns());
        let work = |me| {
            let bench = self.clone();
            self.rt.spawn(async move { bench.work(me).await })
        };
        let tasks: Vec<_> = (0..self.tasks).map(work).collect();
        let mut reads = 0;
        for task in tasks {
            reads += task.await.unwrap();
        }
        let rate = reads as f64 / self.rt.now().since(start).as_secs_f64();
        let cost = (processor_ns() - used) / reads.max(1);
        let Bench { load, tasks, read_bytes, .. } = self;
        let mb = rate * *read_bytes as f64 / 1e6;
        println!("{load} {tasks} {read_bytes}  {rate:.0} reads/s {mb:.0} MB/s {cost} ns");
    }

    async fn work(&self, me: u64) -> u64 {
        let mut buffer = vec![0; self.read_bytes as usize];
        let part = self.file_bytes / self.tasks / self.read_bytes * self.read_bytes;
        match &self.load[..] {
            "cold-seq" => {
                for at in (me * part..(me + 1) * part).step_by(buffer.len()) {
                    self.read(at, &mut buffer).await;
                }
                part / self.read_bytes
            }
            "cold-rand" => self.scattered(&mut buffer).await,
            _ => self.repeated(me, part, &mut buffer).await,
        }
    }

    async fn scattered(&self, buffer: &mut [u8]) -> u64 {
        let blocks = self.file_bytes / self.block_bytes;
        let (start, mut reads) = (self.rt.now(), 0);
        loop {
            let index = self.next_block.fetch_add(1, Ordering::Relaxed);
            if index >= blocks || self.rt.now().since(start) >= self.run {
                return reads;
            }
            // Visits each block once.
            let block = (index * 2_654_435_761 + 12_345) % blocks;
            self.read(block * self.block_bytes, buffer).await;
            reads += 1;
        }
    }

    async fn repeated(&self, me: u64, part: u64, buffer: &mut [u8]) -> u64 {
        let places = self.file_bytes / self.read_bytes;
        let (start, mut reads) = (self.rt.now(), 0);
        let mut random = 88_172_645_463_325_252 + me * 7919;
        let mut at = me * part;
        while self.rt.now().since(start) < self.run {
            for _ in 0..BATCH {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                at = match &self.load[..] {
                    "hit-rand" | "copy-rand" => random % places * self.read_bytes,
                    "churn" if random >> 63 == 0 => (random >> 8) % (places / 10).max(1) * self.read_bytes,
                    "churn" => (random >> 8) % places * self.read_bytes,
                    _ => at,
                };
                self.read(at, buffer).await;
                at = if at + 2 * self.read_bytes > self.file_bytes { 0 } else { at + self.read_bytes };
            }
            reads += BATCH;
        }
        reads
    }

    async fn read(&self, at: u64, buffer: &mut [u8]) {
        if !self.memory.is_empty() {
            return buffer.copy_from_slice(&self.memory[at as usize..][..buffer.len()]);
        }
        let bytes = self.object.read(at, buffer.len()).await.unwrap();
        buffer.copy_from_slice(&bytes);
    }
}
