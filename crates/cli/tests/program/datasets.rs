//! `zfs` verbs that change a pool: their effects, their output, their refusals. `zdb` reads every block they
//! leave.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::disks::{Disks, noise};

/// A pool with a file system of one file; [`rewrite`] replaces its content.
fn pool() -> Disks {
    let disks = Disks::new(&[128, 128]);
    disks.cenote("zpool create -o compatibility=openzfs-2.3 tank a", &[]);
    disks.cenote("zfs create tank/a", &[]);
    rewrite(&disks, "tank/a", 1);
    disks
}

/// Writes a 900 kB file, different for each seed, into a file system.
fn rewrite(disks: &Disks, dataset: &str, seed: u64) {
    let file = disks.path().join("content");
    fs::write(&file, noise(seed, 900_000)).unwrap();
    disks.cenote("cp -f", &[&file, Path::new(&format!("{dataset}:/file"))]);
    fs::remove_file(file).unwrap();
}

fn number(disks: &Disks, command: &str) -> u64 {
    let said = disks.cenote(command, &[]);
    said.trim().parse().unwrap_or_else(|_| panic!("cenote {command}: {said}"))
}

fn names(disks: &Disks, options: &str) -> Vec<String> {
    let said = disks.cenote(&format!("zfs list -H -o name {options}"), &[]);
    said.lines().map(str::to_owned).collect()
}

#[test]
fn datasets_are_made_with_their_properties_and_parents() {
    let disks = pool();
    disks.cenote("zfs create -p -o compression=zstd -o casesensitivity=mixed tank/x/y/z", &[]);
    // With -p an existing dataset is accepted.
    disks.cenote("zfs create -p tank/x/y/z", &[]);
    disks.cenote("zfs create tank/x/y/z/below", &[]);
    let properties = "zfs get -H -o value compression,casesensitivity,type tank/x/y/z/below";
    assert_eq!(disks.cenote(properties, &[]), "zstd\nmixed\nfilesystem\n");
    assert_eq!(disks.cenote("zfs create -nv -o atime=off tank/b", &[]), "would create tank/b\n\tatime=off\n");
    for (command, words) in [
        ("tank/a", "cannot create 'tank/a': dataset already exists"),
        ("tank/q/r", "cannot create 'tank/q/r': parent does not exist"),
        ("tank/b@c", "snapshot delimiter '@' is not expected here"),
        ("tank/b%", "invalid character % in name"),
        ("-o recordsize=3K tank/b", "'recordsize' must be power of 2 from 512B to 16M"),
        ("-o used=1 tank/b", "cannot create 'tank/b': 'used' is readonly"),
        ("-o nonsense=1 tank/b", "invalid property 'nonsense'"),
        ("-o volblocksize=8K tank/b", "'volblocksize' does not apply to datasets of this type"),
        ("-o atime=maybe tank/b", "'atime' must be one of 'on | off'"),
        ("-o mountpoint=here tank/b", "'mountpoint' must be an absolute path, 'none', or 'legacy'"),
        ("-o normalization=formC -o utf8only=off tank/b", "'utf8only' must be set 'on'"),
        ("-o special_small_blocks=17M tank/b", "must be between zero and 16M"),
        ("-s tank/b", "-V"),
    ] {
        disks.fails(&format!("zfs create {command}"), words);
    }
    disks.zdb_is_content();
}

/// A new file system starts with the default quotas that its parent has then (`zfs_fill_zplprops`).
#[test]
fn default_quotas_are_copied_from_the_parent() {
    let disks = pool();
    disks.cenote("zfs set defaultuserquota=5M defaultgroupobjquota=7 tank", &[]);
    disks.cenote("zfs create -p tank/x/y", &[]);
    disks.cenote("zfs create -o defaultuserquota=none -o defaultprojectquota=1M tank/x/z", &[]);
    disks.cenote("zfs set defaultuserquota=6M tank", &[]);
    let columns = "defaultuserquota,defaultgroupobjquota,defaultprojectquota";
    let quotas = |name| disks.cenote(&format!("zfs get -Hp -o value {columns} tank/{name}"), &[]);
    assert_eq!(quotas("x"), "5242880\n7\n0\n");
    assert_eq!(quotas("x/y"), "5242880\n7\n0\n");
    assert_eq!(quotas("x/z"), "0\n7\n1048576\n");
    disks.cenote("zfs create -V 1M tank/x/volume", &[]);
    disks.zdb_is_content();
}

