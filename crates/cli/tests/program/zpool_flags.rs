//! The flags of `cenote zpool status`: parts they omit, parts they add, and the names of devices.

use crate::common::{cenote, cenote_fails};
use cenote_testkit::{golden, needs};

/// The first words of the tree's lines: the vdevs' names.
fn names(status: &str) -> Vec<&str> {
    let tree = status.split("CKSUM").nth(1).unwrap_or_default();
    let tree = tree.split("errors:").next().unwrap_or_default();
    tree.lines().filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "SLOW").collect()
}

#[needs("raidz1")]
#[test]
fn x_leaves_out_pools_that_are_well() {
    let well = golden("raidz1");
    let ill = golden("spares");
    assert_eq!(cenote(&well, "zpool status -x", &[]), "all pools are healthy\n");
    assert_eq!(cenote(&well, "zpool status -x", &["graidz1"]), "pool 'graidz1' is healthy\n");
    let both = cenote(&ill, "zpool status -x --disks", &[well.images().to_str().unwrap()]);
    assert!(both.contains("pool: gspares") && !both.contains("graidz1"), "{both}");
}

/// A version before feature flags is not a problem.
#[needs("legacy-v28")]
#[test]
fn x_leaves_out_old_pools() {
    let old = golden("legacy-v28");
    assert_eq!(cenote(&old, "zpool status -x", &[]), "all pools are healthy\n");
}

#[needs("special")]
#[test]
fn e_leaves_out_devices_that_are_well() {
    let ill = golden("spares");
    assert_eq!(names(&cenote(&ill, "zpool status -e", &[])), ["gspares", "raidz1-0", "spare-1", "disk1.img"]);
    let well = golden("special");
    assert_eq!(names(&cenote(&well, "zpool status -e", &[])), ["gspecial"]);
}

#[needs("special")]
#[test]
fn i_and_t_tell_of_each_device_and_s_has_a_column() {
    let pool = golden("special");
    let status = cenote(&pool, "zpool status -i -t -s", &[]);
    let disks: Vec<&str> = status.lines().filter(|line| line.contains("disk")).collect();
    assert_eq!(disks.len(), 11);
    // Cache devices are not part of the pool and have no notes.
    for line in disks.iter().filter(|line| !line.contains("disk10")) {
        assert!(line.ends_with("0     0  (uninitialized)  (untrimmed)"), "{line}");
    }
    assert!(!cenote(&pool, "zpool status", &[]).contains("trimmed"));
}

#[test]
fn devices_are_named_as_asked() {
    let pool = golden("single");
    let disk = pool.images().join("disk0.img");
    let disk = disk.canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("bay7");
    std::os::unix::fs::symlink(&disk, &link).unwrap();
    let name = |flags: &str| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.args(["zpool", "status", "--disks"]).arg(&link).args(flags.split_whitespace());
        let status = String::from_utf8(program.output().unwrap().stdout).unwrap();
        names(&status)[1].to_owned()
    };
    assert_eq!(name(""), "bay7");
    assert_eq!(name("-P"), link.to_str().unwrap());
    assert_eq!(name("-L"), "disk0.img");
    assert_eq!(name("-L -P"), disk.to_str().unwrap());
    assert!(name("-g").parse::<u64>().is_ok());
}

/// `zpool status` of a pool with scripts, under some variables; returns the output.
fn with_scripts(folder: &std::path::Path, variables: &[(&str, &str)], words: &str) -> std::process::Output {
    let pool = golden("single");
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
    program.args(["zpool", "status", "--disks"]).arg(pool.images());
    program.args(words.split_whitespace()).env("ZPOOL_SCRIPTS_PATH", folder);
    program.env_remove("ZPOOL_SCRIPTS_AS_ROOT").envs(variables.iter().copied()).env("SECRET", "x");
    program.output().unwrap()
}

