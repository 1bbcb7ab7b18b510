//! `zpool` verbs that change an existing pool: adding vdevs, making and splitting mirrors, checkpoints,
//! properties, features, renaming.

use std::fs;
use std::path::Path;

use crate::common::disks::{Disks, noise};
use cenote_testkit::{copy_image, golden, needs};

fn path(disks: &Disks, name: &str) -> String {
    disks.path().join(name).display().to_string()
}

#[test]
fn vdevs_are_added_and_used() {
    let disks = Disks::new(&[128; 6]);
    disks.cenote("zpool create -o compatibility=openzfs-2.2 tank a", &[]);
    disks.fill(1);
    let mismatched = "use '-f' to override the following errors:\nmismatched replication level";
    disks.fails("zpool add tank mirror b c", mismatched);
    let drawn = disks.cenote("zpool add -n tank b", &[]);
    assert!(drawn.contains("would update 'tank' to the following configuration:"), "{drawn}");
    disks.cenote("zpool add tank b", &[]);
    disks.zdb_is_content();
    disks.cenote("zpool add tank log c", &[]);
    disks.cenote("zpool add tank special d", &[]);
    disks.cenote("zpool add tank cache e", &[]);
    assert!(disks.cenote("zpool status tank", &[]).contains("\tcache\n"));
    disks.fails("zpool add tank b", "b is part of active pool 'tank'");
    disks.fails("zpool add -o ashift=12 tank f", "different physical sector sizes");
    for seed in 2..6 {
        disks.fill(seed);
    }
    (1..6).for_each(|seed| disks.assert_filled(seed));
    let listed = disks.cenote("zpool list -Hpv -o name,allocated tank", &[]);
    let used = |name: &str| {
        let line = listed.lines().find(|line| line.split('\t').any(|cell| cell == name)).unwrap();
        line.split('\t').filter_map(|cell| cell.parse::<u64>().ok()).max().unwrap()
    };
    assert!(used("b") > 1_000_000 && used("d") > 10_000, "{listed}");
    disks.zdb_is_content();
    disks.cenote("verify tank", &[]);
}

#[test]
fn a_vdev_takes_metadata_alone_once_its_class_is_special() {
    let disks = Disks::new(&[128; 3]);
    disks.cenote("zpool create tank a b log c", &[]);
    disks.fill(1);
    let bias =
        |vdev: &str| disks.cenote(&format!("zpool get -H -o value,source alloc_bias tank {vdev}"), &[]);
    assert_eq!(bias("b"), "none\tdefault\n");
    disks.fails("zpool set alloc_bias=log tank b", "log vdevs are added and removed");
    disks.fails("zpool set alloc_bias=none tank c", "log vdevs are added and removed");
    disks.cenote("zpool set alloc_bias=special tank b", &[]);
    assert_eq!(bias("b"), "special\tlocal\n");
    disks.fails("zpool set alloc_bias=dedup tank a", "must stay in the normal class");
    disks.zdb_is_content();
    // Every command opens the pool anew: the data that lay there are read, and new ones go elsewhere.
    let used = || -> u64 {
        let listed = disks.cenote("zpool list -Hpv -o name,allocated tank", &[]);
        let line = listed.lines().find(|line| line.split('\t').any(|cell| cell == "b")).unwrap();
        line.split('\t').find_map(|cell| cell.parse().ok()).unwrap()
    };
    assert!(disks.cenote("zpool status tank", &[]).contains("\tspecial\t\n"));
    disks.assert_filled(1);
    let before = used();
    disks.fill(2);
    let more = used() - before;
    assert!((1..1 << 20).contains(&more), "metadata alone: {more}");
    disks.cenote("zpool set alloc_bias=none tank b", &[]);
    assert!(!disks.cenote("zpool status tank", &[]).contains("\tspecial\t\n"));
    (1..3).for_each(|seed| disks.assert_filled(seed));
    disks.zdb_is_content();
    disks.cenote("verify tank", &[]);
}

