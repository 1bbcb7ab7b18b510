//! Vdevs in `zpool get` and `zpool list -vH`.

use crate::common::{cenote, cenote_fails, json};
use cenote_testkit::golden;

/// Value and source, by property.
fn get(target: &str) -> std::collections::BTreeMap<String, (String, String)> {
    let pool = golden("spares");
    let text = cenote(&pool, "zpool get -H all gspares", &[target]);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        (fields[1].to_owned(), (fields[2].to_owned(), fields[3].to_owned()))
    };
    text.lines().map(row).collect()
}

#[test]
fn a_vdev_has_the_properties_of_openzfs() {
    let is = |value: &str, source: &str| (value.to_owned(), source.to_owned());
    let raidz = get("raidz1-0");
    assert_eq!(raidz["state"], is("DEGRADED", "-"));
    let children: Vec<&str> = raidz["children"].0.split(',').collect();
    assert!(children[0].ends_with("/disk0.img") && children[1..].len() == 2, "{children:?}");
    assert_eq!(children[1], "spare-1");
    assert_eq!((&raidz["parity"], &raidz["numchildren"]), (&is("1", "-"), &is("3", "-")));
    assert_eq!((&raidz["parent"], &raidz["path"]), (&is("gspares", "-"), &is("-", "default")));
    assert_eq!((&raidz["allocating"], &raidz["failfast"]), (&is("on", "default"), &is("on", "default")));
    assert_eq!(raidz["raidz_expanding"], is("off", "-"));
    let leaf = get("disk1.img");
    assert_eq!((&leaf["state"], &leaf["allocating"]), (&is("OFFLINE", "-"), &is("-", "-")));
    assert!(leaf["path"].0.ends_with("/disk1.img") && !leaf.contains_key("raidz_expanding"));
    assert_eq!(leaf["checksum_n"], is("-", "default"));
    assert_eq!((&raidz["alloc_bias"], leaf.get("alloc_bias")), (&is("none", "default"), None));
    assert_eq!((&raidz["rotational"], &leaf["slow_io_events"]), (&is("off", "-"), &is("on", "default")));
    assert_eq!(get("root")["children"], is("raidz-0,mirror-1", "-"));
    // Without parity, as OpenZFS counts it.
    assert_eq!((&get("root")["size"], &raidz["size"]), (&is("192M", "-"), &is("128M", "-")));
}

#[test]
fn vdevs_go_by_names_guids_and_all_at_once() {
    let pool = golden("spares");
    let names = |targets: &[&str]| -> Vec<String> {
        let text = cenote(&pool, "zpool get -H -o name guid gspares", targets);
        text.lines().map(str::to_owned).collect()
    };
    // OpenZFS's order: spares first.
    let all = names(&["all-vdevs"]);
    assert_eq!(all[..4], ["root-0", "disk5.img", "raidz1-0", "disk0.img"]);
    assert_eq!(all.len(), 13);
    let guid = cenote(&pool, "zpool get -H -o value guid gspares mirror-1", &[]);
    assert_eq!(names(&[guid.trim(), "raidz1-0"]), ["mirror-1", "raidz1-0"]);
    cenote_fails(&pool, "zpool get all gspares nosuch", 1, "neither a pool nor a vdev of 'gspares'");
    cenote_fails(&pool, "zpool get colour gspares root-0", 2, "invalid vdev property 'colour'");
    cenote_fails(&pool, "zpool set guid=1 gspares root-0", 1, "'guid' can't be set here");
    cenote_fails(&pool, "zpool set rotational=on gspares root-0", 1, "'rotational' can't be set here");
    cenote_fails(&pool, "zpool set slow_io_events=1 gspares mirror-1", 1, "must be 'on' or 'off'");
    cenote_fails(&pool, "zpool set autosit=on gspares mirror-1", 1, "only the disks of a RAID-Z or dRAID");
    cenote_fails(&pool, "zpool set sit_out=on gspares disk0.img", 1, "while a daemon");
    let found = json(&cenote(&pool, "zpool get -j state gspares raidz1-0", &[]));
    assert_eq!(found["vdevs"]["raidz1-0"]["properties"]["state"]["value"], "DEGRADED");
    assert_eq!(found["pool"]["name"], "gspares");
}

/// A pool's line begins with its name, a vdev's with a tab.
#[test]
fn for_scripts_a_tab_tells_vdevs_from_pools() {
    let pool = golden("spares");
    let text = cenote(&pool, "zpool list -vH", &[]);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((lines[0][0], lines[0].len()), ("gspares", 11));
    // Vdevs have no ALTROOT.
    let vdevs: Vec<_> = lines.iter().filter(|line| line[0].is_empty()).collect();
    assert!(vdevs.iter().all(|line| line.len() == 11), "{text}");
    assert_eq!((vdevs[0][1], *vdevs[0].last().unwrap()), ("raidz1-0", "DEGRADED"));
    assert_eq!(lines.len() - vdevs.len(), 2, "the pool, and a heading: {text}");
}