/// OpenZFS looks a long name up only in datasets that use the feature.
#[test]
fn a_dataset_with_long_names_uses_their_feature() {
    let disks = pool();
    let state = || disks.cenote("zpool get -H -o value feature@longname tank", &[]);
    disks.cenote("zfs set longname=on tank/a", &[]);
    let long = "n".repeat(600);
    disks.cenote(&format!("mkdir tank/a:/{long}"), &[]);
    assert_eq!(state(), "active\n");
    assert!(disks.cenote("ls tank/a", &[]).contains(&long));
    disks.zdb_is_content();
    disks.cenote("zfs destroy -r tank/a", &[]);
    assert_eq!(state(), "enabled\n");
}

#[test]
fn lists_are_sorted_by_the_words_of_properties() {
    let disks = pool();
    for (name, checksum) in [("p", "sha256"), ("q", "fletcher4"), ("r", "off")] {
        disks.cenote(&format!("zfs create -o checksum={checksum} tank/{name}"), &[]);
    }
    let listed = |order: &str| {
        let line = format!("zfs list -H -o name {order} tank/p tank/q tank/r");
        disks.cenote(&line, &[])
    };
    assert_eq!(listed("-s checksum"), "tank/q\ntank/r\ntank/p\n");
    assert_eq!(listed("-S checksum"), "tank/p\ntank/r\ntank/q\n");
}

#[test]
fn volumes_are_promised_what_they_need_and_grow_with_it() {
    let disks = pool();
    disks.run("zfs create -V 10M -b 8K tank/full", &[]); // with a warning
    disks.cenote("zfs create -s -V 10001K tank/sparse", &[]);
    let get = |what: &str| number(&disks, &format!("zfs get -Hp -o value {what}"));
    // `zfs create -V 10M -b 8K` of OpenZFS 2.3 reserves this on a single disk.
    assert_eq!(get("refreservation tank/full"), 13_107_200);
    assert_eq!(get("refreservation tank/sparse"), 0);
    // Rounded up to whole blocks of 16 KiB.
    assert_eq!(get("volsize tank/sparse"), 626 * 16384);
    // A clone may reserve the same.
    disks.cenote("zfs snapshot tank/full@now", &[]);
    disks.cenote("zfs clone -o refreservation=auto tank/full@now tank/copy", &[]);
    assert_eq!(get("refreservation tank/copy"), get("refreservation tank/full"));
    disks.cenote("zfs destroy -R tank/full@now", &[]);
    disks.cenote("zfs set volsize=20M tank/full", &[]);
    assert_eq!(get("volsize tank/full"), 20 << 20);
    assert!(get("refreservation tank/full") > 20 << 20);
    disks.cenote("zfs set refreservation=auto tank/sparse", &[]);
    assert!(get("refreservation tank/sparse") > 626 * 16384);
    disks.fails("zfs set volsize=100K tank/full", "'volsize' must be a multiple of volume block size (8K)");
    disks.fails("zfs set volsize=1M tank/a", "'volsize' does not apply to datasets of this type");
    disks.fails("zfs set volblocksize=16K tank/full", "'volblocksize' is readonly");
    disks.fails("zfs create -V 10G tank/huge", "cannot create 'tank/huge': out of space");
    disks.fails("zfs create tank/full/below", "parent is not a filesystem");
    disks.zdb_is_content();
}

