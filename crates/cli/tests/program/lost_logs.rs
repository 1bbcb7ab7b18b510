//! Pools whose intent logs are unreadable because their log devices are missing: `zpool import -m`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::disks::{Disks, noise};
use cenote_testkit::{copy_image, golden, needs};

/// A device that can be taken away and brought back.
struct Aside {
    here: PathBuf,
    there: PathBuf,
    _folder: tempfile::TempDir,
}

impl Aside {
    fn take(disks: &Disks, name: &str) -> Aside {
        let folder = tempfile::tempdir_in(disks.path().parent().unwrap()).unwrap();
        let (here, there) = (disks.path().join(name), folder.path().join(name));
        fs::rename(&here, &there).unwrap();
        Aside { here, there, _folder: folder }
    }

    fn bring_back(self) {
        fs::rename(&self.there, &self.here).unwrap();
    }
}

/// A pool whose module crashed with the last commits only on its log devices.
fn torn() -> Disks {
    let golden = golden("unclean-slog");
    let disks = Disks::new(&[]);
    for disk in golden.facts().disks {
        let file = disk.file.trim_end_matches(".zst");
        copy_image(&golden.images().join(file), &disks.path().join(file));
    }
    disks
}

#[needs("unclean-slog")]
#[test]
fn a_lost_log_is_given_up_only_if_that_is_asked_for() {
    let disks = torn();
    let log = Aside::take(&disks, "disk3.img");
    disks.fails("zpool import -m guncslog", "was last in use by oracle and not exported");
    disks.fails("zpool export -f guncslog", "or give up what can't be read with `zpool import -m guncslog`");
    let given_up = disks.run("zpool import -m -f guncslog", &[]);
    let said = String::from_utf8_lossy(&given_up.stderr);
    assert!(given_up.status.success(), "{said}");
    assert!(said.contains("guncslog/a: the intent log was discarded after 0 records: "), "{said}");

    // Everything synced to a txg is present, and the pool accepts changes.
    disks.cenote("zfs snapshot guncslog/a@after", &[]);
    let lost = disks.cenote("zfs diff guncslog/a@before guncslog/a@after", &[]);
    assert_eq!(lost, "M\t/p/a/\n+\t/p/a/first\n", "the rest was in the log");
    let file = disks.path().join("content");
    fs::write(&file, noise(1, 3_000_000)).unwrap();
    disks.cenote("cp", &[&file, Path::new("guncslog/a:/file")]);
    disks.cenote("zpool import -m guncslog", &[]);
    let status = disks.cenote("zpool status guncslog", &[]);
    assert!(status.contains("state: DEGRADED") && status.contains("logs"), "{status}");
    disks.zdb_is_content_with("guncslog");

    log.bring_back();
    disks.cenote("cp", &[&file, Path::new("guncslog/b:/file")]);
    assert!(disks.run("cat guncslog/a:/file", &[]).stdout == noise(1, 3_000_000));
    disks.cenote("verify guncslog", &[]);
    disks.zdb_is_content_with("guncslog");
}

#[needs("unclean-slog")]
#[test]
fn nothing_is_given_up_of_logs_that_can_be_read() {
    let disks = torn();
    disks.cenote("zpool import -m -f guncslog", &[]);
    disks.cenote("zfs snapshot guncslog/a@after", &[]);
    let replayed = disks.cenote("zfs diff guncslog/a@before guncslog/a@after", &[]);
    assert!(replayed.lines().count() > 2, "{replayed}");
    disks.zdb_is_content_with("guncslog");
}

/// Its log is empty, so no data is lost and no confirmation is needed.
#[test]
fn a_pool_that_was_exported_does_without_its_log_device() {
    let disks = Disks::new(&[128; 2]);
    disks.cenote("zpool create tank a log b", &[]);
    let log = Aside::take(&disks, "b");
    let file = disks.path().join("content");
    fs::write(&file, noise(2, 3_000_000)).unwrap();
    disks.cenote("cp", &[&file, Path::new("tank:/file")]);
    disks.zdb_is_content();
    log.bring_back();
    disks.cenote("zfs snapshot tank@a", &[]);
    disks.cenote("verify tank", &[]);
    disks.zdb_is_content();
}