#[test]
fn data_go_to_special_vdevs_by_their_size_after_compression() {
    let disks = Disks::new(&[128, 128]);
    disks.cenote("zpool create -f -O special_small_blocks=20K -O compression=lz4 tank a special b", &[]);
    let special = || -> u64 {
        let listed = disks.cenote("zpool list -Hpv -o name,allocated tank", &[]);
        let line = listed.lines().find(|line| line.split('\t').any(|cell| cell == "b")).unwrap();
        line.split('\t').find_map(|cell| cell.parse().ok()).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str, data: &[u8]| {
        let file = folder.path().join(name);
        fs::write(&file, data).unwrap();
        disks.cenote(&format!("cp {} tank:/{name}", file.display()), &[]);
    };
    let mut noise = noise(1, 4 << 20);
    let before = special();
    copy("noise", &noise);
    assert!(special() < before + 200_000, "records of 128 KiB stay on data vdevs");
    // An eighth of each record does not compress.
    noise
        .iter_mut()
        .enumerate()
        .filter(|(at, _)| at % (128 << 10) >= 16 << 10)
        .for_each(|(_, byte)| *byte = 0);
    copy("mostly-zeros", &noise);
    assert!(special() > before + 32 * (16 << 10), "these are stored in 16 KiB each");
    disks.zdb_is_content();
}

#[test]
fn a_disk_becomes_a_mirror_and_a_disk_again() {
    let disks = Disks::new(&[128, 128, 130, 100]);
    disks.cenote("zpool create tank a", &[]);
    disks.fill(1);
    disks.cenote("zfs snapshot tank@one", &[]);
    disks.fails("zpool attach tank nothing b", "cannot attach b to nothing: no such device in pool");
    disks.fails("zpool attach tank a d", "cannot attach d to a: device is too small");
    disks.fails("zpool attach tank a a", "a is part of active pool 'tank'");
    disks.fails("zpool detach tank a", "cannot detach a: only applicable to mirror and replacing vdevs");
    disks.cenote("zpool attach tank a b", &[]);
    disks.zdb_is_content();
    disks.cenote("verify tank", &[]);
    disks.fill(2);
    disks.cenote(&format!("zpool attach tank {} {}", path(&disks, "b"), path(&disks, "c")), &[]);
    disks.zdb_is_content();
    disks.cenote("verify tank", &[]);
    // Each side has all data.
    for alone in ["a", "b", "c"] {
        let aside = tempfile::tempdir_in(disks.path().parent().unwrap()).unwrap();
        let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != alone).collect();
        let moved = |name: &str| aside.path().join(name);
        others.iter().for_each(|name| fs::rename(disks.path().join(name), moved(name)).unwrap());
        disks.assert_filled(1);
        disks.assert_filled(2);
        others.iter().for_each(|name| fs::rename(moved(name), disks.path().join(name)).unwrap());
    }
    disks.cenote("zpool detach tank a", &[]);
    disks.cenote("zpool detach tank b", &[]);
    disks.zdb_is_content();
    disks.fill(3);
    (1..4).for_each(|seed| disks.assert_filled(seed));
    disks.zdb_is_content();
    let history = disks.cenote("zpool history -i tank", &[]);
    assert!(
        history.contains("] vdev attach attach vdev=") && history.contains("] detach vdev="),
        "{history}"
    );
}

