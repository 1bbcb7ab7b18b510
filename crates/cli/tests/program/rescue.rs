//! `cenote rescue` on damaged pools: its output is compared with the module's view before the damage, or
//! outside the damaged part.

mod names;
mod runs;
mod tables;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cenote_testkit::{Golden, copy_image, decompress, golden, needs};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The disk offset of vdev offset 0.
const DATA_START: u64 = 4 << 20;

fn cenote(images: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.arg("-d").arg(images).args(words).output().expect("the program runs")
}

fn json(images: &Path, words: &[&str]) -> Value {
    let output = cenote(images, &[words, &["--json"]].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{words:?}: {e}; {}", String::from_utf8_lossy(&output.stderr)))
}

/// Copies of a golden pool's images that may be damaged.
fn copies(pool: &Golden) -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    for disk in pool.facts().disks {
        let name = disk.file.trim_end_matches(".zst");
        copy_image(&pool.images().join(name), &scratch.path().join(name));
    }
    scratch
}

/// Overwrites every copy of a block on a single-disk pool. `dvas` has the format of `dump`: `0:4e2000:1000
/// 0:...`.
fn destroy(images: &Path, dvas: &str) {
    let disk = File::options().write(true).open(images.join("disk0.img")).unwrap();
    for dva in dvas.split(' ') {
        let parts: Vec<&str> = dva.split(':').collect();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        disk.write_all_at(&vec![0xa5; hex(parts[2]) as usize], DATA_START + hex(parts[1])).unwrap();
    }
}

