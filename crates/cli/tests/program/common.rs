//! Runs the built program on golden pools.

pub mod disks;
pub mod verbs;

use std::path::Path;
use std::process::{Command, Output};

use cenote_testkit::Golden;

/// Whether anything can be mounted; if not, prints so (`CENOTE_REQUIRE_FUSE=1`: fails).
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !can {
        assert!(std::env::var_os("CENOTE_REQUIRE_FUSE").is_none(), "no /dev/fuse, or not root");
        println!("skipped: needs root and /dev/fuse");
    }
    can
}

/// Runs `cenote COMMAND TARGETS --disks IMAGES` (the command is split at spaces) with these keys.
pub fn run(pool: &Golden, command: &str, targets: &[&str], keys: &[String]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
    program.args(command.split_whitespace()).args(targets).arg("--disks").arg(pool.images());
    keys.iter().for_each(|key| _ = program.arg("--key").arg(key));
    program.output().unwrap()
}

/// Standard output of a command that must succeed; all keys are given.
pub fn cenote(pool: &Golden, command: &str, targets: &[&str]) -> String {
    let output = run(pool, command, targets, &keys(pool));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{}: cenote {command}: {errors}", pool.name());
    String::from_utf8(output.stdout).unwrap()
}

/// A command that must fail with this exit status and print these words on standard error.
pub fn cenote_fails(pool: &Golden, command: &str, status: i32, words: &str) {
    let output = run(pool, command, &[], &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "cenote {command}: {errors}");
    assert!(errors.contains(words), "cenote {command}: {errors}");
}

/// `--key` options for all roots of a pool; roots below a listed one use its key.
fn keys(pool: &Golden) -> Vec<String> {
    let facts = pool.facts();
    let mut keys = Vec::new();
    for dataset in facts.datasets.iter().filter(|dataset| dataset.encryption.is_some()) {
        let name = &dataset.name;
        let above = |root: &&String| name == *root || name.starts_with(&format!("{root}/"));
        let Some(root) = facts.keys.keys().filter(above).max_by_key(|root| root.len()) else { continue };
        let key = &facts.keys[root];
        let form = if key.keyformat == "hex" { "hex" } else { "pass" };
        match (&key.key, &key.key_hex) {
            (Some(text), _) => keys.push(format!("{name}={form}:{text}")),
            (None, Some(digits)) => keys.push(format!("{name}=file:{}", raw_key(pool, digits))),
            (None, None) => {}
        }
    }
    keys
}

/// A file with a raw key.
fn raw_key(pool: &Golden, digits: &str) -> String {
    let digit = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = digits.as_bytes().chunks(2).map(digit).collect();
    let file =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{digits}.key", pool.name()));
    std::fs::write(&file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Standard output as JSON.
pub fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}
