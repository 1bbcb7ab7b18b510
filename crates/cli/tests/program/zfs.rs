//! `cenote zfs …` on golden pools, compared with the output of the OpenZFS module's `zfs`.

use crate::common::{cenote, cenote_fails, json, run};
use cenote_testkit::{Golden, PropertyRow, golden, golden_pools, needs};

/// Rows of `zfs get` in a golden table, which begins with the rows of `zpool get`.
fn dataset_rows(pool: &Golden) -> Vec<PropertyRow> {
    let rows = pool.properties();
    let first = rows.iter().position(|row| row.property == "type").unwrap();
    rows[first..].to_vec()
}

fn parse(text: &str) -> Vec<PropertyRow> {
    let row = |line: &str| {
        let mut fields = line.splitn(4, '\t').map(str::to_owned);
        let mut next = || fields.next().unwrap();
        PropertyRow { name: next(), property: next(), value: next(), source: next() }
    };
    text.lines().map(row).collect()
}

#[test]
fn columns_of_list_are_the_properties() {
    let pool = golden("snaps");
    let columns = "name,used,available,referenced,usedbysnapshots,origin,creation";
    let listed = cenote(&pool, &format!("zfs list -Hp -r -t all -o {columns}"), &["gsnaps"]);
    let rows = dataset_rows(&pool);
    let value = |name: &str, property: &str| {
        let row = rows.iter().find(|row| row.name == name && row.property == property);
        row.map_or("-", |row| &row.value).to_owned()
    };
    let names: Vec<&str> = rows.iter().filter(|row| row.property == "type").map(|row| &*row.name).collect();
    let wanted: String = names
        .iter()
        .map(|name| {
            let cells = columns.split(',').skip(1).map(|property| value(name, property));
            [(*name).to_owned()].into_iter().chain(cells).collect::<Vec<_>>().join("\t") + "\n"
        })
        .collect();
    assert_eq!(listed, wanted);
}

#[test]
fn space_of_snapshots_is_what_zfs_list_says() {
    let pool = golden("snaps");
    let space = pool.text("space.txt");
    let columns = "name,used,referenced,written,clones,userrefs,defer_destroy";
    for line in space.lines().filter(|line| line.starts_with("gsnaps/") && line.split('\t').count() == 7) {
        let name = line.split('\t').next().unwrap();
        assert_eq!(cenote(&pool, &format!("zfs list -Hp -o {columns}"), &[name]).trim_end(), line);
    }
    let written = cenote(&pool, "zfs get -Hp written@r0,written@s6", &["gsnaps/a"]);
    for line in written.lines() {
        assert!(space.lines().any(|other| other == line), "{line}");
    }
    assert_eq!(written.lines().count(), 2);
}

#[test]
fn depth_types_and_order_are_as_asked() {
    let pool = golden("snaps");
    let names = |options: &str, targets: &[&str]| -> Vec<String> {
        cenote(&pool, &format!("zfs list -H -o name {options}"), targets).lines().map(str::to_owned).collect()
    };
    assert_eq!(names("", &["gsnaps/a"]), ["gsnaps/a"]);
    assert_eq!(names("-d 1", &["gsnaps/a"]), ["gsnaps/a", "gsnaps/a/b", "gsnaps/a/d", "gsnaps/a/vol"]);
    assert_eq!(names("-d 0", &["gsnaps/a"]), ["gsnaps/a"]);
    assert_eq!(names("-t bookmark", &["gsnaps/a"]), ["gsnaps/a#mark3", "gsnaps/a#mark9"]);
    assert_eq!(names("-t volume -r", &["gsnaps/a"]), ["gsnaps/a/vol"]);
    assert_eq!(names("", &["gsnaps/a@s5", "gsnaps/a@s1"]), ["gsnaps/a@s1", "gsnaps/a@s5"]);
    let used: Vec<u64> = cenote(&pool, "zfs list -Hp -o used -S used", &[])
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!(used.len() > 10 && used.is_sorted_by(|a, b| a >= b), "{used:?}");
}

#[test]
fn sources_and_received_values_are_told() {
    let pool = golden("snaps");
    let local =
        cenote(&pool, "zfs get -H -r -s local -o name,property,value,received,source all", &["gsnaps/a/d"]);
    assert!(local.contains("gsnaps/a/d\trefquota\t100M\t-\tlocal\n"), "{local}");
    assert!(local.lines().all(|line| line.ends_with("\tlocal")), "{local}");
}

#[test]
fn holds_are_those_of_zfs_holds_in_its_order() {
    let mut compared = 0;
    for pool in golden_pools() {
        if !pool.folder().join("holds.tsv").exists() {
            continue;
        }
        let wanted = pool.text("holds.tsv");
        let mut snapshots: Vec<&str> = wanted.lines().filter_map(|line| line.split('\t').next()).collect();
        snapshots.dedup();
        let found: String =
            snapshots.iter().map(|snapshot| cenote(&pool, "zfs holds -Hp", &[snapshot])).collect();
        assert_eq!(found, wanted, "{}", pool.name());
        compared += wanted.lines().count();
    }
    assert!(compared > 0);
    eprintln!("{compared} holds are equal");
}

