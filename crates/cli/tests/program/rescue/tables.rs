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

/// Destroys every copy of all property tables: rescue does not depend on their caching properties.
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

/// Destroys every copy of each table of the pool in turn: every dataset is found, with its newest content.
#[test]
fn lost_tables_of_the_pool_lose_no_dataset() {
    let disks = tempfile::tempdir().unwrap();
    let disk = disks.path().join("disk0.img");
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let run = |words: &str| {
        let output = cenote(disks.path(), &words.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&format!("zpool create tank {}", disk.display()));
    // Enough for the table to have its own block.
    for number in 0..12 {
        run(&format!("zfs create tank/dataset{number}"));
    }
    let local = tempfile::tempdir().unwrap();
    let (content, file) = ("what was written last\n".repeat(500), local.path().join("content"));
    fs::write(&file, &content).unwrap();
    for number in 0..12 {
        run(&format!("cp {} tank/dataset{number}:/content", file.display()));
    }
    let objects = json(disks.path(), &["dump", "objects", "--mos", "tank"]);
    // The first is the MOS itself, and those with a bonus are datasets and space maps.
    let is_table = |object: &&Value| object["bonus"].is_null() || object["type"] == "packed nvlist";
    let mut tried = Vec::new();
    for object in objects["objects"].as_array().unwrap().iter().skip(1).filter(is_table) {
        let number = object["object"].as_u64().unwrap().to_string();
        let blocks = json(disks.path(), &["dump", "object", "--mos", "tank", &number]);
        let blocks = blocks["blocks"].as_array().unwrap().iter();
        let dvas: Vec<&str> = blocks.filter_map(|block| block["pointer"]["dvas"].as_str()).collect();
        if dvas.iter().all(|dvas| dvas.is_empty()) {
            continue;
        }
        let images = tempfile::tempdir().unwrap();
        copy_image(&disk, &images.path().join("disk0.img"));
        dvas.iter().filter(|dvas| !dvas.is_empty()).for_each(|dvas| destroy(images.path(), dvas));
        let (to, output) = rescue(images.path(), "tank", &[]);
        let what = format!("{} {}", object["type"], String::from_utf8_lossy(&output.stderr));
        let datasets = fs::read_dir(to.path().join("tank")).expect(&what).map(Result::unwrap);
        let read = datasets.map(|dataset| fs::read_to_string(dataset.path().join("content")));
        let whole = read.filter(|read| read.as_ref().is_ok_and(|read| *read == content)).count();
        assert_eq!(whole, 12, "{what}: {:?}", rows(to.path()));
        tried.push(object["type"].as_str().unwrap());
    }
    for kind in ["object directory", "DSL directory child map", "packed nvlist"] {
        assert!(tried.contains(&kind), "{tried:?}");
    }
}
