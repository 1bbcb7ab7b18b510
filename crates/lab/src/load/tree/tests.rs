//! Workloads count what exists; a copy equals its source.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::copy::copy;
use super::*;
use crate::LabError;
use crate::load::control::Control;
use crate::load::measurement::Outcome;

fn shape(leaf: Leaf, count: u64, per_folder: u32, depth: u32) -> Shape {
    Shape { leaf, count, per_folder, depth, names: Names::Random, seed: 5 }
}

fn how(control: &Control) -> How<'_> {
    How { workers: 3, order: Order::Random, until: None, control }
}

/// (folders, files, bytes) below `root`.
fn inventory(root: &Path) -> (u64, u64, u64) {
    let mut sum = (0, 0, 0);
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            let below = inventory(&entry.path());
            sum = (sum.0 + 1 + below.0, sum.1 + below.1, sum.2 + below.2);
        } else {
            sum = (sum.0, sum.1 + 1, sum.2 + entry.metadata().unwrap().len());
        }
    }
    sum
}

fn operations(outcome: &Outcome) -> Vec<(&str, u64, u64)> {
    outcome.streams.iter().map(|s| (s.operation.as_str(), s.operations, s.bytes)).collect()
}

#[test]
fn a_tree_has_the_requested_shape_and_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let control = Control::default();
    // 650 leaves, 5 per folder: 130 folders in 3 above them.
    for (depth, folders) in [(0, 0), (1, 130), (2, 133), (3, 134)] {
        let root = dir.path().join(format!("{depth}"));
        let mut tree = Tree::new(shape(Leaf::File { bytes: 10 }, 650, 5, depth), root.clone());
        let made = tree.create(how(&control)).unwrap();
        assert_eq!(inventory(&root), (folders, 650, 6500), "depth {depth}");
        assert_eq!(made.inodes, 650 + folders);
        assert_eq!(made.tallies[0].1.operations(), 650);
        assert_eq!(tree.stat(how(&control)).unwrap().tallies[0].1.operations(), 650);
        assert_eq!(tree.read(how(&control)).unwrap().tallies[0].1.operations(), 650);
        let lists = if depth == 0 { 1 } else { 130 };
        assert_eq!(tree.list(how(&control)).unwrap().tallies[0].1.operations(), lists);
        assert_eq!(tree.delete(how(&control)).unwrap().tallies[0].1.operations(), 650);
        assert!(!root.exists());
    }
}

#[test]
fn names_are_ordered_or_random() {
    let names = |names| {
        let shape = Shape { names, ..shape(Leaf::Folder, 500, 10, 1) };
        let mut name = String::new();
        let name_of = |leaf| {
            shape.name(leaf, &mut name);
            name.clone()
        };
        (0..500).map(name_of).collect::<Vec<String>>()
    };
    assert!(names(Names::Sequential).is_sorted());
    let random = names(Names::Random);
    assert!(!random.is_sorted());
    assert_eq!(random.iter().collect::<std::collections::BTreeSet<_>>().len(), 500);
}

#[test]
fn work_reports_its_measured_steps_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let leaf = Leaf::File { bytes: 5000 };
    let prepare = Step { measured: false, ..Step::measured(Verb::Create, Order::Sequential) };
    let measured =
        [Verb::Stat, Verb::Read, Verb::Copy, Verb::Delete].map(|v| Step::measured(v, Order::Random));
    let steps = [[prepare].as_slice(), &measured].concat();
    let work = TreeWork { shape: shape(leaf, 300, 100, 1), workers: 2, steps };
    let outcome = work.run(dir.path(), &Control::default()).unwrap();
    let expected = [
        ("stat", 300, 0),
        ("read", 300, 1_500_000),
        ("copy", 303, 1_500_000),
        ("create", 303, 0),
        ("read", 300, 1_500_000),
        ("write", 300, 1_500_000),
        // Including those of the copy's root.
        ("attributes", 304, 0),
        ("rename", 300, 0),
        ("delete", 300, 0),
    ];
    assert_eq!(operations(&outcome), expected);
    let inodes = outcome.others.iter().find(|figure| figure.name == "inodes").unwrap().value;
    assert_eq!(inodes, 303.0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_tree_stopped_by_time_has_no_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let control = Control::default();
    let root = dir.path().join("tree");
    let mut tree = Tree::new(shape(Leaf::Folder, u64::MAX, 100, 2), root.clone());
    let until = Some(Instant::now() + Duration::from_millis(50));
    let made = tree.create(How { until, ..how(&control) }).unwrap();
    let (folders, files, _) = inventory(&root);
    assert_eq!((folders, files), (made.inodes, 0));
    assert!(tree.made > 0);
    assert_eq!(tree.stat(how(&control)).unwrap().tallies[0].1.operations(), tree.made);
    tree.delete(how(&control)).unwrap();
    assert!(!root.exists());
}