#[test]
fn a_disk_that_was_away_is_brought_what_it_missed() {
    for layout in ["mirror a b", "raidz a b c", "draid1:1d:3c a b c"] {
        let disks = Disks::new(&[128; 3]);
        disks.cenote(&format!("zpool create tank {layout}"), &[]);
        disks.fill(1);
        let others: Vec<&str> = layout.split(' ').filter(|name| name.len() == 1 && *name != "b").collect();
        let content = disks.path().join("content");
        fs::write(&content, noise(2, 3_000_000)).unwrap();
        let written = disks.run_on(&others, &format!("cp {} tank:/file2", content.display()));
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        fs::remove_file(content).unwrap();
        let lacks = || String::from_utf8(disks.run("verify tank", &[]).stdout).unwrap().contains("resilver");
        assert!(lacks(), "{layout}");
        disks.cenote("zpool resilver tank", &[]);
        let status = disks.cenote("zpool status tank", &[]);
        assert!(status.contains("scan: resilvered ") && status.contains(" with 0 errors"), "{status}");
        disks.zdb_is_content();
        assert!(!lacks(), "{layout}");
        // The pool can now lose another one.
        fs::remove_file(disks.path().join("a")).unwrap();
        (1..3).for_each(|seed| disks.assert_filled(seed));
    }
}

#[test]
fn a_disk_goes_out_of_use_and_comes_back_with_what_it_missed() {
    for (layout, away, back) in [
        ("mirror a b", "offline", "online tank b"),
        ("raidz a b c", "offline", "online tank b"),
        ("mirror a b c", "offline -f", "clear tank"),
    ] {
        let disks = Disks::new(&[128; 3]);
        disks.cenote(&format!("zpool create tank {layout}"), &[]);
        disks.fill(1);
        disks.cenote(&format!("zpool {away} tank b"), &[]);
        let state = if away == "offline" { "OFFLINE" } else { "FAULTED" };
        let status = disks.cenote("zpool status tank", &[]);
        assert!(status.contains(state) && status.contains("DEGRADED"), "{status}");
        if layout != "mirror a b c" {
            disks.fails("zpool offline tank a", "cannot offline a: no valid replicas");
        }
        let before = fs::read(disks.path().join("b")).unwrap();
        disks.fill(2);
        assert!(fs::read(disks.path().join("b")).unwrap() == before, "{layout}: written while out of use");
        disks.cenote(&format!("zpool {back}"), &[]);
        let status = disks.cenote("zpool status tank", &[]);
        assert!(status.contains("state: ONLINE") && status.contains("scan: resilvered "), "{status}");
        disks.zdb_is_content();
        fs::remove_file(disks.path().join("a")).unwrap();
        (1..3).for_each(|seed| disks.assert_filled(seed));
    }
}

