//! Every stream of OpenZFS that is at hand, received: what comes out equals what the module made of it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that can't go on must stop")]

mod pool;

use std::collections::BTreeMap;

use cenote_dataset::{Dataset, Mos};
use cenote_engine::Engine;
use cenote_fs::manifest::{ManifestOptions, hash_range, manifest_text};
use cenote_fs::{Filesystem, Volume};
use cenote_runtime::Runtime;
use cenote_stream::StreamReader;
use cenote_stream::receive::{Order, ReceiveError, Received, receive};
use cenote_testkit::{decompress, needs, shared_path};
use serde_json::Value;

use pool::{POOL, Scratch, assert_zdb_is_content};

/// Results whose streams are raw.
const RAW: [&str; 3] = ["encw", "encRw", "raw1"];

fn facts() -> Value {
    serde_json::from_slice(&std::fs::read(shared_path("streams/streams.json")).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn stream(name: &str) -> Vec<u8> {
    decompress(&std::fs::read(shared_path(&format!("streams/{name}.zs.zst"))).unwrap())
}

async fn receive_bytes(engine: &Engine, bytes: Vec<u8>, order: &Order) -> Result<Received, ReceiveError> {
    let mut reader = StreamReader::new(Box::new(std::io::Cursor::new(bytes)));
    receive(engine, &mut reader, order).await
}

async fn receive_named(engine: &Engine, name: &str, order: &Order) -> Result<Received, ReceiveError> {
    receive_bytes(engine, stream(name), order).await
}

fn order(destination: &str) -> Order {
    Order { destination: format!("{POOL}/{destination}"), ..Order::default() }
}

/// Receives the streams of a result into a pool.
async fn receive_result(engine: &Engine, result: &Value) {
    let name = text(result, "name");
    if let Some((parent, _)) = name.rsplit_once('/') {
        pool::make(engine, parent).await;
    }
    for stream in result["streams"].as_array().unwrap() {
        let stream = stream.as_str().unwrap();
        let options = text(result, "recv_options");
        let order = Order { is_forced: options == "-F", is_resumable: options == "-s", ..order(name) };
        let received = receive_named(engine, stream, &order).await;
        match (stream, received) {
            ("resume-first-part", Err(ReceiveError::Saved { .. })) => {}
            ("resume-first-part", other) => panic!("{name}: {other:?}"),
            (_, Ok(received)) => assert!(received.refused.is_empty(), "{name}: {received:?}"),
            (_, Err(error)) => panic!("{name}: {stream}: {error}"),
        }
    }
}

/// What differs between a dataset and its description.
async fn differences(mos: &Mos, facts: &Value) -> Vec<String> {
    let name = format!("{POOL}/{}", text(facts, "name"));
    let dataset = match mos.dataset(&name).await {
        Ok(dataset) => dataset,
        Err(error) => return vec![format!("{name}: {error}")],
    };
    let mut found = Vec::new();
    if dataset.is_snapshot() && Some(dataset.guid().0) != facts["guid"].as_u64() {
        found.push(format!("{name}: guid {}", dataset.guid()));
    }
    if dataset.phys().is_inconsistent() {
        found.push(format!("{name}: inconsistent"));
    }
    let content = match (facts["manifest"].as_str(), facts["sha256"].as_str()) {
        (Some(manifest), _) => files_differ(&dataset, manifest).await,
        (None, Some(sha256)) => volume_differs(&dataset, sha256).await,
        (None, None) => Vec::new(),
    };
    found.extend(content.into_iter().map(|line| format!("{name}: {line}")));
    found
}

async fn files_differ(dataset: &Dataset, manifest: &str) -> Vec<String> {
    let fs = Filesystem::open(dataset.objset().await.unwrap()).await.unwrap();
    let ours = match manifest_text(&fs, ManifestOptions::default()).await {
        Ok(ours) => ours,
        Err(error) => return vec![error.to_string()],
    };
    let theirs = std::fs::read(shared_path(&format!("streams/{manifest}"))).unwrap();
    let theirs = String::from_utf8(decompress(&theirs)).unwrap();
    let (ours, theirs): (BTreeMap<_, _>, BTreeMap<_, _>) = (lines(&ours), lines(&theirs));
    let mut found = Vec::new();
    for path in ours.keys().chain(theirs.keys()).collect::<std::collections::BTreeSet<_>>() {
        if ours.get(path) != theirs.get(path) {
            found.push(format!("\n  ours   {:?}\n  theirs {:?}", ours.get(path), theirs.get(path)));
        }
    }
    found.truncate(5);
    found
}

/// Lines by path. The root of a snapshot has a number that depends on the pool.
fn lines(manifest: &str) -> BTreeMap<String, Vec<String>> {
    let line = |line: &str| {
        let mut columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
        if columns[0] == "." {
            columns[12].clear();
        }
        (columns[0].clone(), columns)
    };
    manifest.lines().map(line).collect()
}

async fn volume_differs(dataset: &Dataset, sha256: &str) -> Vec<String> {
    let volume = Volume::open(dataset.objset().await.unwrap()).await.unwrap();
    let hash = hash_range(&volume, 0..volume.size_bytes()).await;
    let hex: String = hash.sha256.iter().map(|b| format!("{b:02x}")).collect();
    if hex == sha256 { Vec::new() } else { vec![format!("{hex}, not {sha256}")] }
}

#[needs("streams/streams.json")]
#[test]
fn streams_of_the_module_give_what_they_gave_there() {
    let (rt, scratch, facts) = (Runtime::real(None), Scratch::new(), facts());
    let results = facts["results"].as_array().unwrap();
    let results: Vec<_> = results.iter().filter(|result| !RAW.contains(&text(result, "name"))).collect();
    let only = std::env::var("CENOTE_STREAM").ok();
    rt.block_on(async {
        let engine = scratch.create(&rt).await;
        let wanted = |result: &&&Value| only.as_ref().is_none_or(|only| text(result, "name") == only);
        for result in results.iter().filter(wanted) {
            receive_result(&engine, result).await;
            println!("{}: received", text(result, "name"));
        }
        scratch.close(engine).await;
        let mos = scratch.reopen(&rt).await;
        let mut found = Vec::new();
        for dataset in results.iter().filter(wanted).flat_map(|r| r["datasets"].as_array().unwrap()) {
            found.extend(differences(&mos, dataset).await);
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
    assert_zdb_is_content(scratch.path());
}
