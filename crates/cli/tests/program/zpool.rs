//! `cenote zpool …` on golden pools, compared with the output of the OpenZFS module's `zpool`.
//!
//! Complete outputs are compared in `golden_outputs`.

use crate::common::{cenote, cenote_fails, json};
use cenote_testkit::{Golden, golden, golden_pools, needs};
use std::collections::BTreeSet;
use std::path::Path;

/// Replaces a device's name or path by `dev` and runs of spaces by one.
fn without_names(line: &str) -> String {
    let word = |word: &str| {
        let file = if word.starts_with('/') { word.rsplit('/').next().unwrap() } else { word };
        let digits = file.trim_start_matches("loop").trim_start_matches("disk").trim_end_matches(".img");
        let is_device = digits != file && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if is_device { "dev".to_owned() } else { word.to_owned() }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// Without `--disks`, this machine's pools are shown: usually none.
#[test]
fn a_machine_without_pools_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["zpool list", "zpool status"] {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.env("CENOTE_SOCKET", folder.path().join("none")).env_remove("CENOTE_DISKS");
        let output = program.args(command.split(' ')).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        assert!(!output.stdout.is_empty(), "{command}: {output:?}");
        // Named disks must hold a pool; otherwise it is an error.
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
        let named = program.args(command.split(' ')).arg("--disks").arg(folder.path()).output().unwrap();
        assert_eq!(named.status.code(), Some(1), "{command}: {named:?}");
    }
}

#[test]
fn files_with_known_errors_are_those_that_the_kernel_could_not_read() {
    let pool = golden("errlog");
    let mut unreadable = BTreeSet::new();
    for dataset in pool.facts().datasets {
        let Some(manifest) = dataset.manifest else { continue };
        for row in pool.text(&manifest).lines().filter(|row| row.contains("\tEIO:")) {
            unreadable.insert(format!("{}:/{}", dataset.name, row.split('\t').next().unwrap()));
        }
    }
    let status = cenote(&pool, "zpool status -v", &["gerrlog"]);
    let (_, files) = status.split_once("in the following files:").unwrap();
    let listed: BTreeSet<String> =
        files.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    assert_eq!(listed, unreadable);
    // Snapshots, a clone, and a file renamed between them.
    assert_eq!(listed.len(), 10);
}

/// `zdb -b` adds up the reachable blocks; without leaks the sum equals that of the space maps, logs included.
/// It meets deduplicated and cloned blocks several times and reports their part of the sum; blocks held only
/// by the checkpoint are not counted.
#[test]
fn allocated_space_is_what_zdb_counts() {
    let mut compared = 0;
    for pool in golden_pools() {
        let (name, zdb) = (pool.name(), pool.text("zdb-b.txt"));
        let number = |key: &str| {
            let line = zdb.lines().find(|line| line.trim().starts_with(key));
            line.and_then(|line| line.split_whitespace().find_map(|word| word.parse::<u64>().ok()))
                .unwrap_or(0)
        };
        if !zdb.contains("No leaks") {
            continue;
        }
        let list = json(&cenote(&pool, "zpool list -v -j --json-int", &[]));
        let found = &list["pools"][&pool.facts().pool];
        let value = |property: &str| found["properties"][property]["value"].as_u64().unwrap_or(0);
        let logs = found["vdevs"]["logs"].as_object().into_iter().flatten();
        let logs: u64 = logs.map(|(_, log)| log["properties"]["allocated"]["value"].as_u64().unwrap()).sum();
        // Copied data already exists twice and is counted once.
        if name == "removing" {
            continue;
        }
        let counted = number("bp allocated:") - number("bp deduped:") - number("bp cloned:");
        assert_eq!(value("allocated") + logs, counted + value("checkpoint"), "{name}");
        compared += 1;
    }
    assert!(compared > 0);
    eprintln!("{compared} pools compared");
}

#[test]
fn events_are_those_that_the_history_kept() {
    let pool = golden("snaps");
    let events = cenote(&pool, "zpool events -H", &["gsnaps"]);
    let internal = pool.text("history.txt").lines().filter(|line| line.contains(" [txg:")).count();
    assert_eq!(events.lines().count(), internal);
    assert!(events.lines().all(|line| line.ends_with("\tsysevent.fs.zfs.history_event")));
}

#[test]
fn import_lists_pools_and_opens_one() {
    let pool = golden("degraded");
    let listed = cenote(&pool, "zpool import", &[]);
    for words in
        ["  pool: gdegr\n", " state: DEGRADED\n", "    id: 18208824389774628486\n", "UNAVAIL   cannot open\n"]
    {
        assert!(listed.contains(words), "{words} in {listed}");
    }
    let opened = cenote(&pool, "zpool import -o readonly=on", &["gdegr"]);
    assert!(opened.contains("opened: read-only, as of txg"), "{opened}");
    let newest: u64 = opened.split("as of txg ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    let earlier = cenote(&pool, &format!("zpool import -T {}", newest - 1), &["gdegr"]);
    assert!(without_names(&earlier).contains("before the newest state"), "{earlier}");
    let listed = cenote(&pool, "zpool import -T 1", &[]);
    assert!(listed.contains("no uberblock of txg 1"), "{listed}");
    cenote_fails(&pool, "zpool import -o comment=x gdegr", 2, "not possible");
    cenote_fails(&pool, "zpool import other", 1, "found: gdegr");
}

/// Too few disks: the listing names the missing ones. Intact copies of metadata may remain, so some data may
/// be readable.
#[needs("raidz1")]
#[test]
fn a_pool_with_too_few_disks_is_told_from_its_labels() {
    let pool = golden("raidz1");
    let folder = tempfile::tempdir().unwrap();
    let image = pool.images().join("disk0.img");
    std::os::unix::fs::symlink(image, folder.path().join("disk0.img")).unwrap();
    let run = |words: &[&str]| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.args(words).arg("--disks").arg(folder.path()).output().unwrap()
    };
    let listed = run(&["zpool", "import"]);
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("state: UNAVAIL") && text.contains("ZFS-8000-3C"), "{text}");
    assert!(
        text.lines().any(|line| without_names(line) == "raidz1-0 UNAVAIL insufficient replicas"),
        "{text}"
    );
    assert!(text.contains("in part") || text.contains("cannot be opened"), "{text}");
    assert_eq!(listed.status.code(), Some(0));
}

