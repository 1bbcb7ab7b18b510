//! Pools on abnormal devices: truncated, with damaged labels, destroyed, left behind.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use super::scan::Scanned;
use super::writing::Base;
use super::{Discovery, FoundPool, discover_devices, group};
use crate::config::PoolState;
use crate::health::{Trouble, VdevState};
use crate::label::read_labels;
use cenote_codec::Endian;
use cenote_codec::checksum::{Checksum, embedded::label_verifier};
use cenote_device::{Device, Fault, Faulty, MemoryDevice, Op};
use cenote_format::label::{
    LABEL_BYTES, UBERBLOCK_RING_OFFSET, VDEV_LABELS, VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE, decode_config_nvlist,
    label_offset,
};
use cenote_format::nvlist::NvValue;
use cenote_format::uberblock::{UBERBLOCK_BYTES, UBERBLOCK_MAGIC};
use cenote_runtime::Runtime;
use cenote_testkit::{golden, needs};
use std::sync::Arc;

/// The distance of uberblocks on small sectors.
const SLOT_BYTES_MIN: usize = 1 << 10;

fn images(name: &str) -> Vec<Vec<u8>> {
    let golden = golden(name);
    let (folder, disks) = (golden.images(), golden.facts().disks);
    let image = |file: &str| std::fs::read(folder.join(file.trim_end_matches(".zst"))).unwrap();
    disks.iter().map(|disk| image(&disk.file)).collect()
}

fn discover(images: Vec<Vec<u8>>) -> Discovery {
    Runtime::real(None).block_on(async {
        let mut scanned = Vec::new();
        for (index, image) in images.into_iter().enumerate() {
            let device: Arc<dyn Device> =
                Arc::new(MemoryDevice::with_content(&format!("disk{index}"), image));
            let labels = read_labels(&*device).await;
            scanned.push(Scanned { base: Base::Given(device.clone()), seat: None, device, labels });
        }
        group::group(scanned, Vec::new())
    })
}

fn the_pool(images: Vec<Vec<u8>>) -> FoundPool {
    let mut pools = discover(images).pools;
    assert_eq!(pools.len(), 1);
    pools.remove(0)
}

fn labels(image: &[u8]) -> Vec<usize> {
    (0..VDEV_LABELS).map(|index| label_offset(image.len() as u64, index).unwrap() as usize).collect()
}

fn set(image: &mut [u8], name: &str, value: u64) {
    set_in(image, &[0, 1, 2, 3], name, value);
}

/// Sets a pair in some labels, and updates their checksums.
fn set_in(image: &mut [u8], which: &[usize], name: &str, value: u64) {
    let all = labels(image);
    for at in which.iter().map(|&index| all[index]) {
        let at = at + VDEV_PHYS_OFFSET as usize;
        let area = &mut image[at..at + VDEV_PHYS_SIZE as usize];
        let mut list = decode_config_nvlist(area).unwrap();
        list.insert(name, NvValue::Uint64(value));
        let packed = list.encode();
        area.fill(0);
        area[..packed.len()].copy_from_slice(&packed);
        Checksum::Label.seal(area, label_verifier(at as u64), Endian::Little).unwrap();
    }
}

#[test]
fn a_device_that_was_cut_short_is_too_small_and_its_front_labels_still_name_the_pool() {
    let mut images = images("single");
    assert_eq!(the_pool(images.clone()).status().state(), VdevState::Online);
    let len = images[0].len() / 4 * 3;
    images[0].truncate(len);
    let found = the_pool(images);
    assert_eq!(found.devices.values().next().unwrap().good_labels, 2);
    let health = found.status();
    assert_eq!(health.state(), VdevState::Unavailable);
    assert_eq!(health.root.children[0].trouble, Some(Trouble::TooSmall));
}

#[test]
fn a_single_whole_label_is_enough_and_none_is_a_problem_that_names_the_device() {
    let mut images = images("single");
    for keep in 0..VDEV_LABELS as usize {
        let mut images = images.clone();
        for (index, at) in labels(&images[0]).into_iter().enumerate().filter(|(index, _)| *index != keep) {
            images[0][at..at + LABEL_BYTES as usize].fill(index as u8);
        }
        let found = the_pool(images);
        assert_eq!(found.status().state(), VdevState::Online);
        assert!(found.notes.iter().any(|note| note.why.contains("3 of 4 labels")), "{:?}", found.notes);
    }
    for at in labels(&images[0]) {
        let at = at + VDEV_PHYS_OFFSET as usize;
        images[0][at..at + VDEV_PHYS_SIZE as usize].fill(0);
    }
    let discovery = discover(images);
    assert!(discovery.pools.is_empty());
    assert!(discovery.problems[0].path.contains("disk0"), "{:?}", discovery.problems);
}

