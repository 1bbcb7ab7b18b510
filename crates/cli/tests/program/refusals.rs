//! A refused command leaves the disks unchanged: it writes no byte and touches no file. Neither does a
//! read-only command.
//!
//! The verbs are taken from the program's help, so a new verb must be added to the table.

mod crashed;
mod table;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::common::disks::Disks;
use cenote_testkit::{copy_image, golden, needs};
use rustix::fs::{SeekFrom, seek};
use table::{VERBS, Verb};

/// Verbs listed in a command's help.
fn verbs_of(command: &str) -> Vec<String> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = program.args(command.split_whitespace()).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(|name| format!("{command} {name}").trim().to_owned()).collect()
}

#[test]
fn every_verb_is_in_the_table() {
    let all = ["", "zpool", "zfs", "volume"].map(verbs_of).concat();
    assert!(all.len() > 50, "the help lists verbs: {all:?}");
    let missing: Vec<&String> =
        all.iter().filter(|verb| VERBS.iter().all(|(known, _)| known != verb)).collect();
    assert!(missing.is_empty(), "what do these do to pools? {missing:?}");
}

/// A copy of a pool, with the files that commands may need beside it.
struct Bench {
    pool: String,
    folder: tempfile::TempDir,
    /// The original images, as their pieces, with their modification times.
    before: Vec<(PathBuf, Vec<Piece>, SystemTime)>,
}