#[test]
fn volumes_take_files_and_streams_and_give_them_back() {
    let disks = pool();
    disks.cenote("zfs create -s -V 16M -b 16K tank/vm", &[]);
    let (image, copy) = (disks.path().join("vm.img"), disks.path().join("copy.img"));
    // Data, a hole, data that ends inside a block, and less than the volume's size.
    let mut content = noise(9, 3_000_000);
    content.resize(9_000_000, 0);
    content.extend(noise(10, 1_234_567));
    let file = fs::File::create(&image).unwrap();
    for range in [0..3_000_000, 9_000_000..content.len()] {
        file.write_all_at(&content[range.clone()], range.start as u64).unwrap();
    }
    let volume = Path::new("tank/vm");
    disks.cenote("volume cp", &[&image, volume]);
    content.resize(16 << 20, 0);
    disks.cenote("volume cp", &[volume, &copy]);
    assert!(fs::read(&copy).unwrap() == content);
    let used = number(&disks, "zfs get -Hp -o value referenced tank/vm");
    assert!((4_234_567..5_500_000).contains(&used), "the hole is none: {used}");

    disks.fails(&format!("volume cp {} tank/vm", image.display()), "tank/vm is not empty; -f overwrites it");
    fs::write(&image, noise(11, 70_000)).unwrap();
    let piped = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"))
        .args(["-d", disks.path().to_str().unwrap(), "volume", "cp", "-f", "-", "tank/vm"])
        .stdin(fs::File::open(&image).unwrap())
        .output();
    assert!(piped.unwrap().status.success());
    disks.cenote("volume cp -f", &[volume, &copy]);
    let mut content = noise(11, 70_000);
    content.resize(16 << 20, 0);
    assert!(fs::read(&copy).unwrap() == content, "what was there is cleared");

    fs::File::create(&image).unwrap().set_len((16 << 20) + 1).unwrap();
    disks.fails(
        &format!("volume cp -f {} tank/vm", image.display()),
        "`cenote zfs set volsize=16793600 tank/vm`",
    );
    disks.fails(&format!("volume cp {} tank/a", image.display()), "volume");
    disks.zdb_is_content();
}

#[test]
fn estimates_are_right_to_the_byte() {
    let disks = pool();
    for seed in 2..7 {
        disks.cenote(&format!("zfs snapshot tank/a@s{seed}"), &[]);
        rewrite(&disks, "tank/a", seed);
    }
    // Bookmarks remain and still identify the state.
    let referenced = |of: &str| number(&disks, &format!("zfs get -Hp -o value referenced tank/a{of}"));
    disks.cenote("zfs bookmark tank/a@s4 #mark", &[]);
    disks.cenote("zfs bookmark tank/a#mark #copy", &[]);
    let there = referenced("@s4");
    for spec in ["s3", "s4%s5", "s2,s6"] {
        let used = || number(&disks, "zfs get -Hp -o value used tank/a");
        let told = disks.cenote(&format!("zfs destroy -nvp tank/a@{spec}"), &[]);
        let reclaimed: u64 =
            told.lines().find_map(|line| line.strip_prefix("reclaim\t")).unwrap().parse().unwrap();
        let before = used();
        disks.cenote(&format!("zfs destroy tank/a@{spec}"), &[]);
        assert_eq!(before - used(), reclaimed, "{spec}: {told}");
        assert!(reclaimed > 800_000, "{spec}: {told}");
    }
    assert_eq!(names(&disks, "-t snapshot tank/a"), Vec::<String>::new());
    assert_eq!((referenced("#mark"), referenced("#copy")), (there, there));
    rewrite(&disks, "tank/a", 9);
    disks.zdb_is_content();
    disks.cenote("zfs destroy tank/a#mark", &[]);
    disks.fails("zfs destroy tank/a@s3", "could not find any snapshots to destroy; check snapshot names.");
    disks.zdb_is_content();
}

#[test]
fn a_tree_of_snapshots_is_cloned_in_one_command_and_gone_with_one() {
    let disks = pool();
    disks.cenote("zfs create -p tank/a/b/c", &[]);
    disks.cenote("zfs create tank/a/late", &[]);
    rewrite(&disks, "tank/a/b/c", 5);
    disks.cenote("zfs snapshot -r -o org.me:why=test tank/a@now", &[]);
    disks.cenote("zfs create tank/a/later", &[]);
    let before = number(&disks, "zfs get -Hp -o value used tank/a");
    disks.cenote("zfs clone -p -r -o readonly=on tank/a@now tank/tmp/look", &[]);
    let clones = ["", "/b", "/b/c", "/late"].map(|below| format!("tank/tmp/look{below}"));
    assert_eq!(names(&disks, "-r tank/tmp/look"), clones);
    assert_eq!(disks.cenote("zfs get -H -o value origin tank/tmp/look/b/c", &[]), "tank/a/b/c@now\n");
    let file = disks.cenote("stat tank/tmp/look/b/c:/file", &[]);
    assert!(file.contains("900000"), "{file}");
    disks.fails(
        "zfs clone -r tank/a@now tank/tmp/look",
        "cannot create 'tank/tmp/look': dataset already exists",
    );
    disks
        .fails("zfs destroy -r tank/a", "filesystem has dependent clones\nuse '-R' to destroy the following");
    // If one can't be created, none is.
    disks.cenote("zfs create tank/other", &[]);
    disks.fails("zfs clone -r tank/a@now tank/other", "already exists");
    // The name of a clone below would be too long: the clones created before it are removed again.
    let long = "x".repeat(248);
    disks.fails(&format!("zfs clone -r tank/a@now tank/{long}"), "name is too long");
    assert!(names(&disks, "-r tank").iter().all(|name| !name.contains(&long)));
    disks.zdb_is_content();
    disks.cenote("zfs destroy -r tank/tmp", &[]);
    assert_eq!(number(&disks, "zfs get -Hp -o value used tank/a"), before);
    disks.cenote("zfs destroy -r tank/a@now", &[]);
    disks.zdb_is_content();
}

