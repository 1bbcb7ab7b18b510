//! OpenZFS's own old pools (versions 1 to 15): every file system opens and is read completely.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that can't go on must stop")]

use cenote_dataset::{DatasetKind, ImportOptions, import};
use cenote_fs::Filesystem;
use cenote_fs::manifest::{ManifestOptions, manifest};
use cenote_runtime::Runtime;
use cenote_testkit::{fixture_images, needs};

#[needs("fixtures/zpool_upgrade")]
#[test]
fn every_old_pool_opens_and_is_read() {
    let folder = fixture_images("zpool_upgrade");
    let rt = Runtime::real(None);
    rt.block_on(async {
        let found = cenote_pool::discover(&rt, &[folder]).await;
        let (mut pools, mut files) = (0, 0);
        for pool in &found.pools {
            let mos = match import(&rt, pool, &ImportOptions::default()).await {
                Ok(mos) => mos,
                Err(error) => {
                    // Versions that never existed, or a mirror with both halves damaged.
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
