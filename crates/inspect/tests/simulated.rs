//! The engine in the deterministic simulator: a golden pool on simulated disks that are slow, fail and return
//! wrong data.
//!
//! A seed determines the whole history. Every failure prints its seed.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that can't go on must stop")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::{ImportOptions, import};
use cenote_device::{Delayed, Device, Fault, Faulty, Latency, MemoryDevice, Op};
use cenote_fs::Filesystem;
use cenote_inspect::scan::{RowBatch, ScanNeeds, ScanTarget, manifest, scan};
use cenote_pool::discover_devices;
use cenote_runtime::{Runtime, SimConfig, SimReport};
use cenote_testkit::{Golden, golden};

/// A dataset of a raidz1 pool of four disks; any one disk may fail.
const POOL: &str = "expanding";
const DATASET: &str = "gexping";

struct Images(Vec<(String, Bytes)>);

impl Images {
    fn of(pool: &Golden) -> Images {
        let folder = pool.images();
        let read = |name: &str| Bytes::from(std::fs::read(Path::new(&folder).join(name)).unwrap());
        let names = pool.facts().disks.into_iter().map(|disk| disk.file.trim_end_matches(".zst").to_string());
        Images(names.map(|name| (name.clone(), read(&name))).collect())
    }
}

/// Sorted manifest lines of the dataset, read through devices wrapped by `layer`.
async fn list(
    rt: Runtime,
    images: &Images,
    layer: impl Fn(usize, Arc<dyn Device>) -> Arc<dyn Device>,
) -> Vec<String> {
    let latency =
        Latency { fixed: Duration::from_micros(80), jitter: Duration::from_micros(40), bytes_per_s: None };
    let devices = images.0.iter().enumerate().map(|(index, (name, content))| {
        let disk = Arc::new(MemoryDevice::with_content(name, content.to_vec()));
        let slow: Arc<dyn Device> = Arc::new(Delayed::new(disk, latency, &rt));
        layer(index, slow)
    });
    let discovery = discover_devices(devices.collect()).await;
    assert_eq!(discovery.pools.len(), 1, "{:?}", discovery.problems);
    let mos = import(&rt, &discovery.pools[0], &ImportOptions::default()).await.unwrap();
    let dataset = mos.dataset(DATASET).await.unwrap();
    let filesystem = Filesystem::open(dataset.objset().await.unwrap()).await.unwrap();
    let target = ScanTarget { dataset: DATASET.into(), snapshot: None, filesystem };
    let needs = ScanNeeds { targets: true, xattrs: true, hashes: true };
    let mut lines = Vec::new();
    let render = |batch: &RowBatch| (manifest::render(batch, None), batch.problems.clone());
    scan(&target, needs, render, |(rows, problems)| {
        assert!(problems.is_empty(), "{problems:?}");
        lines.extend(rows.into_iter().map(|(_, line)| line));
        Ok(())
    })
    .await
    .unwrap();
    lines.sort();
    lines
}

fn simulate(
    seed: u64,
    images: &Images,
    layer: fn(u64, usize, Arc<dyn Device>) -> Arc<dyn Device>,
) -> (Vec<String>, SimReport) {
    println!("seed {seed}");
    Runtime::simulate(SimConfig::seed(seed), |rt| {
        list(rt, images, move |index, device| layer(seed, index, device))
    })
}

fn sound(_: u64, _: usize, device: Arc<dyn Device>) -> Arc<dyn Device> {
    device
}

/// One disk, chosen by the seed, has bad sectors and also returns wrong bytes.
fn one_disk_lies(seed: u64, index: usize, device: Arc<dyn Device>) -> Arc<dyn Device> {
    if index as u64 != seed % 4 {
        return device;
    }
    let past_labels = 4 << 20..u64::MAX;
    Arc::new(
        Faulty::new(device, seed)
            .with(Fault::error(Op::Read).within(past_labels.clone()).chance(0.2))
            .with(Fault::corruption().within(past_labels).chance(0.3)),
    )
}

#[test]
fn one_seed_gives_one_history_and_another_seed_another() {
    let pool = golden(POOL);
    let images = Images::of(&pool);
    let (first, first_report) = simulate(7, &images, sound);
    let (again, again_report) = simulate(7, &images, sound);
    let (other, other_report) = simulate(8, &images, sound);
    assert_eq!(first_report.history, again_report.history);
    assert_ne!(first_report.history, other_report.history);
    assert!(first.len() > 50);
    assert_eq!(first, again);
    assert_eq!(first, other, "the data read does not depend on the schedule");
}

#[test]
fn a_disk_that_fails_and_lies_costs_no_data() {
    let pool = golden(POOL);
    let images = Images::of(&pool);
    let facts = pool.facts();
    let manifest =
        facts.datasets.iter().find(|d| d.name == DATASET).and_then(|d| d.manifest.clone()).unwrap();
    let mut expected: Vec<String> =
        pool.text(&manifest).lines().skip(1).map(|line| format!("{line}\n")).collect();
    expected.sort();
    for seed in 0..8 {
        let (lines, _) = simulate(seed, &images, one_disk_lies);
        assert!(lines == expected, "seed {seed}: the listing is not the module's");
    }
}
