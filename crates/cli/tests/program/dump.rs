//! `cenote dump` on golden pools, compared with the output of `zdb` and the OpenZFS module.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use cenote_testkit::{copy_image, decompress, golden, needs};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn dump(images: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.arg("-d").arg(images).arg("dump").args(words).output().expect("the program runs")
}

fn json(images: &Path, words: &[&str]) -> Value {
    let output = dump(images, &[words, &["--json"]].concat());
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}"))
}

fn zdb(images: &Path, words: &[&str]) -> Option<String> {
    let output = cenote_testkit::zdb(images, words)?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn objects_are_those_that_zdb_lists() {
    let pool = golden("single");
    let images = pool.images();
    let name = pool.facts().pool;
    let Some(listed) = zdb(&images, &["-ddP", &name]) else { return };
    // From the first object set (the MOS): object lvl iblk dblk dsize dnsize lsize %full type
    let mut theirs = Vec::new();
    for line in listed
        .lines()
        .skip_while(|l| !l.starts_with("Dataset mos"))
        .skip(1)
        .take_while(|l| !l.starts_with("Dataset"))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() >= 9 && words[0].parse::<u64>().is_ok() {
            theirs.push((
                words[..8].iter().map(|w| w.to_string()).collect::<Vec<_>>(),
                words[8..].join(" ").split(" (").next().unwrap().to_string(),
            ));
        }
    }
    let ours: Vec<_> = json(&images, &["objects", "--mos", &name])["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let number = |column: &str| row[column].to_string();
            let columns = ["object", "lvl", "iblk", "dblk", "dsize", "dnsize", "lsize"].map(number);
            let full = row["full"].as_str().unwrap().trim_end_matches('%').to_string();
            (columns.into_iter().chain([full]).collect::<Vec<_>>(), row["type"].as_str().unwrap().to_string())
        })
        .collect();
    assert!(theirs.len() > 40, "{listed}");
    // zdb adds an object's own compression in brackets, which `dump object` shows instead.
    let differing: Vec<_> = ours.iter().zip(&theirs).filter(|(a, b)| a != b).collect();
    assert!(
        differing.is_empty() && ours.len() == theirs.len(),
        "{} and {}: {differing:?}",
        ours.len(),
        theirs.len()
    );
}

