//! The flags of `cenote zpool status`: what is left out, what is added, how devices are named.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use cenote_testkit::golden;
use common::{cenote, cenote_fails};

/// First words of the tree's lines: the names of vdevs.
fn names(status: &str) -> Vec<&str> {
    let tree = status.split("CKSUM").nth(1).unwrap_or_default();
    let tree = tree.split("errors:").next().unwrap_or_default();
    tree.lines().filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "SLOW").collect()
}

#[test]
fn x_leaves_out_pools_that_are_well() {
    let Some(well) = golden("raidz1") else { return };
    let Some(ill) = golden("spares") else { return };
    assert_eq!(cenote(&well, "zpool status -x", &[]), "all pools are healthy\n");
    assert_eq!(cenote(&well, "zpool status -x", &["graidz1"]), "pool 'graidz1' is healthy\n");
    let both = cenote(&ill, "zpool status -x -d", &[well.images().to_str().unwrap()]);
    assert!(both.contains("pool: gspares") && !both.contains("graidz1"), "{both}");
    // A format from before feature flags is nothing wrong.
    let Some(old) = golden("legacy-v28") else { return };
    assert_eq!(cenote(&old, "zpool status -x", &[]), "all pools are healthy\n");
}

#[test]
fn e_leaves_out_devices_that_are_well() {
    let Some(ill) = golden("spares") else { return };
    assert_eq!(names(&cenote(&ill, "zpool status -e", &[])), ["gspares", "raidz1-0", "spare-1", "disk1.img"]);
    let Some(well) = golden("special") else { return };
    assert_eq!(names(&cenote(&well, "zpool status -e", &[])), ["gspecial"]);
}

#[test]
fn i_and_t_tell_of_each_device_and_s_has_a_column() {
    let Some(pool) = golden("special") else { return };
    let status = cenote(&pool, "zpool status -i -t -s", &[]);
    let disks: Vec<&str> = status.lines().filter(|line| line.contains("disk")).collect();
    assert_eq!(disks.len(), 11);
    // Cache devices are no part of the pool: nothing is noted of them.
    for line in disks.iter().filter(|line| !line.contains("disk10")) {
        assert!(line.ends_with("0     -  (uninitialized)  (untrimmed)"), "{line}");
    }
    assert!(!cenote(&pool, "zpool status", &[]).contains("trimmed"));
}

#[test]
fn devices_are_named_as_asked() {
    let Some(pool) = golden("single") else { return };
    let disk = pool.images().join("disk0.img");
    let disk = disk.canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("bay7");
    std::os::unix::fs::symlink(&disk, &link).unwrap();
    let name = |flags: &str| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.args(["zpool", "status", "-d"]).arg(&link).args(flags.split_whitespace());
        let status = String::from_utf8(program.output().unwrap().stdout).unwrap();
        names(&status)[1].to_owned()
    };
    assert_eq!(name(""), "bay7");
    assert_eq!(name("-P"), link.to_str().unwrap());
    assert_eq!(name("-L"), "disk0.img");
    assert_eq!(name("-L -P"), disk.to_str().unwrap());
    assert!(name("-g").parse::<u64>().is_ok());
}

#[test]
fn scripts_are_refused() {
    let Some(pool) = golden("single") else { return };
    cenote_fails(&pool, "zpool status -c smart", 2, "runs no scripts");
}

/// The table of `zdb -DD` is that of `zpool status -D`.
#[test]
fn deduplicated_blocks_are_those_that_zdb_counts() {
    for name in ["dedup", "fastdedup", "single"] {
        let Some(pool) = golden(name) else { continue };
        let status = cenote(&pool, "zpool status -D", &[]);
        let zdb = std::process::Command::new("zdb")
            .args(["-e", "-p"])
            .arg(pool.images())
            .args(["-DD", &pool.facts().pool])
            .output();
        let Ok(zdb) = zdb else {
            eprintln!("skipped: no zdb");
            return;
        };
        let zdb = String::from_utf8_lossy(&zdb.stdout).into_owned();
        let table = |text: &str| -> Vec<String> {
            let from_heading = text.lines().skip_while(|line| !line.starts_with("bucket"));
            from_heading.take_while(|line| !line.trim().is_empty()).map(str::to_owned).collect()
        };
        assert_eq!(table(&status), table(&zdb), "{name}: {zdb}");
        assert_eq!(status.contains("no DDT entries"), table(&zdb).is_empty(), "{name}");
    }
}
