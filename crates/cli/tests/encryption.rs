//! Encrypted datasets, made by the program: their keys, and what is readable without them.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

#[path = "common/disks.rs"]
mod disks;

use std::fs;
use std::path::Path;

use disks::{Disks, MIB, noise};

/// Keys that `--key` gives.
const ROOT: &str = "--key tank=pass:a-horse-of-many-words";
/// A key that nothing has.
const NONE: &str = "--key nobody=pass:nothing-at-all";
const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A pool whose root file system is encrypted, with a file in it.
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
    assert!(!raw.windows(64).any(|window| window == &content[..64]), "its content is on disk in clear");
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

#[test]
fn clones_share_keys_and_keys_change() {
    let (disks, content) = encrypted();
    disks.cenote(&format!("zfs create {ROOT} tank/a"), &[]);
    put(&disks, "tank/a");
    disks.cenote("zfs snapshot tank/a@s", &[]);
    disks.cenote(&format!("zfs clone {ROOT} tank/a@s tank/copy"), &[]);
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