/// `cenote zpool status` with a subset of a pool's disks.
fn status_with(pool: &Golden, is_there: impl Fn(&str) -> bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    for image in pool.images().read_dir().unwrap().map(|entry| entry.unwrap().path()) {
        let name = Path::new(image.file_name().unwrap());
        if is_there(name.to_str().unwrap()) {
            std::os::unix::fs::symlink(&image, folder.path().join(name)).unwrap();
        }
    }
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = program.args(["zpool", "status", "--disks"]).arg(folder.path()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Missing pool disks are shown by guid because their paths may be reused; for spares and cache devices that
/// does not matter.
#[needs("special")]
#[test]
fn missing_spares_and_cache_devices_go_by_their_paths() {
    let has_line = |status: &str, wanted: &str| {
        status.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == wanted)
    };
    let pool = golden("spares");
    let status = status_with(&pool, |disk| disk != "disk5.img");
    assert!(has_line(&status, "loop5 INUSE currently in use"), "{status}");
    assert!(has_line(&status, "13364365175332016149 UNAVAIL 0 0 0 was /dev/loop5"), "{status}");
    let pool = golden("special");
    let status = status_with(&pool, |disk| disk != "disk10.img");
    assert!(has_line(&status, "loop10 UNAVAIL 0 0 0 cannot open"), "{status}");
}

/// Only data in the log alone is lost.
#[needs("unclean-slog")]
#[test]
fn a_missing_log_is_told_and_does_not_keep_the_pool_closed() {
    let pool = golden("unclean-slog");
    let folder = tempfile::tempdir().unwrap();
    for disk in ["disk0.img", "disk1.img", "disk2.img"] {
        std::os::unix::fs::symlink(pool.images().join(disk), folder.path().join(disk)).unwrap();
    }
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = program
        .args(["zpool", "import", "-m", "-o", "readonly=on", "guncslog", "-d"])
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("state: DEGRADED") && text.contains("opened: read-only"), "{text}");
    assert!(text.contains("in use by oracle"), "{text}");
    assert!(text.lines().any(|line| without_names(line) == "dev UNAVAIL cannot open"), "{text}");
}

