//! Rescues in several runs: losses stay in the report until the file is read completely.

use super::*;

/// A file with several blocks: its path, its object and the address of its second block.
fn some_file(images: &Path) -> (String, String) {
    let columns = ["--format", "tsv", "--no-header", "--columns", "path,type,nlink,ino,size"];
    let rows = cenote(images, &[&["scan", "single"], &columns[..]].concat()).stdout;
    let rows = String::from_utf8(rows).unwrap();
    for row in rows.lines().map(|row| row.split('\t').collect::<Vec<_>>()) {
        if row[1..3] == ["f", "1"] && row[4].parse::<u64>().unwrap() > 300_000 {
            let object = json(images, &["dump", "object", "single", row[3]]);
            let second =
                object["blocks"].as_array().unwrap().iter().find(|b| b["level"] == 0 && b["block"] == 1);
            let dvas = second.and_then(|block| block["pointer"]["dvas"].as_str());
            if let Some(dvas) = dvas.filter(|dvas| !dvas.is_empty()) {
                return (row[0].into(), dvas.into());
            }
        }
    }
    panic!("no such file: {rows}");
}

fn resume(images: &Path, pool: &str, to: &Path, more: &[&str]) -> Output {
    let path = to.to_str().unwrap();
    cenote(images, &[&["rescue", "--resume", pool, path], more].concat())
}

/// A block of a file and a block of dnodes are lost, then restored.
#[test]
fn what_is_lost_stays_lost_until_it_is_read_whole() {
    let pool = golden("single");
    let images = copies(&pool);
    let (path, dvas) = some_file(images.path());
    destroy(images.path(), &dvas);
    let dnodes = json(images.path(), &["dump", "object", "single/data", "0"]);
    let last = dnodes["blocks"].as_array().unwrap().last().unwrap()["pointer"]["dvas"].clone();
    destroy(images.path(), last.as_str().unwrap());

    let (to, first) = rescue(images.path(), "single", &["--back", "0"]);
    assert_eq!(first.status.code(), Some(3));
    let before = rows(to.path());
    let lost = |rows: &[Vec<String>]| rows.iter().filter(|row| row[0] == "lost").count();
    assert!(lost(&before) > 1, "{before:?}");
    let content = |row: &&Vec<String>| row[2] == format!("/{path}") && row[3] == "content" && row[4] != "-";
    assert!(before.iter().any(|row| content(&row)), "{path}: {before:?}");

    // Nothing has changed: the record is the same in text and JSON, and so is the exit status.
    for more in [&["--back", "0"][..], &["--back", "0", "--json"], &["--back", "0"]] {
        let again = resume(images.path(), "single", to.path(), more);
        assert_eq!(again.status.code(), Some(3), "{}", String::from_utf8_lossy(&again.stderr));
        if more.contains(&"--json") {
            let summary: Value = serde_json::from_slice(&again.stdout).unwrap();
            assert_eq!(summary["lost"].as_u64(), Some(lost(&before) as u64), "{summary}");
        }
    }
    assert_eq!(rows(to.path()), before);
    // A run over another dataset leaves these entries alone.
    let other = resume(images.path(), "single", to.path(), &["--dataset", "single/vol"]);
    assert!(other.status.code() != Some(0), "{}", String::from_utf8_lossy(&other.stdout));
    assert_eq!(lost(&rows(to.path())), lost(&before));

    let mended = resume(&pool.images(), "single", to.path(), &[]);
    let told = String::from_utf8_lossy(&mended.stdout).into_owned();
    assert_eq!(mended.status.code(), Some(0), "{told}");
    assert_eq!(lost(&rows(to.path())), 0, "{told}");
    for dataset in ["single", "single/data"] {
        let (right, wrong) = compare(&pool, dataset, &to.path().join(dataset));
        assert!(right > 20 && wrong.is_empty(), "{dataset}: {right} right; {wrong:?}");
    }
}

/// A file from an older tree is replaced when the newest tree is readable again.
#[test]
fn what_is_older_is_replaced_by_what_is_newest() {
    let pool = golden("single");
    let images = copies(&pool);
    let dnodes = json(images.path(), &["dump", "datasets", "single/data"]);
    let dvas = dnodes["datasets"][0]["dsl_dataset"]["bp"]["dvas"].as_str().unwrap().to_owned();
    destroy(images.path(), &dvas);
    let (to, first) = rescue(images.path(), "single", &[]);
    assert_eq!(first.status.code(), Some(3));
    assert!(rows(to.path()).iter().any(|row| row[0].starts_with("from txg ")));
    let (_, wrong) = compare(&pool, "single/data", &to.path().join("single/data"));
    assert_eq!(wrong, ["more"], "written in the newest txgs");

    let again = resume(&pool.images(), "single", to.path(), &[]);
    assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stdout));
    assert!(!rows(to.path()).iter().any(|row| row[0].starts_with("from txg ")));
    let (right, wrong) = compare(&pool, "single/data", &to.path().join("single/data"));
    assert!(right > 20 && wrong.is_empty(), "{right} right; {wrong:?}");
}

/// A worse copy does not replace an existing one.
#[test]
fn a_worse_copy_replaces_nothing() {
    let pool = golden("single");
    let images = copies(&pool);
    let (path, dvas) = some_file(images.path());
    let (to, first) = rescue(images.path(), "single", &["--dataset", "single"]);
    assert!(first.status.success());
    let file = to.path().join("single").join(unescape(&path));
    let whole = sha256(&file);
    destroy(images.path(), &dvas);
    let again = resume(images.path(), "single", to.path(), &["--dataset", "single"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    assert_eq!(sha256(&file), whole);
}

#[test]
fn a_folder_without_a_report_is_no_rescue_to_go_on_with() {
    let pool = golden("single");
    let to = tempfile::tempdir().unwrap();
    fs::write(to.path().join("file"), "of another").unwrap();
    let refused = resume(&pool.images(), "single", to.path(), &[]);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("no report of an earlier rescue"), "{told}");
    assert_eq!(to.path().read_dir().unwrap().count(), 1);
}
