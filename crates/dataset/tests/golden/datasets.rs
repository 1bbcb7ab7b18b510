//! Names, numbers and relations of datasets.

use std::collections::{BTreeMap, BTreeSet};

use cenote_dataset::{ImportOptions, KeySource, KeyStatus, UserKey, import};
use cenote_object::DatasetError;
use cenote_runtime::Runtime;
use cenote_testkit::{DatasetFacts, golden, golden_pools, needs};

use crate::{find, keys, open};

#[test]
fn every_dataset_is_there_with_its_identity() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        let name = pool.name();
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            assert_eq!(mos.pool().name(), pool.facts().pool);
            let (mut found, mut bookmarks) = (BTreeMap::new(), BTreeMap::new());
            for head in mos.all_datasets().await.unwrap() {
                bookmarks
                    .extend(head.bookmarks().await.unwrap().into_iter().map(|b| (b.name.clone(), b.phys)));
                for dataset in head.snapshots().await.unwrap().into_iter().chain([head]) {
                    found.insert(dataset.name().to_owned(), dataset);
                }
            }
            let wanted: BTreeMap<String, DatasetFacts> =
                pool.facts().datasets.into_iter().map(|d| (d.name.clone(), d)).collect();
            let names: BTreeSet<_> = found.keys().chain(bookmarks.keys()).cloned().collect();
            assert_eq!(names, wanted.keys().cloned().collect(), "{name}");
            for (full, facts) in wanted {
                if let Some(bookmark) = bookmarks.get(&full) {
                    assert_eq!(
                        (bookmark.guid.0, bookmark.creation_txg.0),
                        (facts.guid, facts.createtxg),
                        "{full}"
                    );
                    continue;
                }
                let dataset = &found[&full];
                assert_eq!(dataset.guid().0, facts.guid, "{full}");
                assert_eq!(dataset.creation_txg().0, facts.createtxg, "{full}");
                assert_eq!(dataset.kind().await.unwrap().to_string(), facts.kind, "{full}");
                let origin = dataset.origin().await.unwrap().map(|o| o.name().to_owned());
                assert_eq!(origin, facts.origin, "{full}");
                let again = mos.dataset(&full).await.unwrap();
                assert_eq!(again.id(), dataset.id(), "{full}");
                let by_id = mos.dataset_by_id(dataset.id()).await.unwrap();
                assert_eq!(by_id.name(), full);
            }
        });
    }
}

#[test]
fn holds_are_those_of_zfs_holds() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        let name = pool.name();
        if !pool.folder().join("holds.tsv").exists() {
            continue;
        }
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let mut found = BTreeSet::new();
            for head in mos.all_datasets().await.unwrap() {
                for snapshot in head.snapshots().await.unwrap() {
                    for (tag, time) in snapshot.holds().await.unwrap() {
                        found.insert(format!("{}\t{tag}\t{time}", snapshot.name()));
                    }
                }
            }
            let wanted: BTreeSet<_> = pool.text("holds.tsv").lines().map(str::to_owned).collect();
            assert_eq!(found, wanted, "{name}");
        });
    }
}

#[test]
fn every_dnode_of_every_dataset_is_read() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            for dataset in mos.all_datasets().await.unwrap() {
                let objset = dataset.objset().await.unwrap();
                let mut dnodes = objset.dnodes(0.into(), u64::MAX.into());
                let mut seen = 0u64;
                while let Some(batch) = dnodes.next_batch().await {
                    let batch = batch.unwrap();
                    assert!(batch.damaged.is_empty(), "{dataset:?}: {:?}", batch.damaged);
                    for (object, dnode) in batch.dnodes {
                        assert_eq!(
                            objset.dnode(object).await.unwrap().raw(),
                            dnode.raw(),
                            "{dataset:?} {object}"
                        );
                        seen += 1;
                    }
                }
                let fill = objset.bp().fill();
                assert_eq!(seen, fill, "{dataset:?}: used dnodes, as its block pointer counts them");
            }
        });
    }
}

#[needs("encrypted")]
#[test]
fn a_locked_dataset_names_its_encryption_root_and_a_wrong_key_is_noticed() {
    let pool = golden("encrypted");
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let found = find(&rt, &pool).await;
        let locked = import(&rt, &found, &ImportOptions::default()).await.unwrap();
        let child = locked.dataset("genc/pass/child").await.unwrap();
        assert_eq!(child.key_status().await.unwrap(), KeyStatus::Unavailable);
        match child.objset().await {
            Err(DatasetError::KeyMissing { root, .. }) => assert_eq!(&*root, "genc/pass"),
            other => panic!("{other:?}"),
        }
        assert!(locked.dataset("genc/plain").await.unwrap().objset().await.is_ok());

        // Without the key, plaintext is readable: the objects and their sizes.
        let mut dnodes = child.objset_head().await.unwrap().dnodes(0.into(), u64::MAX.into());
        let batch = dnodes.next_batch().await.unwrap().unwrap();
        assert!(batch.damaged.is_empty() && batch.dnodes.len() > 1, "{batch:?}");

        let wrong = KeySource::new(|_| Some(UserKey(b"not the passphrase".to_vec())));
        let options = ImportOptions { keys: wrong, ..ImportOptions::default() };
        let wrong = import(&rt, &found, &options).await.unwrap();
        let error = wrong.dataset("genc/pass").await.unwrap().objset().await.unwrap_err();
        assert!(matches!(&error, DatasetError::WrongKey { root, .. } if &**root == "genc/pass"), "{error}");

        let options = ImportOptions { keys: keys(pool.facts().keys), ..ImportOptions::default() };
        let right = import(&rt, &found, &options).await.unwrap();
        for facts in pool.facts().datasets.iter().filter(|d| d.encryption.is_some()) {
            let dataset = right.dataset(&facts.name).await.unwrap();
            assert_eq!(dataset.key_status().await.unwrap(), KeyStatus::Available, "{}", facts.name);
        }
    });
}
