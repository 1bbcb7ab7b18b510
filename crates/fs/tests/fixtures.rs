//! OpenZFS's own old pools (versions 1 to 15): every file system opens and is read completely.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test that can't go on must stop"
)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cenote_dataset::{DatasetKind, ImportOptions, import};
use cenote_fs::Filesystem;
use cenote_fs::manifest::{ManifestOptions, manifest};
use cenote_runtime::Runtime;

/// Unpacks the images (64 MiB each, nearly all zeros) sparsely, once, and keeps them. `None` without `bzip2`.
fn unpack(packed: &Path) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zpool_upgrade");
    std::fs::create_dir_all(&folder).unwrap();
    for entry in packed.read_dir().unwrap() {
        let from = entry.unwrap().path();
        let to = folder.join(from.file_stem().unwrap());
        if to.exists() {
            continue;
        }
        let partial = to.with_extension(format!("partial-{}", std::process::id()));
        let bzip2 = Command::new("bzip2").arg("-dc").arg(&from).stdout(Stdio::piped()).spawn();
        let Ok(mut bzip2) = bzip2 else {
            eprintln!("skipped: no bzip2");
            return None;
        };
        let target = format!("of={}", partial.display());
        let mut dd = Command::new("dd");
        dd.args(["bs=64k", "conv=sparse", "status=none", &target]).stdin(bzip2.stdout.take().unwrap());
        assert!(dd.status().unwrap().success() && bzip2.wait().unwrap().success());
        std::fs::rename(partial, to).unwrap();
    }
    Some(folder)
}

#[test]
fn every_old_pool_opens_and_is_read() {
    let Some(packed) = cenote_testkit::shared_path("fixtures/zpool_upgrade/blockfiles") else { return };
    let Some(folder) = unpack(&packed) else { return };
    let rt = Runtime::real(None);
    rt.block_on(async {
        let found = cenote_pool::discover(&rt, &[folder]).await;
        let (mut pools, mut files) = (0, 0);
        for pool in &found.pools {
            let mos = match import(&rt, pool, &ImportOptions::default()).await {
                Ok(mos) => mos,
                Err(error) => {
                    // Versions that never existed, and a mirror with both halves damaged.
                    println!("{} is refused: {error}", pool.name());
                    continue;
                }
            };
            pools += 1;
            for dataset in mos.all_datasets().await.unwrap() {
                if dataset.kind().await.unwrap() == DatasetKind::Volume {
                    continue;
                }
                let fs = Filesystem::open(dataset.objset().await.unwrap()).await.unwrap();
                manifest(&fs, ManifestOptions::default(), |row| {
                    let whole = row.content.as_ref().is_none_or(|content| content.is_complete());
                    assert!(whole, "{}: {}", dataset.name(), String::from_utf8_lossy(&row.path));
                    files += 1;
                    Ok::<(), cenote_fs::FsError>(())
                })
                .await
                .unwrap_or_else(|e| panic!("{}: {e}", dataset.name()));
            }
        }
        println!("{pools} pools of {} opened, {files} files read", found.pools.len());
        assert!(pools >= 20 && files > pools, "{pools} pools, {files} files");
    });
}