#[test]
fn intent_logs_have_the_records_that_zdb_printed() {
    let pool = golden("unclean-zil");
    let mut theirs: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    let mut dataset = String::new();
    for line in String::from_utf8_lossy(&pool.bytes("zil.txt")).lines() {
        if let Some(rest) = line.strip_prefix("Dataset ") {
            dataset = rest.split(" [").next().unwrap().to_string();
        } else if let Some((_, rest)) = line.split_once("TX_") {
            // Earlier output may share the line. The counts by type after the records have no sequence
            // number.
            let Some((record, seq)) = rest.split_once("seq ") else { continue };
            let kind = format!("TX_{}", record.split_whitespace().next().unwrap());
            let seq = seq.trim().parse().unwrap();
            theirs.entry(dataset.clone()).or_default().push((kind, seq));
        }
    }
    assert!(theirs.values().map(Vec::len).sum::<usize>() > 100);
    let tree = json(&pool.images(), &["zil", &pool.facts().pool]);
    for log in tree["logs"].as_array().unwrap() {
        let name = log["name"].as_str().unwrap();
        let blocks = log["blocks"].as_array().unwrap().iter();
        let records = blocks.flat_map(|block| block["records"].as_array().unwrap());
        let ours: Vec<_> = records
            .map(|r| {
                (r["record"].as_str().unwrap().replace(char::is_whitespace, ""), r["seq"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(&ours, theirs.get(name).unwrap_or(&Vec::new()), "{name}");
    }
}

#[test]
fn labels_of_a_cut_disk_are_told_apart() {
    let pool = golden("single");
    let image = pool.images().join("disk0.img");
    let whole = json(&pool.images(), &["label", image.to_str().unwrap()]);
    let valid = |tree: &Value| -> Vec<bool> {
        tree["labels"].as_array().unwrap().iter().map(|l| l["config_valid"].as_bool().unwrap()).collect()
    };
    assert_eq!(valid(&whole), [true; 4]);
    assert_eq!(whole["labels"][0]["config"]["pool_guid"].as_u64(), Some(pool.facts().guid));

    let scratch = tempfile::tempdir().unwrap();
    let cut = scratch.path().join("cut.img");
    copy_image(&image, &cut);
    std::fs::File::options().write(true).open(&cut).unwrap().set_len(70 << 20).unwrap();
    let cut = json(scratch.path(), &["label", cut.to_str().unwrap()]);
    assert_eq!(valid(&cut), [true, true, false, false]);
}

/// A file of one block: the block at its address, decompressed, has the hash that the module computed.
#[test]
fn a_raw_block_unpacks_to_the_files_content() {
    let pool = golden("single");
    let (facts, images) = (pool.facts(), pool.images());
    let mut compared = 0;
    for dataset in facts.datasets.iter().filter(|d| d.kind == "filesystem") {
        let Some(manifest) = &dataset.manifest else { continue };
        let text = decompress(&std::fs::read(pool.folder().join(manifest)).unwrap());
        for line in String::from_utf8(text).unwrap().lines().skip(1) {
            let columns: Vec<&str> = line.split('\t').collect();
            let size: usize = columns[5].parse().unwrap_or(0);
            if columns[1] != "f" || !(4096..100_000).contains(&size) || compared >= 5 {
                continue;
            }
            let object = json(&images, &["object", &dataset.name, columns[12]]);
            let [block] = &object["blocks"].as_array().unwrap()[..] else { continue };
            let pointer = &block["pointer"];
            let (lsize, psize) = (pointer["lsize"].as_u64().unwrap(), pointer["psize"].as_u64().unwrap());
            if lsize == psize || pointer["kind"] != "normal" {
                continue;
            }
            let first = pointer["dvas"].as_str().unwrap().split(' ').next().unwrap();
            let place = first.rsplit_once(':').unwrap().0;
            let address = format!("{place}:{lsize:x}/{psize:x}");
            let algorithm = format!("--decompress={}", pointer["compression"].as_str().unwrap());
            let raw = dump(&images, &["block", "--raw", &algorithm, &facts.pool, &address]);
            assert!(raw.status.success(), "{}", String::from_utf8_lossy(&raw.stderr));
            let hash: String =
                Sha256::digest(&raw.stdout[..size]).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hash, columns[9], "{line}");
            compared += 1;
        }
    }
    assert!(compared > 0);
}

#[test]
fn every_structure_of_healthy_pools_is_shown_without_errors() {
    assert_all_is_shown(&["single", "snaps", "dedup", "fastdedup", "removed", "checkpoint"]);
}

#[needs("legacy-v28")]
#[test]
fn every_structure_of_an_old_pool_is_shown_without_errors() {
    assert_all_is_shown(&["legacy-v28"]);
}

/// Dumps of a healthy pool are JSON and contain no errors.
fn assert_all_is_shown(pools: &[&str]) {
    for &name in pools {
        let pool = golden(name);
        let (images, pool) = (pool.images(), pool.facts().pool);
        for words in [
            &["uberblock"][..],
            &["uberblock", "--used"],
            &["config"],
            &["directory"],
            &["datasets"],
            &["objects"],
            &["objects", "--mos"],
            &["metaslabs", "--segments"],
            &["ddt", "--entries"],
            &["features"],
            &["zil"],
        ] {
            if words == ["features"] && name == "legacy-v28" {
                continue;
            }
            let tree = json(&images, &[words, &[&pool]].concat());
            assert!(!tree.to_string().contains("\"error\":"), "{name} {words:?}: {tree}");
            let text = dump(&images, &[words, &[&pool]].concat());
            assert!(text.status.success() && !text.stdout.is_empty(), "{name} {words:?}");
        }
    }
}

#[test]
fn space_maps_are_shown_in_the_units_of_their_owners() {
    let mut owners = BTreeMap::<String, u64>::new();
    for name in ["single", "checkpoint", "degraded", "removed", "removing", "spares"] {
        let pool = golden(name);
        let (images, pool) = (pool.images(), pool.facts().pool);
        let number = |value: &Value| {
            let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
            value.as_u64().unwrap_or_else(|| hex(value.as_str().unwrap()))
        };
        let vdevs = json(&images, &["metaslabs", &pool])["vdevs"].clone();
        let newest = json(&images, &["uberblock", "--used", &pool])["txg"].as_u64().unwrap();
        let objects = json(&images, &["objects", "--mos", &pool])["objects"].clone();
        for map in objects.as_array().unwrap().iter().filter(|row| row["type"] == "SPA space map") {
            let shown = json(&images, &["object", "--mos", &pool, &map["object"].to_string()]);
            let of = shown["of"].as_str().unwrap();
            let changes = shown["changes"].as_array().unwrap();
            assert!(!changes.is_empty() || number(&map["lsize"]) > 0, "{shown}");
            if of.starts_with("metaslab") {
                let is_it = |vdev: &&Value| vdev["vdev"] == shown["vdev"];
                let vdev = vdevs.as_array().unwrap().iter().find(is_it).unwrap();
                let ends = changes.iter().map(|change| number(&change["offset"]) + number(&change["run"]));
                assert!(ends.max() <= Some(number(&vdev["metaslab"])), "{name}: {shown}");
            }
            if of.starts_with("txgs") {
                let ends = changes.iter().map(|change| number(&change["txg"]) + number(&change["txgs"]));
                assert!(ends.max() <= Some(newest + 3), "{name}: {shown}");
            }
            *owners.entry(of.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
    }
    let names: Vec<&str> = owners.keys().map(String::as_str).collect();
    assert_eq!(names, ["freed,", "log", "metaslab", "obsolete", "txgs"], "{owners:?}");
}

#[test]
fn nonsense_is_refused() {
    let pool = golden("single");
    let (images, name) = (pool.images(), pool.facts().pool);
    let name = name.as_str();
    for (words, status) in [
        (&["block", name, "0:1000"][..], 2),
        (&["block", name, "0:zz:200"], 2),
        (&["block", name, "7:0:1000"], 1),
        (&["object", "--mos", name, "999999"], 1),
        (&["label", "/dev/null"], 1),
    ] {
        let output = dump(&images, words);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {told}");
        assert!(told.starts_with("cenote: "), "{words:?}: {told}");
    }
}