impl Bench {
    /// `fill` puts the pool's images into a folder and returns its name.
    fn new(fill: impl FnOnce(&Path) -> String) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("disks")).unwrap();
        let pool = fill(&at("disks"));
        for name in ["new", "other"] {
            File::create(at(name)).unwrap().set_len(128 << 20).unwrap();
        }
        std::fs::write(at("host"), b"content").unwrap();
        std::fs::write(at("lua"), format!("return zfs.check.snapshot('{pool}@checked')")).unwrap();
        let mut create = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let created = create.args(["zpool", "create", "other"]).arg(at("other")).output().unwrap();
        assert!(created.status.success(), "{created:?}");
        let mut images: Vec<PathBuf> =
            at("disks").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        images.sort();
        images.extend(["new", "other", "host"].map(at));
        let before = images.into_iter().map(|path| {
            let (pieces, written) = (pieces(&path), written_at(&path));
            (path, pieces, written)
        });
        Bench { pool, before: before.collect(), folder }
    }

    fn golden(name: &str) -> Bench {
        let golden = golden(name);
        Bench::new(|folder| {
            for disk in golden.facts().disks {
                let file = disk.file.trim_end_matches(".zst");
                copy_image(&golden.images().join(file), &folder.join(file));
            }
            golden.facts().pool
        })
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a command and describes any violation: a wrong status, or a write.
    fn wrong_with(&self, verb: &str, arguments: &str, status: Option<i32>) -> Vec<String> {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.current_dir(self.folder.path()).arg("--disks").arg(self.at("disks")).args(verb.split(' '));
        for argument in arguments.split_whitespace() {
            let argument =
                argument.replace("{P}", &self.pool).replace("{IMAGE}", self.before[0].0.to_str().unwrap());
            let argument =
                ["NEW", "OTHER", "HOST", "LUA", "MISSING"].iter().fold(argument, |argument, name| {
                    argument.replace(&format!("{{{name}}}"), &self.at(&name.to_lowercase()))
                });
            program.arg(argument);
        }
        let output = program.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let command = format!("{verb} {arguments}");
        let mut wrong = Vec::new();
        if status.is_some_and(|status| output.status.code() != Some(status)) {
            wrong.push(format!("{command}: {:?}, not {status:?}: {said}", output.status.code()));
        }
        let written = self.before.iter().filter(|(path, _, at)| written_at(path) != *at);
        let written = written.map(|(path, ..)| path.display());
        wrong.extend(written.map(|path| format!("{command}: wrote to {path}: {said}")));
        wrong
    }

    /// Runs the whole table.
    fn assert_nothing_is_written(&self) {
        let mut wrong = Vec::new();
        for (verb, what) in VERBS {
            match what {
                Verb::Apart => {}
                Verb::Looks(arguments) => wrong.extend(self.wrong_with(verb, arguments, None)),
                Verb::Changes(refused) => {
                    for (arguments, status) in *refused {
                        wrong.extend(self.wrong_with(verb, arguments, Some(*status)));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{}: {wrong:#?}", self.pool);
        for (path, before, _) in &self.before {
            assert!(pieces(path) == *before, "{} has changed", path.display());
        }
    }
}

/// Bytes of an image that are not all zero: their offset first. The last piece is empty, at the end.
type Piece = (u64, Vec<u8>);

/// An image without its holes, which are most of it.
fn pieces(path: &Path) -> Vec<Piece> {
    const BYTES: u64 = 64 << 10;
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let (mut pieces, mut at) = (Vec::new(), 0);
    while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
        let offset = data / BYTES * BYTES;
        at = len.min(offset + BYTES);
        let mut bytes = vec![0; (at - offset) as usize];
        file.read_exact_at(&mut bytes, offset).unwrap();
        if bytes.iter().any(|byte| *byte != 0) {
            pieces.push((offset, bytes));
        }
    }
    pieces.push((len, Vec::new()));
    pieces
}

fn written_at(path: &Path) -> SystemTime {
    path.metadata().unwrap().modified().unwrap()
}

#[test]
fn a_pool_of_one_disk_is_left_alone() {
    Bench::golden("single").assert_nothing_is_written();
}

#[test]
fn a_pool_that_is_still_freeing_what_was_destroyed_is_left_alone() {
    Bench::golden("freeing").assert_nothing_is_written();
}

#[test]
fn a_pool_with_deduplicated_and_cloned_blocks_is_left_alone() {
    Bench::golden("fastdedup").assert_nothing_is_written();
}

#[test]
fn a_pool_whose_logs_wait_to_be_replayed_is_left_alone() {
    Bench::new(crashed::make_pool).assert_nothing_is_written();
}

#[test]
fn a_pool_that_openzfs_left_with_logs_is_left_alone() {
    assert_unclean_pool_is_left_alone("unclean-zil");
}

#[needs("unclean-unlinked")]
#[test]
fn a_pool_that_openzfs_left_with_files_without_names_is_left_alone() {
    assert_unclean_pool_is_left_alone("unclean-unlinked");
}

fn assert_unclean_pool_is_left_alone(name: &str) {
    let mut bench = Bench::golden(name);
    crashed::mark_exported(&bench.folder.path().join("disks"));
    for (path, before, written) in &mut bench.before {
        (*before, *written) = (pieces(path), written_at(path));
    }
    bench.assert_nothing_is_written();
}

/// Pending logs are replayed with the first change not refused.
#[test]
fn logs_are_replayed_with_the_first_change() {
    let bench = Bench::new(crashed::make_pool);
    assert_eq!(bench.wrong_with("rm", "{P}:/nosuch", Some(1)), Vec::<String>::new());
    let written = bench.wrong_with("mkdir", "{P}:/new", Some(0));
    assert!(!written.is_empty());
    let list = Command::new(env!("CARGO_BIN_EXE_cenote"))
        .arg("--disks")
        .arg(bench.at("disks"))
        .args(["ls", &format!("{}:/", bench.pool)])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&list.stdout), format!("{}\nnew\n", crashed::COMMITTED));
}

/// Txgs are precious: there are sixteen uberblocks, and each is a state to rewind to.
#[test]
fn a_command_writes_a_group_or_two() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank", &[&disks.path().join("a")]);
    let txg = || {
        let labels = disks.cenote("--json dump uberblock tank", &[]);
        let all: Vec<u64> = labels
            .split("\"txg\":")
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
            .collect();
        all.into_iter().max().unwrap()
    };
    let groups_of = |command: &str| {
        let before = txg();
        disks.cenote(command, &[]);
        txg() - before
    };
    for (command, groups) in [
        ("mkdir tank:/x", 1),
        ("rm -r tank:/x", 1),
        ("zfs set atime=off tank", 2),
        ("zfs snapshot tank@a", 2),
        ("zfs snapshot tank@b", 2),
        ("zfs hold keep tank@a tank@b", 2),
        ("zfs release keep tank@a tank@b", 2),
        ("zfs destroy tank@a%b", 2),
        ("zpool set comment=x tank", 2),
        ("zpool sync tank", 2),
        ("zpool export tank", 0),
    ] {
        assert_eq!(groups_of(command), groups, "{command}");
    }
    disks.zdb_is_content();
}