#[test]
fn what_depends_on_something_keeps_it() {
    let disks = pool();
    disks.cenote("zfs snapshot tank/a@one", &[]);
    rewrite(&disks, "tank/a", 2);
    disks.cenote("zfs snapshot tank/a@two", &[]);
    disks.cenote("zfs clone tank/a@one tank/c", &[]);
    disks.fails(
        "zfs destroy tank/a",
        "filesystem has children\nuse '-r' to destroy the following datasets:\ntank/a@one",
    );
    disks.fails("zfs destroy tank/a@one", "snapshot has dependent clones\nuse '-R'");
    disks.fails("zfs destroy tank", "operation does not apply to pools");
    disks.fails("zfs rollback tank/a@one", "more recent snapshots or bookmarks exist\nuse '-r'");
    disks.cenote("zfs hold keep tank/a@two", &[]);
    disks.fails("zfs hold keep tank/a@two", "tag already exists on this dataset");
    disks.fails("zfs destroy tank/a@two", "it's being held. Run 'zfs holds -r tank/a@two' to see holders.");
    disks.cenote("zfs holds -r tank@nosuch", &[]);
    disks.fails("zfs holds tank/a@nosuch", "does not exist");
    disks.fails("zfs rollback -r tank/a@one", "it's being held");
    disks.cenote("zfs destroy -d tank/a@two", &[]);
    assert_eq!(names(&disks, "-t snapshot tank/a"), ["tank/a@one", "tank/a@two"]);
    disks.cenote("zfs release keep tank/a@two", &[]);
    assert_eq!(names(&disks, "-t snapshot tank/a"), ["tank/a@one"]);
    disks.cenote("zfs bookmark tank/a@one #mark", &[]);
    disks.fails("zfs bookmark tank/a@one #mark", "bookmark exists");
    disks.cenote("zfs rollback tank/a@one", &[]);
    disks.cenote("zfs promote tank/c", &[]);
    disks.fails("zfs promote tank/c", "cannot promote 'tank/c': not a cloned filesystem");
    disks.cenote("zfs rename tank/c tank/owner", &[]);
    disks.fails("zfs rename tank/owner tank/owner/below", "cannot be a descendant of current dataset name");
    disks.cenote("zfs rename -r tank/owner@one @uno", &[]);
    disks.cenote("zfs destroy tank/owner#mark", &[]);
    assert_eq!(
        disks.cenote("zfs destroy -Rv tank/owner@uno", &[]).lines().last(),
        Some("will destroy tank/a")
    );
    assert_eq!(names(&disks, "-t all -r tank"), ["tank", "tank/owner"]);
    disks.zdb_is_content();
}

/// A deferred snapshot is destroyed with its last clone.
/// Clones by whichever name: before and after their origins, and of one another.
#[test]
fn a_tree_goes_with_the_clones_in_it() {
    let disks = pool();
    disks.cenote("zfs create -p tank/m/x", &[]);
    disks.cenote("zfs snapshot tank/m/x@s", &[]);
    for clone in ["tank/c", "tank/z", "tank/m/x/below"] {
        disks.cenote(&format!("zfs clone tank/m/x@s {clone}"), &[]);
    }
    disks.cenote("zfs snapshot tank/z@t", &[]);
    disks.cenote("zfs clone tank/z@t tank/b", &[]);
    disks.cenote("zfs destroy -r tank", &[]);
    assert_eq!(names(&disks, "-t all"), ["tank"]);
    disks.zdb_is_content();
}

