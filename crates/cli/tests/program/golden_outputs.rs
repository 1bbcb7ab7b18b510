//! OpenZFS's output for the golden pools (`zpool list -v`, `zpool status -v`, `zpool history -il`, `zpool
//! get` and `zfs get` of all) equals ours byte for byte. One table lists every part that can't be equal, with
//! the reason.
//!
//! Devices have the same names as there: loop0, loop1...

use std::path::Path;
use std::process::Command;

use crate::common::cenote;
use cenote_testkit::{Golden, golden_names, golden_pools, shared};

/// The part of an output not compared.
enum What {
    /// These columns of a table.
    Columns(&'static [&'static str]),
    /// The paragraph with this label.
    Paragraph(&'static str),
    /// Lines that contain these words.
    Lines(&'static str),
    /// These words.
    Words(&'static str),
    /// The row of this property.
    Property(&'static str),
    /// The rest of OpenZFS's output, after ours ends.
    Rest,
}

use What::{Columns, Lines, Paragraph, Property, Rest, Words};

/// Pool ("" for all, "unclean" for those whose intent logs the kernel replayed before it printed, "2.3" for
/// those of OpenZFS 2.3), output, part, and reason.
const INHERENT: &[(&str, &str, What, &str)] = &[
    (
        "",
        "list",
        Columns(&["ALLOC", "FREE", "FRAG", "CAP"]),
        "the kernel's read-only import loads no space maps",
    ),
    ("degraded", "list", Lines("9143153675538644081"), "the kernel found another disk at this disk's path"),
    (
        "spares",
        "list",
        Lines("OFFLINE"),
        "the kernel does not open a disk that is offline: its size is unknown",
    ),
    ("", "status", Paragraph("status:"), "Cenote has its own wording"),
    ("", "status", Paragraph("action:"), "Cenote has its own wording"),
    ("", "status", Words("  (resilvering)"), "a read-only import does not resilver"),
    ("degraded", "status", Lines("9143153675538644081"), "the kernel found another disk at this disk's path"),
    ("degraded", "status", Lines("see:"), "therefore the kernel gives another reason"),
    (
        "errlog",
        "status",
        Lines("gerrlog/"),
        "a read-only import lists no files of snapshots; another test compares them",
    ),
    ("expanding", "status", Lines(" copied"), "a read-only import does not know the amount of work"),
    ("removing", "status", Lines(" copied out of "), "the kernel prints the speed since the import"),
    ("unclean", "status", Lines("see:"), "the kernel has imported it, so the missing export is resolved"),
    ("unclean", "history", Rest, "the import that replayed the logs wrote more"),
    ("", "zpool get", Property("load_guid"), "generated at each import"),
    ("", "zpool get", Property("allocated"), "the kernel's read-only import loads no space maps"),
    ("", "zpool get", Property("free"), "the kernel's read-only import loads no space maps"),
    ("", "zpool get", Property("capacity"), "the kernel's read-only import loads no space maps"),
    ("", "zpool get", Property("fragmentation"), "the kernel's read-only import loads no space maps"),
    ("unclean", "zpool get", Property("bcloneused"), "the replay wrote"),
    ("unclean", "zpool get", Property("bclonesaved"), "the replay wrote"),
    ("unclean", "zpool get", Property("bcloneratio"), "the replay wrote"),
    ("unclean", "zpool get", Property("feature@zilsaxattr"), "the replay wrote"),
    ("unclean", "zpool get", Property("feature@block_cloning"), "the replay wrote"),
    ("2.3", "zpool get", Property("feature@dynamic_gang_header"), "new in OpenZFS 2.4"),
    ("2.3", "zpool get", Property("feature@block_cloning_endian"), "new in OpenZFS 2.4"),
    ("2.3", "zpool get", Property("feature@physical_rewrite"), "new in OpenZFS 2.4"),
    ("", "zpool get", Lines("\tclass_"), "came after OpenZFS 2.4"),
    ("", "zpool get", Property("dedupused"), "came after OpenZFS 2.4"),
    ("", "zpool get", Property("dedupsaved"), "came after OpenZFS 2.4"),
    ("", "zpool get", Property("available"), "came after OpenZFS 2.4"),
    ("", "zpool get", Property("usable"), "came after OpenZFS 2.4"),
    ("", "zpool get", Property("used"), "came after OpenZFS 2.4"),
    ("2.3", "zfs get", Property("defaultuserquota"), "new in OpenZFS 2.4"),
    ("2.3", "zfs get", Property("defaultgroupquota"), "new in OpenZFS 2.4"),
    ("2.3", "zfs get", Property("defaultprojectquota"), "new in OpenZFS 2.4"),
    ("2.3", "zfs get", Property("defaultuserobjquota"), "new in OpenZFS 2.4"),
    ("2.3", "zfs get", Property("defaultgroupobjquota"), "new in OpenZFS 2.4"),
    ("2.3", "zfs get", Property("defaultprojectobjquota"), "new in OpenZFS 2.4"),
    ("2.3", "zfs get", Property("snapshots_changed_nsecs"), "came after OpenZFS 2.4"),
    ("2.3", "zfs get", Property("special_small_blocks"), "volumes have it since OpenZFS 2.4"),
    ("degraded", "list", Lines("loop3"), "the kernel counted only the disks present"),
    ("degraded", "list", Lines("loop4"), "the kernel counted only the disks present"),
    ("degraded", "list", Lines("loop5"), "the kernel counted only the disks present"),
    ("degraded", "status", Lines("loop3"), "the kernel counted only the disks present"),
    ("degraded", "status", Lines("loop4"), "the kernel counted only the disks present"),
    ("degraded", "status", Lines("loop5"), "the kernel counted only the disks present"),
];

fn was_replayed(pool: &Golden) -> bool {
    pool.facts().state.starts_with("unclean")
}

/// An output of a pool without the parts that can't be equal.
fn comparable(pool: &Golden, output: &str, text: &str) -> String {
    let is_meant = |of: &str| match of {
        "" => true,
        "unclean" => was_replayed(pool),
        "2.3" => !pool.is_of_2_4(),
        name => name == pool.name(),
    };
    let mut text = text.to_owned();
    for (of, in_output, what, _) in INHERENT {
        if is_meant(of) && *in_output == output {
            text = what.removed(&text);
        }
    }
    text
}

impl What {
    fn removed(&self, text: &str) -> String {
        let lines = |keep: &mut dyn FnMut(&str) -> bool| -> String {
            text.lines().filter(|line| keep(line)).map(|line| line.to_owned() + "\n").collect()
        };
        match self {
            Columns(names) => names.iter().fold(text.to_owned(), |text, name| without_column(&text, name)),
            Lines(words) => lines(&mut |line| !line.contains(words)),
            Words(words) => text.replace(words, ""),
            Property(name) => lines(&mut |line| line.split('\t').nth(1) != Some(name)),
            Paragraph(label) => {
                let mut inside = false;
                lines(&mut |line| {
                    inside = line.starts_with(label) || inside && line.starts_with('\t');
                    !inside
                })
            }
            Rest => text.to_owned(),
        }
    }
}

/// A column of numbers ends where its heading ends. Its position and width remain.
fn without_column(text: &str, name: &str) -> String {
    let heading = text.lines().next().unwrap_or_default();
    let Some(start) = heading.find(name) else { return text.to_owned() };
    let end = start + name.len();
    let line = |line: &str| match line.get(end..) {
        Some(rest) if line != heading => format!("{:end$}{rest}\n", line[..end - 6].trim_end()),
        _ => line.to_owned() + "\n",
    };
    text.lines().map(line).collect()
}

/// The images under the names of their loop devices.
fn loops(pool: &Golden) -> tempfile::TempDir {
    let number = |path: &Path| -> Option<u32> {
        path.file_name()?.to_str()?.strip_prefix("disk")?.strip_suffix(".img")?.parse().ok()
    };
    let images = pool.images().read_dir().unwrap().map(|image| image.unwrap().path());
    let images: Vec<_> = images.filter_map(|path| Some((number(&path)?, path))).collect();
    let folder = tempfile::tempdir().unwrap();
    for (number, image) in images {
        std::os::unix::fs::symlink(image, folder.path().join(format!("loop{number}"))).unwrap();
    }
    folder
}

/// Compares OpenZFS's output with that of our command on the pool's loop devices, for every golden pool of
/// OpenZFS 2.3: its wording is ours.
fn compare(output: &str, theirs: impl Fn(&Golden) -> String, command: &str) {
    for pool in golden_pools().filter(|pool| !pool.is_of_2_4()) {
        let devices = loops(&pool);
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.args(command.split(' ')).arg("--disks").arg(devices.path());
        let ours = String::from_utf8(program.output().unwrap().stdout).unwrap();
        let ours = ours.replace(devices.path().to_str().unwrap(), "/dev");
        assert_equal(&pool, output, &ours, &theirs(&pool));
        // Both print something or neither does; the wording is not compared. OpenZFS 2.3 found no feature
        // missing from its own pools.
        let lacks_features = ours.contains("are not enabled on the pool");
        let ours = if lacks_features { theirs(&pool) } else { ours };
        let has_reason = |text: &str| text.contains("\nstatus: ");
        assert!(has_reason(&ours) == has_reason(&theirs(&pool)) || was_replayed(&pool), "{}", pool.name());
    }
}

fn assert_equal(pool: &Golden, output: &str, ours: &str, theirs: &str) {
    let (found, wanted) = (comparable(pool, output, ours), comparable(pool, output, theirs));
    let goes_on = INHERENT.iter().any(|(of, in_output, what, _)| {
        matches!(what, Rest) && *of == "unclean" && was_replayed(pool) && *in_output == output
    });
    if goes_on {
        assert!(wanted.starts_with(found.trim_end()), "{}: {output}:\n{found}", pool.name());
        return;
    }
    for (found, wanted) in found.lines().zip(wanted.lines()) {
        assert_eq!(found, wanted, "{}: {output}", pool.name());
    }
    assert_eq!(found, wanted, "{}: {output}", pool.name());
}

#[test]
fn list_prints_what_zpool_list_prints() {
    compare("list", |pool| pool.text("list.txt"), "zpool list -v");
}

#[test]
fn status_prints_what_zpool_status_prints() {
    compare("status", |pool| pool.text("status.txt"), "zpool status -v");
}

#[test]
fn history_prints_what_zpool_history_prints() {
    compare("history", |pool| pool.text("history.txt"), "zpool history -il");
}

/// `props.tsv` has the output of `zpool get`, then of `zfs get`, which begins with a dataset's type.
fn properties(pool: &Golden) -> (String, String) {
    let text = pool.text("props.tsv");
    let is_of_dataset = |line: &&str| line.split('\t').nth(1) == Some("type");
    let first =
        text.lines().take_while(|line| !is_of_dataset(line)).map(|line| line.len() + 1).sum::<usize>();
    let (of_pool, of_datasets) = text.split_at(first.min(text.len()));
    (of_pool.to_owned(), of_datasets.to_owned())
}

#[test]
fn get_all_prints_what_zpool_get_prints() {
    compare("zpool get", |pool| properties(pool).0, "zpool get -Hp all");
}

/// Keys of encrypted pools are given, since they were loaded when OpenZFS printed this.
#[test]
fn get_all_prints_what_zfs_get_prints() {
    for pool in golden_pools().filter(|pool| !pool.is_of_2_4()) {
        // OpenZFS printed the state after replay, which differs from the state on disk.
        if was_replayed(&pool) {
            continue;
        }
        let ours = cenote(&pool, "zfs get -Hp -r -t all all", &[&pool.facts().pool]);
        assert_equal(&pool, "zfs get", &ours, &properties(&pool).1);
    }
}

/// The table must not keep entries no longer needed.
#[test]
fn every_difference_has_a_pool_and_an_output() {
    let names = golden_names();
    for (pool, output, _, why) in INHERENT {
        let is_pool = matches!(*pool, "" | "unclean" | "2.3") || names.iter().any(|name| name == pool);
        assert!(is_pool || shared().is_none(), "{pool}");
        assert!(
            ["list", "status", "history", "zpool get", "zfs get"].contains(output) && why.len() > 10,
            "{pool}: {output}"
        );
    }
}