#[test]
fn holds_of_a_tree_are_those_of_every_snapshot_of_that_name() {
    let pool = golden("snaps");
    let wanted = pool.text("holds.tsv");
    let mut wanted: Vec<&str> = wanted.lines().filter(|line| line.contains("@r8\t")).collect();
    let found = cenote(&pool, "zfs holds -Hp -r", &["gsnaps@r8"]);
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

#[test]
fn a_stream_is_as_long_as_send_foretells() {
    let pool = golden("snaps");
    for (command, first) in [
        ("zfs send -Lec", "full\tgsnaps/a@s2\t"),
        ("zfs send -i @s1", "incremental\tgsnaps/a@s1\tgsnaps/a@s2\t"),
        ("zfs send -p -I s1", "incremental\ts1\tgsnaps/a@s2\t"),
    ] {
        let told = cenote(&pool, &format!("{command} -nvP"), &["gsnaps/a@s2"]);
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].starts_with(first), "{command}: {told}");
        let bytes: usize = lines[1].strip_prefix("size\t").unwrap().parse().unwrap();
        let stream = run(&pool, command, &["gsnaps/a@s2"], &[]);
        assert_eq!(stream.status.code(), Some(0), "{command}");
        // A package reports more than its streams, as in OpenZFS.
        let head = if command.contains("-p") { 312 * 3..2_000 } else { 0..1 };
        assert!(head.contains(&(stream.stdout.len() - bytes)), "{command}: {}, {told}", stream.stdout.len());
    }
    cenote_fails(&pool, "zfs send -i @s2 gsnaps/a@s1", 1, "not an earlier snapshot from the same fs");
    cenote_fails(&pool, "zfs send -t x", 255, "resume token is corrupt (invalid format)");
}

#[test]
fn diff_prints_what_zfs_diff_prints() {
    let pool = golden("snaps");
    let golden = pool.text("zfs-diff.txt");
    let mut compared = 0;
    for part in golden.split("# zfs diff -FH ").skip(1) {
        let (targets, rest) = part.split_once('\n').unwrap();
        let wanted = rest.split_once("# rc ").unwrap().0;
        let targets: Vec<&str> = targets.split(' ').collect();
        // A clone was promoted after the diffs were recorded and took this snapshot with it.
        let targets: Vec<&str> = targets
            .into_iter()
            .map(|name| if name == "gsnaps/a/d@r0" { "gsnaps/promoted@r0" } else { name })
            .collect();
        assert_eq!(cenote(&pool, "zfs diff -FH", &targets), wanted, "{targets:?}");
        compared += 1;
    }
    assert!(compared > 0);
}

#[needs("encrypted")]
#[test]
fn without_keys_everything_is_listed_that_needs_none() {
    let pool = golden("encrypted");
    let locked =
        crate::common::run(&pool, "zfs list -Hp -r -t all -o name,used,encryption,keystatus", &["genc"], &[]);
    assert_eq!(locked.status.code(), Some(0), "{}", String::from_utf8_lossy(&locked.stderr));
    let text = String::from_utf8(locked.stdout).unwrap();
    let rows = dataset_rows(&pool);
    let names = rows.iter().filter(|row| row.property == "type").count();
    assert_eq!(text.lines().count(), names);
    assert!(text.contains("unavailable") && !text.contains("\tavailable"), "{text}");
}

/// Sizes and encodings are authenticated but not encrypted.
#[needs("encrypted")]
#[test]
fn what_a_locked_dataset_is_like_is_told_without_its_key() {
    const IN_CLEAR: &str = "version,utf8only,normalization,casesensitivity,volsize,volblocksize";
    let pool = golden("encrypted");
    let command = format!("zfs get -Hp -r -t filesystem,volume,snapshot {IN_CLEAR}");
    let locked = crate::common::run(&pool, &command, &["genc"], &[]);
    let has_it = |row: &PropertyRow| IN_CLEAR.split(',').any(|name| name == row.property) && row.value != "-";
    let in_order = |mut rows: Vec<PropertyRow>| {
        rows.retain(has_it);
        rows.sort_by(|a, b| (&a.name, &a.property).cmp(&(&b.name, &b.property)));
        rows
    };
    let found = in_order(parse(&String::from_utf8(locked.stdout).unwrap()));
    let wanted = in_order(dataset_rows(&pool));
    assert!(wanted.iter().any(|row| row.property == "volsize"));
    assert_eq!(found, wanted);
}

/// A guid selects one of several pools with the same name.
#[test]
fn a_pools_guid_does_for_its_name() {
    let pool = golden("snaps");
    for name in ["gsnaps", "gsnaps/a", "gsnaps/a@s5", "gsnaps/a#mark3"] {
        let by_guid = name.replacen("gsnaps", &pool.facts().guid.to_string(), 1);
        assert_eq!(cenote(&pool, "zfs list -H -o name -t all", &[&by_guid]).lines().next(), Some(name));
    }
}

