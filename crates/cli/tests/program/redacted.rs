//! `zfs redact`, and streams without the redacted blocks.

use std::path::Path;

use cenote_testkit::zdb_finds_nothing;

use crate::common::disks::{Disks, noise};

const FILE_BYTES: usize = 3_000_000;

fn put(disks: &Disks, dataset: &str, name: &str, seed: u64) {
    let file = disks.path().join(name);
    std::fs::write(&file, noise(seed, FILE_BYTES)).unwrap();
    disks.cenote("cp", &[&file, Path::new(&format!("{dataset}:/"))]);
    std::fs::remove_file(file).unwrap();
}

#[track_caller]
fn send(from: &Disks, words: &str, to: &Disks, target: &str) -> String {
    let sent = from.run(&format!("zfs send {words}"), &[]);
    assert!(sent.status.success(), "{words}: {}", String::from_utf8_lossy(&sent.stderr));
    let received = to.run_with(&format!("zfs receive {target}"), &sent.stdout);
    String::from_utf8_lossy(&received.stderr).into_owned()
}

#[test]
fn redacted_streams_lack_secrets_until_an_increment_brings_them() {
    let (from, to) = (Disks::new(&[128]), Disks::new(&[128]));
    from.cenote("zpool create tank a", &[]);
    to.cenote("zpool create back a", &[]);
    from.cenote("zfs create tank/home", &[]);
    put(&from, "tank/home", "secret", 1);
    put(&from, "tank/home", "open", 2);
    from.cenote("zfs snapshot tank/home@1", &[]);
    from.cenote("zfs clone tank/home@1 tank/clean", &[]);
    from.cenote("rm tank/clean:/secret", &[]);
    from.cenote("zfs snapshot tank/clean@1", &[]);
    from.cenote("zfs snapshot tank/home@2", &[]);

    from.fails("zfs redact tank/home@1 mark tank/home@0", "does not exist");
    from.fails("zfs redact tank/home@2 mark tank/clean@1", "descend");
    from.cenote("zfs redact tank/home@1 mark tank/clean@1", &[]);
    from.fails("zfs redact tank/home@1 mark tank/clean@1", "already exists");
    from.fails("zfs send -w --redact mark tank/home@1", "raw sends may not be redacted");
    zdb_finds_nothing(from.path(), "tank");

    assert_eq!(send(&from, "--redact mark tank/home@1", &to, "back/home"), "");
    let cat = |file: &str| to.run(&format!("cat back/home:/{file}"), &[]).stdout;
    assert!(cat("open") == noise(2, FILE_BYTES));
    assert!(cat("secret") == vec![0; FILE_BYTES]);
    zdb_finds_nothing(to.path(), "back");

    // A bookmark of a redacted snapshot has its own list.
    to.cenote("zfs bookmark back/home@1 back/home#here", &[]);
    zdb_finds_nothing(to.path(), "back");
    to.cenote("zfs destroy back/home#here", &[]);
    zdb_finds_nothing(to.path(), "back");

    let refused = send(&from, "-i @1 tank/home@2", &to, "back/home");
    assert!(refused.contains("invalid backup stream"), "{refused}");
    assert_eq!(send(&from, "-i #mark tank/home@2", &to, "back/home"), "");
    assert!(cat("open") == noise(2, FILE_BYTES) && cat("secret") == noise(1, FILE_BYTES));
    zdb_finds_nothing(to.path(), "back");
}

/// More guids than fit the list's bonus go to a spill block.
#[test]
fn a_redaction_may_name_many_snapshots() {
    let (from, to) = (Disks::new(&[128]), Disks::new(&[128]));
    from.cenote("zpool create -o compatibility=openzfs-2.3 tank a", &[]);
    to.cenote("zpool create -o compatibility=openzfs-2.3 back a", &[]);
    from.cenote("zfs create tank/home", &[]);
    put(&from, "tank/home", "secret", 1);
    put(&from, "tank/home", "open", 2);
    from.cenote("zfs snapshot tank/home@1", &[]);
    let clean: Vec<String> = (1..=40).map(|number| format!("tank/clean{number}@1")).collect();
    for snapshot in &clean {
        let clone = &snapshot[..snapshot.len() - 2];
        from.cenote(&format!("zfs clone tank/home@1 {clone}"), &[]);
        from.cenote(&format!("rm {clone}:/secret"), &[]);
    }
    from.cenote(&format!("zfs snapshot {}", clean.join(" ")), &[]);
    from.cenote(&format!("zfs redact tank/home@1 mark {}", clean.join(" ")), &[]);
    assert!(from.cenote("zpool get -H -o value feature@redaction_list_spill tank", &[]).contains("active"));
    zdb_finds_nothing(from.path(), "tank");
    assert_eq!(send(&from, "--redact mark tank/home@1", &to, "back/home"), "");
    let cat = |file: &str| to.run(&format!("cat back/home:/{file}"), &[]).stdout;
    assert!(cat("open") == noise(2, FILE_BYTES) && cat("secret") == vec![0; FILE_BYTES]);
    from.cenote("zfs destroy tank/home#mark", &[]);
    assert!(from.cenote("zpool get -H -o value feature@redaction_list_spill tank", &[]).contains("enabled"));
    zdb_finds_nothing(from.path(), "tank");
    zdb_finds_nothing(to.path(), "back");
}
