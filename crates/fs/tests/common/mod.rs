//! Shared code of the tests over golden pools: opens a pool from its images with its keys, and compares
//! manifests.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout, reason = "each test uses only part of this")]

use std::collections::BTreeSet;
use std::path::Path;

use cenote_dataset::{Dataset, ImportOptions, KeySource, Mos, UserKey, import};
use cenote_fs::Filesystem;
use cenote_fs::manifest::{ManifestOptions, manifest_text};
use cenote_runtime::Runtime;
use cenote_testkit::{Golden, PoolFacts, golden_pools};

/// Opens the pool in a folder of images.
pub async fn open(rt: &Runtime, folder: &Path, keys: KeySource) -> Mos {
    let found = cenote_pool::discover(rt, &[folder.to_path_buf()]).await;
    assert_eq!(found.pools.len(), 1, "one pool in {}: {:?}", folder.display(), found.problems);
    let options = ImportOptions { keys, ..ImportOptions::default() };
    import(rt, &found.pools[0], &options).await.unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
}

/// Opens a golden pool with the keys from its `pool.json`.
pub async fn open_golden(rt: &Runtime, golden: &Golden) -> Mos {
    open(rt, &golden.images(), keys(golden.facts())).await
}

/// The keys of `pool.json`.
pub fn keys(facts: PoolFacts) -> KeySource {
    KeySource::new(move |info| facts.key_of(&info.root).map(UserKey))
}

/// Visits the file systems of all golden pools, without snapshots, and prints how many files `visit`
/// examined.
pub fn each_filesystem(visit: impl AsyncFn(&str, &Filesystem) -> usize) {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        rt.block_on(async {
            let mos = open_golden(&rt, &pool).await;
            let facts = pool.facts();
            let compared = facts.datasets.iter().filter(|facts| facts.manifest.is_some());
            let heads = compared.filter_map(|facts| facts.name.split('@').next());
            for name in heads.collect::<BTreeSet<_>>() {
                let Ok(dataset) = mos.dataset(name).await else { continue };
                let Ok(objset) = dataset.objset().await else { continue };
                let Ok(fs) = Filesystem::open(objset).await else { continue };
                let compared = visit(name, &fs).await;
                println!("{name}: {compared} files");
            }
        });
    }
}

/// Compares a file system or snapshot with the manifest of this name; the error lists the differences.
pub async fn compare_files(golden: &Golden, dataset: &Dataset, manifest: &str) -> Result<(), String> {
    let objset = dataset.objset().await.map_err(|e| e.to_string())?;
    let fs = Filesystem::open(objset).await.map_err(|e| e.to_string())?;
    let options = ManifestOptions {
        snapshot: dataset.is_snapshot().then(|| dataset.id()),
        ..ManifestOptions::default()
    };
    let ours = manifest_text(&fs, options).await.map_err(|e| e.to_string())?;
    let theirs = String::from_utf8(golden.bytes(manifest)).unwrap();
    let differences = differences(&ours, &theirs, |a, b| a == b);
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
}

/// The lines that differ, at most ten, each with both sides.
pub fn differences(ours: &str, theirs: &str, same: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut out = Vec::new();
    let (mut a, mut b) = (ours.lines().peekable(), theirs.lines().peekable());
    let path = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    while out.len() < 10 {
        match (a.peek(), b.peek()) {
            (None, None) => break,
            (Some(x), Some(y)) if path(x) == path(y) => {
                if !same(x, y) {
                    out.push(format!("ours   {x}\ntheirs {y}"));
                }
                a.next();
                b.next();
            }
            (Some(x), y) if y.is_none_or(|y| path(x) < path(y)) => {
                out.push(format!("only ours   {x}"));
                a.next();
            }
            (_, Some(y)) => {
                out.push(format!("only theirs {y}"));
                b.next();
            }
            (_, None) => break,
        }
    }
    out
}
