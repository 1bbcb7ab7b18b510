#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
//! Recordings of pools before and after some work, and this machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::load::samples::Kind;
use crate::unit::Unit;

fn folder(pool: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/zfs").join(pool)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => _ = fs::copy(entry.path(), to.join(entry.file_name())).unwrap(),
        }
    }
}

/// Samples from a sampler started before the recorded work and stopped after it.
fn sampled(pool: &str) -> Samples {
    let dir = tempfile::tempdir().unwrap();
    copy(&folder(pool).join("before"), dir.path());
    fs::copy(folder(pool).join("version.txt"), dir.path().join("version.txt")).unwrap();
    let zpool = Zpool::recorded(dir.path());
    let scope = Scope { pools: vec![pool.into()], devices: vec!["loop0".into()], ..Scope::default() };
    // Only the first and the last points: it stops long before the interval is over.
    let sampler = Sampler::start_at(&Root::at(dir.path()), zpool, &scope, Duration::from_secs(3600));
    copy(&folder(pool), dir.path());
    sampler.stop()
}

#[test]
fn counters_of_the_module_grow_by_the_work() {
    let samples = sampled("healthy");
    let growth =
        |source: &str, subject: &str, name: &str| samples.find(source, subject, name).unwrap().growth();
    let before = fs::read_to_string(folder("healthy").join("before/proc/spl/kstat/zfs/zil")).unwrap();
    let after = fs::read_to_string(folder("healthy").join("proc/spl/kstat/zfs/zil")).unwrap();
    let commits =
        |text: &str| crate::load::machine::zpool::Counters::of_kstat(text).or_zero("zil_commit_count") as f64;
    assert!(commits(&after) > commits(&before));
    assert_eq!(growth("zil", "", "zil_commit_count"), commits(&after) - commits(&before));
    assert!(growth("objset", "healthy/db", "zil_itx_metaslab_slog_bytes") > 0.0);
    assert!(growth("objset", "healthy/media", "nread") > 0.0);
    assert_eq!(
        samples.find("objset", "healthy/db", "zil_itx_metaslab_slog_alloc").unwrap().unit,
        Unit::Bytes
    );
    assert!(growth("txgs", "healthy", "synced") >= 1.0);
    assert!(growth("txgs", "healthy", "sync_time") > 0.0);
    assert!(growth("diskstats", "loop0", "write_bytes") > 0.0);
    assert!(growth("cpu", "", "system") > 0.0);
    let size = samples.find("arcstats", "", "size").unwrap();
    assert_eq!((size.kind, size.unit), (Kind::Gauge, Unit::Bytes));
    assert_eq!(samples.find("arcstats", "", "c_max").unwrap().mean(), Some(268_435_456.0));
    assert!(samples.find("diskstats", "loop1", "write_ios").is_none(), "outside the scope");
}

#[test]
fn reads_from_the_cache_device_are_seen() {
    let samples = sampled("wide");
    let growth = |name: &str| samples.find("arcstats", "", name).unwrap().growth();
    assert!(growth("l2_hits") > 0.0 && growth("l2_read_bytes") > 0.0);
    let log = |name: &str| samples.find("objset", "wide/fs", name).unwrap().growth();
    assert!(log("zil_itx_metaslab_normal_count") > 0.0, "there is no log device");
    assert_eq!(log("zil_itx_metaslab_slog_count"), 0.0);
}

