//! Names that users type: of devices, datasets, snapshots and folders.

use crate::serve::bench::Bench;

fn bench() -> Bench {
    let bench = Bench::new(&["a", "b"]);
    bench.done("zpool create -O mountpoint=none tank mirror a b");
    bench
}

#[test]
fn a_short_name_of_two_devices_is_refused_with_both_paths() {
    let bench = Bench::new(&[]);
    let paths = ["p/disk", "q/disk"].map(|path| bench.text(path));
    for path in &paths {
        std::fs::create_dir(std::path::Path::new(path).parent().unwrap()).unwrap();
        std::fs::File::create(path).unwrap().set_len(128 << 20).unwrap();
    }
    bench.done(&format!("zpool create -O mountpoint=none am mirror {} {}", paths[0], paths[1]));
    for command in ["offline am disk", "detach am disk", "clear am disk", "online am disk", "trim am disk"] {
        let refused = bench.fails(&format!("zpool {command}"));
        assert!(paths.iter().all(|path| refused.contains(&**path)), "{command}: {refused}");
    }
    assert_eq!(bench.done("zpool list -H -o health am").trim(), "ONLINE");
    bench.done(&format!("zpool offline am {}", paths[1]));
    assert_eq!(bench.done("zpool list -H -o health am").trim(), "DEGRADED");
}

#[test]
fn written_takes_full_names_the_origin_and_bookmarks() {
    let bench = bench();
    bench.done("zfs create tank/fs");
    let put = |file: &str, kib: usize| {
        std::fs::write(bench.path("file"), vec![file.len() as u8 + 1; kib << 10]).unwrap();
        bench.done(&format!("cp -f {} {file}", bench.text("file")));
    };
    put("tank/fs:/one", 300);
    bench.done("zfs snapshot tank/fs@a");
    bench.done("zfs bookmark tank/fs@a tank/fs#a");
    put("tank/fs:/more", 500);
    bench.done("zfs snapshot tank/fs@b");
    bench.done("zfs clone tank/fs@b tank/clone");
    put("tank/clone:/two", 700);
    bench.done("zpool sync tank");
    let written = |since: &str, of: &str| {
        let line = bench.done(&format!("zfs get -Hp -o value,source written{since} {of}"));
        line.trim().to_owned()
    };
    let is_number =
        |value: &str| value.split('\t').next().is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > 0));
    let short = written("@a", "tank/fs");
    assert!(is_number(&short) && short.ends_with("\tlocal"), "{short}");
    for since in ["@tank/fs@a", "#a", "@tank/fs#a"] {
        assert_eq!(written(since, "tank/fs"), short, "{since}");
    }
    // Snapshots of the origin need its full name.
    let origin = written("@tank/fs@a", "tank/clone");
    assert!(is_number(&origin) && is_number(&written("@tank/fs@b", "tank/clone")), "{origin}");
    for (since, of) in [
        ("@a", "tank/clone"),
        ("@none", "tank/fs"),
        ("@tank/none@a", "tank/fs"),
        ("#none", "tank/fs"),
        ("@tank/clone@a", "tank/fs"),
        ("@a", "tank/fs@a"),
        ("@b", "tank/fs@a"),
    ] {
        assert_eq!(written(since, of), "-\t-", "{since} {of}");
    }
}

#[test]
fn a_name_that_is_not_of_the_right_thing_is_no_damage() {
    let bench = bench();
    std::fs::write(bench.path("file"), b"x").unwrap();
    bench.done(&format!("cp {} tank:/file", bench.text("file")));
    for (command, why) in [
        ("mkdir -p tank:/file/x", "/file is not a folder"),
        ("mkdir -p tank:/file", "/file is not a folder"),
        ("zfs list tank/$ORIGIN", "does not exist"),
        ("zfs list tank/$ORIGIN@$ORIGIN", "does not exist"),
        ("zfs get all tank/$MOS", "does not exist"),
        ("zfs destroy tank/$ORIGIN", "does not exist"),
        ("ls tank/$ORIGIN:/", "does not exist"),
    ] {
        let refused = bench.fails(command);
        assert!(refused.contains(why) && !refused.contains("verify"), "{command}: {refused}");
    }
    let refused = bench.fails(&format!("cp {} tank:/file/x", bench.text("file")));
    assert!(refused.contains("not a directory") && !refused.contains("verify"), "{refused}");
    bench.done("mkdir -p tank:/a/b/c");
    bench.done("mkdir -p tank:/a/b/../d");
    assert!(bench.done("ls tank:/a").contains('d'));
}
