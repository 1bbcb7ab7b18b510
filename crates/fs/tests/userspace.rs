//! Space and limits by owner are what `zfs userspace`, `groupspace` and `projectspace` print.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use std::collections::BTreeMap;

use cenote_fs::{Filesystem, OwnerSpace, SpaceBy};
use cenote_runtime::Runtime;

#[test]
fn space_by_owner_is_what_zfs_prints() {
    let Some(golden) = cenote_testkit::golden("tree") else { return };
    let rt = Runtime::real(None);
    let text = golden.text("userspace.txt");
    rt.block_on(async {
        let mos = common::open_golden(&rt, &golden).await;
        let mut compared = 0;
        for section in text.split("# ").skip(1) {
            let (head, rows) = section.split_once('\n').unwrap();
            let (verb, name) = head.split_once(' ').unwrap();
            let by = match verb {
                "userspace" => SpaceBy::User,
                "groupspace" => SpaceBy::Group,
                // The command failed when the pool was made (it has no -n); see below.
                _ => continue,
            };
            let fs =
                Filesystem::open(mos.dataset(name).await.unwrap().objset().await.unwrap()).await.unwrap();
            let mut ours = fs.space_by(by).await.unwrap();
            let theirs: BTreeMap<u64, OwnerSpace> = rows.lines().map(row).collect();
            // Owners of nothing and without limits are left out by zfs.
            ours.retain(|owner, space| theirs.contains_key(owner) || *space != OwnerSpace::default());
            assert_eq!(ours, theirs, "{head}");
            compared += theirs.len();
        }
        assert!(compared > 10);
        let fs =
            Filesystem::open(mos.dataset("gtree/meta").await.unwrap().objset().await.unwrap()).await.unwrap();
        let projects = fs.space_by(SpaceBy::Project).await.unwrap();
        assert_eq!((projects[&77].quota_bytes, projects[&500].quota_objects), (5 << 20, 99));
        assert_eq!((projects[&77].used_objects, projects[&500].used_objects), (1, 3));
    });
}

fn row(line: &str) -> (u64, OwnerSpace) {
    let fields: Vec<&str> = line.split('\t').collect();
    let number = |i: usize| fields[i].parse().unwrap_or(0);
    let (used_bytes, quota_bytes) = (number(2), number(3));
    (number(1), OwnerSpace { used_bytes, quota_bytes, used_objects: number(4), quota_objects: number(5) })
}