#[test]
fn snapshots_that_wait_for_their_clones_are_no_hindrance() {
    let disks = pool();
    let prepare = |dataset: &str| {
        for own in ["one", "two", "three"] {
            disks.cenote(&format!("zfs snapshot {dataset}@{own}"), &[]);
        }
        disks.cenote(&format!("zfs clone -u {dataset}@two tank/clone"), &[]);
        disks.cenote(&format!("zfs destroy -d {dataset}@two"), &[]);
    };
    prepare("tank/a");
    disks.cenote("zfs rollback -R tank/a@one", &[]);
    assert_eq!(names(&disks, "-t all -r tank"), ["tank", "tank/a", "tank/a@one"]);
    disks.cenote("zfs create tank/b", &[]);
    prepare("tank/b");
    disks.cenote("zfs destroy -R tank/b", &[]);
    disks.cenote("zfs rename tank/a@one uno", &[]);
    assert_eq!(names(&disks, "-t all -r tank"), ["tank", "tank/a", "tank/a@uno"]);
    disks.zdb_is_content();
}

#[test]
fn settings_are_checked_and_taken_back() {
    let disks = pool();
    disks.cenote("zfs create tank/a/b", &[]);
    disks.cenote("zfs set compression=zstd-9 org.me:note=hello tank/a", &[]);
    assert_eq!(
        disks.cenote("zfs get -H -o value,source compression tank/a/b", &[]),
        "zstd-9\tinherited from tank/a\n"
    );
    disks.cenote("zfs set userquota@1000=5M groupobjquota@7=12 userquota@5=none tank/a", &[]);
    let rows = disks.cenote("zfs userspace -Hp tank/a", &[]);
    assert!(rows.contains("POSIX User\t1000\t0\t5242880\t-\t-\n"), "{rows}");
    let limits = "zfs get -Hp -o value userquota@1000,groupobjquota@7,userquota@5 tank/a";
    assert_eq!(disks.cenote(limits, &[]), "5242880\n12\n0\n");
    // Counting starts with the first limit.
    disks.cenote("zfs snapshot -r tank/a@counted", &[]);
    disks.cenote("zfs set snapshot_limit=10 tank/a", &[]);
    disks.cenote("zfs create tank/a/b/c", &[]);
    disks.cenote("zfs snapshot tank/a/b/c@s", &[]);
    disks.cenote("zfs clone tank/a@counted tank/a/clone", &[]);
    disks.cenote("zfs create tank/moved", &[]);
    disks.cenote("zfs snapshot tank/moved@s", &[]);
    disks.cenote("zfs rename tank/moved tank/a/b/moved", &[]);
    let counts = "zfs get -Hp -o value filesystem_count,snapshot_count,snapshot_limit tank/a tank/a/b";
    assert_eq!(disks.cenote(counts, &[]), "4\n4\n10\n2\n3\nnone\n");
    disks.cenote("zfs destroy -r tank/a/b/moved", &[]);
    disks.cenote("zfs destroy -r tank/a/b/c", &[]);
    disks.cenote("zfs destroy tank/a/clone", &[]);
    disks.cenote("zfs destroy -r tank/a@counted", &[]);
    assert_eq!(disks.cenote(counts, &[]), "1\n0\n10\n0\n0\nnone\n");
    disks.fails("zfs set userused@1000=5M tank/a", "'userused@1000' is readonly");
    disks.fails("zfs set quota=100K tank/a", "size is less than current used or reserved space");
    disks.fails("zfs set reservation=10G tank/a", "size is greater than available space");
    disks.fails("zfs set quota=0 tank/a", "use 'none' to disable quota/refquota");
    disks.fails("zfs set compression=zstd tank/a@x", "does not exist");
    disks.fails(
        "zfs inherit quota tank/a",
        "'quota' property cannot be inherited\nuse 'zfs set quota=none' to clear",
    );
    disks.fails("zfs inherit used tank/a", "used property is read-only");
    disks.cenote("zfs snapshot tank/a@x", &[]);
    disks.fails("zfs set compression=zstd tank/a@x", "this property can not be modified for snapshots");
    disks.cenote("zfs set org.me:note=snap tank/a@x", &[]);
    disks.cenote("zfs set compression=off tank/a/b", &[]);
    disks.cenote("zfs inherit -r compression tank/a", &[]);
    assert_eq!(disks.cenote("zfs get -H -o source compression tank/a tank/a/b", &[]), "default\ndefault\n");
    disks.fails("zpool create -O recordsize=1M -o feature@large_blocks=disabled other b", "512B to 128K");
    disks.zdb_is_content();
}

