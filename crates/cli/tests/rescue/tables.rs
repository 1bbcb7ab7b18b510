//! File systems that lost their own tables: master node, attribute registry, attribute layouts.

use super::*;

/// Destroys every copy of all blocks of each table in turn: no file is lost.
#[test]
fn a_lost_table_of_attributes_loses_no_file() {
    let pool = golden("single");
    let columns = ["type", "object"];
    let objects = json(&pool.images(), &["dump", "objects", "single/data"]);
    let tables = ["master node", "SA master node", "SA attr registration", "SA attr layouts"];
    let mut tried = 0;
    for wanted in tables {
        let is_it = |object: &&Value| {
            object[columns[0]]
                .as_str()
                .is_some_and(|kind| kind.to_lowercase().ends_with(&wanted.to_lowercase()))
        };
        let found = objects["objects"].as_array().unwrap().iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("{wanted}: {objects}"));
        let images = copies(&pool);
        let object = found[columns[1]].as_u64().unwrap().to_string();
        let object = json(images.path(), &["dump", "object", "single/data", &object]);
        for block in object["blocks"].as_array().unwrap() {
            match block["pointer"]["dvas"].as_str().filter(|dvas| !dvas.is_empty()) {
                Some(dvas) => {
                    destroy(images.path(), dvas);
                    tried += 1;
                }
                None => eprintln!("{wanted}: in its pointer"),
            }
        }
        let (to, output) = rescue(images.path(), "single", &["--dataset", "single/data"]);
        let report = rows(to.path());
        assert!(!report.iter().any(|row| row[0] == "lost"), "{wanted}: {report:?}");
        let (right, wrong) = compare(&pool, "single/data", &to.path().join("single/data"));
        assert!(right > 20 && wrong.is_empty(), "{wanted}: {right} right; {wrong:?}");
        assert!(
            output.status.code() == Some(0) || report.iter().any(|row| row[0] == "inferred"),
            "{report:?}"
        );
    }
    assert!(tried > 2, "{tried} blocks");
}

/// Destroys every copy of all tables of properties: what they say of caching matters to no rescue.
#[test]
fn lost_properties_lose_no_file() {
    let pool = golden("single");
    let images = copies(&pool);
    let objects = json(&pool.images(), &["dump", "objects", "--mos", "single"]);
    let mut tried = 0;
    for object in objects["objects"].as_array().unwrap() {
        if object["type"] != "DSL props" {
            continue;
        }
        let object = object["object"].as_u64().unwrap().to_string();
        let object = json(&pool.images(), &["dump", "object", "--mos", "single", &object]);
        for block in object["blocks"].as_array().unwrap() {
            if let Some(dvas) = block["pointer"]["dvas"].as_str().filter(|dvas| !dvas.is_empty()) {
                destroy(images.path(), dvas);
                tried += 1;
            }
        }
    }
    assert!(tried > 0);
    let (to, _) = rescue(images.path(), "single", &["--dataset", "single/data"]);
    let (right, wrong) = compare(&pool, "single/data", &to.path().join("single/data"));
    assert!(right > 20 && wrong.is_empty(), "{right} right; {wrong:?}");
}