#[test]
fn histograms_cover_only_the_work() {
    let samples = sampled("healthy");
    let total = |source: &str, subject: &str, name: &str| -> u64 {
        let found = samples
            .histograms
            .iter()
            .find(|h| (h.source.as_str(), h.subject.as_str(), h.name.as_str()) == (source, subject, name));
        found.map_or(0, |h| h.buckets.iter().map(|b| b.2).sum())
    };
    let writes = total("iostat_latency", "healthy", "total_wait.write");
    assert!(writes > 0, "the work wrote");
    assert_eq!(total("iostat_latency", "healthy", "scrub_wait"), 0, "the scrub was before it");
    assert!(total("iostat_latency", "healthy/mirror-2", "total_wait.write") > 0, "the log");
    assert!(total("iostat_size", "healthy/loop4", "sync_write.individual") > 0);
    for histogram in &samples.histograms {
        assert!(
            histogram.buckets.iter().all(|(low, high, count)| low <= high && *count > 0),
            "{histogram:?}"
        );
        assert!(
            histogram.buckets.windows(2).all(|pair| pair[0].1 < pair[1].0 + 1.0),
            "in order: {histogram:?}"
        );
    }
}

#[test]
fn lines_of_zpool_iostat_become_points_of_pool_and_vdevs() {
    let text = fs::read_to_string(folder("degraded").join("iostat-lq.tsv")).unwrap();
    let rows: Vec<&str> = text.lines().collect();
    let mut lines = iostat::Lines::of(&["degraded".to_owned()]);
    let mut recorder = Recorder::default();
    assert_eq!(rows.len() % 2, 0, "two intervals");
    for (at, interval) in rows.chunks(rows.len() / 2).enumerate() {
        recorder.tick(at as u64 * 1_000_000_000, at == 1);
        interval.iter().for_each(|line| lines.take(line));
        lines.note(&mut recorder);
    }
    let samples = recorder.finish();
    // Columns in the order of the program's headings, from 0: the name.
    for (row, subject, column, name) in [
        (0, "degraded", 1, "allocated"),
        (0, "degraded", 4, "write_ops"),
        (1, "degraded/mirror-0", 8, "total_wait.write"),
        (1, "degraded/mirror-0", 14, "asyncq_wait.write"),
        (2, "degraded/loop0", 24, "async_write.pending"),
        (2, "degraded/loop0", 25, "async_write.active"),
    ] {
        let said: f64 = rows[row].split('\t').nth(column).unwrap().parse().unwrap();
        assert!(said > 0.0, "{name} has a value");
        assert_eq!(samples.find("iostat", subject, name).unwrap().points[0].1, said, "{name}");
    }
    assert!(samples.find("iostat", "degraded/mirror-0", "scrub_wait").is_none(), "nothing was scrubbed");
    assert!(samples.find("iostat", "degraded/loop0", "allocated").is_none(), "unknown for a leaf");
}

#[test]
fn missing_sources_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope { pools: vec!["tank".into()], interfaces: vec!["eth9".into()], ..Scope::default() };
    let sampler = Sampler::start_at(
        &Root::at(dir.path()),
        Zpool::recorded(dir.path()),
        &scope,
        Duration::from_millis(1),
    );
    let samples = sampler.stop();
    let why = |source: &str| {
        samples.missing.iter().find(|m| m.source == source).map(|m| m.why.clone()).unwrap_or_default()
    };
    assert!(why("kstat").contains("module is not loaded"), "{samples:?}");
    assert!(why("pressure").contains("psi=1"));
    assert!(why("network").contains("eth9"));
    assert!(why("objset").contains("imported"));
    assert!(!why("iostat").is_empty() && !why("diskstats").is_empty());
    let mut sources: Vec<&str> = samples.missing.iter().map(|m| m.source.as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), samples.missing.len(), "each once, however often it failed");
}

#[test]
fn this_machine_is_sampled() {
    let scope = Scope::of(&Machine::describe(&[]));
    let sampler = Sampler::start(&scope, Duration::from_millis(20));
    std::thread::sleep(Duration::from_millis(200));
    let samples = sampler.stop();
    let user = samples.find("cpu", "", "user").unwrap();
    assert!(user.points.len() >= 2 && user.points.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert!(samples.find("memory", "", "MemAvailable").unwrap().mean().unwrap() > 0.0);
    let idle: f64 =
        ["user", "system", "idle"].map(|name| samples.find("cpu", "", name).unwrap().growth()).iter().sum();
    assert!(idle > 0.0);
}
