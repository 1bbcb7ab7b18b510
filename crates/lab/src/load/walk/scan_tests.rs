//! All tools count the same, and leave nothing behind.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::fs;

use super::*;
use crate::load::tree::{Leaf, Names};

fn scan(tool: ScanTool, tree: Option<Shape>) -> Scan {
    Scan { tool, cache: Cache::Warm, tree }
}

fn figure(outcome: &Outcome, name: &str) -> f64 {
    outcome.others.iter().find(|figure| figure.name == name).unwrap().value
}

#[test]
fn walk_and_fd_count_all_files_and_write_nothing_there() {
    let (target, lists) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["a\nb", ".hidden", "c"] {
        fs::create_dir_all(target.path().join("folder")).unwrap();
        fs::write(target.path().join("folder").join(name), "12345").unwrap();
    }
    fs::write(target.path().join(".gitignore"), "c\n").unwrap();
    for tool in [ScanTool::Walk { threads: 3 }, ScanTool::Fd] {
        let outcome =
            scan(tool.clone(), None).run(target.path(), None, lists.path(), &Control::default()).unwrap();
        if outcome.tool.version.is_empty() {
            assert!(outcome.notes[0].starts_with("skipped: fd is not installed"), "{:?}", outcome.notes);
            continue;
        }
        assert_eq!((figure(&outcome, "files"), figure(&outcome, "bytes")), (4.0, 17.0), "{tool:?}");
        assert!(figure(&outcome, "scan.time") > 0.0);
    }
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 2);
    let walk = scan(ScanTool::Walk { threads: 1 }, None);
    let outcome = walk.run(target.path(), None, target.path(), &Control::default()).unwrap();
    assert!(outcome.notes[0].contains("the result folder is inside the scanned tree"), "{:?}", outcome.notes);
    assert_eq!(fs::read_dir(lists.path()).unwrap().count(), 0);
}

#[test]
fn a_tree_is_created_once_for_all_scans() {
    let (target, lists) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let leaf = Leaf::File { bytes: 10 };
    let shape = Shape { leaf, count: 250, per_folder: 100, depth: 2, names: Names::Random, seed: 3 };
    let mut made = Vec::new();
    for _ in 0..2 {
        let outcome = scan(ScanTool::Walk { threads: 2 }, Some(shape))
            .run(target.path(), Some(target.path()), lists.path(), &Control::default())
            .unwrap();
        assert_eq!((figure(&outcome, "files"), figure(&outcome, "bytes")), (250.0, 2500.0));
        // Three folders of leaves and their parent.
        assert_eq!(figure(&outcome, "folders"), 4.0);
        assert_eq!(outcome.streams[0].operations, 254);
        made.push(fs::metadata(target.path().join("scanned")).unwrap().created().ok());
    }
    assert_eq!(made[0], made[1]);
}

#[test]
fn a_pool_scan_counts_only_files_and_skips_other_targets() {
    let lists = tempfile::tempdir().unwrap();
    let script = r"printf 'f\t12\t/a\nb\0d\t2\t/c\0l\t3\t/d\0f\t30\t/c/e\0'";
    let pool = PoolScan {
        target: "/tank".into(),
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
    };
    let scan = scan(ScanTool::Pool(vec![pool]), None);
    let outcome = scan.run(Path::new("/tank"), None, lists.path(), &Control::default()).unwrap();
    assert_eq!((figure(&outcome, "files"), figure(&outcome, "bytes")), (2.0, 42.0));
    assert!(outcome.tool.command.unwrap().starts_with("sh -c 'printf"));
    let outcome = scan.run(Path::new("/home"), None, lists.path(), &Control::default()).unwrap();
    assert_eq!(outcome.notes, ["skipped: not on a pool with readable devices"]);
}
