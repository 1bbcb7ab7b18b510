//! Creates many snapshots or attributes in a pool, to measure their cost afterwards, and prints how long it
//! took.
//!
//! ```text
//! many FOLDER_OF_DISKS POOL snapshots COUNT    POOL@s1 to POOL@sCOUNT; between them a block is rewritten
//!                           xattrs COUNT       extended attributes of 8 bytes, of one file, /xattrs
//! ```
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that only prints")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a measurement that can't go on must stop")]

use std::path::PathBuf;

use bytes::Bytes;
use cenote_dataset::{ImportOptions, import};
use cenote_engine::{Engine, Host, Need};
use cenote_format::units::ObjectId;
use cenote_fs::write::{FsOptions, FsWriter, NewFile, NewKind, SetXattr};
use cenote_pool::{PoolState, discover};
use cenote_runtime::Runtime;

/// The allocator that the program uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BLOCK_BYTES: u64 = 4096;
/// Blocks of the file overwritten in turn, so that snapshots keep old ones.
const BLOCKS: u64 = 64;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, pool, what, count] = &args[..] else {
        eprintln!("usage: many FOLDER POOL snapshots|xattrs COUNT");
        std::process::exit(2);
    };
    let count: u64 = count.parse().unwrap();
    let rt = Runtime::real(None);
    rt.clone().block_on(async {
        let found = discover(&rt, &[PathBuf::from(folder)]).await;
        let found = found.pools.iter().find(|found| found.name() == pool).unwrap();
        let found = found.open_for_writing(&rt).await.unwrap();
        let engine =
            Engine::start(&import(&rt, &found, &ImportOptions::default()).await.unwrap()).await.unwrap();
        let dataset = engine.dataset(pool).await.unwrap();
        let options = FsOptions { record_bytes: BLOCK_BYTES as u32, ..FsOptions::default() };
        let fs = FsWriter::open(dataset, options).await.unwrap();
        let file = make(&engine, &fs, what).await;
        let started = rt.now();
        match &what[..] {
            "snapshots" => snapshots(&engine, &fs, file, pool, count).await,
            "xattrs" => xattrs(&engine, &fs, file, count).await,
            other => panic!("no {other}"),
        }
        let seconds = (rt.now() - started).as_secs_f64();
        println!("{what} {count} made in {seconds:.2} s");
        let host = Host { id: 0, name: "many".into() };
        engine.ownership().set_state(PoolState::Exported, host).await.unwrap();
    });
}

async fn make(engine: &Engine, fs: &FsWriter, name: &str) -> ObjectId {
    let (name, new) =
        (name.as_bytes().to_vec(), NewFile { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0 });
    let made = fs.change(engine, Need::Write(0), move |fs, change| {
        Box::pin(async move { fs.create(change, fs.root(), &name, &new).await })
    });
    made.await.unwrap()
}

async fn snapshots(engine: &Engine, fs: &FsWriter, file: ObjectId, pool: &str, count: u64) {
    for number in 1..=count {
        let data: Vec<u8> = number.to_le_bytes().iter().cycle().take(BLOCK_BYTES as usize).copied().collect();
        let at = number % BLOCKS * BLOCK_BYTES;
        let written = fs.change(engine, Need::Write(BLOCK_BYTES), move |fs, change| {
            fs.write(change, file, at, Bytes::from(data))
        });
        written.await.unwrap();
        cenote_tasks::snapshot(engine, &[format!("{pool}@s{number}")]).await.unwrap();
    }
}

async fn xattrs(engine: &Engine, fs: &FsWriter, file: ObjectId, count: u64) {
    for number in 1..=count {
        let (name, value) = (format!("user.number{number}"), number.to_le_bytes());
        let set = fs.change(engine, Need::Write(BLOCK_BYTES), move |fs, change| {
            Box::pin(
                async move { fs.set_xattr(change, file, name.as_bytes(), Some(&value), SetXattr::Any).await },
            )
        });
        set.await.unwrap();
    }
}
