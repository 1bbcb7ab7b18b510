//! The intent log, applied in memory or on disk, yields the kernel's view after its replay.
//!
//! Times that the log does not record come from the clock at the replay: the kernel's must be at or after the
//! start of its replay, ours exactly `NOW`. Everything else must be equal.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that can't go on must stop")]

mod common;

use std::path::Path;

use cenote_dataset::{FeatureState, ImportOptions, KeySource, Mos, import};
use cenote_engine::{Engine, Host};
use cenote_format::features::FEATURES_OF_2_3;
use cenote_fs::manifest::{ManifestOptions, hash_range, manifest_text};
use cenote_fs::{Filesystem, Timestamp, Volume, replay_logs};
use cenote_object::IntentLog;
use cenote_pool::PoolState;
use cenote_runtime::Runtime;
use cenote_testkit::{Golden, copy_image, golden, needs, zdb_finds_nothing};

/// The time of our replay, which no file has.
const NOW: Timestamp = Timestamp { seconds: 4_000_000_000, nanoseconds: 0 };
const NOW_TEXT: &str = "4000000000.000000000";
/// Columns with times: mtime and ctime.
const TIMES: [usize; 2] = [7, 13];

/// Replays on disk, on a copy of the pool's images, which must then be clean.
async fn replayed_for_good(rt: &Runtime, golden: &Golden, folder: &Path) -> Mos {
    for disk in golden.facts().disks {
        let file = disk.file.trim_end_matches(".zst");
        copy_image(&golden.images().join(file), &folder.join(file));
    }
    let found = cenote_pool::discover(rt, &[folder.to_path_buf()]).await;
    let found = found.pools[0].open_for_writing(rt).await.unwrap();
    let engine = Engine::start(&import(rt, &found, &ImportOptions::default()).await.unwrap()).await.unwrap();
    drop(found);
    for (name, report) in replay_logs(&engine, NOW).await.unwrap() {
        println!("{name}: {} records replayed, {} skipped", report.applied, report.skipped);
        assert!(report.set_aside == 0, "{name}: {report:?}");
    }
    engine.ownership().set_state(PoolState::Exported, Host { id: 1, name: "here".into() }).await.unwrap();
    drop(engine);
    let mos = common::open(rt, folder, KeySource::default()).await;
    let features = mos.features().await.unwrap();
    // The installed `zdb` is of 2.3: it aborts on counts of clones as numbers. The tests of `inspect` verify
    // this pool.
    if features[FEATURES_OF_2_3..].iter().any(|(_, state)| *state == FeatureState::Active) {
        println!("zdb of OpenZFS 2.3 does not know a feature: not compared");
        return mos;
    }
    zdb_finds_nothing(folder, &golden.facts().pool);
    mos
}

/// `since` is a second between the crash and the kernel's replay, taken from the manifests.
fn check(name: &str, since: i64, for_good: bool) {
    let golden = golden(name);
    let rt = Runtime::real(None);
    let (mut replayed, mut failures) = (0, Vec::new());
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let mos = match for_good {
            true => replayed_for_good(&rt, &golden, folder.path()).await,
            false => common::open_golden(&rt, &golden).await,
        };
        for facts in golden.facts().datasets {
            let dataset = mos.dataset(&facts.name).await.unwrap_or_else(|e| panic!("{}: {e}", facts.name));
            let objset = dataset.objset().await.unwrap();
            // A snapshot's head still names the log of its time, which is not its own.
            let log = if dataset.is_snapshot() { IntentLog::default() } else { objset.intent_log().await };
            assert!(log.damaged.is_none(), "{}: {:?}", facts.name, log.damaged);
            println!("{}: {} records to replay, {} synced", facts.name, log.records.len(), log.synced);
            replayed += log.records.len() as u64;
            let report = if let Some(manifest) = &facts.manifest {
                let fs = Filesystem::open(objset).await.unwrap();
                let (fs, report) = fs.replay(&log.records, NOW).await;
                let snapshot = dataset.is_snapshot().then(|| dataset.id());
                let ours =
                    manifest_text(&fs, ManifestOptions { snapshot, ..Default::default() }).await.unwrap();
                let theirs = String::from_utf8(golden.bytes(manifest)).unwrap();
                let differences = common::differences(&ours, &theirs, |a, b| same_row(a, b, since));
                failures.extend(differences.into_iter().map(|d| format!("{}:\n{d}", facts.name)));
                report
            } else if let Some(sha256) = &facts.sha256 {
                let (volume, report) = Volume::open(objset).await.unwrap().replay(&log.records);
                let hash = hash_range(&volume, 0..volume.size_bytes()).await;
                let hex: String = hash.sha256.iter().map(|b| format!("{b:02x}")).collect();
                if &hex != sha256 || !hash.unreadable.is_empty() {
                    failures.push(format!("{}: {hex} where {sha256} was expected", facts.name));
                }
                report
            } else {
                continue;
            };
            assert!(report.set_aside == 0, "{}: {report:?}", facts.name);
        }
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(for_good || replayed > 50, "only {replayed} records were there to replay");
}

/// Rows are equal except for times that are `NOW` in ours and from the kernel's clock in theirs.
fn same_row(ours: &str, theirs: &str, since: i64) -> bool {
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.split('\t').collect(), theirs.split('\t').collect());
    ours.len() == theirs.len()
        && ours.iter().zip(&theirs).enumerate().all(|(column, (a, b))| {
            let seconds = b.split('.').next().and_then(|s| s.parse::<i64>().ok());
            let of_replay = TIMES.contains(&column) && seconds.is_some_and(|s| s >= since);
            if of_replay { *a == NOW_TEXT } else { a == b }
        })
}

#[test]
fn a_log_on_the_pool_itself() {
    check("unclean-zil", 1_795_247_790, false);
}

#[needs("unclean-slog")]
#[test]
fn a_log_on_a_separate_device() {
    check("unclean-slog", 1_795_247_860, false);
}

#[test]
fn a_log_on_the_pool_itself_for_good() {
    check("unclean-zil", 1_795_247_790, true);
}

#[needs("24-unclean-special")]
#[test]
fn a_log_on_a_special_device() {
    check("24-unclean-special", 1_795_740_190, false);
}

#[needs("24-unclean-special")]
#[test]
fn a_log_on_a_special_device_for_good() {
    check("24-unclean-special", 1_795_740_190, true);
}

#[needs("unclean-slog")]
#[test]
fn a_log_on_a_separate_device_for_good() {
    check("unclean-slog", 1_795_247_860, true);
}
