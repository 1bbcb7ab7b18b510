//! File systems read without their own attribute tables.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use cenote_dataset::{ImportOptions, import};
use cenote_format::sa::{SaReader, SaRegistry, ZplAttr};
use cenote_format::units::ObjectId;
use cenote_fs::Filesystem;
use cenote_runtime::Runtime;
use cenote_testkit::golden_pools;

/// Files of a file system; some golden ones have a million.
const MOST_FILES: u64 = 2000;

/// The rules alone give every attribute of golden files the same value as the tables.
#[test]
fn usual_layouts_give_what_the_tables_give() {
    let runtime = Runtime::real(None);
    let (mut files, mut buffers) = (0u64, 0u64);
    for pool in golden_pools() {
        runtime.block_on(async {
            let found = cenote_pool::discover(&runtime, &[pool.images()]).await;
            let Ok(mos) = import(&runtime, &found.pools[0], &ImportOptions::default()).await else { return };
            for dataset in mos.all_datasets().await.unwrap() {
                let Ok(objset) = dataset.objset().await else { continue };
                let Ok(fs) = Filesystem::open(objset.clone()).await else { continue };
                let none: [(&[u8], u64); 0] = [];
                let usual = SaRegistry::salvage(none, []).unwrap();
                let mut dnodes = objset.dnodes(ObjectId(1), objset.last_object());
                let before = files;
                while let Some(batch) = dnodes.next_batch().await.filter(|_| files < before + MOST_FILES) {
                    for (id, dnode) in batch.unwrap().dnodes {
                        let Ok(object) = objset.object(id).await else { continue };
                        if !Filesystem::is_file(&dnode)
                            || !dnode.bonus_type.to_string().contains("ystem attr")
                        {
                            continue;
                        }
                        files += 1;
                        let spill = object.read_spill().await.ok().flatten().map(|(_, bytes)| bytes.to_vec());
                        for bytes in [Some(dnode.bonus().to_vec()), spill].into_iter().flatten() {
                            buffers += 1;
                            let Ok(wanted) = SaReader::new(fs.sa_registry(), &bytes) else { continue };
                            let what = format!("{} {} {id}", pool.name(), dataset.name());
                            let got = SaReader::new(&usual, &bytes)
                                .unwrap_or_else(|e| panic!("{what}: {e}; {:?}", attributes(&wanted)));
                            assert_eq!(attributes(&got), attributes(&wanted), "{what}");
                        }
                    }
                }
            }
        });
    }
    assert!(files > 10_000 && buffers > files, "{files} files, {buffers} buffers");
}

fn attributes(reader: &SaReader<'_>) -> Vec<(&'static str, Vec<u8>)> {
    let value = |attr: ZplAttr| Some((attr.name(), reader.get(attr)?.to_vec()));
    ZplAttr::all().filter_map(value).collect()
}