#[test]
fn a_request_that_is_wrong_as_a_whole_changes_nothing() {
    let disks = pool();
    disks.cenote("zfs create -V 8M tank/v", &[]);
    disks.fails("zfs set readonly=on recordsize=64K tank/v", "does not apply to datasets of this type");
    disks.fails("zfs set readonly=on userquota@0=1M tank/v", "doesn't apply to datasets of this type");
    disks.fails("zfs set atime=off version=4 tank/a", "can not downgrade; already at version 5");
    let sources = disks.cenote("zfs get -H -o source readonly,atime tank/a tank/v", &[]);
    assert_eq!(sources, "default\ndefault\ndefault\n-\n");
    disks.fails("zfs inherit atime tank/v", "property doesn't apply to datasets of this type");
    disks.cenote("zfs inherit -r atime tank", &[]);
    disks.fails("zfs inherit -S volsize tank/v", "cannot be reverted to a received value");
    // A volume that can't have its reservation keeps its size.
    disks.fails("zfs set volsize=1T tank/v", "size is greater than available space");
    assert_eq!(disks.cenote("zfs get -H -o value volsize tank/v", &[]), "8M\n");
    disks.cenote("zfs set quota=20M reservation=4M refquota=5M refreservation=2M tank/a", &[]);
    let limits = "zfs get -H -o value,source quota,reservation,refquota,refreservation tank/a";
    for limit in ["quota", "reservation", "refquota", "refreservation"] {
        disks.fails(&format!("zfs inherit {limit} tank/a"), "cannot be inherited");
        disks.cenote(&format!("zfs inherit -S {limit} tank/a"), &[]);
    }
    assert_eq!(disks.cenote(limits, &[]), "none\tdefault\n".repeat(4));
    disks.zdb_is_content();
    disks.cenote("zfs create -o version=4 tank/old", &[]);
    assert_eq!(disks.cenote("zfs get -H -o value version tank/old tank/a", &[]), "5\n4\n");
    rewrite(&disks, "tank/old", 3);
    disks.zdb_is_content();
}

#[test]
fn what_is_so_already_or_is_named_twice_is_no_error() {
    let disks = pool();
    disks.cenote("zfs create tank/a/b", &[]);
    disks.cenote("zfs rename tank/a tank/a", &[]);
    disks.cenote("zfs snapshot tank/a@one tank/a@one", &[]);
    disks.cenote("zfs snapshot -r tank/a@two tank/a/b@two", &[]);
    disks.cenote("zfs rename tank/a@one tank/a@one", &[]);
    assert_eq!(names(&disks, "-t snapshot -r tank"), ["tank/a@one", "tank/a@two", "tank/a/b@two"]);
    disks.fails("zfs snapshot tank/a@three tank/a@four", "multiple snapshots of same fs not allowed");
    let space = disks.cenote("zfs list -H -o name,space tank/a/b", &[]);
    assert!(space.starts_with("tank/a/b\ttank/a/b\t") && space.matches('\t').count() == 7, "{space}");
    assert_eq!(disks.cenote("zfs get -H -o property space tank/a", &[]).lines().count(), 7);
    let all = disks.cenote("zfs list -o all tank/a", &[]);
    assert!(all.starts_with("NAME") && all.contains("COMPRESS") && all.contains("PREFETCH"), "{all}");
    disks.cenote("zfs set version=5 atime=off tank/a", &[]);
    disks.cenote("zfs bookmark tank/a@one tank/a#mark", &[]);
    let marks = disks.cenote("zfs get -H -o name -t bookmark guid tank/a", &[]);
    assert_eq!(marks, "tank/a#mark\n");
    disks.cenote("zfs hold keep tank/a@one", &[]);
    let held = disks.run("zfs holds -H tank/a@none tank/a@one", &[]);
    assert!(!held.status.success() && held.stdout.starts_with(b"tank/a@one\tkeep\t"), "{held:?}");
}

#[test]
fn a_file_system_is_made_with_quotas_of_owners() {
    let disks = pool();
    disks.cenote("zfs create -o userquota@root=5M -o groupobjquota@7=12 -o quota=20M tank/q", &[]);
    let limits = "zfs get -Hp -o value userquota@0,userquota@root,groupobjquota@7,quota tank/q";
    assert_eq!(disks.cenote(limits, &[]), "5242880\n5242880\n12\n20971520\n");
    disks.fails("zfs create -o userquota@0=5M -V 8M tank/v", "invalid property 'userquota@0'");
    disks.fails("zfs set userquota@no-such-user=5M tank/q", "no user of this machine");
    disks.zdb_is_content();
}

