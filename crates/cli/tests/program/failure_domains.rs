//! A dRAID with failure domains, of OpenZFS's master: verified, also without a domain, and never written. Its
//! files are compared in `cenote-fs`.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::common::cenote;
use cenote_testkit::{copy_image, golden};

const NAME: &str = "24-fdomains";
const FEATURE: &str = "com.seagate:draid_failure_domains";
const CHILDREN: u64 = 8;
const DOMAINS: u64 = 4;

/// The pool's images without those of some failure domains.
fn without(domains: &[u64]) -> tempfile::TempDir {
    let (folder, images) = (tempfile::tempdir().unwrap(), golden(NAME).images());
    for child in (0..CHILDREN).filter(|child| !domains.contains(&(child % DOMAINS))) {
        let name = format!("disk{child}.img");
        std::os::unix::fs::symlink(images.join(&name), folder.path().join(name)).unwrap();
    }
    folder
}

/// Exit status, output and messages of a command on the disks in a folder.
fn run(disks: &Path, command: &str) -> (Option<i32>, String, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = program.arg("--disks").arg(disks).args(command.split(' ')).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn it_opens_read_only_and_says_why() {
    let (status, text, said) = run(without(&[]).path(), "verify p24fd");
    assert!(status == Some(0) && text.contains("no damage found"), "{text}{said}");
    assert!(said.contains("'p24fd' is opened read-only") && said.contains(FEATURE), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn it_has_the_name_and_properties_that_openzfs_shows() {
    let pool = golden(NAME);
    let name_in =
        |text: &str| text.split_whitespace().find(|word| word.starts_with("draid1:")).map(str::to_owned);
    let name = name_in(&cenote(&pool, "zpool status", &["p24fd"]));
    assert_eq!(name.as_deref(), Some("draid1:2d:4c:8w:1s-0"));
    assert_eq!(name, name_in(&pool.text("status.txt")));
    let words = "zpool get -H -o value failure_group,failure_domain";
    for child in 0..CHILDREN {
        let shown = cenote(&pool, words, &["p24fd", &format!("disk{child}.img")]);
        assert_eq!(shown, format!("{}\n{}\n", child / DOMAINS, child % DOMAINS), "disk{child}");
    }
    assert_eq!(cenote(&pool, words, &["p24fd", "draid1:2d:4c:8w:1s-0"]), "");
}

#[test]
fn it_bears_the_loss_of_a_whole_domain() {
    for domain in 0..DOMAINS {
        let (status, text, said) = run(without(&[domain]).path(), "verify p24fd");
        assert_eq!(status, Some(3), "{text}{said}");
        for words in ["no data is lost, redundancy is gone", "the next failure there loses data"] {
            assert!(text.contains(words), "without domain {domain}: {text}{said}");
        }
        let (_, text, _) = run(without(&[domain]).path(), "zpool status p24fd");
        assert!(text.contains("state: DEGRADED"), "{text}");
    }
    let (_, text, _) = run(without(&[0, 2]).path(), "zpool status p24fd");
    assert!(text.contains("state: UNAVAIL"), "{text}");
}

#[test]
fn no_command_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("disks")).unwrap();
    for child in 0..CHILDREN {
        let name = format!("disk{child}.img");
        copy_image(&golden(NAME).images().join(&name), &at("disks").join(name));
    }
    File::create(at("new")).unwrap().set_len(320 << 20).unwrap();
    let written =
        |child: u64| at("disks").join(format!("disk{child}.img")).metadata().unwrap().modified().unwrap();
    let before: Vec<_> = (0..CHILDREN).map(written).collect();
    let new = at("new").display().to_string();
    for command in [
        "zfs create p24fd/new",
        "zfs snapshot p24fd@new",
        "zfs destroy p24fd/r4k@s",
        "zfs set atime=off p24fd",
        "zfs rollback p24fd@s",
        "zfs clone p24fd@s p24fd/new",
        "mkdir p24fd:/new",
        "rm p24fd:/tiny1",
        "rebalance p24fd",
        "zpool scrub p24fd",
        "zpool resilver p24fd",
        "zpool set comment=new p24fd",
        &format!("zpool add p24fd {new}"),
        &format!("zpool replace p24fd disk0.img {new}"),
        "zpool replace p24fd disk0.img draid1-0-0",
        "zpool offline p24fd disk0.img",
        "zpool clear p24fd",
        "zpool reguid p24fd",
        "zpool checkpoint p24fd",
        "zpool trim p24fd",
        "zpool sync p24fd",
        "zpool export -f p24fd",
        "zpool import p24fd other",
        "zpool destroy p24fd",
    ] {
        let (status, text, said) = run(&at("disks"), command);
        assert_eq!(status, Some(1), "{command}: {text}{said}");
        assert!(said.contains("not changed: ") && said.contains(FEATURE), "{command}: {said}");
    }
    assert!((0..CHILDREN).map(written).eq(before), "a disk was written");
}
