//! Pools whose newest states are unreadable: the diagnosis is right, and the advice recovers them.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::common::disks::{Disks, noise};

/// Damages the blocks referenced by the newest uberblocks, on all sides of a mirror.
fn damage_newest(disks: &Disks, sides: &[&str], count: usize) {
    let dump: serde_json::Value =
        serde_json::from_str(&disks.cenote("dump uberblock tank --json", &[])).unwrap();
    for uberblock in &dump["ring"].as_array().unwrap()[..count] {
        for dva in uberblock["rootbp"]["dvas"].as_str().unwrap().split(' ') {
            let offset = u64::from_str_radix(dva.split(':').nth(1).unwrap(), 16).unwrap();
            for side in sides {
                let file = fs::OpenOptions::new().write(true).open(disks.path().join(side)).unwrap();
                // VDEV_LABEL_START_SIZE
                file.write_all_at(&[0x5a; 512], offset + (4 << 20)).unwrap();
            }
        }
    }
}

/// Output joined into one line.
fn words(text: &[u8]) -> String {
    String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The `zpool` commands that a text quotes.
fn advised(text: &str) -> Vec<String> {
    let quoted = text.match_indices(['\'', '`']).filter_map(|(at, quote)| {
        let command = text[at + 1..].split(quote).next()?;
        let command = command.strip_prefix("cenote ").unwrap_or(command);
        command.starts_with("zpool ").then(|| command.to_owned())
    });
    quoted.collect()
}

/// A mirror with two files, followed by as many txgs as will be damaged. One command writes them all, since
/// the next command would at once reuse the blocks they freed.
fn mirror(groups: usize) -> Disks {
    let disks = Disks::new(&[128, 128]);
    disks.cenote("zpool create tank mirror a b", &[]);
    disks.fill(1);
    disks.fill(2);
    disks.cenote(&format!("zfs set user:x=1{}", " tank".repeat(groups + 1)), &[]);
    disks
}

#[test]
fn a_whole_pool_loses_nothing() {
    let disks = mirror(0);
    let said = disks.cenote("zpool import -F tank", &[]);
    assert!(said.contains("nothing is lost"), "{said}");
    let said = disks.cenote("zpool import -F -n tank", &[]);
    assert!(said.contains("is intact in its newest state"), "{said}");
}

#[test]
fn what_status_and_import_advise_brings_a_pool_back() {
    for damaged in [1, 3, 9] {
        let disks = mirror(damaged);
        damage_newest(&disks, &["a", "b"], damaged);
        disks.fails("zpool import tank", "checksum");
        disks.fails("ls tank:/", "`cenote zpool status tank` says");
        let shown = disks.run("zpool status tank", &[]);
        assert_eq!(shown.status.code(), Some(3));
        let status = words(&shown.stdout);
        let why = words(&shown.stderr);
        assert!(why.contains("damaged: no copy at") && !why.contains('`'), "advice to run itself: {why}");
        assert!(status.contains("state: FAULTED status: The pool metadata is corrupted"), "{status}");
        assert!(status.contains("tank FAULTED 0 0 0 corrupted data"), "{status}");
        assert!(status.contains("second") && status.contains("ZFS-8000-72"), "{status}");
        let listed = words(&disks.run("zpool import", &[]).stdout);
        assert!(
            listed.contains("state: FAULTED") && listed.contains("tank FAULTED corrupted data"),
            "{listed}"
        );
        assert!(!listed.contains("zpool status"), "the advice is there already: {listed}");
        let json = disks.run("zpool status --json tank", &[]).stdout;
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["pools"]["tank"]["state"], "FAULTED");
        // The advice never loops: each command succeeds, and the last one repairs the pool.
        let commands = advised(&status);
        assert_eq!(commands, ["zpool import -F -n tank", "zpool import -F tank"]);
        let before = disks.images();
        let look = words(disks.cenote(&commands[0], &[]).as_bytes());
        assert!(look.contains("can be rewound from txg") && look.contains("after it will be lost"), "{look}");
        assert!(advised(&look).contains(&commands[1]), "{look}");
        assert!(disks.images() == before, "-n wrote");
        let said = disks.cenote(&commands[1], &[]);
        assert!(said.contains("pool 'tank' was rewound from txg") && said.contains("second"), "{said}");
        assert!(disks.cenote("zpool status tank", &[]).contains("state: ONLINE"));
        disks.assert_filled(1);
        disks.assert_filled(2);
        disks.cenote("verify tank", &[]);
        disks.zdb_is_content();
        disks.fill(3);
        disks.zdb_is_content();
    }
}

