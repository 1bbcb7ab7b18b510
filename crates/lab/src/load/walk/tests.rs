//! The walk compared with `find`, on awkward trees.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use super::*;

struct Paths(BTreeSet<Vec<u8>>);

impl Visitor for Paths {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<ControlFlow<()>> {
        let slash: &[u8] = if entry.folder.is_empty() { b"" } else { b"/" };
        assert!(self.0.insert([entry.folder, slash, entry.name].concat()), "visited twice");
        Ok(ControlFlow::Continue(()))
    }
}

fn paths(root: &Path, threads: usize, one_file_system: bool) -> (Walked, BTreeSet<Vec<u8>>) {
    let options = WalkOptions { threads, one_file_system };
    let visitor = || Ok(Paths(BTreeSet::new()));
    let (walked, visitors) = walk(root, options, &Control::default(), visitor).unwrap();
    let count: usize = visitors.iter().map(|visitor| visitor.0.len()).sum();
    let all: BTreeSet<Vec<u8>> = visitors.into_iter().flat_map(|visitor| visitor.0).collect();
    assert_eq!(all.len(), count, "visited by two workers");
    (walked, all)
}

fn found(root: &Path, arguments: &[&str]) -> BTreeSet<Vec<u8>> {
    let find =
        Command::new("find").current_dir(root).args(["-mindepth", "1"]).args(arguments).output().unwrap();
    assert!(find.status.success(), "{}", String::from_utf8_lossy(&find.stderr));
    let names = find.stdout.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.map(|name| name.strip_prefix(b"./").unwrap_or(name).to_vec()).collect()
}

