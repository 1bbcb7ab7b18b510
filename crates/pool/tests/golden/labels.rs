//! Labels of golden pools, decoded and re-encoded; golden pools opened for writing.

use crate::walk::find;
use cenote_device::{DeviceError, FileDevice, OpenOptions};
use cenote_format::label::LabelConfig;
use cenote_format::nvlist::Nvlist;
use cenote_pool::label::read_labels;
use cenote_pool::{PoolError, discover};
use cenote_runtime::Runtime;
use cenote_testkit::{copy_image, golden, golden_pools, needs};
use std::path::PathBuf;

async fn labels_of(rt: &Runtime, image: &PathBuf) -> Vec<Nvlist> {
    let device = FileDevice::open(image, OpenOptions::READ_ONLY, rt).await.unwrap();
    read_labels(&device).await.into_iter().filter_map(|label| label.config).collect()
}

/// The first lines in which two lists differ.
fn first_difference(a: &Nvlist, b: &Nvlist) -> String {
    let (a, b) = (a.to_string(), b.to_string());
    let pair = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    format!("{pair:?}, {} and {} lines", a.lines().count(), b.lines().count())
}

#[test]
fn every_label_of_every_golden_pool_encodes_to_the_same_list() {
    let rt = Runtime::real(None);
    let (mut labels, mut differ) = (0, Vec::new());
    for golden in golden_pools() {
        for disk in golden.facts().disks {
            let image = golden.images().join(disk.file.trim_end_matches(".zst"));
            for list in rt.block_on(labels_of(&rt, &image)) {
                let again = LabelConfig::decode(&list).unwrap().encode();
                assert_eq!(LabelConfig::decode(&again), LabelConfig::decode(&list), "{}", golden.name());
                labels += 1;
                // Labels by zfs-fuse have no list of features; OpenZFS always writes one, even if empty. The
                // allocation sizes that 2.4 adds are informational and left out.
                let is_equal = again.encode() == list.encode() || golden.is_of_2_4();
                if !is_equal && list.contains("features_for_read") {
                    let difference = first_difference(&list, &again);
                    differ.push(format!("{} {}: {difference}", golden.name(), disk.file));
                }
            }
        }
    }
    println!("{labels} labels");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

#[needs("mirror")]
#[test]
fn one_program_at_a_time_opens_a_pool_for_writing() {
    let rt = Runtime::real(None);
    rt.block_on(async {
        let golden = golden("mirror");
        let folder = tempfile::tempdir().unwrap();
        for disk in golden.facts().disks {
            let name = disk.file.trim_end_matches(".zst");
            copy_image(&golden.images().join(name), &folder.path().join(name));
        }
        let found = discover(&rt, &[folder.path().to_owned()]).await.pools.remove(0);
        assert!(!found.is_writable());
        let writable = found.open_for_writing(&rt).await.unwrap();
        assert!(writable.is_writable());
        assert_eq!((&writable.config, &writable.uberblocks), (&found.config, &found.uberblocks));
        match found.open_for_writing(&rt).await {
            Err(PoolError::Device(DeviceError::InUse { path, .. })) => {
                assert!(path.contains("disk"), "{path}")
            }
            other => panic!("{other:?}"),
        }
        drop(writable);
        found.open_for_writing(&rt).await.unwrap();
        // Images of golden pools are read-only for us.
        let found = find(&rt, "mirror").await;
        let image = &found.devices.values().next().unwrap().path;
        if std::fs::OpenOptions::new().write(true).open(image).is_err() {
            assert!(found.open_for_writing(&rt).await.is_err());
        }
    });
}