#[needs("special")]
#[test]
fn json_has_the_shape_of_openzfs() {
    let pool = golden("special");
    let status = json(&cenote(&pool, "zpool status -j", &[]));
    let found = &status["pools"]["gspecial"];
    assert_eq!(status["output_version"]["command"], "zpool status");
    assert_eq!((&found["state"], &found["error_count"]), (&"ONLINE".into(), &"0".into()));
    assert_eq!(found["vdevs"]["gspecial"]["vdevs"]["raidz2-0"]["vdevs"].as_object().unwrap().len(), 6);
    assert_eq!(found["special"]["mirror-1"]["class"], "special");
    assert_eq!(found["logs"]["mirror-2"]["vdev_type"], "mirror");
    assert_eq!(found["l2cache"]["disk10.img"]["state"], "ONLINE");
    let list = json(&cenote(&pool, "zpool list -j --json-int", &[]));
    assert_eq!(list["pools"]["gspecial"]["properties"]["size"]["value"], 620_756_992);
    // Net of parity: two of six disks of the RAID-Z, and the log is not counted.
    let (usable, used) = ("class_normal_usable", "class_special_used");
    let command = format!("zpool list -j --json-int -o usable,avail,used,{usable},{used},class_log_size");
    let list = json(&cenote(&pool, &command, &[]));
    let shown = |name: &str| list["pools"]["gspecial"]["properties"][name]["value"].as_u64().unwrap();
    assert_eq!(shown("usable"), shown(usable) + (80 << 20));
    assert_eq!(shown("usable"), shown("available") + shown("used"));
    assert!(shown(usable) < 352 << 20 && shown(used) > 3 << 20 && shown("class_log_size") == 80 << 20);
    let text = cenote(&pool, "zpool get -H -o property,value,source used,dedupused,dedupsaved", &[]);
    assert!(text.ends_with("dedupused\t0\t-\ndedupsaved\t0\t-\n"), "{text}");
    let get = json(&cenote(&pool, "zpool get -j ashift", &[]));
    assert_eq!(get["pools"]["gspecial"]["properties"]["ashift"]["source"]["type"], "LOCAL");
}

/// OpenZFS's cache file supplies the device paths and nothing else.
#[test]
fn import_finds_the_disks_of_a_cache_file() {
    use cenote_format::nvlist::{NvValue, Nvlist};
    let pool = golden("single");
    let list = |name: &str, value: NvValue| {
        let mut list = Nvlist::new();
        list.insert(name, value);
        list
    };
    let image = pool.images().join("disk0.img");
    let leaf = list("path", NvValue::String(image.to_str().unwrap().into()));
    let tree = list("vdev_tree", NvValue::Nvlist(list("children", NvValue::NvlistArray(vec![leaf]))));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zpool.cache");
    std::fs::write(&file, list("anything", NvValue::Nvlist(tree)).encode()).unwrap();
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = program.args(["zpool", "import", "-j", "-c"]).arg(&file).output().unwrap();
    let found = json(&String::from_utf8(output.stdout).unwrap());
    let guid = pool.facts().guid.to_string();
    assert_eq!(found["pools"][&guid]["name"], pool.facts().pool.as_str());
}