/// Nested folders far deeper than a path can name; `beside` adds a second one at each level.
fn make_deep(root: &Path, name: &str, levels: usize, beside: bool) {
    let open = |fd: &std::os::fd::OwnedFd| openat(fd, name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut folder = openat(CWD, root, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&folder, name, Mode::RWXU).unwrap();
        if beside {
            mkdirat(&folder, "beside", Mode::RWXU).unwrap();
        }
        folder = open(&folder);
    }
    openat(&folder, "bottom", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
}

fn make_awkward(root: &Path) {
    for name in ["plain", " ", "-rf", ".hidden", "a\nb", "\u{e4}\u{1f300}", "*?[", "\\", "tab\t"] {
        fs::write(root.join(name), name).unwrap();
        fs::create_dir_all(root.join("folders").join(name).join("empty")).unwrap();
    }
    fs::write(root.join(OsStr::from_bytes(b"not \xff utf-8 \xfe")), "x").unwrap();
    fs::write(root.join("n".repeat(255)), "x").unwrap();
    symlink("folders", root.join("link to folder")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("..", root.join("folders/up")).unwrap();
    rustix::fs::mknodat(CWD, root.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::create_dir(root.join("flat")).unwrap();
    for number in 0..3000 {
        File::create(root.join(format!("flat/a file with a name of some length {number}"))).unwrap();
    }
    for number in 0..MOST_PENDING + 100 {
        fs::create_dir_all(root.join(format!("wide/{number}"))).unwrap();
    }
    fs::create_dir(root.join("deep")).unwrap();
    make_deep(&root.join("deep"), &"d".repeat(200), 30, false);
    fs::create_dir(root.join("many open")).unwrap();
    make_deep(&root.join("many open"), "a name that makes paths long, ", OPEN_FOLDERS + 50, true);
}

#[test]
fn any_number_of_workers_finds_what_find_finds() {
    let dir = tempfile::tempdir().unwrap();
    make_awkward(dir.path());
    let expected = found(dir.path(), &["-print0"]);
    assert!(expected.iter().any(|path| path.len() > 4096), "a path too long to name");
    let count = |kind| found(dir.path(), &["-type", kind, "-print0"]).len() as u64;
    for threads in [1, 2, 8] {
        let (walked, paths) = paths(dir.path(), threads, true);
        assert!(paths == expected, "{} paths, but find has {}", paths.len(), expected.len());
        assert_eq!((walked.files, walked.folders), (count("f"), count("d")));
        assert_eq!(walked.others, count("l") + count("p"));
        assert_eq!((walked.borders, walked.errors), (0, 0), "{:?}", walked.first_error);
    }
}

#[test]
fn the_root_may_be_a_link_and_sizes_are_summed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(dir.path().join("tree/a"), [0; 1000]).unwrap();
    fs::write(dir.path().join("tree/b"), [0; 24]).unwrap();
    symlink("tree", dir.path().join("link")).unwrap();
    let (walked, _) = paths(&dir.path().join("link"), 2, true);
    assert_eq!((walked.files, walked.bytes), (2, 1024));
    let missing = walk(
        &dir.path().join("no"),
        WalkOptions { threads: 1, one_file_system: true },
        &Control::default(),
        || Ok(Paths(BTreeSet::new())),
    );
    assert!(missing.err().unwrap().to_string().contains("cannot list"));
}

#[test]
fn other_file_systems_are_visited_but_not_entered() {
    let (dev, shm) = (Path::new("/dev"), Path::new("/dev/shm"));
    let differ = || Some(fs::metadata(dev).ok()?.dev() != fs::metadata(shm).ok()?.dev());
    if differ() != Some(true) {
        eprintln!("skipped: /dev/shm is not a file system of its own here");
        return;
    }
    let file = tempfile::NamedTempFile::new_in(shm).unwrap();
    let name = file.path().file_name().unwrap().as_bytes();
    let path = [b"shm/", name].concat();
    let (walked, inside) = paths(dev, 2, true);
    assert!(walked.borders > 0);
    assert!(inside.contains(b"shm".as_slice()) && !inside.contains(&path));
    assert!(paths(dev, 2, false).1.contains(&path));
}

/// Runs a function on meeting an entry of that name.
struct At<F>(&'static [u8], F);

impl<F: FnMut() -> Result<ControlFlow<()>> + Send> Visitor for At<F> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<ControlFlow<()>> {
        if entry.name == self.0 { (self.1)() } else { Ok(ControlFlow::Continue(())) }
    }
}

fn small_tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..200 {
        fs::create_dir_all(dir.path().join(format!("{number}/below"))).unwrap();
        File::create(dir.path().join(format!("{number}/below/leaf"))).unwrap();
    }
    dir
}

#[test]
fn a_folder_that_vanishes_is_counted_and_named() {
    let dir = small_tree();
    let gone = dir.path().join("77");
    let vanish = || {
        At(b"77", || {
            fs::remove_dir_all(&gone).unwrap();
            Ok(ControlFlow::Continue(()))
        })
    };
    let options = WalkOptions { threads: 4, one_file_system: true };
    let (walked, _) = walk(dir.path(), options, &Control::default(), || Ok(vanish())).unwrap();
    assert_eq!(walked.errors, 1);
    assert!(walked.first_error.unwrap().contains("77: No such file"));
    assert_eq!(walked.files, 199);
}

#[test]
fn errors_breaks_and_stops_end_all_workers() {
    let dir = small_tree();
    let options = WalkOptions { threads: 8, one_file_system: true };
    let control = Control::default();
    let fails = || Ok(At(b"leaf", || Err(LabError::Refused("full".into()))));
    assert!(walk(dir.path(), options, &control, fails).err().unwrap().to_string().contains("full"));
    let enough = || Ok(At(b"leaf", || Ok(ControlFlow::Break(()))));
    assert!(walk(dir.path(), options, &control, enough).unwrap().0.files < 200);
    let stops = || {
        Ok(At(b"leaf", || {
            control.stop();
            Ok(ControlFlow::Continue(()))
        }))
    };
    assert!(matches!(walk(dir.path(), options, &control, stops), Err(LabError::Interrupted)));
}