/// Properties that a copy must preserve: kind and mode, owner, time and content of each entry.
fn contents(root: &Path) -> BTreeMap<PathBuf, (u32, u32, u32, SystemTime, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).chain([folder.clone()])
        {
            let m = fs::symlink_metadata(&path).unwrap();
            let content = match () {
                () if m.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                () if m.is_file() => fs::read(&path).unwrap(),
                () => Vec::new(),
            };
            let relative = path.strip_prefix(root).unwrap().to_owned();
            let is_new =
                all.insert(relative, (m.mode(), m.uid(), m.gid(), m.modified().unwrap(), content)).is_none();
            if m.is_dir() && is_new && path != folder {
                folders.push(path);
            }
        }
    }
    all
}

#[test]
fn a_copy_keeps_content_modes_owners_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("a/empty")).unwrap();
    fs::create_dir_all(source.join("closed")).unwrap();
    fs::write(source.join("a/large"), vec![7; 700_000]).unwrap();
    fs::write(source.join("a/none"), "").unwrap();
    fs::write(source.join("n".repeat(255)), "long").unwrap();
    fs::write(source.join("closed/secret"), "x").unwrap();
    symlink("../nowhere", source.join("a/link")).unwrap();
    let set = |path: &str, mode, seconds| {
        let path = source.join(path);
        let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
        File::open(&path).unwrap().set_times(FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    set("a/large", 0o640, 1_000_000_000);
    set("a/none", 0o4755, 5);
    set("closed/secret", 0o400, 1_700_000_000);
    set("a/empty", 0o711, 1_500_000_000);
    set("a", 0o1777, 1_400_000_000);
    set("closed", 0o500, 1_300_000_000);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(source.join("a/large"), Some(1234), Some(5678)).unwrap();
        std::os::unix::fs::lchown(source.join("a/link"), Some(1234), Some(5678)).unwrap();
    }
    let control = Control::default();
    let done = copy(&source, &dir.path().join("copy"), how(&control)).unwrap();
    assert_eq!(done.inodes, 8);
    assert_eq!(contents(&dir.path().join("copy.0")), contents(&source));
    fs::set_permissions(source.join("closed"), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn copies_repeat_until_time_is_up_and_all_count() {
    let dir = tempfile::tempdir().unwrap();
    let control = Control::default();
    let mut tree = Tree::new(shape(Leaf::File { bytes: 1 }, 50, 10, 1), dir.path().join("tree"));
    let made = tree.create(how(&control)).unwrap().inodes;
    let until = Some(Instant::now() + Duration::from_millis(100));
    let done = copy(&tree.root, &dir.path().join("copy"), How { until, ..how(&control) }).unwrap();
    let (folders, files, _) = inventory(dir.path());
    // Besides the source, and without the roots of tree and copies.
    let roots = fs::read_dir(dir.path()).unwrap().count() as u64;
    assert_eq!(done.inodes, folders + files - roots - made);
}

#[test]
fn vanished_files_are_named_and_a_stop_stops() {
    let dir = tempfile::tempdir().unwrap();
    let control = Control::default();
    let mut tree = Tree::new(shape(Leaf::File { bytes: 1 }, 500, 10, 1), dir.path().join("tree"));
    tree.create(how(&control)).unwrap();
    fs::remove_dir_all(tree.root.join("d7")).unwrap();
    for failed in [tree.stat(how(&control)), tree.read(how(&control)), tree.list(how(&control))] {
        let said = failed.unwrap_err().to_string();
        assert!(said.contains("/tree/d7") && said.contains("No such file"), "{said}");
    }
    control.stop();
    assert!(matches!(tree.stat(how(&control)), Err(LabError::Interrupted)));
    let again = TreeWork {
        shape: tree.shape,
        workers: 2,
        steps: vec![Step::measured(Verb::Create, Order::Sequential)],
    };
    assert!(matches!(again.run(dir.path(), &control), Err(LabError::Interrupted)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "unfinished work is removed");
}