/// The first scan sees all labels, the next one none of a failing device.
#[test]
fn a_device_that_fails_to_show_its_labels_once_does_not_keep_its_pool_from_opening() {
    for (times, opens) in [(VDEV_LABELS, true), (100, false)] {
        Runtime::real(None).block_on(async {
            let images = images("checkpoint").into_iter().enumerate();
            let memory =
                images.map(|(index, image)| MemoryDevice::with_content(&format!("disk{index}"), image));
            let devices: Vec<Arc<Faulty>> =
                memory.map(|device| Arc::new(Faulty::new(Arc::new(device), 1))).collect();
            let all = devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
            let found = discover_devices(all).await.pools.remove(0);
            devices[1].add(Fault::error(Op::Read).times(u64::from(times)));
            let opened = found.open_for_writing(&Runtime::real(None)).await;
            assert_eq!(opened.is_ok(), opens, "{:?}", opened.err());
        });
    }
}

#[test]
fn a_destroyed_pool_and_its_last_machine_are_told() {
    let mut images = images("single");
    set(&mut images[0], "state", 2);
    set(&mut images[0], "hostid", 0xc0ffee);
    let found = the_pool(images);
    assert_eq!(found.state(), PoolState::Destroyed);
    assert_eq!(found.config.hostid, Some(0xc0ffee));
}

/// An import marks the labels in turn, with the txg that it found in them.
#[test]
fn a_pool_that_was_being_taken_when_the_program_was_killed_is_in_use() {
    let pristine = images("checkpoint");
    assert_eq!(the_pool(pristine.clone()).state(), PoolState::Exported);
    for marked in [(0, &[0][..]), (0, &[0, 2]), (1, &[0, 2])] {
        let mut images = pristine.clone();
        set_in(&mut images[marked.0], marked.1, "state", 0);
        assert_eq!(the_pool(images).state(), PoolState::Active, "{marked:?}");
    }
}

/// Overwrites the newest uberblock.
fn lose_newest(image: &mut [u8]) {
    let uberblock_at = |image: &[u8], at: usize| {
        let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
        (word(at) == UBERBLOCK_MAGIC).then(|| word(at + 16))
    };
    let rings =
        labels(image).into_iter().map(|at| at + UBERBLOCK_RING_OFFSET as usize..at + LABEL_BYTES as usize);
    let slots: Vec<usize> = rings.flat_map(|ring| ring.step_by(SLOT_BYTES_MIN)).collect();
    let newest = slots.iter().filter_map(|at| uberblock_at(image, *at)).max().unwrap();
    for at in slots {
        if uberblock_at(image, at) == Some(newest) {
            image[at..at + UBERBLOCK_BYTES].fill(0);
        }
    }
}

/// The power failed while the labels of a pool to be opened were marked.
#[test]
fn a_device_with_older_labels_and_the_newest_uberblock_was_not_away() {
    let mut images = images("checkpoint");
    set(&mut images[1], "txg", 4);
    assert!(the_pool(images).devices.values().all(|found| !found.stale));
}

#[test]
fn a_device_that_was_away_is_out_of_date() {
    let mut images = images("checkpoint");
    set(&mut images[1], "txg", 4);
    lose_newest(&mut images[1]);
    let found = the_pool(images);
    let stale: Vec<&str> =
        found.devices.values().filter(|found| found.stale).map(|found| found.path.as_str()).collect();
    assert_eq!(stale.len(), 1);
    assert!(stale[0].contains("disk1"));
    let mut troubles = Vec::new();
    found.status().root.walk(&mut |vdev| troubles.extend(vdev.trouble.clone()));
    assert_eq!(troubles, [Trouble::Stale]);
}

#[needs("unclean-slog")]
#[test]
fn a_lost_log_degrades_the_pool_only_if_somebody_knows_it_for_a_log() {
    let mut found = the_pool(images("unclean-slog"));
    let log = found.config.vdevs.iter().find(|top| top.class == crate::VdevClass::Log).unwrap();
    let leaves: Vec<_> = log.leaves().map(|leaf| leaf.guid).collect();
    found.devices.retain(|guid, _| !leaves.contains(guid));
    let health = found.status();
    assert_eq!((health.state(), health.is_importable()), (VdevState::Degraded, true));
}
