//! `--json` of commands without JSON in OpenZFS: the same facts as the text.

use crate::common::{cenote, json};
use cenote_testkit::{golden, needs};

#[test]
fn import_tells_every_pool_by_its_guid() {
    for (name, opens) in [("single", true), ("spares", true)] {
        let pool = golden(name);
        let found = json(&cenote(&pool, "zpool import --json", &[]));
        let pools = found["pools"].as_object().unwrap();
        let (guid, entry) = pools.iter().next().unwrap();
        assert_eq!((pools.len(), entry["name"].as_str().unwrap()), (1, pool.facts().pool.as_str()));
        assert_eq!(entry["pool_guid"].to_string(), *guid);
        assert_eq!(
            (entry["opens"].as_bool(), found["problems"].as_array().map(Vec::len)),
            (Some(opens), Some(0))
        );
        assert!(
            entry["vdevs"][&pool.facts().pool]["vdevs"].as_object().is_some_and(|vdevs| !vdevs.is_empty())
        );
    }
}

#[test]
fn history_and_events_have_all_fields_of_each_record() {
    let pool = golden("single");
    let text = cenote(&pool, "zpool history -i", &[]);
    let found = json(&cenote(&pool, "zpool history -i --json", &[]));
    let name = &pool.facts().pool;
    let records = found["pools"][name]["history"].as_array().unwrap();
    assert_eq!(records.len(), text.lines().filter(|line| line.starts_with("20")).count());
    let first = records.iter().find_map(|record| record["history command"].as_str()).unwrap();
    assert!(text.contains(first) && records[0]["history time"].is_u64(), "{first}");
    let events = json(&cenote(&pool, "zpool events --json", &[]));
    let listed = cenote(&pool, "zpool events -H", &[]);
    assert_eq!(events["pools"][name]["events"].as_array().unwrap().len(), listed.lines().count());
}

#[test]
fn differences_are_an_object_a_line_and_holds_have_their_times() {
    let pool = golden("snaps");
    let lines = cenote(&pool, "zfs diff -H", &["gsnaps/a@s1", "gsnaps/a@s5"]);
    let objects = cenote(&pool, "zfs diff --json", &["gsnaps/a@s1", "gsnaps/a@s5"]);
    assert!(!lines.is_empty());
    assert_eq!(lines.lines().count(), objects.lines().count());
    for (line, object) in lines.lines().zip(objects.lines().map(json)) {
        let letter = match object["change"].as_str().unwrap() {
            "added" => "+",
            "removed" => "-",
            "renamed" => "R",
            _ => "M",
        };
        assert!(line.starts_with(letter), "{line}: {object}");
    }
    let holds = json(&cenote(&pool, "zfs holds --json", &["gsnaps/a@s5"]));
    let rows = cenote(&pool, "zfs holds -Hp", &["gsnaps/a@s5"]);
    for row in rows.lines() {
        let fields: Vec<&str> = row.split('\t').collect();
        assert_eq!(holds["datasets"][fields[0]]["holds"][fields[1]].to_string(), fields[2]);
    }
}

/// The same schema as `zpool list -jv` and `zpool status -j` of OpenZFS 2.3.2.
#[needs("special")]
#[test]
fn vdevs_have_the_shape_of_openzfs() {
    let pool = golden("special");
    let name = &pool.facts().pool;
    let list = json(&cenote(&pool, "zpool list -jv", &[]));
    let listed = &list["pools"][name];
    assert_eq!(listed["type"], "POOL");
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for section in ["raidz2-0", "special", "logs"] {
        assert!(listed["vdevs"][section].is_object(), "{section}: {listed}");
    }
    let columns = [
        "allocated",
        "capacity",
        "checkpoint",
        "dedupratio",
        "expandsize",
        "fragmentation",
        "free",
        "health",
        "size",
    ];
    let raidz = &listed["vdevs"]["raidz2-0"];
    assert_eq!(keys(&raidz["properties"]), columns);
    assert_eq!(keys(raidz), ["class", "guid", "name", "properties", "state", "vdev_type", "vdevs"]);
    let status = json(&cenote(&pool, "zpool status -j --json-int", &[]));
    let shown = &status["pools"][name];
    assert!(shown["type"].is_null() && shown["special"].is_object() && shown["logs"].is_object());
    let root = &shown["vdevs"][name];
    assert_eq!((root["state"].as_str(), root["vdev_type"].as_str()), (Some("ONLINE"), Some("root")));
    let number = |property: &str| {
        let list = json(&cenote(&pool, "zpool list -j --json-int", &[]));
        list["pools"][name]["properties"][property]["value"].as_u64()
    };
    assert_eq!(
        (root["total_space"].as_u64(), root["alloc_space"].as_u64()),
        (number("size"), number("allocated"))
    );
    let flat = json(&cenote(&pool, "zpool status -j --json-flat-vdevs", &[]));
    let flat = flat["pools"][name]["vdevs"].as_object().unwrap();
    assert!(flat["raidz2-0"]["vdevs"].is_object() && flat["raidz2-0"]["parent"] == name.as_str());
    for vdev in flat.values().filter(|vdev| vdev["vdevs"].is_null() && vdev["class"] == "normal") {
        assert_eq!(vdev["parent"], "raidz2-0");
    }
    let by_class = |class: &str| flat.values().filter(|vdev| vdev["class"] == class).count();
    assert!(by_class("special") > 0 && by_class("logs") + by_class("log") > 0, "{flat:?}");
    let by_guid = json(&cenote(&pool, "zpool get -j --json-pool-key-guid size", &[]));
    assert_eq!(keys(&by_guid["pools"]), [shown["pool_guid"].to_string()]);
}
