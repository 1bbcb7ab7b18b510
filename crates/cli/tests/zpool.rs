//! `cenote zpool …` on golden pools, against what the OpenZFS kernel module's `zpool` printed.
//!
//! What can't be equal, and why: device names (theirs were loop devices); what the kernel shows as 0 on a read-only import, which
//! reads no space maps (allocated, free, capacity, fragmentation); the words of `status:` and `action:`, which are this program's
//! own; `load_guid`, which is made up at each import. Pools that were not exported were shown by the kernel after it had replayed
//! their intent logs on a copy: what that changed is left out.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use cenote_testkit::{Golden, golden, golden_names};
use common::{cenote, cenote_fails, json};
use std::collections::BTreeSet;
use std::path::Path;

fn was_replayed(pool: &Golden) -> bool {
    pool.facts().state.starts_with("unclean")
}

/// A device's name or path is replaced by `dev`, runs of blanks by one.
fn without_names(line: &str) -> String {
    let word = |word: &str| {
        let file = if word.starts_with('/') { word.rsplit('/').next().unwrap() } else { word };
        let digits = file.trim_start_matches("loop").trim_start_matches("disk").trim_end_matches(".img");
        let is_device = digits != file && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if is_device { "dev".to_owned() } else { word.to_owned() }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// Lines of `zpool status` but for the paragraphs `status:` and `action:`.
fn status_lines(text: &str) -> Vec<String> {
    let mut in_words = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        in_words =
            line.starts_with("status:") || line.starts_with("action:") || in_words && line.starts_with('\t');
        if !in_words {
            lines.push(without_names(line.trim_end_matches("  (resilvering)")));
        }
    }
    lines
}

#[test]
fn status_draws_what_zpool_status_draws() {
    for name in golden_names() {
        let pool = golden(&name).unwrap();
        let ours = cenote(&pool, "zpool status -v", &[&pool.facts().pool]);
        let (mut found, mut wanted) = (status_lines(&ours), status_lines(&pool.text("status.txt")));
        match name.as_str() {
            // At its place the kernel met another disk of the pool, where we find no device.
            "degraded" => {
                let faulted = wanted.iter_mut().find(|line| line.contains("FAULTED")).unwrap();
                *faulted = faulted.replace("FAULTED", "UNAVAIL");
                wanted.iter_mut().for_each(|line| *line = line.replace("ZFS-8000-4J", "ZFS-8000-2Q"));
            }
            // The module says how fast it goes since the import, and how long it will take so.
            "removing" => {
                wanted.iter_mut().filter(|line| line.contains(" copied out of ")).for_each(|line| {
                    let (copied, rest) = line.split_once(" at ").unwrap();
                    let percent = rest.split(", ").nth(1).unwrap();
                    *line = format!("{copied}, {percent}");
                })
            }
            // How far the expansion is: read-only, the kernel does not know how much there is to do, nor do we how fast it went.
            "expanding" => [&mut found, &mut wanted].into_iter().for_each(|lines| {
                lines.retain(|line| !line.contains(" copied"));
            }),
            // A read-only import lists no snapshots.
            "errlog" => [&mut found, &mut wanted].into_iter().for_each(|lines| {
                lines.retain(|line| !line.starts_with("gerrlog/"));
            }),
            // That it was not exported is no news to who has imported it.
            _ if was_replayed(&pool) => found.retain(|line| !line.starts_with("see:")),
            _ => {}
        }
        assert_eq!(found, wanted, "{name}");
        assert_eq!(
            ours.contains("status:"),
            pool.text("status.txt").contains("status:") || was_replayed(&pool)
        );
    }
}

#[test]
fn files_with_known_errors_are_those_that_the_kernel_could_not_read() {
    let Some(pool) = golden("errlog") else { return };
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
    // Snapshots, a clone, and a file that was renamed between them.
    assert_eq!(listed.len(), 10);
}

#[test]
fn list_shows_the_vdevs_sizes_and_states_of_zpool_list() {
    /// name, size, checkpoint, expandsize, dedup, health of a line: what does not depend on space maps.
    fn stable(line: &str) -> Vec<String> {
        let words: Vec<String> = without_names(line).split(' ').map(str::to_owned).collect();
        let keep = [0, 1, 4, 5, 8, 9];
        keep.iter().filter_map(|&i| words.get(i).cloned()).collect()
    }
    for name in golden_names() {
        let pool = golden(&name).unwrap();
        let ours = cenote(&pool, "zpool list -v", &[]);
        let found: Vec<_> = ours.lines().map(stable).collect();
        let mut wanted: Vec<_> = pool.text("list.txt").lines().map(stable).collect();
        if name == "degraded" {
            let missing = wanted.iter_mut().find(|words| words.contains(&"FAULTED".to_owned())).unwrap();
            (missing[1], missing[5]) = ("-".into(), "UNAVAIL".into());
        }
        if name == "spares" {
            // The kernel does not open a disk that is offline, and so does not know its size.
            let offline = wanted.iter_mut().find(|words| words.contains(&"OFFLINE".to_owned())).unwrap();
            offline[1] = "72M".into();
        }
        assert_eq!(found, wanted, "{name}");
    }
}

/// `zdb -b` adds up the blocks that are reachable; where nothing leaks that is what space maps say, logs included. Deduplicated and
/// cloned blocks it meets several times and says how much of the sum that is; what only the checkpoint holds it does not meet.
#[test]
fn allocated_space_is_what_zdb_counts() {
    let mut compared = 0;
    for name in golden_names() {
        let pool = golden(&name).unwrap();
        let zdb = pool.text("zdb-b.txt");
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
        let logs = found["logs"].as_object().into_iter().flatten();
        let logs: u64 = logs.map(|(_, log)| log["alloc_space"].as_u64().unwrap()).sum();
        // What has been copied so far is there twice, and met once.
        if name == "removing" {
            continue;
        }
        let counted = number("bp allocated:") - number("bp deduped:") - number("bp cloned:");
        assert_eq!(value("allocated") + logs, counted + value("checkpoint"), "{name}");
        compared += 1;
    }
    eprintln!("{compared} pools compared");
}

#[test]
fn get_all_prints_every_row_of_zpool_in_its_order() {
    const FROM_SPACE_MAPS: [&str; 4] = ["allocated", "free", "capacity", "fragmentation"];
    const AFTER_REPLAY: [&str; 5] =
        ["bcloneused", "bclonesaved", "bcloneratio", "feature@zilsaxattr", "feature@block_cloning"];
    for name in golden_names() {
        let pool = golden(&name).unwrap();
        let is_compared = |property: &str| {
            property != "load_guid"
                && !FROM_SPACE_MAPS.contains(&property)
                && !(was_replayed(&pool) && AFTER_REPLAY.contains(&property))
        };
        let wanted: Vec<String> = pool
            .properties()
            .into_iter()
            .take_while(|row| row.property != "type")
            .filter(|row| is_compared(&row.property))
            .map(|row| [row.name, row.property, row.value, row.source].join("\t"))
            .collect();
        let ours = cenote(&pool, "zpool get -Hp all", &[]);
        let found: Vec<&str> =
            ours.lines().filter(|line| is_compared(line.split('\t').nth(1).unwrap())).collect();
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn history_is_that_of_zpool_history() {
    for name in golden_names() {
        let pool = golden(&name).unwrap();
        let (found, wanted) = (cenote(&pool, "zpool history -il", &[]), pool.text("history.txt"));
        if was_replayed(&pool) {
            // The import for replaying wrote more.
            assert!(wanted.starts_with(found.trim_end()), "{name}");
        } else {
            assert_eq!(found, wanted, "{name}");
        }
    }
}

#[test]
fn events_are_those_that_the_history_kept() {
    let Some(pool) = golden("snaps") else { return };
    let events = cenote(&pool, "zpool events -H", &["gsnaps"]);
    let internal = pool.text("history.txt").lines().filter(|line| line.contains(" [txg:")).count();
    assert_eq!(events.lines().count(), internal);
    assert!(events.lines().all(|line| line.ends_with("\tsysevent.fs.zfs.history_event")));
}

#[test]
fn import_lists_pools_and_opens_one() {
    let Some(pool) = golden("degraded") else { return };
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
    cenote_fails(&pool, "zpool import -o comment=x gdegr", 2, "not possible here");
    cenote_fails(&pool, "zpool import other", 1, "there are: gdegr");
}

/// Too few disks: the listing says what is missing. Copies of metadata may lie whole on what is left, so something may be readable.
#[test]
fn a_pool_with_too_few_disks_is_told_from_its_labels() {
    let Some(pool) = golden("raidz1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = pool.images().join("disk0.img");
    std::os::unix::fs::symlink(image, folder.path().join("disk0.img")).unwrap();
    let run = |words: &[&str]| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.args(words).arg("-d").arg(folder.path()).output().unwrap()
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

/// `cenote zpool status` on some of a pool's disks.
fn status_with(pool: &Golden, is_there: impl Fn(&str) -> bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    for image in pool.images().read_dir().unwrap().map(|entry| entry.unwrap().path()) {
        let name = Path::new(image.file_name().unwrap());
        if is_there(name.to_str().unwrap()) {
            std::os::unix::fs::symlink(&image, folder.path().join(name)).unwrap();
        }
    }
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = program.args(["zpool", "status", "-d"]).arg(folder.path()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Nothing depends on what now lies where they were, unlike the places of missing disks of the pool itself.
#[test]
fn missing_spares_and_cache_devices_go_by_their_paths() {
    let has_line = |status: &str, wanted: &str| {
        status.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == wanted)
    };
    let Some(pool) = golden("spares") else { return };
    let status = status_with(&pool, |disk| disk != "disk5.img");
    assert!(has_line(&status, "loop5 INUSE currently in use"), "{status}");
    assert!(has_line(&status, "13364365175332016149 UNAVAIL 0 0 0 was /dev/loop5"), "{status}");
    let Some(pool) = golden("special") else { return };
    let status = status_with(&pool, |disk| disk != "disk10.img");
    assert!(has_line(&status, "loop10 UNAVAIL 0 0 0 cannot open"), "{status}");
}

/// What the log alone held is lost, and nothing else.
#[test]
fn a_missing_log_is_told_and_does_not_keep_the_pool_closed() {
    let Some(pool) = golden("unclean-slog") else { return };
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

#[test]
fn json_has_the_shape_of_openzfs() {
    let Some(pool) = golden("special") else { return };
    let status = json(&cenote(&pool, "zpool status -j", &[]));
    let found = &status["pools"]["gspecial"];
    assert_eq!(status["output_version"]["command"], "zpool status");
    assert_eq!((&found["state"], &found["error_count"]), (&"ONLINE".into(), &"0".into()));
    assert_eq!(found["vdevs"]["gspecial"]["vdevs"]["raidz2-0"]["vdevs"].as_object().unwrap().len(), 6);
    assert_eq!(found["special"]["mirror-1"]["class"], "special");
    assert_eq!(found["logs"]["mirror-2"]["vdev_type"], "mirror");
    assert_eq!(found["l2cache"]["disk10.img"]["state"], "HEALTHY");
    let list = json(&cenote(&pool, "zpool list -j --json-int", &[]));
    assert_eq!(list["pools"]["gspecial"]["properties"]["size"]["value"], 620_756_992);
    let get = json(&cenote(&pool, "zpool get -j ashift", &[]));
    assert_eq!(get["pools"]["gspecial"]["properties"]["ashift"]["source"]["type"], "LOCAL");
}