#[test]
fn of_several_one_that_fails_does_not_keep_the_rest() {
    let disks = pool();
    disks.cenote("zfs create tank/b", &[]);
    disks.cenote("zfs set org.me:note=all tank tank/a tank/b", &[]);
    disks.fails("zfs set org.me:note=some tank/none tank/b", "'tank/none'");
    assert_eq!(disks.cenote("zfs get -H -o value org.me:note tank/a tank/b", &[]), "all\nsome\n");
    disks.cenote("zfs snapshot -r tank@one", &[]);
    disks.fails("zfs hold keep tank@two tank/a@one", "'tank@two'");
    disks.fails(
        "zfs destroy -r tank@one",
        "cannot destroy snapshot tank/a@one: it's being held. Run 'zfs holds -r",
    );
    disks.fails("zfs release keep tank@one tank/a@one", "no such tag");
    disks.cenote("zfs destroy -r tank@one", &[]);
    disks.cenote("mkdir tank/a:/x tank/a:/y", &[]);
    disks.fails("rm -r tank/a:/none tank/a:/x", "/none");
    assert_eq!(disks.cenote("ls tank/a:/", &[]), "file\ny\n");
    // Commands that partly fail are not recorded, and the pool is opened once for those that succeed.
    let history = disks.cenote("zpool history tank", &[]);
    let told = |what: &str| history.lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        [
            told("note=all"),
            told("note=some"),
            told("hold keep"),
            told("destroy"),
            told("mkdir"),
            told(" rm ")
        ],
        [1, 0, 0, 1, 1, 0],
        "{history}"
    );
    disks.zdb_is_content();
}

#[test]
fn the_history_tells_commands_and_events() {
    let disks = pool();
    disks.cenote("zfs snapshot tank/a@one", &[]);
    disks.fails("zfs snapshot tank/a@one", "cannot create snapshot 'tank/a@one': dataset already exists");
    disks.cenote("--key tank=pass:secret zfs set atime=off tank/a", &[]);
    let history = disks.cenote("zpool history tank", &[]);
    let commands: Vec<&str> = history.lines().skip(1).filter(|line| !line.is_empty()).collect();
    assert!(commands[0].contains("zpool create") && commands.len() == 5, "{history}");
    assert!(commands[4].contains("zfs set atime=off tank/a") && !history.contains("secret"), "{history}");
    let events = disks.cenote("zpool history -i tank", &[]);
    for event in ["] create tank/a (", "] snapshot tank/a@one (", "] set tank/a ("] {
        assert!(events.contains(event), "{event}: {events}");
    }
    // The ring buffer wraps, but never overwrites the command that created the pool.
    for round in 0..60 {
        let text = "x".repeat(4000);
        disks.cenote(&format!("zfs set org.me:note{round}={text} tank/a"), &[]);
    }
    let history = disks.cenote("zpool history tank", &[]);
    let commands: Vec<&str> = history.lines().skip(1).filter(|line| !line.is_empty()).collect();
    assert!(commands[0].contains("zpool create") && commands[1].contains("note"), "{history}");
    assert!(history.contains("note59="), "{history}");
    disks.zdb_is_content();
}

