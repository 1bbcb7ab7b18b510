//! Receives every available stream of OpenZFS: the result equals that of the module.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that can't go on must stop")]

mod pool;

use std::collections::BTreeMap;

use cenote_dataset::{Dataset, KeySource, Mos, UserKey};
use cenote_engine::Engine;
use cenote_fs::manifest::{ManifestOptions, hash_range, manifest_text};
use cenote_fs::{Filesystem, Volume};
use cenote_runtime::Runtime;
use cenote_stream::StreamReader;
use cenote_stream::receive::{Alone, Order, ReceiveError, Received, receive};
use cenote_testkit::{decompress, needs, shared_path, zdb_finds_nothing};
use serde_json::Value;

use pool::{POOL, Scratch};

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
    receive(engine, &mut reader, order, &Alone).await
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

/// The key of the encrypted datasets.
fn keys(facts: &Value) -> KeySource {
    let key = text(&facts["keys"]["enc"], "key").as_bytes().to_vec();
    KeySource::new(move |info| info.root.contains("/enc").then(|| UserKey(key.clone())))
}

/// Differences between a dataset and its description.
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
    // The module loses a symbolic link's target in an embedded spill block (`send -e`).
    let manifest = manifest.replace("xaec", "xa");
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
        // The module shows ACLs only with `acltype`, which a stream without properties lacks.
        let xattrs = columns.get(11).map(String::as_str).unwrap_or_default().split(',');
        let shown: Vec<&str> = xattrs.filter(|xattr| !xattr.starts_with("system.posix_acl")).collect();
        let shown = shown.join(",");
        if let Some(xattrs) = columns.get_mut(11) {
            *xattrs = shown;
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
    let only = std::env::var("CENOTE_STREAM").ok();
    rt.block_on(async {
        let engine = scratch.create(&rt).await;
        let wanted = |result: &&Value| only.as_ref().is_none_or(|only| text(result, "name") == only);
        for result in results.iter().filter(wanted) {
            receive_result(&engine, result).await;
            println!("{}: received", text(result, "name"));
        }
        scratch.close(engine).await;
        let mos = scratch.reopen_with(&rt, keys(&facts)).await;
        let mut found = Vec::new();
        for dataset in results.iter().filter(wanted).flat_map(|r| r["datasets"].as_array().unwrap()) {
            found.extend(differences(&mos, dataset).await);
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
    zdb_finds_nothing(scratch.path(), POOL);
}

/// Names below the pool's root, as by `zfs list -t all`.
async fn names(engine: &Engine) -> Vec<String> {
    let mut names = Vec::new();
    for dataset in engine.mos().await.unwrap().all_datasets().await.unwrap() {
        names.push(dataset.name().to_owned());
        names.extend(dataset.snapshots().await.unwrap().iter().map(|taken| taken.name().to_owned()));
    }
    names
}

#[needs("streams/streams.json")]
#[test]
fn what_is_wrong_is_refused_and_leaves_what_was_there() {
    let (rt, scratch) = (Runtime::real(None), Scratch::new());
    rt.block_on(async {
        let engine = scratch.create(&rt).await;
        let refused = async |name: &str, order: &Order, wanted: &str| {
            let error = receive_named(&engine, name, order).await.expect_err(name).to_string();
            assert_eq!(error, wanted, "{name}");
        };
        let forced = |name| Order { is_forced: true, ..order(name) };
        refused("corrupt-full", &order("a"), "cannot receive new filesystem stream: checksum mismatch").await;
        refused(
            "inc-i",
            &order("a"),
            "cannot receive incremental stream: destination 'taken/a' does not exist",
        )
        .await;
        assert_eq!(names(&engine).await, ["taken"]);

        receive_named(&engine, "full", &order("a")).await.unwrap();
        let exists = "cannot receive new filesystem stream: destination 'taken/a' exists\n\
                      must specify -F to overwrite it";
        refused("full", &order("a"), exists).await;
        let snapshots = "cannot receive new filesystem stream: destination has snapshots (eg. taken/a@1)\n\
                         must destroy them to overwrite it";
        refused("full", &forced("a"), snapshots).await;
        let other = "cannot receive incremental stream: most recent snapshot of taken/a does not\n\
                     match incremental source";
        refused("inc-bookmark", &order("a"), other).await;
        refused("inc-bookmark", &forced("a"), other).await;
        let named = Order { destination: "taken/b@x".into(), ..Order::default() };
        let several = "cannot receive: cannot specify snapshot name for multi-snapshot stream";
        refused("rep-R", &named, several).await;
        receive_named(&engine, "xa", &named).await.unwrap();
        let clone = "cannot receive: local origin for clone taken/c@c1 does not exist";
        refused("clone-origin", &order("c"), clone).await;
        let broken = "cannot receive incremental stream: incomplete stream";
        refused("truncated-inc-I", &order("a"), broken).await;
        let left = names(&engine).await;
        assert!(left.contains(&"taken/a@1".to_owned()) && left.contains(&"taken/b@x".to_owned()), "{left:?}");
        assert!(!left.iter().any(|name| name.contains('%')), "{left:?}");
        // A snapshot in the way is destroyed.
        cenote_tasks::snapshot(&engine, &["taken/b@y".to_owned()]).await.unwrap();
        receive_named(&engine, "xa-i", &forced("b")).await.unwrap();
        let left = names(&engine).await;
        assert!(
            left.contains(&"taken/b@2".to_owned()) && !left.contains(&"taken/b@y".to_owned()),
            "{left:?}"
        );
        scratch.close(engine).await;
    });
    zdb_finds_nothing(scratch.path(), POOL);
}

#[needs("streams/streams.json")]
#[test]
fn packages_bring_properties_holds_and_clones() {
    let (rt, scratch) = (Runtime::real(None), Scratch::new());
    rt.block_on(async {
        let engine = scratch.create(&rt).await;
        receive_named(&engine, "holds-h", &order("held")).await.unwrap();
        receive_named(&engine, "rep-R", &order("r")).await.unwrap();
        let clone = Order { origin: Some("taken/r/kid@2".into()), ..order("cl") };
        receive_named(&engine, "clone-origin", &clone).await.unwrap();
        receive_named(&engine, "clone-origin", &order("r/cl")).await.unwrap();
        let mos = engine.mos().await.unwrap();
        let held = mos.dataset("taken/held@1").await.unwrap();
        assert!(!held.holds().await.unwrap().is_empty());
        for name in ["taken/cl", "taken/r/cl"] {
            let origin = mos.dataset(name).await.unwrap().origin().await.unwrap();
            assert_eq!(origin.map(|origin| origin.name().to_owned()).as_deref(), Some("taken/r/kid@2"));
        }
        let top = mos.dataset("taken/r").await.unwrap();
        let property = top.property("org.x:y").await.unwrap().unwrap();
        assert_eq!(property.literal(), "z");
        assert_eq!(property.source, cenote_dataset::Source::Received);
        let volume = mos.dataset("taken/r/vol").await.unwrap();
        assert_eq!(volume.setting("refreservation").await.unwrap(), 4 << 20);
        scratch.close(engine).await;
    });
    zdb_finds_nothing(scratch.path(), POOL);
}

#[needs("streams/streams.json")]
#[test]
fn a_receive_goes_on_from_wherever_it_broke_off() {
    let (rt, scratch) = (Runtime::real(None), Scratch::new());
    let (whole, base) = (stream("xa-i"), stream("xa"));
    rt.block_on(async {
        let engine = scratch.create(&rt).await;
        for (index, cut) in [whole.len() / 5, whole.len() / 2, whole.len() - 400].into_iter().enumerate() {
            let name = format!("x{index}");
            let order = Order { is_resumable: true, ..order(&name) };
            receive_bytes(&engine, base.clone(), &order).await.unwrap();
            let broken = receive_bytes(&engine, whole[..cut].to_vec(), &order).await.unwrap_err();
            let ReceiveError::Saved { token, .. } = broken else { panic!("{broken}") };
            let state = cenote_stream::token::state_of(&token).unwrap();
            assert_eq!(state.to_name, b"gsrc/xa@2");
            // Another stream is refused, and the old state stays.
            let busy = receive_bytes(&engine, whole.clone(), &order).await.unwrap_err().to_string();
            assert!(busy.contains("contains partially-complete state"), "{busy}");
            cenote_tasks::abort_receive(&engine, &format!("{POOL}/{name}")).await.unwrap();
            receive_bytes(&engine, whole.clone(), &order).await.unwrap();
        }
        scratch.close(engine).await;
    });
    zdb_finds_nothing(scratch.path(), POOL);
}
