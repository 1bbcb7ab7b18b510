//! Measures a disk in a simulated store, or in a real one beside a raw client:
//!
//! ```text
//! cargo run --release -p cenote-bucket --example bucket_figures                     requests, space, opening
//! cargo run --release -p cenote-bucket --example bucket_figures BUCKET ENDPOINT MIB   throughput
//! ```
//!
//! Prints a line for each figure, and fails if one misses its bar.

// A program of its own, whose output is its result.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_bucket::{Behaviour, Kind, LogDevice, Options, Requests, S3, S3Target, SimStore, Store};
use cenote_device::Device;
use cenote_runtime::{Rng, Runtime, SimConfig};
use futures::StreamExt;

const MIB: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = 16 * MIB;

/// A figure, and the bar that it must keep.
fn figure(name: &str, value: f64, bar: f64, is_least: bool) {
    let is_kept = if is_least { value >= bar } else { value <= bar };
    let sign = if is_least { "at least" } else { "at most" };
    println!("{name}: {value:.2} ({sign} {bar}){}", if is_kept { "" } else { "  MISSED" });
    assert!(is_kept, "{name}");
}

async fn open(store: Arc<dyn Store>, size_bytes: u64, runtime: &Runtime) -> LogDevice {
    let options = Options { create_bytes: Some(size_bytes), ..Options::new("disk") };
    LogDevice::open(store, options, runtime, ()).await.unwrap()
}

fn since(now: Requests, before: Requests, kind: Kind) -> u64 {
    now.of(kind) - before.of(kind)
}

/// Writes as txgs do: a flush for each 160 MiB, or 5 s of a slow load.
async fn write_all(disk: &LogDevice, total: u64, io_bytes: u64, mut next: impl FnMut() -> u64) {
    let data = Bytes::from(vec![0x5a; io_bytes as usize]);
    for done in (0..total).step_by(io_bytes as usize) {
        disk.write_at(next(), data.clone()).await.unwrap();
        if (done + io_bytes).is_multiple_of(160 * MIB) {
            disk.flush().await.unwrap();
        }
    }
    disk.flush().await.unwrap();
}

async fn requests_and_space(runtime: Runtime) {
    let store = SimStore::default();
    let client = Arc::new(store.client(Behaviour::good(), &runtime));
    let disk = open(client.clone(), 1 << 40, &runtime).await;
    disk.write_at(0, Bytes::from(vec![1; 4096])).await.unwrap();
    disk.flush().await.unwrap();
    let before = disk.requests();
    let mut at = 0;
    write_all(&disk, 1024 * MIB, 128 << 10, || (at, at += 128 << 10).0).await;
    runtime.sleep(Duration::from_secs(60)).await;
    let now = disk.requests();
    figure("PUTs a GiB, sequential", since(now, before, Kind::Put) as f64, 90.0, false);

    runtime.sleep(Duration::from_secs(3600)).await;
    let idle = disk.requests();
    let idle_requests: u64 = Kind::ALL.iter().map(|kind| since(idle, now, *kind)).sum();
    figure("requests in an idle hour", idle_requests as f64, 0.0, false);

    let mut rng = Rng::new(1);
    write_all(&disk, 1024 * MIB, 16 << 10, || rng.below(1024 * MIB / (16 << 10)) * (16 << 10)).await;
    let busy = disk.requests();
    runtime.sleep(Duration::from_secs(60)).await;
    let packed = disk.requests();
    println!("PUTs while the 16K random load ran: {}", since(busy, idle, Kind::Put));
    figure("PUTs a GiB, 16K random, packing included", since(packed, idle, Kind::Put) as f64, 250.0, false);
    println!("GETs for packing: {}", since(packed, idle, Kind::Get));
    let (stored, live) = disk.space();
    let objects: usize = store.objects().iter().map(|(_, bytes)| bytes).sum();
    println!(
        "stored {} MiB of {} objects, live {} MiB",
        objects as u64 / MIB,
        store.objects().len(),
        live / MIB
    );
    figure("bytes in segments for each live one", stored as f64 / live as f64, 1.25, false);
    figure("bytes in the store for each live one", objects as f64 / live as f64, 1.25, false);

    // Cold: nothing of it is in memory.
    let again = open(client, 1 << 40, &runtime).await;
    let opened = again.requests();
    again.read_at(512 * MIB + (384 << 10), 16 << 10).await.unwrap();
    figure("GETs of a cold 16K record", since(again.requests(), opened, Kind::Get) as f64, 1.0, false);
    let mut at = 2048 * MIB;
    write_all(&disk, 64 * MIB, 128 << 10, || (at, at += 128 << 10).0).await;
    let again = open(Arc::new(store.client(Behaviour::good(), &runtime)), 1 << 40, &runtime).await;
    let opened = again.requests();
    again.read_at(2048 * MIB + (384 << 10), 128 << 10).await.unwrap();
    figure("GETs of a cold 128K record", since(again.requests(), opened, Kind::Get) as f64, 1.0, false);
}

