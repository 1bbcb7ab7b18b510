//! Measures reads of a warm file and writes, by path and size: MB/s and operations per second.
//!
//! `cargo run --release -p cenote-device --example device_speed [FILE]` (default: its own file of 256 MiB).
//! Each path is measured alone (one read after the other) and at depth 32. `memcpy`, a copy out of the cache,
//! is the lower bound. `write` rows write to the program's own file, each place once a round. `cold` rows
//! drop the file from the cache, then read it once in random order.

#![allow(clippy::print_stdout, reason = "a program that only prints")]

use cenote_device::{Bytes, Device, FileDevice, IoPath, OpenOptions};
use cenote_runtime::{Rng, Runtime};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FILE_BYTES: usize = 256 << 20;
const TOTAL_BYTES: u64 = 2 << 30;
const TOTAL_READS: u64 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rt = Runtime::real(None);
    let mut own = tempfile::NamedTempFile::new()?;
    let own_only = std::env::args_os().nth(1).is_none();
    let path = match std::env::args_os().nth(1) {
        Some(path) => path.into(),
        None => {
            let mut content = vec![0; FILE_BYTES];
            Rng::new(1).fill(&mut content);
            own.write_all(&content)?;
            own.as_file().sync_all()?; // only clean pages can be dropped
            own.path().to_owned()
        }
    };
    println!("{:<10} {:>6} {:>8} {:>10} {:>12}", "way", "depth", "bytes", "MB/s", "reads/s");
    for len in [4 << 10, 128 << 10, 1 << 20] {
        for (way, io_path) in
            [("inline", IoPath::Auto), ("io_uring", IoPath::Uring), ("threads", IoPath::Threads)]
        {
            for depth in [1, 32] {
                let (reads, took) = measure(&rt, &path, io_path, depth, len)?;
                row(way, depth, len, reads, took);
            }
        }
        for (way, io_path) in [("cold ring", IoPath::Auto), ("cold pool", IoPath::Threads)] {
            let (reads, took) = measure_cold(&rt, &path, io_path, 32, len)?;
            row(way, 32, len, reads, took);
        }
        if own_only {
            for (way, io_path) in [("write", IoPath::Auto), ("write ring", IoPath::Uring)] {
                let (writes, took) = measure_writes(&rt, &path, io_path, 32, len)?;
                row(way, 32, len, writes, took);
            }
        }
        row("memcpy", 1, len, TOTAL_BYTES / len as u64, copy(&rt, len));
    }
    Ok(())
}

/// Random reads of a warm file.
fn measure(
    rt: &Runtime,
    path: &Path,
    io_path: IoPath,
    depth: usize,
    len: usize,
) -> Result<(u64, Duration), Box<dyn std::error::Error>> {
    let device = Arc::new(rt.block_on(FileDevice::open(
        path,
        OpenOptions { io_path, ..OpenOptions::READ_ONLY },
        rt,
    ))?);
    let places = device.size_bytes() / len as u64;
    let each = (TOTAL_BYTES / len as u64).min(TOTAL_READS) / depth as u64;
    rt.block_on(async {
        for place in 0..places {
            device.read_at(place * len as u64, len).await?;
        }
        let start = rt.now();
        rt.for_each_bounded(depth, 0..depth as u64, |reader| {
            let device = device.clone();
            async move {
                let mut rng = Rng::new(reader);
                for _ in 0..each {
                    device.read_at(rng.below(places) * len as u64, len).await?;
                }
                Ok::<(), cenote_device::DeviceError>(())
            }
        })
        .await?;
        Ok((each * depth as u64, rt.now() - start))
    })
}

/// Random writes, never two at once to one place.
fn measure_writes(
    rt: &Runtime,
    path: &Path,
    io_path: IoPath,
    depth: usize,
    len: usize,
) -> Result<(u64, Duration), Box<dyn std::error::Error>> {
    let options = OpenOptions { io_path, ..OpenOptions::READ_WRITE };
    let device = Arc::new(rt.block_on(FileDevice::open(path, options, rt))?);
    let places = device.size_bytes() / len as u64 / depth as u64;
    let each = (TOTAL_BYTES / len as u64).min(TOTAL_READS) / depth as u64;
    rt.block_on(async {
        let start = rt.now();
        rt.for_each_bounded(depth, 0..depth as u64, |writer| {
            let device = device.clone();
            async move {
                let (mut rng, data) = (Rng::new(writer), Bytes::from(vec![writer as u8; len]));
                for _ in 0..each {
                    let place = writer * places + rng.below(places);
                    device.write_at(place * len as u64, data.clone()).await?;
                }
                Ok::<(), cenote_device::DeviceError>(())
            }
        })
        .await?;
        Ok((each * depth as u64, rt.now() - start))
    })
}

/// Reads every block once, from a cold cache.
fn measure_cold(
    rt: &Runtime,
    path: &Path,
    io_path: IoPath,
    depth: usize,
    len: usize,
) -> Result<(u64, Duration), Box<dyn std::error::Error>> {
    let device = Arc::new(rt.block_on(FileDevice::open(
        path,
        OpenOptions { io_path, ..OpenOptions::READ_ONLY },
        rt,
    ))?);
    rustix::fs::fadvise(device.file(), 0, None, rustix::fs::Advice::DontNeed)?;
    rustix::fs::fadvise(device.file(), 0, None, rustix::fs::Advice::Random)?;
    let mut places: Vec<u64> = (0..device.size_bytes() / len as u64).collect();
    let mut rng = Rng::new(1);
    (1..places.len()).rev().for_each(|at| places.swap(at, rng.below(at as u64 + 1) as usize));
    places.truncate(TOTAL_READS as usize / 20);
    let reads = places.len() as u64;
    rt.block_on(async {
        let start = rt.now();
        rt.for_each_bounded(depth, places, |place| {
            let device = device.clone();
            async move { device.read_at(place * len as u64, len).await.map(drop) }
        })
        .await?;
        Ok((reads, rt.now() - start))
    })
}

/// The same amount copied in memory.
fn copy(rt: &Runtime, len: usize) -> Duration {
    let content = vec![1u8; FILE_BYTES];
    let mut rng = Rng::new(2);
    let start = rt.now();
    for _ in 0..TOTAL_BYTES / len as u64 {
        let at = rng.below((FILE_BYTES / len) as u64) as usize * len;
        std::hint::black_box(content[at..at + len].to_vec());
    }
    rt.now() - start
}

fn row(way: &str, depth: usize, len: usize, reads: u64, took: Duration) {
    let seconds = took.as_secs_f64();
    let mb_per_s = (reads * len as u64) as f64 / 1e6 / seconds;
    println!("{way:<10} {depth:>6} {len:>8} {mb_per_s:>10.0} {:>12.0}", reads as f64 / seconds);
}
