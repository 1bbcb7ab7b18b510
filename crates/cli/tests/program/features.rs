//! `features`: what is known about each feature, and the state of those of a pool.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::disks::Disks;

fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split('\t').collect()).collect()
}

#[test]
fn the_features_of_a_pool_have_their_state_and_say_who_can_use_it() {
    let disks = Disks::new(&[128; 2]);
    disks.cenote("zpool create -o compatibility=openzfs-2.2 tank a", &[]);
    let shown = disks.cenote("features -H tank", &[]);
    let of = |name: &str| rows(&shown).into_iter().find(|row| row[0] == name).unwrap()[1..].join(" ");
    assert!(of("longname").starts_with("disabled - - read 2.3 reads, writes - "), "{shown}");
    assert!(of("zstd_compress").starts_with("enabled - "), "{shown}");
    assert!(of("spacemap_histogram").starts_with("active "), "{shown}");
    let text = disks.cenote("features tank", &[]);
    assert!(text.starts_with("FEATURE ") && text.contains("STATE"), "{text}");
    let end = "By its active features, pool 'tank' can be used by OpenZFS 2.2 and later.\n";
    assert!(text.ends_with(end), "{text}");
    disks.fails("features nosuch", "nosuch");

    // Also as JSON.
    let disks = Disks::new(&[128; 2]);
    disks.cenote("zpool create -f -o compatibility=openzfs-2.0-linux tank a special b", &[]);
    let json: Value = serde_json::from_str(&disks.cenote("features tank --json", &[])).unwrap();
    let feature = |name: &str| {
        let mut all = json["features"].as_array().unwrap().iter();
        all.find(|feature| feature["name"] == name).unwrap()
    };
    assert_eq!(feature("allocation_classes")["state"]["active"]["uses"], 1);
    assert_eq!(feature("draid")["state"], "disabled");
}

/// `docs/features.md` is made by this test: CENOTE_UPDATE=1 writes it.
#[test]
fn the_document_lists_every_feature() {
    let shown = Command::new(env!("CARGO_BIN_EXE_cenote")).args(["features", "-v", "-H"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let mut table = String::new();
    for row in rows(&shown) {
        let [name, needed, since, cenote, new, first, guid, depends, description] = row[..] else {
            panic!("{row:?}")
        };
        let depends = depends.replace(',', ", ");
        table += &format!("| `{name}` | {description} | {needed} | {since} | {cenote} | {new} ");
        table += &format!("| {first} | {depends} | `{guid}` |\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/features.md");
    let before = fs::read_to_string(&path).unwrap();
    let (head, _) = before.split_once("|---").unwrap();
    let now = format!("{head}|---|---|---|---|---|---|---|---|---|\n{table}");
    if std::env::var_os("CENOTE_UPDATE").is_some() {
        fs::write(&path, &now).unwrap();
    }
    assert!(
        before == now || std::env::var_os("CENOTE_UPDATE").is_some(),
        "run this test with CENOTE_UPDATE=1"
    );
}
