//! Usage and quotas by owner equal the output of `zfs userspace`, `groupspace` and `projectspace`.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use cenote_fs::{Filesystem, OwnerSpace, SpaceBy};
use cenote_runtime::Runtime;
use cenote_testkit::needs;

#[test]
fn space_by_owner_is_what_zfs_prints() {
    let golden = cenote_testkit::golden("tree");
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
                // The command failed when the pool was created (it has no -n); see below.
                _ => continue,
            };
            let fs =
                Filesystem::open(mos.dataset(name).await.unwrap().objset().await.unwrap()).await.unwrap();
            let all = fs.owners(by).await.unwrap();
            for (owner, theirs) in rows.lines().map(row) {
                assert_eq!(fs.space_of(by, owner).await.unwrap(), theirs, "{head}: {owner}");
                assert_eq!(all.get(&owner), Some(&theirs), "{head}: {owner}");
                compared += 1;
            }
            assert_eq!(all.len(), rows.lines().count(), "{head}");
            // zfs omits owners without usage and quotas.
            assert_eq!(fs.space_of(by, 4_000_000_000).await.unwrap(), OwnerSpace::default(), "{head}");
        }
        assert!(compared > 10);
        let fs =
            Filesystem::open(mos.dataset("gtree/meta").await.unwrap().objset().await.unwrap()).await.unwrap();
        let (first, second) =
            (fs.space_of(SpaceBy::Project, 77).await, fs.space_of(SpaceBy::Project, 500).await);
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!((first.quota_bytes, second.quota_objects), (5 << 20, 99));
        assert_eq!((first.used_objects, second.used_objects), (1, 3));
    });
}

/// `zfs userspace -Hp` and its kin of OpenZFS 2.4, where owners without quotas have the default.
#[needs("24-quotas")]
#[test]
fn default_quotas_are_those_of_owners_without_their_own() {
    let golden = cenote_testkit::golden("24-quotas");
    let rt = Runtime::real(None);
    let text = golden.text("space.txt");
    rt.block_on(async {
        let mos = common::open_golden(&rt, &golden).await;
        let mut compared = 0;
        for section in text.split("== ").skip(1) {
            let (head, rows) = section.split_once('\n').unwrap();
            let (by, name) = match head.split_once(' ').unwrap() {
                ("userspace", name) => (SpaceBy::User, name),
                ("groupspace", name) => (SpaceBy::Group, name),
                ("projectspace", name) => (SpaceBy::Project, name),
                // Properties follow.
                _ => continue,
            };
            let name = format!("{}/{name}", golden.facts().pool);
            let fs = mos.dataset(&name).await.unwrap().objset().await.unwrap();
            let fs = Filesystem::open(fs).await.unwrap();
            let of_owners =
                rows.lines().filter(|line| line.starts_with("POSIX") || line.starts_with("Project"));
            let theirs: std::collections::BTreeMap<u64, OwnerSpace> = of_owners.map(row).collect();
            assert_eq!(fs.owners(by).await.unwrap(), theirs, "{head}");
            for (owner, space) in &theirs {
                assert_eq!(fs.space_of(by, *owner).await.unwrap(), *space, "{head}: {owner}");
            }
            compared += theirs.len();
        }
        assert!(compared > 30, "{compared}");
    });
}

fn row(line: &str) -> (u64, OwnerSpace) {
    let fields: Vec<&str> = line.split('\t').collect();
    let number = |i: usize| match fields[i] {
        "root" => 0,
        // Of the machine that printed it.
        "user" => 1000,
        number => number.parse().unwrap_or(0),
    };
    let (used_bytes, quota_bytes) = (number(2), number(3));
    (number(1), OwnerSpace { used_bytes, quota_bytes, used_objects: number(4), quota_objects: number(5) })
}