#[test]
fn json_has_the_shape_of_openzfs() {
    let pool = golden("snaps");
    let list = json(&cenote(&pool, "zfs list -jp -o name,used,mountpoint", &["gsnaps/a", "gsnaps/a@s5"]));
    assert_eq!(list["output_version"]["command"], "zfs list");
    let head = &list["datasets"]["gsnaps/a"];
    assert_eq!((&head["type"], &head["pool"]), (&"FILESYSTEM".into(), &"gsnaps".into()));
    assert_eq!(head["properties"]["mountpoint"]["source"]["type"], "INHERITED");
    assert_eq!(head["properties"]["mountpoint"]["source"]["data"], "gsnaps");
    assert_eq!(list["datasets"]["gsnaps/a@s5"]["snapshot_name"], "s5");
    assert_eq!(list["datasets"]["gsnaps/a@s5"]["properties"]["used"]["value"], "39936");
    let get = json(&cenote(&pool, "zfs get -j --json-int used", &["gsnaps/a@s5"]));
    assert_eq!(get["datasets"]["gsnaps/a@s5"]["properties"]["used"]["value"], 39936);
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let pool = golden("snaps");
    for (command, status, words) in [
        ("zfs list gsnaps/nothing", 1, "dataset does not exist"),
        ("zfs list -o colour gsnaps", 2, "invalid property 'colour'"),
        ("zfs get -s elsewhere all gsnaps", 2, "local, default"),
        ("zfs list -t files gsnaps", 2, "filesystem, volume"),
        ("zfs holds gsnaps/a", 2, "DATASET@SNAPSHOT"),
        ("zfs diff gsnaps/a@s6 gsnaps/a@s5", 2, "not an earlier snapshot"),
        ("zfs list other", 1, "found: gsnaps"),
    ] {
        cenote_fails(&pool, command, status, words);
    }
}

/// Rows of `zfs userspace -nHp`: type, number, bytes used, limit, objects used, limit.
#[test]
fn owners_use_what_zfs_userspace_says() {
    let pool = golden("tree");
    let text = pool.text("userspace.txt");
    let mut compared = 0;
    for row in text.lines().filter(|line| line.starts_with("POSIX User")).take(8) {
        let fields: Vec<&str> = row.split('\t').collect();
        let names = ["userused", "userquota", "userobjused", "userobjquota"];
        let names = names.map(|name| format!("{name}@{}", fields[1])).join(",");
        let found = cenote(&pool, "zfs get -Hp -o value", &[&names, "gtree/meta"]);
        assert_eq!(found.lines().collect::<Vec<_>>(), fields[2..], "{row}");
        compared += 1;
    }
    assert!(compared > 4);
    let shown = cenote(
        &pool,
        "zfs get -H -o value,source userquota@1000,userquota@0,projectobjquota@500",
        &["gtree/meta"],
    );
    assert_eq!(shown, "10M\tlocal\nnone\tlocal\n99\tlocal\n");
    cenote_fails(
        &pool,
        "zfs get userused@alice gtree",
        2,
        "no user of this machine has that name; give its number",
    );
}

/// The rows in OpenZFS's format and order, then a selection of columns in another order.
#[test]
fn owners_are_shown_in_the_columns_and_the_order_asked_for() {
    let pool = golden("tree");
    let golden = pool.text("userspace.txt");
    for part in golden.split("# ").skip(1) {
        let (command, wanted) = part.split_once('\n').unwrap();
        // `projectspace` was called with -n, which it does not support.
        if wanted.starts_with("invalid option") {
            continue;
        }
        let (verb, dataset) = command.split_once(' ').unwrap();
        assert_eq!(cenote(&pool, &format!("zfs {verb} -Hp"), &[dataset]), wanted, "{command}");
    }
    let used = |command: &str| -> Vec<u64> {
        let text = cenote(&pool, command, &["gtree/meta"]);
        text.lines().map(|line| line.split('\t').next().unwrap().parse().unwrap()).collect()
    };
    assert!(used("zfs userspace -Hp -o used,name -S used").is_sorted_by(|a, b| a >= b));
    assert!(used("zfs groupspace -Hp -o used -s used").is_sorted());
    assert!(used("zfs projectspace -Hp -o used -s used").is_sorted());
    let kinds = cenote(&pool, "zfs userspace -H -o type -t all", &["gtree/meta"]);
    // Groups sort before users.
    assert!(kinds.starts_with("POSIX Group\n") && kinds.ends_with("POSIX User\n"), "{kinds}");
    cenote_fails(&pool, "zfs userspace -o colour gtree/meta", 2, "type,name,used");
}

#[needs("encrypted")]
#[test]
fn keys_of_all_roots_are_tried_where_they_are_said_to_be() {
    let pool = golden("encrypted");
    let all = cenote(&pool, "zfs load-key -n -a", &[]);
    let roots = all.lines().filter(|line| line.ends_with(": key is correct")).count();
    assert!(roots > 1 && all.ends_with(&format!("{roots} / {roots} keys are correct\n")), "{all}");
    let only_one = "alternate keylocation may only be 'prompt' with -r or -a";
    cenote_fails(&pool, "zfs load-key -n -r -L file:///nowhere genc", 2, only_one);
    cenote_fails(&pool, "zfs load-key genc", 1, "start `cenote serve`");
}
