//! `cenote scan` on golden pools lists the same files as the OpenZFS module.

use std::path::Path;
use std::process::{Command, Output};

use cenote_testkit::{Golden, PoolFacts, decompress, golden, golden_pools};

fn cenote(images: &Path, facts: &PoolFacts, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.arg("-d").arg(images).args(arguments);
    for (index, (dataset, key)) in facts.keys.iter().enumerate() {
        match (&key.key_hex, key.keyformat.as_str(), &key.key) {
            (Some(hex), _, _) => {
                // A raw key can't be typed, so it is passed in a file.
                let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("key-{}-{index}", facts.pool));
                std::fs::write(&path, unhex(hex)).unwrap();
                command.arg("--key").arg(format!("{dataset}=file:{}", path.display()));
                for below in roots_of_the_same_raw_key(facts, dataset) {
                    command.arg("--key").arg(format!("{below}=file:{}", path.display()));
                }
            }
            (None, "hex", Some(key)) => drop(command.arg("--key").arg(format!("{dataset}=hex:{key}"))),
            (None, _, Some(key)) => drop(command.arg("--key").arg(format!("{dataset}=pass:{key}"))),
            _ => {}
        }
    }
    command.output().expect("the program runs")
}

/// The golden pools list one root per raw key; descendants that are roots themselves were created with the
/// same file.
fn roots_of_the_same_raw_key<'a>(facts: &'a PoolFacts, root: &'a str) -> impl Iterator<Item = &'a str> {
    let below = format!("{root}/");
    facts
        .datasets
        .iter()
        .filter(move |d| d.kind == "filesystem" && d.name.starts_with(&below))
        .map(|d| d.name.as_str())
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// A pool whose manifests show the state after replaying the intent logs or processing the delete queue.
fn is_unclean(pool: &Golden) -> bool {
    pool.facts().state.starts_with("unclean")
}

#[test]
fn manifests_are_those_of_the_module() {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for pool in golden_pools().filter(|pool| !is_unclean(pool)) {
        let (facts, images) = (pool.facts(), pool.images());
        for dataset in &facts.datasets {
            let Some(manifest) = &dataset.manifest else { continue };
            let expected = decompress(&std::fs::read(pool.folder().join(manifest)).unwrap());
            let output = cenote(&images, &facts, &["scan", "--format", "manifest", &dataset.name]);
            compared += 1;
            if output.stdout != expected {
                let difference = first_difference(&expected, &output.stdout);
                let error = String::from_utf8_lossy(&output.stderr);
                wrong.push(format!("{}: {difference}\n    {error}", dataset.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} manifests differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 0);
    println!("{compared} manifests are equal");
}

fn first_difference(expected: &[u8], got: &[u8]) -> String {
    let (mut expected, mut got) = (expected.split(|&b| b == b'\n'), got.split(|&b| b == b'\n'));
    loop {
        match (expected.next(), got.next()) {
            (None, None) => return "no difference".into(),
            (a, b) if a != b => {
                let text = |line: Option<&[u8]>| {
                    line.map_or("(end)".into(), |l| String::from_utf8_lossy(l).into_owned())
                };
                return format!("\n    expected {}\n    got      {}", text(a), text(b));
            }
            _ => {}
        }
    }
}

/// Output of a scan of the pool `single` that must succeed.
fn scan_single(arguments: &[&str]) -> Vec<u8> {
    let pool = golden("single");
    let mut all = vec!["scan", "-r", "single"];
    all.extend(arguments);
    let output = cenote(&pool.images(), &pool.facts(), &all);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn rows_end_as_asked_and_names_are_then_raw() {
    let escaped = scan_single(&["--format", "tsv", "--columns", "path,ino", "--no-header"]);
    let raw = scan_single(&["--format", "tsv", "--columns", "path,ino", "--no-header", "--separator", "nul"]);
    let lines = escaped.iter().filter(|&&b| b == b'\n').count();
    assert_eq!(lines, raw.iter().filter(|&&b| b == 0).count());
    assert!(escaped.iter().all(|b| matches!(b, b' '..=b'~' | b'\t' | b'\n')), "only printable ASCII");
}

#[test]
fn json_lines_have_the_members_asked_for() {
    let columns = "dataset,path,size,mtime,class,birth_txg";
    let out = scan_single(&["--format", "jsonl", "--columns", columns]);
    let rows: Vec<serde_json::Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() > 100);
    for row in &rows {
        assert_eq!(row.as_object().unwrap().len(), 6, "{row}");
        assert_eq!(row["class"], "normal");
        assert!(row["birth_txg"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_parquet_file_holds_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scan.parquet");
    scan_single(&["--format", "parquet", "-o", file.to_str().unwrap()]);
    let tsv = scan_single(&["--format", "tsv", "--no-header"]);
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let reader = SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap();
    let rows = tsv.iter().filter(|&&b| b == b'\n').count();
    assert_eq!(reader.metadata().file_metadata().num_rows() as usize, rows);
}

#[test]
fn a_wrong_column_is_misuse_and_names_the_right_ones() {
    let pool = golden("single");
    let output =
        cenote(&pool.images(), &pool.facts(), &["scan", "single", "--format", "tsv", "--columns", "colour"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("birth_txg"));
}
