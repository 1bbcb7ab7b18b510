//! `--json` works with every verb, before or after it: all output is JSON, errors included.

use std::process::Output;

use crate::common::disks::Disks;
use serde_json::Value;

/// Command lines for all verbs, in a workable order. Those after `!` fail.
const LINES: &str = "\
    zpool create -f -n tank mirror a b special c spare d
    zpool create tank mirror a b
    ! zpool create tank a b
    zpool add -n tank mirror c d cache e
    zpool set comment=x tank
    zpool list -v
    ! zpool iostat tank
    ! zpool wait tank
    ! zfs wait tank
    zpool list tank 0.01 2
    ! zpool list tank nosuch
    ! zpool list -o nosuch
    zpool status -v
    zpool get all
    zpool upgrade
    zpool upgrade -v
    zpool upgrade tank
    zpool attach tank a c
    zpool replace tank b d
    zpool replace tank d b
    ! zpool replace tank nosuch d
    zpool evacuate tank b d
    zpool evacuate tank d b
    ! zpool evacuate tank nosuch d
    zpool add -f tank spare d
    zpool remove tank d
    ! zpool remove tank a
    zpool detach tank c
    zpool resilver tank
    zpool offline tank b
    ! zpool offline tank a
    zpool online -e tank b
    zpool clear tank
    zpool reopen tank
    zpool scrub tank
    zpool initialize tank a
    ! zpool initialize -c tank a
    zpool initialize -u tank a
    zpool initialize -z tank a
    zpool trim tank
    zpool trim -a
    zpool scrub -S 2000-01-01 -E 2100-01-01 tank
    ! zpool scrub -C -S 2000-01-01 tank
    ! zpool scrub -s tank
    zpool sync
    zpool reguid tank
    ! zpool reguid -g 0 tank
    zpool condense tank
    ! zpool condense -c -w tank
    zpool scrub -t tank
    ! zpool prefetch tank
    ! zpool ddtprune -p 0 tank
    zpool split -n tank half
    ! zpool split tank tank
    zpool checkpoint tank
    zpool checkpoint -d tank
    zfs create -nv tank/fs
    zfs create -pv tank/fs/below
    zfs create -V 16M -v tank/vol
    zfs create -v -o encryption=on -o keyformat=passphrase --key tank/locked=pass:longpassword tank/locked
    ! zfs create tank/fs
    zfs change-key --key tank/locked=pass:longpassword --key tank/locked=pass:otherpassword tank/locked
    mkdir -p tank/fs:/one/two
    cp file tank/fs:/one/file
    ! cp nosuch tank/fs:/one/file
    ls -lR tank/fs
    ! ls tank/fs:/nosuch
    stat tank/fs:/one/file
    find tank/fs
    du tank/fs
    scan --format jsonl tank/fs
    cp tank/fs:/one/file copy
    volume cp -f file tank/vol
    ! mount tank/fs nosuch
    ! zfs mount tank/fs
    ! zfs unmount tank/fs
    zfs snapshot tank/fs@a
    zfs snapshot tank/fs@b
    rm tank/fs:/one/file
    zfs diff tank/fs@a tank/fs
    zfs bookmark tank/fs@a tank/fs#a
    zfs hold tag tank/fs@a
    zfs holds tank/fs@a
    zfs send -n tank/fs@a
    ! zfs send tank/fs@a
    ! zfs receive tank/received
    ! zfs receive --reshare tank/received
    ! zfs receive -A tank/fs
    ! zfs receive -c tank/fs@a
    zfs redact tank/fs@a mark tank/fs@b
    zfs destroy tank/fs#mark
    replicate -n tank/fs tank/replica
    ! replicate tank/nosuch tank/replica
    ! stream token nosuch
    ! stream ls file
    ! stream verify file
    ! stream recompress file
    ! zfs destroy tank/fs@a
    zfs release tag tank/fs@a
    zfs clone tank/fs@b tank/clone
    zfs promote tank/clone
    zfs promote tank/fs
    zfs destroy tank/clone
    zfs rename tank/fs/below tank/fs/other
    zfs set quota=1G tank/fs
    zfs allow -e mount tank/fs
    zfs allow tank/fs
    zfs unallow -e tank/fs
    zfs inherit compression tank/fs
    zfs program -n tank program.lua tank/fs
    ! zfs program tank file
    zfs list -t all
    zfs get all tank/fs
    zfs upgrade
    zfs upgrade -v
    zfs upgrade tank/fs
    zfs userspace tank/fs
    zfs groupspace tank/fs
    zfs projectspace tank/fs
    ! zfs project nosuch
    ! zfs rewrite nosuch
    zfs rollback tank/fs@b
    zfs destroy -nv tank/fs@a%b
    zfs destroy -rv tank/fs
    ! zfs destroy tank
    zpool version
    zfs version
    zpool history
    zpool events
    rebalance -n tank
    rebalance tank
    verify tank
    features
    features tank
    rescue tank saved
    dump config tank
    trace show trace
    trace replay --size 50% trace
    trace curve trace
    ! trace show file
    ! trace record tank seen
    ! arcstat
    ! top
    ! kstat
    ! tunable
    ! ha status
    ! ha switch tank
    ! ha fence tank
    ! inject
    zpool import
    zpool export tank
    zpool destroy tank
    zpool labelclear -f a
    ! zpool labelclear -f a";