/// A disk of 1 TiB with 8 M extents of 128K.
async fn opening(runtime: Runtime) {
    const EXTENTS: u64 = 8 << 20;
    let store = SimStore::default();
    let client = Arc::new(store.client(Behaviour::good(), &runtime));
    let disk = open(client.clone(), 1 << 40, &runtime).await;
    // Small bodies: the map counts, not the data. No two neighbours are neighbours in a segment.
    let data = Bytes::from(vec![1; 512]);
    for pass in 0..2 {
        for extent in (pass..EXTENTS).step_by(2) {
            disk.write_at(extent * (128 << 10), data.clone()).await.unwrap();
        }
        disk.flush().await.unwrap();
    }
    for round in 0..70 {
        disk.write_at(round * 4096 + 1024, data.clone()).await.unwrap();
        disk.flush().await.unwrap();
    }
    runtime.sleep(Duration::from_secs(60)).await;
    disk.write_at(4096, data.clone()).await.unwrap();
    disk.flush().await.unwrap();
    let begun = Instant::now();
    let again = open(client, 1 << 40, &runtime).await;
    let took = begun.elapsed();
    let requests = again.requests();
    println!("opened with {} GETs of {} MiB", requests.of(Kind::Get), requests.received_bytes / MIB);
    figure("seconds to open 8 M extents", took.as_secs_f64(), 5.0, false);
}

async fn throughput(bucket: &str, endpoint: &str, mib: u64, runtime: Runtime) {
    let target = |prefix: &str| S3Target {
        bucket: bucket.into(),
        prefix: format!("{prefix}-{:x}", runtime.random_u64()),
        endpoint: Some(endpoint.into()),
        region: None,
    };
    let total = (mib * MIB).next_multiple_of(SEGMENT_BYTES);
    let mut data = vec![0; SEGMENT_BYTES as usize];
    Rng::new(1).fill(&mut data);
    let data = Bytes::from(data);
    let speed = |begun: Instant| total as f64 / MIB as f64 / begun.elapsed().as_secs_f64();
    let mut ratios = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        let raw = Arc::new(S3::new(&target("raw"), &runtime).await.unwrap());
        let begun = Instant::now();
        let keys = 0..total / SEGMENT_BYTES;
        let put = |key: u64| raw.create(&key.to_string(), vec![data.clone()]);
        futures::stream::iter(keys.clone().map(put))
            .buffered(8)
            .for_each(async |done| drop(done.unwrap()))
            .await;
        let raw_put = speed(begun);
        let begun = Instant::now();
        let get = |key: u64| raw.read(&key.to_string(), None);
        futures::stream::iter(keys.clone().map(get))
            .buffered(8)
            .for_each(async |done| drop(done.unwrap()))
            .await;
        let raw_get = speed(begun);
        let store = Arc::new(S3::new(&target("disk"), &runtime).await.unwrap());
        let disk = open(store, 1 << 40, &runtime).await;
        disk.write_at(0, Bytes::from(vec![1; 4096])).await.unwrap();
        disk.flush().await.unwrap();
        let begun = Instant::now();
        for at in (0..total).step_by(MIB as usize) {
            let from = (at % SEGMENT_BYTES) as usize;
            disk.write_at(at, data.slice(from..from + MIB as usize)).await.unwrap();
        }
        disk.flush().await.unwrap();
        let write = speed(begun);
        let begun = Instant::now();
        let reads = (0..total).step_by(4 * MIB as usize).map(|at| disk.read_at(at, 4 * MIB as usize));
        futures::stream::iter(reads).buffered(16).for_each(async |done| drop(done.unwrap())).await;
        let read = speed(begun);
        println!("MiB/s: PUT {raw_put:.0}, write {write:.0}; GET {raw_get:.0}, read {read:.0}");
        ratios[0].push(write / raw_put);
        ratios[1].push(read / raw_get);
    }
    for (name, mut ratios) in ["write to raw PUT", "read to raw GET"].into_iter().zip(ratios) {
        ratios.sort_by(f64::total_cmp);
        figure(name, ratios[1], 0.8, true);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [bucket, endpoint, mib] => {
            let runtime = Runtime::real(None);
            runtime.block_on(throughput(bucket, endpoint, mib.parse().unwrap(), runtime.clone()));
        }
        _ => {
            let config = SimConfig { memory_bytes: 16 << 30, ..SimConfig::seed(1) };
            Runtime::simulate(config.clone(), requests_and_space);
            Runtime::simulate(config, opening);
        }
    }
}