/// The rows of a report.
fn rows(to: &Path) -> Vec<Vec<String>> {
    let report = fs::read_to_string(to.join("rescue-report.tsv")).unwrap();
    report.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn rescue(images: &Path, pool: &str, more: &[&str]) -> (tempfile::TempDir, Output) {
    let to = tempfile::tempdir().unwrap();
    let path = to.path().to_str().unwrap().to_string();
    let output = cenote(images, &[&["rescue", pool, &path], more].concat());
    (to, output)
}

/// Maps path to (type, sha256 column) of a dataset's manifest.
fn manifest(pool: &Golden, dataset: &str) -> BTreeMap<String, (String, String)> {
    let facts = pool.facts();
    let row = facts.datasets.iter().find(|d| d.name == dataset).unwrap();
    let text = decompress(&fs::read(pool.folder().join(row.manifest.as_ref().unwrap())).unwrap());
    let lines = String::from_utf8(text).unwrap();
    let rows = lines.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    rows.map(|c| (c[0].to_string(), (c[1].to_string(), c[9].to_string()))).collect()
}

fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [b'x', a, b, after @ ..]) => {
                bytes.push(u8::from_str_radix(std::str::from_utf8(&[*a, *b]).unwrap(), 16).unwrap());
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

fn sha256(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Counts the regular files of a manifest whose content in `folder` is correct (unreadable ranges as zeros),
/// and lists the others.
fn compare(pool: &Golden, dataset: &str, folder: &Path) -> (usize, Vec<String>) {
    let (mut right, mut wrong) = (0, Vec::new());
    for (path, (kind, hash)) in manifest(pool, dataset) {
        // Rows for parts of huge files are skipped.
        if kind != "f" || hash.starts_with("extents:") {
            continue;
        }
        let expected = hash.rsplit('|').next().unwrap();
        let file = folder.join(unescape(&path));
        match file.exists() && sha256(&file) == expected {
            true => right += 1,
            false => wrong.push(path),
        }
    }
    (right, wrong)
}

#[test]
fn a_damaged_pool_gives_everything_but_what_is_damaged() {
    let pool = golden("damaged");
    let (to, output) = rescue(&pool.images(), "gdamaged", &["--snapshots"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}{}", String::from_utf8_lossy(&output.stderr));
    for dataset in ["gdamaged", "gdamaged@s", "gdamaged/raw", "gdamaged/raw@s"] {
        let (right, wrong) = compare(&pool, dataset, &to.path().join(dataset));
        assert!(wrong.is_empty(), "{dataset}: {wrong:?}");
        assert!(right > 20, "{dataset}: {right}");
    }
    let report = fs::read_to_string(to.path().join("rescue-report.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = report.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    for dataset in ["gdamaged/raw", "gdamaged/raw@s"] {
        for (path, (_, hash)) in
            manifest(&pool, dataset).iter().filter(|(_, (_, hash))| hash.starts_with("EIO:"))
        {
            let ranges = hash["EIO:".len()..].split('|').next().unwrap().replace(';', ",");
            let row = rows.iter().find(|row| row[1] == dataset && row[2] == format!("/{path}"));
            let row = row.unwrap_or_else(|| panic!("{dataset}/{path} is not in the report: {report}"));
            assert_eq!((row[0], row[3], row[4]), ("lost", "content", &ranges[..]), "{report}");
        }
    }
    assert_eq!(rows.iter().filter(|row| row[0] == "lost").count(), 6, "{report}");
}

#[test]
fn where_the_newest_tree_is_gone_an_older_one_serves() {
    let pool = golden("single");
    let name = pool.facts().pool;
    let name = name.as_str();
    let images = copies(&pool);
    let ring = json(images.path(), &["dump", "uberblock", name]);
    let ring = ring["ring"].as_array().unwrap();
    let newest = ring[0]["txg"].as_u64().unwrap();
    destroy(images.path(), ring[0]["rootbp"]["dvas"].as_str().unwrap());

    let plain = cenote(images.path(), &["zfs", "list", name]);
    assert_ne!(plain.status.code(), Some(0), "the newest tree should be damaged");
    let planned = json(images.path(), &["rescue", "-n", name]);
    let rows = planned.as_array().unwrap();
    assert!(rows.iter().all(|row| row["txg"].as_u64().unwrap() < newest), "{planned}");

    let (to, output) = rescue(images.path(), name, &[]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let (right, wrong) = compare(&pool, name, &to.path().join(name));
    assert!(right > 20 && wrong.is_empty(), "{right} right; {wrong:?}");
    let report = fs::read_to_string(to.path().join("rescue-report.tsv")).unwrap();
    assert!(report.lines().any(|line| line.starts_with("from txg ")), "{report}");
}

#[test]
fn a_dataset_whose_head_is_gone_costs_only_itself() {
    let pool = golden("snaps");
    let facts = pool.facts();
    let images = copies(&pool);
    let tree = json(images.path(), &["dump", "datasets", &facts.pool]);
    let heads: Vec<(&str, &str)> = tree["datasets"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|d| d["kind"] == "filesystem")
        .map(|d| (d["name"].as_str().unwrap(), d["dsl_dataset"]["bp"]["dvas"].as_str().unwrap()))
        .collect();
    let (victim, dvas) = *heads.iter().find(|(name, _)| name.contains('/')).unwrap();
    destroy(images.path(), dvas);
    let (to, output) = rescue(images.path(), &facts.pool, &[]);
    let report = fs::read_to_string(to.path().join("rescue-report.tsv")).unwrap();
    assert_eq!(output.status.code(), Some(3), "{report}");
    assert!(
        report.lines().any(|line| line.starts_with(&format!("lost\t{victim}\t-\tdataset\t"))),
        "{report}"
    );
    for (name, _) in heads.iter().filter(|(name, same)| *name != victim && *same != dvas) {
        let (_, wrong) = compare(&pool, name, &to.path().join(name));
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}

/// Two ways to lose the data of the newest txgs: a dataset's head, or one block of its dnodes.
#[test]
fn what_was_rewritten_lately_comes_from_an_older_tree() {
    let pool = golden("single");
    for whole in [true, false] {
        let images = copies(&pool);
        let victim = match whole {
            true => {
                let tree = json(images.path(), &["dump", "datasets", "single/data"]);
                tree["datasets"][0]["dsl_dataset"]["bp"].clone()
            }
            false => {
                // The last dnode block: the root folder is in an earlier one.
                let dnodes = json(images.path(), &["dump", "object", "single/data", "0"]);
                dnodes["blocks"].as_array().unwrap().last().unwrap()["pointer"].clone()
            }
        };
        destroy(images.path(), victim["dvas"].as_str().unwrap());
        let (to, output) = rescue(images.path(), "single", &[]);
        let report = fs::read_to_string(to.path().join("rescue-report.tsv")).unwrap();
        assert_eq!(output.status.code(), Some(3), "{report}");
        let rows: Vec<Vec<&str>> = report.lines().skip(1).map(|line| line.split('\t').collect()).collect();
        // Only files created in the newest txgs exist nowhere else.
        let lost: Vec<&str> = rows.iter().filter(|row| row[0] == "lost").map(|row| row[2]).collect();
        assert_eq!(lost, if whole { &[][..] } else { &["/more"] }, "{report}");
        assert!(
            rows.iter().filter(|row| row[0].starts_with("from txg ")).count() == rows.len() - lost.len(),
            "{report}"
        );
        assert!(rows.iter().all(|row| row[1] == "single/data" && (row[2] == "-") == whole), "{report}");
        let (right, wrong) = compare(&pool, "single/data", &to.path().join("single/data"));
        assert!(right > 20 && wrong == ["more"], "{right} right; {wrong:?}");
    }
}

#[needs("raidz1")]
#[test]
fn with_a_disk_missing_nothing_is_lost() {
    let pool = golden("raidz1");
    let facts = pool.facts();
    let images = tempfile::tempdir().unwrap();
    for disk in facts.disks.iter().skip(1) {
        let name = disk.file.trim_end_matches(".zst");
        std::os::unix::fs::symlink(pool.images().join(name), images.path().join(name)).unwrap();
    }
    let (to, output) = rescue(images.path(), &facts.pool, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut compared = 0;
    for dataset in facts.datasets.iter().filter(|d| d.kind == "filesystem" && d.manifest.is_some()) {
        let (right, wrong) = compare(&pool, &dataset.name, &to.path().join(&dataset.name));
        assert!(wrong.is_empty(), "{}: {wrong:?}", dataset.name);
        compared += right;
    }
    assert!(compared > 0);
}

#[test]
fn a_truncated_disk_gives_what_is_left_and_says_so() {
    let pool = golden("single");
    let name = pool.facts().pool;
    let name = name.as_str();
    let images = copies(&pool);
    let disk = File::options().write(true).open(images.path().join("disk0.img")).unwrap();
    disk.set_len(disk.metadata().unwrap().len() / 2).unwrap();
    let (to, output) = rescue(images.path(), name, &[]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let status = output.status.code();
    assert!(matches!(status, Some(0 | 3)), "{status:?} {told}");
    if status == Some(3) {
        let report = fs::read_to_string(to.path().join("rescue-report.tsv")).unwrap();
        assert!(report.lines().any(|line| line.starts_with("lost\t")), "{report}");
    }
    let (right, _) = compare(&pool, name, &to.path().join(name));
    assert!(right > 0);
}

#[test]
fn a_destination_in_use_is_refused_and_resuming_copies_nothing_twice() {
    let pool = golden("single");
    let name = pool.facts().pool;
    let name = name.as_str();
    let (to, first) = rescue(&pool.images(), name, &[]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let path = to.path().to_str().unwrap();
    let refused = cenote(&pool.images(), &["rescue", name, path]);
    assert_eq!(refused.status.code(), Some(2));
    let again = json(&pool.images(), &["rescue", "--resume", name, path]);
    assert_eq!((again["files"].as_u64(), again["lost"].as_u64()), (Some(0), Some(0)), "{again}");
    assert!(again["already_there"].as_u64().unwrap() > 20, "{again}");
}

#[test]
fn every_name_of_a_lost_file_is_in_the_report() {
    let pool = golden("single");
    let images = copies(&pool);
    let columns = ["--format", "tsv", "--no-header", "--columns", "path,type,nlink,ino"];
    let rows = cenote(images.path(), &[&["scan", "single"], &columns[..]].concat()).stdout;
    let rows = String::from_utf8(rows).unwrap();
    let linked =
        rows.lines().map(|row| row.split('\t').collect::<Vec<_>>()).filter(|row| row[1..3] == ["f", "2"]);
    let linked: Vec<Vec<&str>> = linked.collect();
    assert!(linked.len() == 2 && linked[0][3] == linked[1][3], "{linked:?}");
    let object = json(images.path(), &["dump", "object", "single", linked[0][3]]);
    destroy(images.path(), object["blocks"][0]["pointer"]["dvas"].as_str().unwrap());
    let (to, output) = rescue(images.path(), "single", &["--back", "0"]);
    assert_eq!(output.status.code(), Some(3));
    let report = fs::read_to_string(to.path().join("rescue-report.tsv")).unwrap();
    for row in &linked {
        assert!(
            report.lines().any(|line| line.split('\t').nth(2) == Some(&format!("/{}", row[0]))),
            "{report}"
        );
    }
}

/// Each level needs an open folder: more than a shell's default limit.
#[test]
fn trees_deeper_than_the_limit_of_open_files_are_copied() {
    let pool = golden("tree");
    let to = tempfile::tempdir().unwrap();
    let line = format!(
        "ulimit -Sn 100; exec {} -d {} rescue --dataset gtree/dirs gtree {}",
        env!("CARGO_BIN_EXE_cenote"),
        pool.images().display(),
        to.path().display()
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let folders = manifest(&pool, "gtree/dirs").into_iter().filter(|(_, (kind, _))| kind == "d");
    let (deepest, _) = folders.max_by_key(|(path, _)| path.split('/').count()).unwrap();
    assert!(deepest.split('/').count() > 100);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(to.path().join("gtree/dirs").join(unescape(&deepest)).is_dir());
}