#[test]
fn damaged_files_are_put_up_with_only_if_that_is_asked_for() {
    let disks = mirror(6);
    damage_newest(&disks, &["a", "b"], 6);
    let start = noise(1, 512);
    for side in ["a", "b"] {
        let path = disks.path().join(side);
        let at = fs::read(&path).unwrap().windows(512).position(|window| window == start).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xa5; 512], at as u64).unwrap();
    }
    let before = disks.images();
    let refused = disks.run("zpool import -F tank", &[]);
    let why = words(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{why}");
    assert!(why.contains("its files have lost blocks (1)") && disks.images() == before, "{why}");
    assert_eq!(advised(&why), ["zpool import -FX tank"]);
    let said = disks.cenote("zpool import -FX -n tank", &[]);
    assert!(said.contains("`zpool import -FX tank`"), "{said}");
    disks.cenote("zpool import -FX tank", &[]);
    disks.assert_filled(2);
    assert!(!disks.run("cat tank:/file1", &[]).status.success());
}

#[test]
fn a_pool_without_any_state_is_left_to_rescue() {
    let disks = mirror(0);
    let dump: serde_json::Value =
        serde_json::from_str(&disks.cenote("dump uberblock tank --json", &[])).unwrap();
    damage_newest(&disks, &["a", "b"], dump["ring"].as_array().unwrap().len());
    let status = words(&disks.run("zpool status tank", &[]).stdout);
    assert!(status.contains("No older state can be opened. 'cenote rescue tank FOLDER'"), "{status}");
    let before = disks.images();
    for command in ["zpool import -F tank", "zpool import -F -n tank", "zpool import -FX tank"] {
        disks.fails(command, "`cenote rescue tank FOLDER`");
    }
    assert!(disks.images() == before, "a refused command wrote");
}

#[test]
fn an_answer_for_programs_says_what_is_lost() {
    let disks = mirror(3);
    damage_newest(&disks, &["a", "b"], 3);
    let answer = |command: &str, root: &str| {
        let said: serde_json::Value = serde_json::from_str(&disks.cenote(command, &[])).unwrap();
        said[root]["tank"].clone()
    };
    let would = answer("zpool import --json -F -n tank", "would_rewind");
    assert!(would["txg"].as_u64().unwrap() + 3 <= would["from_txg"].as_u64().unwrap(), "{would}");
    assert!(would["lost_seconds"].is_u64(), "{would}");
    assert_eq!(answer("zpool import --json -F tank", "rewound"), would);
    disks.cenote("zpool import tank", &[]);
}

/// Destroys the uberblocks of the newest txgs in all labels of a mirror, and returns their txgs.
fn lose_newest_uberblocks(disks: &Disks, sides: &[&str], count: usize) -> Vec<u64> {
    let dump: serde_json::Value =
        serde_json::from_str(&disks.cenote("dump uberblock tank --json", &[])).unwrap();
    let ring = dump["ring"].as_array().unwrap();
    let txgs: Vec<u64> = ring[..count].iter().map(|one| one["txg"].as_u64().unwrap()).collect();
    let mut destroyed = 0;
    for side in sides {
        let file = fs::OpenOptions::new().read(true).write(true).open(disks.path().join(side)).unwrap();
        let end = file.metadata().unwrap().len() & !0x3ffff;
        for label in [0, 256 << 10, end - (512 << 10), end - (256 << 10)] {
            for at in (0..128 << 10).step_by(1 << 10).map(|slot| label + (128 << 10) + slot) {
                let mut head = [0; 24];
                file.read_exact_at(&mut head, at).unwrap();
                let txg = u64::from_le_bytes(head[16..].try_into().unwrap());
                if head[..8] == 0x00ba_b10c_u64.to_le_bytes() && txgs.contains(&txg) {
                    file.write_all_at(&[0x5a; 512], at).unwrap();
                    destroyed += 1;
                }
            }
        }
    }
    assert_eq!(destroyed, count * sides.len() * 4);
    txgs
}

#[test]
fn newest_uberblocks_that_are_gone_from_all_labels_are_missed() {
    let disks = mirror(4);
    let status = words(disks.cenote("zpool status tank", &[]).as_bytes());
    assert!(!status.contains("uberblock"), "{status}");
    let lost = lose_newest_uberblocks(&disks, &["a", "b"], 3);
    let shown = disks.run("zpool status tank", &[]);
    let (status, note) = (words(&shown.stdout), words(&shown.stderr));
    assert!(shown.status.success() && status.contains("newest uberblocks are damaged"), "{status} {note}");
    let (newest, opens) = (format!("name txg {}", lost[0]), format!("is of txg {}", lost[2] - 1));
    for text in [&status, &note] {
        assert!(text.contains(&newest) && text.contains(&opens), "{lost:?}: {text}");
    }
    let listed = disks.run("zpool import", &[]);
    assert!(words(&listed.stdout).contains(&newest), "{}", words(&listed.stdout));
    disks.assert_filled(1);
    disks.assert_filled(2);
    // The next change becomes the newest state, and nothing is missing any more.
    assert!(disks.run("zfs set user:y=2 tank", &[]).status.success());
    assert!(disks.run(&format!("zfs set user:x=2{}", " tank".repeat(4)), &[]).status.success());
    let status = words(disks.cenote("zpool status tank", &[]).as_bytes());
    assert!(!status.contains("uberblock"), "{status}");
    disks.zdb_is_content();
}