/// Verbs that print no table, list or report (raw files, scripts, a word), and verbs tested elsewhere.
const OTHERS: [&str; 8] =
    ["cat", "completions", "demo", "lab", "man", "serve", "zfs load-key", "zfs unload-key"];

fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap())
}

/// Whether the text is one JSON document, or one object per line.
fn is_json(text: &str) -> bool {
    let is = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    is(text) || text.lines().all(is)
}

/// The verbs listed in the help.
fn verbs(disks: &Disks, tool: &str) -> Vec<String> {
    let help = disks.cenote(&format!("{tool}--help"), &[]);
    let listed = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    let named = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(|name| format!("{tool}{name}")).collect()
}

#[test]
fn whatever_is_printed_is_json() {
    let disks = Disks::new(&[128, 128, 128, 128, 128]);
    std::fs::write(disks.path().join("file"), "content").unwrap();
    std::fs::write(disks.path().join("program.lua"), "args = ...\nreturn args.argv").unwrap();
    std::fs::write(disks.path().join("trace"), "1\n2\n1\n3\n").unwrap();
    for (number, line) in LINES.lines().map(str::trim).enumerate() {
        let (line, status) = line.strip_prefix("! ").map_or((line, 0), |line| (line, 1));
        let line = match number % 2 {
            0 => format!("--json {line}"),
            _ => format!("{line} --json"),
        };
        let output = disks.run(&line, &[]);
        let [out, errors] = texts(&output);
        let failed = output.status.code().is_none_or(|code| code > 0);
        assert_eq!(i32::from(failed), status, "{line}: {errors}");
        assert!(is_json(&out), "{line}: {out}");
        assert!(is_json(&errors), "{line}: {errors}");
        let says_error = |line: &str| serde_json::from_str::<Value>(line).unwrap()["error"].is_string();
        assert_eq!(errors.lines().any(says_error), failed, "{line}: {errors}");
    }
}

#[test]
fn no_verb_is_left_out_above() {
    let disks = Disks::new(&[]);
    for verb in ["", "zpool ", "zfs "].iter().flat_map(|tool| verbs(&disks, tool)) {
        let is_tried = LINES.lines().any(|line| line.trim().trim_start_matches("! ").starts_with(&verb));
        assert!(is_tried || OTHERS.contains(&verb.as_str()), "no line above tries '{verb} --json'");
    }
}

#[test]
fn wrong_command_lines_are_json_too() {
    let disks = Disks::new(&[]);
    for line in ["zpool list --nosuch --json", "-j zpool nosuch", "zfs list -j --depth x"] {
        let output = disks.run(line, &[]);
        let error: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!((output.status.code(), error["status"].as_u64()), (Some(2), Some(2)), "{line}: {error}");
    }
}

#[test]
fn what_is_destroyed_and_made_is_told_in_json_as_in_text() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    let run = |line: &str| -> Value { serde_json::from_str(&disks.cenote(line, &[])).unwrap() };
    let made = run("zfs create -v -o quota=1G tank/fs --json");
    assert_eq!(
        (made["create"].as_str(), made["properties"]["quota"].as_str()),
        (Some("tank/fs"), Some("1G"))
    );
    for snapshot in ["tank/fs@a", "tank/fs@b", "tank/fs@c"] {
        disks.cenote(&format!("zfs snapshot {snapshot}"), &[]);
    }
    let goes = run("zfs destroy -nv tank/fs@a%b --json");
    assert_eq!(goes["destroy"], serde_json::json!(["tank/fs@a", "tank/fs@b"]));
    assert!(goes["reclaim_bytes"].is_u64() && goes["dry_run"] == true);
    let text = disks.cenote("zpool upgrade", &[]);
    let lacking = run("zpool upgrade --json");
    for feature in lacking["pools"]["tank"]["disabled_features"].as_array().unwrap() {
        assert!(text.contains(feature.as_str().unwrap()), "{feature}");
    }
    disks.cenote("zpool set compatibility=off tank", &[]);
    let upgraded = run("zpool upgrade tank --json");
    // A feature that no upgrade enables by default still counts as lacking.
    let lacking = lacking["pools"]["tank"]["disabled_features"].as_array().unwrap();
    let enabled: Vec<_> = lacking.iter().filter(|feature| *feature != "dynamic_gang_header").collect();
    assert!(enabled.len() < lacking.len());
    assert_eq!(upgraded["pools"]["tank"]["enabled_features"], serde_json::json!(enabled));
}