#[test]
fn scripts_add_columns_for_each_device() {
    let folder = tempfile::tempdir().unwrap();
    for (name, lines) in [
        (
            "temp",
            "[ \"$1\" = -h ] && echo Shows heat && exit\necho temp=31\necho \"of=${VDEV_PATH##*/}$SECRET\"",
        ),
        ("pool", "echo pool=$POOL_NAME\necho temp=99"),
        ("fails", "echo wrong=1\nexit 1"),
        ("plain", "echo some words"),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{lines}\n")).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::write(folder.path().join("unready"), "#!/bin/sh\necho unready=1\n").unwrap();
    let may = [("ZPOOL_SCRIPTS_AS_ROOT", "1")];
    let text = |words| {
        let output = with_scripts(folder.path(), &may, words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let status = text("-c temp,pool,fails,plain,unready,nosuch,../temp");
    let line = |wanted: &str| status.lines().find(|line| line.trim().starts_with(wanted)).unwrap();
    assert!(line("NAME").ends_with("CKSUM  temp         of    pool"), "{status}");
    assert!(line("disk0.img").ends_with("0    31  disk0.img  single  some words"), "{status}");
    assert!(line("single").ends_with("  0"), "the pool is no device: {status}");
    let shown: serde_json::Value = serde_json::from_str(&text("-j -c temp,plain --json-flat-vdevs")).unwrap();
    let disk = &shown["pools"]["single"]["vdevs"]["disk0.img"];
    assert_eq!((&disk["temp"], &disk["extra_1"]), (&"31".into(), &"some words".into()));
    assert_eq!(disk["parent"], "single");
    assert!(text("-c").contains("Available 'zpool status -c' commands:\n"), "{}", text("-c"));
    assert!(text("-c").contains("  temp            Shows heat\n"), "{}", text("-c"));
}

#[test]
fn root_runs_scripts_only_if_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |variables: &[(&str, &str)]| {
        let output = with_scripts(folder.path(), variables, "-c temp");
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), errors)
    };
    let (status, errors) = refused(&[("ZPOOL_SCRIPTS_ENABLED", "0"), ("ZPOOL_SCRIPTS_AS_ROOT", "1")]);
    assert!(status == Some(1) && errors.contains("disabled by ZPOOL_SCRIPTS_ENABLED"), "{errors}");
    if rustix::process::geteuid().is_root() {
        let (status, errors) = refused(&[]);
        assert!(status == Some(1) && errors.contains("unless ZPOOL_SCRIPTS_AS_ROOT is set"), "{errors}");
    }
    assert_eq!(refused(&[("ZPOOL_SCRIPTS_AS_ROOT", "yes")]).0, Some(0));
}

/// `zpool status -D` prints the same table as `zdb -DD`.
#[test]
fn deduplicated_blocks_are_those_that_zdb_counts() {
    for name in ["dedup", "fastdedup", "single"] {
        let pool = golden(name);
        let status = cenote(&pool, "zpool status -D", &[]);
        let words = ["-DD", &pool.facts().pool];
        let Some(zdb) = cenote_testkit::zdb(&pool.images(), &words) else { return };
        let zdb = String::from_utf8_lossy(&zdb.stdout).into_owned();
        let table = |text: &str| -> Vec<String> {
            let from_heading = text.lines().skip_while(|line| !line.starts_with("bucket"));
            from_heading.take_while(|line| !line.trim().is_empty()).map(str::to_owned).collect()
        };
        assert_eq!(table(&status), table(&zdb), "{name}: {zdb}");
        assert_eq!(status.contains("no DDT entries"), table(&zdb).is_empty(), "{name}");
    }
}

/// Standard output, standard error and exit status.
fn output(pool: &cenote_testkit::Golden, command: &str) -> (String, String, Option<i32>) {
    let output = crate::common::run(pool, command, &[], &[]);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn what_is_not_there_does_not_keep_the_rest_from_being_shown() {
    let pool = golden("single");
    for verb in ["list", "status", "get all", "history", "events"] {
        let (shown, errors, status) = output(&pool, &format!("zpool {verb} nosuch single single other"));
        let (alone, ..) = output(&pool, &format!("zpool {verb} single"));
        assert_eq!((shown, status), (alone, Some(1)), "{verb}");
        assert!(errors.contains("'nosuch'") && errors.contains("'other'"), "{verb}: {errors}");
    }
    for verb in ["list", "get all"] {
        let (shown, errors, status) = output(&pool, &format!("zfs {verb} nosuch single"));
        assert_eq!((shown, status), (output(&pool, &format!("zfs {verb} single")).0, Some(1)), "{verb}");
        assert!(errors.contains("'nosuch'"), "{verb}: {errors}");
    }
}

#[test]
fn intervals_and_counts_show_it_again() {
    let pool = golden("single");
    let shown = |command: &str| output(&pool, command).0;
    let times = |command: &str, word: &str| shown(command).matches(word).count();
    assert_eq!(shown("zpool list -Ho name single 0.01 3"), "single\n".repeat(3));
    assert_eq!(times("zpool list 0.01 3", "NAME"), 1);
    assert_eq!(times("zpool list -v single 0.01 3", "NAME"), 3);
    assert_eq!(times("zpool status single 0.01 2", "pool: single"), 2);
    let stamped = shown("zpool list -T u -Ho name single");
    assert!(stamped.split('\n').next().unwrap().parse::<u64>().is_ok(), "{stamped}");
    assert!(shown("zpool status -T d").split('\n').next().unwrap().contains(" UTC 20"));
    for document in shown("zpool list -j -T u single 0.01 2").lines().map(crate::common::json) {
        assert!(
            document["time"].as_str().unwrap().parse::<u64>().is_ok()
                && document["pools"]["single"].is_object()
        );
    }
    cenote_fails(&pool, "zpool list single 0", 2, "interval cannot be zero");
}

/// Some verbs use `-d` for something else.
#[test]
fn a_path_where_a_pool_belongs_is_told() {
    let pool = golden("single");
    let wrong = format!("zpool status -d {}", pool.images().display());
    cenote_fails(&pool, &wrong, 2, "named by --disks");
}
