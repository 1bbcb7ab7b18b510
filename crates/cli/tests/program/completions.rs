//! The completions offered for a word, and how bash applies them.

use std::path::Path;
use std::process::Command;

use cenote_testkit::{Golden, golden};

/// The candidates for the last word, without descriptions.
fn candidates(pool: &Golden, line: &str) -> Vec<String> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
    program.args(["complete", "--"]).args(line.split(' ')).env("CENOTE_DISKS", pool.images());
    let output = program.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn verbs_options_and_their_values_are_candidates() {
    let pool = golden("removed");
    for (line, wanted) in [
        ("cenote ver", vec!["verify"]),
        ("cenote zpool stat", vec!["status"]),
        ("/sbin/zpool stat", vec!["status"]),
        ("zfs userspace --j", vec!["--json", "--json-int"]),
        ("zfs userspace -t posixu", vec!["posixuser"]),
        ("zfs list -H -o name,compre", vec!["name,compression", "name,compressratio"]),
        ("zfs get -s inh", vec!["inherited"]),
        ("zfs get compressi", vec!["compression"]),
        ("zfs set compression=lz", vec!["compression=lz4", "compression=lzjb"]),
        ("zpool set autot", vec!["autotrim="]),
        ("zpool set feature@lz", vec!["feature@lz4_compress="]),
        ("zpool create tank /dev/nul", vec![]),
        ("zpool ddtpr", vec!["ddtprune"]),
        // Only names that exist are offered.
        ("zfs jai", vec![]),
        ("cenote compl", vec!["completions"]),
    ] {
        assert_eq!(candidates(&pool, line), wanted, "{line}");
    }
}

#[test]
fn pools_vdevs_datasets_and_snapshots_are_candidates() {
    let pool = golden("removed");
    let disks = format!("zfs --disks {} list gremoved/", pool.images().display());
    for (line, wanted) in [
        ("zpool status g", vec!["gremoved"]),
        ("zpool get all gremoved root", vec!["root-0"]),
        ("zfs list gr", vec!["gremoved"]),
        ("zfs list gremoved/", vec!["gremoved/raw"]),
        ("zfs list -r -o name gremoved/r", vec!["gremoved/raw"]),
        (&*disks, vec!["gremoved/raw"]),
        ("zfs rollback gremoved/", vec!["gremoved/raw@"]),
        ("zfs rollback gremoved@o", vec!["gremoved@one"]),
        ("zfs destroy gremoved@", vec!["gremoved@before", "gremoved@one", "gremoved@two"]),
        ("zfs hold -r tag gremoved@t", vec!["gremoved@two"]),
        ("cenote ls gremoved/", vec!["gremoved/raw:/"]),
        ("zfs list nothing/", vec![]),
    ] {
        assert_eq!(candidates(&pool, line), wanted, "{line}");
    }
}

/// Bash replaces the part of a word after its last '@', '=' or ':'.
#[test]
fn bash_completes_cenote_and_links_to_it() {
    let pool = golden("removed");
    if Command::new("bash").arg("--version").output().is_err() {
        eprintln!("skipped: no bash");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_cenote"));
    std::os::unix::fs::symlink(program, folder.path().join("cenote")).unwrap();
    std::os::unix::fs::symlink(program, folder.path().join("zfs")).unwrap();
    std::fs::write(folder.path().join("zpool"), "OpenZFS's own").unwrap();
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path().join("zpool"), runs).unwrap();
    let script = "export PATH=$1:$PATH; source <(cenote completions bash); \
        try() { COMP_LINE=$1 COMP_POINT=${#1}; _cenote; echo \"${COMPREPLY[*]}\"; }; \
        try 'zfs list gremoved@t'; try 'zfs set compression=lz'; try 'cenote zpool stat'; \
            complete -p | grep _cenote";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash"]).arg(folder.path()).env("CENOTE_DISKS", pool.images());
    let output = bash.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], ["two", "lz4 lzjb", "status"], "{}", String::from_utf8_lossy(&output.stderr));
    assert!(lines[3..].iter().any(|line| line.ends_with(" zfs")), "{text}");
    assert!(!lines[3..].iter().any(|line| line.ends_with(" zpool")), "{text}");
}
