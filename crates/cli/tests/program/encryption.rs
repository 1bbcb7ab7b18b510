//! Encrypted datasets created by the program: their keys, and the parts readable without them.

use std::fs;
use std::path::Path;

use crate::common::disks::{Disks, MIB, noise};
use cenote_testkit::places_of;

/// Values for `--key`.
const ROOT: &str = "--key tank=pass:a-horse-of-many-words";
/// A key that opens nothing.
const NONE: &str = "--key nobody=pass:nothing-at-all";
const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A pool with an encrypted root file system that contains a file.
fn encrypted() -> (Disks, Vec<u8>) {
    let disks = Disks::new(&[192]);
    let options = "-O encryption=on -O keyformat=passphrase -O pbkdf2iters=100000";
    assert_eq!(disks.cenote(&format!("zpool create {ROOT} {options} tank a"), &[]), "");
    let content = noise(1, 3 * MIB as usize + 77);
    fs::write(disks.path().join("file"), &content).unwrap();
    put(&disks, "tank");
    (disks, content)
}

fn put(disks: &Disks, dataset: &str) {
    let to = format!("{dataset}:/");
    disks.cenote(&format!("cp {ROOT}"), &[&disks.path().join("file"), Path::new(&to)]);
}

fn read(disks: &Disks, key: &str, dataset: &str) -> Vec<u8> {
    let output = disks.run(&format!("cat {key} {dataset}:/file"), &[]);
    assert!(output.status.success(), "{dataset}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn get(disks: &Disks, property: &str, dataset: &str) -> String {
    disks.cenote(&format!("zfs get -H -o value {property} {dataset}"), &[]).trim().to_owned()
}

#[test]
fn what_is_encrypted_is_readable_with_its_key_only() {
    let (disks, content) = encrypted();
    assert!(read(&disks, ROOT, "tank") == content);
    disks.fails("cat tank:/file", "key");
    disks.fails("cat --key tank=pass:another-horse tank:/file", "not the one");
    disks.fails("cp --key tank=pass:another-horse file tank:/other", "not the one");
    let raw = fs::read(disks.path().join("a")).unwrap();
    assert!(places_of(&content[..64], &raw).is_empty(), "its content is on disk in clear");
    assert_eq!(get(&disks, "encryption", "tank"), "aes-256-gcm");
    assert_eq!(get(&disks, "keylocation", "tank"), "prompt");
    disks.zdb_is_content();
    disks.cenote("verify tank", &[]);
}

#[test]
fn children_have_their_parents_key_or_their_own() {
    let (disks, content) = encrypted();
    disks.cenote(&format!("zfs create {ROOT} tank/child"), &[]);
    fs::write(disks.path().join("key"), format!("{HEX}\n")).unwrap();
    let place = disks.path().join("key").display().to_string();
    let own = format!("-o encryption=aes-192-ccm -o keyformat=hex -o keylocation=file://{place}");
    disks.cenote(&format!("zfs create {ROOT} {own} tank/own"), &[]);
    disks.cenote("zfs create -o encryption=off tank/clear", &[]);
    for dataset in ["tank/child", "tank/own", "tank/clear"] {
        put(&disks, dataset);
    }
    assert_eq!(get(&disks, "encryptionroot", "tank/child"), "tank");
    assert_eq!(get(&disks, "encryptionroot", "tank/own"), "tank/own");
    assert_eq!(get(&disks, "encryption", "tank/own"), "aes-192-ccm");
    assert!(read(&disks, ROOT, "tank/child") == content);
    assert!(read(&disks, NONE, "tank/own") == content, "the key is where keylocation says");
    assert!(read(&disks, NONE, "tank/clear") == content);
    let scanned = disks.run(&format!("scan -r {NONE} tank"), &[]);
    assert_eq!(scanned.status.code(), Some(3), "what is locked is missing in the list");
    assert!(String::from_utf8_lossy(&scanned.stderr).contains("tank/child: skipped"));
    assert!(String::from_utf8_lossy(&scanned.stdout).contains("tank/clear"));
    disks.zdb_is_content();

    disks.fails(&format!("zfs create {ROOT} -o keylocation=prompt tank/x"), "Keyformat required");
    disks.fails("zfs create -o keyformat=hex tank/clear/x", "Encryption must be turned on");
    disks.fails("zfs create -o encryption=on tank/clear/x", "Keyformat required");
    disks.fails(
        "zfs create -o encryption=on -o keyformat=passphrase --key tank/clear/x=pass:short tank/clear/x",
        "8 to 512",
    );
    disks.fails("zfs create tank/x", "key");
    disks.fails("zfs rename tank/child tank/clear/child", "outside of its encryption root");
}

/// OpenZFS takes the first line of a passphrase or hex key, and exactly 32 bytes of a raw one.
#[test]
fn a_key_is_what_openzfs_takes_wherever_it_comes_from() {
    let disks = Disks::new(&[192]);
    disks.cenote("zpool create tank a", &[]);
    let raw = &b"a raw key\nof two lines, 32 bytes"[..];
    let twice = format!("{HEX}\n{HEX}\n");
    for (name, format, material) in [
        ("pass", "passphrase", &b"longpassword\nlongpassword\n"[..]),
        ("hex", "hex", twice.as_bytes()),
        ("raw", "raw", raw),
    ] {
        let create = format!("zfs create -o encryption=on -o keyformat={format} tank/{name}");
        let made = disks.run_with(&create, material);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::write(disks.path().join(name), material).unwrap();
    }
    for key in [
        "pass=pass:longpassword",
        "pass=file:pass",
        &format!("hex=hex:{HEX}"),
        "hex=file:hex",
        "raw=file:raw",
    ] {
        let root = key.split('=').next().unwrap();
        disks.cenote(&format!("zfs load-key -n --key tank/{key} tank/{root}"), &[]);
    }
    for (key, bytes) in [("longer", [raw, b"!"].concat()), ("shorter", raw[1..].to_vec())] {
        fs::write(disks.path().join(key), bytes).unwrap();
        disks.fails(&format!("zfs load-key -n --key tank/raw=file:{key} tank/raw"), "exactly 32 bytes");
    }
    fs::write(disks.path().join("digits"), format!("{HEX}0\n")).unwrap();
    disks.fails("zfs load-key -n --key tank/hex=file:digits tank/hex", "exactly 64 hexadecimal digits");
    let refused =
        disks.run_with("zfs create -o encryption=on -o keyformat=passphrase tank/x", b"short\nshort\n");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("8 to 512 bytes"), "{said}");
    // An existing dataset opens with the key it was created with; minimum lengths do not apply.
    disks.fails("zfs load-key -n --key tank/pass=pass:short tank/pass", "not the one");
    let words = ["-K", "longpassword", "-dd", "tank/pass"];
    if let Some(output) = cenote_testkit::zdb(disks.path(), &words) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn clones_share_keys_and_keys_change() {
    let (disks, content) = encrypted();
    disks.cenote(&format!("zfs create {ROOT} tank/a"), &[]);
    put(&disks, "tank/a");
    disks.cenote("zfs snapshot tank/a@s", &[]);
    disks.cenote(&format!("zfs clone {NONE} tank/a@s tank/copy"), &[]);
    assert!(read(&disks, ROOT, "tank/copy") == content);

    let new = "--key tank=pass:another-horse";
    disks.cenote(&format!("zfs change-key -o pbkdf2iters=100001 {ROOT} {new} tank"), &[]);
    disks.fails(&format!("cat {ROOT} tank:/file"), "not the one");
    for dataset in ["tank", "tank/a", "tank/copy"] {
        assert!(read(&disks, new, dataset) == content, "{dataset}");
    }
    disks.fails(&format!("zfs load-key -n {ROOT} tank"), "not the one");
    disks.cenote(&format!("zfs load-key -n {new} tank"), &[]);

    let own = format!("--key tank/a=hex:{HEX}");
    disks.cenote(&format!("zfs change-key -o keyformat=hex -o keylocation=prompt {new} {own} tank/a"), &[]);
    assert_eq!(get(&disks, "encryptionroot", "tank/copy"), "tank/a");
    assert!(read(&disks, &own, "tank/copy") == content);
    disks.cenote("zfs bookmark tank/a@s tank/a#mark", &[]);
    let ivset = disks.cenote("zfs get -Hp -o value ivsetguid tank/a@s", &[]);
    assert!(ivset.trim().parse::<u64>().is_ok_and(|guid| guid > 0), "{ivset}");
    assert!(!disks.cenote("zfs get all tank/a@s", &[]).contains("ivsetguid"), "only by name");
    let moved = format!("--key tank/copy=hex:{HEX}");
    disks.cenote(&format!("zfs promote {own} tank/copy"), &[]);
    assert_eq!(get(&disks, "encryptionroot", "tank/a"), "tank/copy");
    assert!(read(&disks, &moved, "tank/a") == content);
    disks.zdb_is_content();
    disks.cenote(&format!("zfs promote {moved} tank/a"), &[]);
    disks.cenote(&format!("zfs change-key -i {new} {own} tank/a"), &[]);
    assert_eq!(get(&disks, "encryptionroot", "tank/a"), "tank");
    assert!(read(&disks, new, "tank/copy") == content);

    disks.cenote("zfs destroy tank/copy", &[]);
    assert!(read(&disks, new, "tank/a") == content);
    disks.cenote("zfs destroy -r tank/a", &[]);
    disks.zdb_is_content();
    disks.cenote("verify tank", &[]);
}

/// Option of OpenZFS after 2.4: the receiver may lie where nothing is encrypted.
#[test]
fn properties_of_encrypted_datasets_are_sent_in_the_clear_only_if_asked() {
    let (disks, content) = encrypted();
    disks.cenote(&format!("zfs create {ROOT} -o compression=zstd -o recordsize=64K tank/sent"), &[]);
    put(&disks, "tank/sent");
    disks.cenote("zfs snapshot tank/sent@s", &[]);
    disks.fails(
        &format!("zfs send {ROOT} -p tank/sent@s"),
        "may not be sent with properties without the raw flag",
    );
    let sent = disks.run(&format!("zfs send {ROOT} -p -U tank/sent@s"), &[]);
    let said = String::from_utf8_lossy(&sent.stderr);
    let warning = "no-preserve-encryption flag set, sending dataset tank/sent without encryption";
    assert!(sent.status.success() && said.contains(warning), "{said}");
    assert!(!places_of(&content[..64], &sent.stdout).is_empty(), "its content is in the stream in clear");

    let other = Disks::new(&[192]);
    other.cenote("zpool create other a", &[]);
    assert!(other.run_with("zfs receive other/got", &sent.stdout).status.success());
    assert!(read(&other, NONE, "other/got") == content);
    assert_eq!(get(&other, "encryption", "other/got"), "off");
    assert_eq!(get(&other, "compression", "other/got"), "zstd");
    assert_eq!(get(&other, "keylocation", "other/got"), "none");
}
