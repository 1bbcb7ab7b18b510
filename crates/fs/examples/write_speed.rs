//! Measures how fast a file system of a pool is written, one operation at a time, like `fio` with one job.
//!
//! ```text
//! write_speed FOLDER_OF_DISKS POOL sequential MIB    1 MiB writes to a new file, then fsync
//!                                  small MIB         the same in writes of 4 KiB
//!                                  create COUNT      empty files in one directory, then sync
//!                                  random COUNT      random 4 KiB writes to a 256 MiB file, then fsync
//!                                  sync COUNT        4 KiB writes, each durable before the next
//!                                  groups COUNT      txgs of 200 such writes; bytes and calls of each
//! ```
//!
//! The pool is opened as in any program; txgs are synced automatically, and dirty data has the default limit.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that only prints")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a measurement that can't go on must stop")]

use std::path::PathBuf;

use bytes::Bytes;
use cenote_dataset::{ImportOptions, import};
use cenote_engine::{Engine, Need};
use cenote_format::units::ObjectId;
use cenote_fs::write::{Change, Changing, FsOptions, FsWriter, NewFile, NewKind};
use cenote_pool::discover;
use cenote_runtime::Runtime;

/// The allocator that the program uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MIB: u64 = 1 << 20;
const SMALL: usize = 4096;
const RANDOM_FILE_MIB: u64 = 256;
const GROUP_WRITES: u64 = 200;

struct Bench {
    rt: Runtime,
    engine: Engine,
    fs: FsWriter,
    noise: Bytes,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, pool, workload, count] = &args[..] else {
        eprintln!("usage: write_speed FOLDER POOL sequential|small|create|random|sync|groups COUNT");
        std::process::exit(2);
    };
    let count: u64 = count.parse().unwrap();
    let rt = Runtime::real(None);
    rt.clone().block_on(async {
        let bench = Bench::open(&rt, folder.into(), pool).await;
        let _groups = bench.engine.sync_in_background();
        match &workload[..] {
            "sequential" | "small" => {
                let write_bytes = if workload == "small" { SMALL } else { MIB as usize };
                let file = bench.file(workload).await;
                bench.timed(workload, count, "MiB", bench.sequential(file, count, write_bytes)).await;
            }
            "create" => bench.timed(workload, count, "files", bench.create(count)).await,
            "random" => {
                let file = bench.file("random").await;
                bench.sequential(file, RANDOM_FILE_MIB, MIB as usize).await;
                bench.timed(workload, count, "writes", bench.random(file, count, false)).await;
            }
            "sync" => {
                let file = bench.file("sync").await;
                bench.sequential(file, RANDOM_FILE_MIB, MIB as usize).await;
                bench.timed(workload, count, "writes", bench.random(file, count, true)).await;
            }
            "groups" => {
                let file = bench.file("groups").await;
                bench.sequential(file, RANDOM_FILE_MIB, MIB as usize).await;
                bench.engine.sync_all().await.unwrap();
                let before = [written("wchar"), written("syscw")];
                bench.timed(workload, count, "groups", bench.groups(file, count)).await;
                let [bytes, calls] = [written("wchar") - before[0], written("syscw") - before[1]];
                println!("written {} KiB in {} calls per txg", bytes / count / 1024, calls / count);
            }
            other => panic!("no workload {other}"),
        }
        bench.engine.sync_all().await.unwrap();
        let peak = std::fs::read_to_string("/proc/self/status").unwrap();
        println!("{}", peak.lines().find(|line| line.starts_with("VmHWM")).unwrap());
    });
}

/// The bytes that this process has written so far, as counted by the kernel.
fn written(what: &str) -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(": ")).unwrap().parse().unwrap()
}

impl Bench {
    async fn open(rt: &Runtime, folder: PathBuf, pool: &str) -> Bench {
        let found = discover(rt, &[folder]).await;
        let found = found.pools[0].open_for_writing(rt).await.unwrap();
        let mos = import(rt, &found, &ImportOptions::default()).await.unwrap();
        let engine = Engine::start(&mos).await.unwrap();
        let dataset = engine.dataset(pool).await.unwrap();
        let options = FsOptions::of(&mos, &mos.dataset(pool).await.unwrap()).await.unwrap();
        let fs = FsWriter::open(dataset, options).await.unwrap();
        let noise: Vec<u8> = (0..MIB / 8).flat_map(|_| rt.random_u64().to_ne_bytes()).collect();
        Bench { rt: rt.clone(), engine, fs, noise: noise.into() }
    }

    async fn timed(&self, what: &str, count: u64, unit: &str, work: impl Future<Output = ()>) {
        let start = self.rt.now();
        work.await;
        let seconds = self.rt.now().since(start).as_secs_f64();
        println!("{what} {count} {unit} {seconds:.3} s {:.0} /s", count as f64 / seconds);
    }

    /// One operation that needs room for this many bytes.
    async fn change<T: Send + 'static>(
        &self,
        bytes: u64,
        act: impl for<'a> FnOnce(&'a FsWriter, Change<'a>) -> Changing<'a, T> + Send + 'static,
    ) -> T {
        self.fs.change(&self.engine, Need::Write(bytes), act).await.unwrap()
    }

    async fn file(&self, name: &str) -> ObjectId {
        self.make(self.fs.root(), name, NewKind::Regular).await
    }

    async fn make(&self, dir: ObjectId, name: &str, kind: NewKind<'static>) -> ObjectId {
        let new = NewFile { kind, mode: 0o755, umask: 0o22, uid: 0, gid: 0 };
        let name = name.as_bytes().to_vec();
        self.change(8192, move |fs, change| {
            Box::pin(async move { fs.create(change, dir, &name, &new).await })
        })
        .await
    }

    /// Copies the data to new memory, as if it came from a user.
    async fn write(&self, file: ObjectId, at: u64, data: &[u8]) {
        let data = Bytes::copy_from_slice(data);
        self.change(data.len() as u64, move |fs, change| fs.write(change, file, at, data)).await;
    }

    async fn sequential(&self, file: ObjectId, mib: u64, write_bytes: usize) {
        for index in 0..mib {
            for (at, data) in (index * MIB..).step_by(write_bytes).zip(self.noise.chunks(write_bytes)) {
                self.write(file, at, data).await;
            }
        }
        self.fs.commit(Some(file)).await.unwrap();
    }

    async fn create(&self, count: u64) {
        let dir = self.make(self.fs.root(), "many", NewKind::Directory).await;
        for index in 0..count {
            self.make(dir, &format!("file{index}"), NewKind::Regular).await;
        }
        self.fs.commit(None).await.unwrap();
    }

    async fn random(&self, file: ObjectId, count: u64, durable: bool) {
        for index in 0..count {
            self.write_anywhere(file, index).await;
            if durable {
                self.fs.commit(Some(file)).await.unwrap();
            }
        }
        self.fs.commit(Some(file)).await.unwrap();
    }

    async fn write_anywhere(&self, file: ObjectId, index: u64) {
        let places = RANDOM_FILE_MIB * MIB / SMALL as u64;
        let at = self.rt.random_u64() % places * SMALL as u64;
        let from = index as usize * SMALL % self.noise.len();
        self.write(file, at, &self.noise[from..from + SMALL]).await;
    }

    async fn groups(&self, file: ObjectId, count: u64) {
        for _ in 0..count {
            for index in 0..GROUP_WRITES {
                self.write_anywhere(file, index).await;
            }
            self.engine.sync_all().await.unwrap();
        }
    }
}
