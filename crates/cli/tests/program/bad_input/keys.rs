//! Wrong and missing keys of encrypted datasets.

use cenote_testkit::{golden, needs};

use super::command::{DAMAGED, FAILED, Ran, cenote, text};

fn scan_with(images: &std::path::Path, dataset: &str, key: Option<&str>) -> Ran {
    let mut words = vec!["scan", "-d", text(images), dataset];
    words.extend(key.iter().flat_map(|key| ["--key", key]));
    cenote(&words)
}

#[needs("encrypted")]
#[test]
fn wrong_and_missing_keys() {
    let pool = golden("encrypted");
    let images = pool.images();
    let scan = |dataset: &str, key: Option<&str>| scan_with(&images, dataset, key);
    scan("genc/pass", None).fails(FAILED, &["genc/pass", "encrypted", "--key genc/pass="]);
    for key in ["pass:wrong", "pass:", "hex:00", "file:/dev/null"] {
        let key = format!("genc/pass={key}");
        scan("genc/pass", Some(&key)).fails(FAILED, &["incorrect key for 'genc/pass'"]);
    }
    let hex = |digits: &str| scan("genc/hex", Some(&format!("genc/hex=hex:{digits}")));
    hex("00").fails(FAILED, &["genc/hex", "64 hexadecimal digits"]);
    hex(&"zz".repeat(32)).fails(FAILED, &["genc/hex", "64 hexadecimal digits"]);
    hex(&"00".repeat(32)).fails(FAILED, &["incorrect key for 'genc/hex'"]);
    // A key for another dataset opens nothing; datasets that need no key are still read.
    scan("genc/pass", Some("genc/hex=pass:correct horse battery")).fails(FAILED, &["--key genc/pass="]);
    assert!(!scan("genc/plain", Some("genc/pass=pass:wrong")).succeeds().is_empty());
    assert!(!scan("genc/pass", Some("genc/pass=pass:correct horse battery")).succeeds().is_empty());
}

#[needs("encrypted")]
#[test]
fn a_wrong_key_is_not_passed_over_in_a_tree() {
    let pool = golden("encrypted");
    let images = pool.images();
    let ran = cenote(&["scan", "-r", "-d", text(&images), "--key", "genc/pass=pass:wrong", "genc"]);
    ran.fails(DAMAGED, &["incorrect key for 'genc/pass'"]);
}