#[test]
fn versions_of_file_systems_are_listed_and_raised() {
    let disks = pool();
    let all = "This system is currently running ZFS filesystem version 5.\n\n";
    let current = "All filesystems are formatted with the current version.\n";
    assert_eq!(disks.cenote("zfs upgrade", &[]), format!("{all}{current}"));
    assert!(disks.cenote("zfs upgrade -v", &[]).contains("\n 4   userquota, groupquota properties\n"));
    for (name, version) in [("tank/old", 3), ("tank/old/below", 4), ("tank/other", 4)] {
        disks.cenote(&format!("zfs create -o version={version} {name}"), &[]);
        rewrite(&disks, name, 3);
    }
    disks.cenote("zfs create -V 8M tank/old/volume", &[]);
    let listed = disks.cenote("zfs upgrade", &[]);
    let below = " 3   tank/old\n 4   tank/old/below\n 4   tank/other\n";
    assert!(listed.starts_with(all) && listed.ends_with(&format!("---  ------------\n{below}")), "{listed}");
    disks.fails("zfs upgrade -r", "go with -a or names");
    disks.fails("zfs upgrade -V 6 tank/old", "invalid version 6");
    disks.fails("zfs upgrade tank/old/volume", "operation not applicable to datasets of this type");
    let output = disks.run("zfs upgrade -V 3 tank/other", &[]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let refused = "tank/other: can not be downgraded; it is already at version 4\n0 filesystems upgraded\n";
    assert_eq!(told, refused);
    assert_eq!(disks.cenote("zfs upgrade -V 4 tank/old", &[]), "1 filesystems upgraded\n");
    let rest = "2 filesystems upgraded\n";
    assert_eq!(disks.cenote("zfs upgrade -r tank/old", &[]), rest);
    let done = "1 filesystems upgraded\n4 filesystems already at this version\n";
    assert_eq!(disks.cenote("zfs upgrade -a", &[]), done);
    assert_eq!(disks.cenote("zfs upgrade", &[]), format!("{all}{current}"));
    let history = disks.cenote("zpool history -i tank", &[]);
    assert!(history.contains("upgrade tank/old (") && history.contains("from 3 to 4"), "{history}");
    // Old files are read and changed; new ones have attributes of the new form.
    for name in ["tank/old", "tank/old/below", "tank/other"] {
        assert_eq!(disks.run(&format!("cat {name}:/file"), &[]).stdout, noise(3, 900_000));
        rewrite(&disks, name, 4);
        disks.cenote(&format!("mkdir {name}:/dir"), &[]);
        disks.cenote(&format!("zfs snapshot {name}@s"), &[]);
        assert_eq!(disks.run(&format!("cat {name}@s:/file"), &[]).stdout, noise(4, 900_000));
    }
    disks.zdb_is_content();
}

#[test]
fn snapshots_of_a_name_are_bookmarked_together() {
    let disks = pool();
    for name in ["tank/a/b", "tank/a/b/c", "tank/a/d"] {
        disks.cenote(&format!("zfs create {name}"), &[]);
    }
    disks.cenote("zfs snapshot tank/a@s tank/a/b/c@s tank/a/d@s", &[]);
    disks.fails("zfs bookmark -r tank/a#x tank/a#y", "can only be created from a snapshot source");
    disks.fails("zfs bookmark -r tank/a@none tank/a#m", "cannot");
    disks.cenote("zfs bookmark tank/a/d@s tank/a/d#m", &[]);
    disks.fails("zfs bookmark -r tank/a@s #m", "cannot create bookmark 'tank/a/d#m': bookmark exists");
    assert_eq!(names(&disks, "-t bookmark -r tank"), ["tank/a/d#m"], "all or none");
    disks.cenote("zfs destroy tank/a/d#m", &[]);
    disks.cenote("zfs bookmark -r tank/a@s #m", &[]);
    assert_eq!(names(&disks, "-t bookmark -r tank"), ["tank/a#m", "tank/a/b/c#m", "tank/a/d#m"]);
    disks.zdb_is_content();
}

#[test]
fn the_last_change_of_snapshots_is_known_to_the_nanosecond() {
    let disks = pool();
    assert_eq!(disks.cenote("zfs get -Hp -o value snapshots_changed_nsecs tank", &[]).trim(), "-");
    let mut last = 0;
    for name in ["one", "two"] {
        disks.cenote(&format!("zfs snapshot tank@{name}"), &[]);
        let seconds = number(&disks, "zfs get -Hp -o value snapshots_changed tank");
        let exact = number(&disks, "zfs get -Hp -o value snapshots_changed_nsecs tank");
        assert_eq!(exact / 1_000_000_000, seconds);
        assert!(exact > last && !exact.is_multiple_of(1_000_000_000), "{exact}");
        last = exact;
    }
    assert_eq!(number(&disks, "zfs list -Hp -o snapshots_changed_nsecs tank"), last);
}

/// Clones of a snapshot have snapshots of the same name, which are meant, too.
#[test]
fn snapshots_are_destroyed_with_clones_that_have_snapshots_of_their_name() {
    let disks = Disks::new(&[64]);
    disks.cenote("zpool create tank a", &[]);
    disks.cenote("zfs snapshot tank@s", &[]);
    disks.cenote("zfs clone tank@s tank/clone", &[]);
    disks.cenote("zfs snapshot tank/clone@s", &[]);
    disks.cenote("zfs create tank/kept", &[]);
    disks.cenote("zfs destroy -R tank@s", &[]);
    assert_eq!(disks.cenote("zfs list -H -t all -o name", &[]), "tank\ntank/kept\n");
    disks.zdb_is_content();
}