/// Overwrites parts of a disk, labels excluded.
fn spoil(disks: &Disks, name: &str) {
    let path = disks.path().join(name);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len() - (1 << 20);
    for block in bytes[5 << 20..end].chunks_mut(64 << 10).step_by(3) {
        block.fill(0xb5);
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_scrub_repairs_what_a_disk_holds_wrongly_and_says_what_it_cannot() {
    for layout in ["mirror a b", "raidz a b c", "draid1:1d:3c a b c"] {
        let disks = Disks::new(&[128; 3]);
        disks.cenote(&format!("zpool create tank {layout}"), &[]);
        (1..4).for_each(|seed| disks.fill(seed));
        spoil(&disks, "b");
        assert_eq!(disks.run("verify tank", &[]).status.code(), Some(3), "{layout}");
        disks.cenote("zpool scrub tank", &[]);
        let status = disks.cenote("zpool status tank", &[]);
        assert!(
            status.contains("scan: scrub repaired ") && status.contains(" with 0 errors on "),
            "{status}"
        );
        assert!(!status.contains("scrub repaired 0B"), "{status}");
        disks.cenote("verify tank", &[]);
        disks.zdb_is_content();
        fs::remove_file(disks.path().join("a")).unwrap();
        (1..4).for_each(|seed| disks.assert_filled(seed));
    }
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    (1..4).for_each(|seed| disks.fill(seed));
    spoil(&disks, "a");
    let scrubbed = disks.run("zpool scrub tank", &[]);
    let said = String::from_utf8(scrubbed.stderr).unwrap();
    assert!(scrubbed.status.code() == Some(3) && said.contains(" could not be repaired"), "{said}");
    let history = disks.cenote("zpool history -i tank", &[]);
    assert!(history.contains("scan setup func=1 mintxg=0 maxtxg="), "{history}");
}

#[test]
fn properties_features_and_names_are_changed() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create -o compatibility=openzfs-2.0-linux tank a", &[]);
    disks.cenote("zfs create tank/root", &[]);
    let get = |what: &str| disks.cenote(&format!("zpool get -H -o value {what} tank"), &[]);
    disks.cenote("zpool set comment=attic tank", &[]);
    disks.cenote("zpool set autotrim=on tank", &[]);
    disks.cenote("zpool set bootfs=tank/root tank", &[]);
    disks.cenote("zpool set org.me:where=home tank", &[]);
    assert_eq!(get("comment,autotrim,bootfs,org.me:where"), "attic\non\ntank/root\nhome\n");
    disks.fails("zpool set size=1G tank", "cannot set property for 'tank': 'size' is readonly");
    disks.fails("zpool set feature@draid=disabled tank", "can only be set to 'disabled' at creation time");
    disks.fails("zpool set nonsense=1 tank", "invalid property 'nonsense'");
    disks.cenote("zpool set feature@draid=enabled tank", &[]);
    assert_eq!(get("feature@draid"), "enabled\n");
    let said = disks.cenote("zpool upgrade -V 5000 tank", &[]);
    assert!(said.contains("already has all supported and requested features enabled"), "{said}");
    let said = disks.cenote("zpool upgrade -a", &[]);
    assert!(
        said.ends_with(
            "Every feature flags pool already has all supported and requested features enabled.\n"
        )
    );
    let all = disks.cenote("zpool list -H -o all tank", &[]);
    assert!(all.starts_with("tank\t") && all.contains("\tattic\t") && all.contains("\ttank/root\t"), "{all}");
    assert!(disks.cenote("zpool upgrade", &[]).contains("      block_cloning\n"));
    disks.cenote("zpool set compatibility=openzfs-2.2 tank", &[]);
    let said = disks.cenote("zpool upgrade -a", &[]);
    assert!(
        said.contains("Enabled the following features on 'tank':\n") && said.contains("  blake3\n"),
        "{said}"
    );
    disks.zdb_is_content();
    disks.fill(1);

    disks.fails("zpool import tank mirror", "name is reserved");
    disks.cenote("zpool import tank shed", &[]);
    disks.fails("zpool list tank", "no pool 'tank'");
    assert_eq!(disks.cenote("zfs list -H -o name shed/root", &[]), "shed/root\n");
    disks.cenote("zpool destroy shed", &[]);
    disks.fails("zpool sync shed", "was destroyed");
    disks.cenote("zpool import -D -f shed tank", &[]);
    disks.assert_filled(1);
    disks.zdb_is_content();
}

#[needs("legacy-v28")]
#[test]
fn an_old_pool_gets_feature_flags() {
    let golden = golden("legacy-v28");
    let disks = Disks::new(&[]);
    for disk in golden.facts().disks {
        let file = disk.file.trim_end_matches(".zst");
        copy_image(&golden.images().join(file), &disks.path().join(file));
    }
    let pool = golden.facts().pool;
    let before = disks.cenote(&format!("du -s {pool}:/"), &[]);
    assert!(disks.cenote("zpool upgrade", &[]).contains(&format!("28   {pool}\n")));
    let enable = format!("zpool set feature@lz4_compress=enabled {pool}");
    disks.fails(&enable, "the pool has no feature flags yet: `zpool upgrade` brings them");
    let said = disks.cenote(&format!("zpool upgrade {pool}"), &[]);
    let wanted =
        format!("Successfully upgraded '{pool}' from version 28 to feature flags.\nEnabled the following");
    assert!(said.contains(&wanted) && said.contains("  draid\n"), "{said}");
    disks.zdb_is_content_with(&pool);

    disks.cenote(&format!("zfs create -o compression=zstd -o checksum=skein {pool}/new"), &[]);
    let file = disks.path().join("content");
    fs::write(&file, noise(1, 1_000_000)).unwrap();
    disks.cenote("cp", &[&file, Path::new(&format!("{pool}/new:/file"))]);
    assert!(disks.run(&format!("cat {pool}/new:/file"), &[]).stdout == noise(1, 1_000_000));
    assert_eq!(disks.cenote(&format!("du -s {pool}:/"), &[]), before);
    disks.cenote(&format!("verify {pool}"), &[]);
    disks.zdb_is_content_with(&pool);
    let all = disks.cenote("zpool upgrade", &[]);
    assert!(all.contains("All pools are formatted using feature flags."), "{all}");
}

#[test]
fn a_pool_from_which_vdevs_were_removed_takes_devices_and_gives_them_back() {
    let golden = golden("removed");
    let disks = Disks::new(&[96; 4]);
    let (pool, images) = (golden.facts().pool, golden.images());
    for disk in golden.facts().disks {
        let file = disk.file.trim_end_matches(".zst");
        copy_image(&images.join(file), &disks.path().join(file));
    }
    let before = disks.cenote(&format!("du -s {pool}:/"), &[]);
    let why = "does not support adding raidz";
    disks.fails(&format!("zpool add -f {pool} raidz a b"), why);
    disks.cenote(&format!("zpool add {pool} a spare d"), &[]);
    disks.cenote(&format!("zpool attach {pool} a b"), &[]);
    let file = disks.path().join("content");
    fs::write(&file, noise(1, 3_000_000)).unwrap();
    disks.cenote("cp", &[&file, Path::new(&format!("{pool}:/file"))]);
    disks.cenote(&format!("zpool detach {pool} a"), &[]);
    fs::remove_file(disks.path().join("a")).unwrap();
    assert!(disks.run(&format!("cat {pool}:/file"), &[]).stdout == noise(1, 3_000_000));
    disks.cenote(&format!("rm {pool}:/file"), &[]);
    assert_eq!(disks.cenote(&format!("du -s {pool}:/"), &[]), before);
    disks.cenote(&format!("verify {pool}"), &[]);
    disks.zdb_is_content_with(&pool);
}

/// A pool with a file that existed at its checkpoint and is now gone, and one written after it.
fn with_checkpoint(layout: &str, disks: usize) -> Disks {
    let disks = Disks::new(&vec![128; disks]);
    disks.cenote(&format!("zpool create tank {layout}"), &[]);
    disks.fill(1);
    disks.cenote("zpool checkpoint tank", &[]);
    disks.cenote("rm tank:/file1", &[]);
    disks.fill(2);
    disks.cenote("zfs create tank/later", &[]);
    disks
}

#[test]
fn checkpoints_are_looked_at_and_given_up() {
    let disks = with_checkpoint("mirror a b", 3);
    disks.zdb_is_content();
    assert!(disks.cenote("zpool status tank", &[]).contains("checkpoint: created"));
    assert_eq!(disks.cenote("ls tank:/", &[]).trim(), "file2");
    let kept = disks.run("cat --checkpoint tank:/file1", &[]);
    assert!(kept.stdout == noise(1, 3_000_000), "{}", String::from_utf8_lossy(&kept.stderr));
    let look = disks.cenote("zpool import --rewind-to-checkpoint -o readonly=on tank", &[]);
    assert!(look.contains("the checkpoint"), "{look}");
    disks.assert_filled(2);
    disks.fails("zpool checkpoint tank", "cannot checkpoint 'tank': checkpoint exists");
    let (a, c) = (path(&disks, "a"), path(&disks, "c"));
    disks.fails(&format!("zpool attach tank {a} {c}"), "checkpoint exists");
    disks.fails(&format!("zpool detach tank {a}"), "checkpoint exists");
    disks.fails("zpool checkpoint -w tank", "--discard");

    disks.cenote("zpool checkpoint -d -w tank", &[]);
    assert!(!disks.cenote("zpool status tank", &[]).contains("checkpoint:"));
    disks.assert_filled(2);
    disks.zdb_is_content();
    disks.fails("zpool checkpoint -d tank", "cannot discard checkpoint in 'tank': checkpoint does not exist");
    disks.fails("zpool import --rewind-to-checkpoint tank", "no checkpoint");
    let history = disks.cenote("zpool history -i tank", &[]);
    assert!(history.contains("spa checkpoint") && history.contains("spa discard checkpoint"), "{history}");
}

#[test]
fn pools_go_back_to_their_checkpoints() {
    for (layout, count) in [("a", 1), ("raidz a b c", 3), ("mirror a b log c", 3)] {
        let disks = with_checkpoint(layout, count);
        disks.cenote("zpool import --rewind-to-checkpoint tank", &[]);
        disks.assert_filled(1);
        assert_eq!(disks.cenote("ls tank:/", &[]).trim(), "file1");
        assert_eq!(disks.cenote("zfs list -H -o name", &[]).trim(), "tank");
        assert!(!disks.cenote("zpool status tank", &[]).contains("checkpoint:"));
        disks.zdb_is_content();
        // The pool continues from the checkpoint.
        disks.fill(3);
        disks.cenote("zpool checkpoint tank", &[]);
        disks.cenote("verify tank", &[]);
        disks.zdb_is_content();
    }
}

#[test]
fn a_pool_of_mirrors_is_split() {
    let disks = Disks::new(&[128, 128, 128, 128, 128, 128, 128]);
    disks.cenote("zpool create tank mirror a b special mirror c d log e spare f cache g", &[]);
    std::fs::write(disks.path().join("file"), noise(3, 3_000_000)).unwrap();
    disks.cenote("zfs create tank/fs", &[]);
    disks.cenote("cp file tank/fs:/", &[]);
    let before = disks.images();
    disks.fails("zpool split tank half a b", "must include at most one disk from each mirror");
    disks.fails("zpool split tank half f", "must include at most one disk from each mirror");
    disks.fails("zpool split tank mirror", "name is reserved");
    disks.cenote("zpool split -n tank half", &[]);
    assert!(disks.images() == before, "nothing is written");
    disks.cenote("zpool offline tank b", &[]);
    disks.fails("zpool split tank half", "Unable to split tank: b is OFFLINE");
    disks.cenote("zpool online tank b", &[]);

    disks.cenote("zpool split -o comment=other tank half a", &[]);
    let status = disks.cenote("zpool status half", &[]);
    assert!(["logs", "spares", "cache", "mirror"].iter().all(|word| !status.contains(word)), "{status}");
    assert!(status.contains("special") && status.contains("state: ONLINE"), "{status}");
    let status = disks.cenote("zpool status tank", &[]);
    assert!(["logs", "spares", "cache", "special"].iter().all(|word| status.contains(word)), "{status}");
    let history = disks.cenote("zpool history -i half", &[]);
    assert!(history.contains("split") && history.contains("from pool tank"), "{history}");
    disks.zdb_is_content();
    disks.zdb_is_content_with("half");
    for pool in ["tank", "half"] {
        disks.cenote(&format!("zfs snapshot {pool}/fs@{pool}"), &[]);
        let content = disks.run(&format!("cat {pool}/fs:/file"), &[]).stdout;
        assert!(content == noise(3, 3_000_000), "{pool}");
    }
    disks.cenote("zpool reguid -g 777 half", &[]);
    assert!(disks.cenote("zpool get -H -o value guid half", &[]).contains("777"));
    disks.fails("zpool reguid -g 777 tank", "a pool with that guid exists already");
    disks.cenote("zpool reguid -g -1 half", &[]);
    assert_eq!(disks.cenote("zpool get -H -o value guid half", &[]), format!("{}\n", u64::MAX));
    disks.zdb_is_content();
    disks.zdb_is_content_with("half");
}
