//! `zfs receive --reshare`: equal blocks of a stream are stored once.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that can't go on must stop")]

mod kept;
mod pool;

use std::io::Cursor;

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::bytes::Endian;
use cenote_fs::manifest::{ManifestOptions, manifest_text};
use cenote_fs::write::{NewFile, NewFilesystem, NewKind, create_filesystem};
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter, Timestamp};
use cenote_object::LiveObjset;
use cenote_runtime::{Rng, Runtime};
use cenote_stream::receive::{Alone, Order, Received, Reshared, receive};
use cenote_stream::send::{Extent, Plan, Progress, Resume, SendFlags, SendRequest, Since};
use cenote_stream::{StreamReader, StreamWriter};
use cenote_tasks::InUse;
use cenote_testkit::zdb_finds_nothing;

use kept::Kept;
use pool::{POOL, Scratch};

const RECORD: usize = 128 << 10;
const NOW: Timestamp = Timestamp { seconds: 1, nanoseconds: 2 };

fn noise(seed: u64, blocks: usize) -> Vec<u8> {
    let mut bytes = vec![0; blocks * RECORD];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// Makes a file system with these files, and a snapshot `@one` of it.
async fn make(engine: &Engine, name: &str, files: &[(&str, Vec<u8>)]) {
    let fill = |live: LiveObjset| async move {
        let edit = live.edit();
        let change = Change { edit: &edit, now: NOW };
        create_filesystem(&live, change, &NewFilesystem::default(), FsOptions::default()).await.unwrap();
        Ok(())
    };
    let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> { Box::pin(fill(live)) });
    cenote_tasks::create_filesystem(engine, name, Vec::new(), fill).await.unwrap();
    let opened = engine.dataset(name).await.unwrap();
    let fs = FsWriter::open(opened, FsOptions::default()).await.unwrap();
    for (file, content) in files {
        let _hold = engine.hold().await.unwrap();
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: NOW };
        let new = NewFile { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let made = fs.create(change, fs.root(), file.as_bytes(), &new).await.unwrap();
        fs.write(change, made, 0, content.clone().into()).await.unwrap();
    }
    drop(fs);
    cenote_tasks::snapshot(engine, &[format!("{name}@one")]).await.unwrap();
    engine.sync_all().await.unwrap();
}

async fn send(engine: &Engine, snapshot: &str, flags: SendFlags) -> Vec<u8> {
    let dataset = engine.mos().await.unwrap().dataset(snapshot).await.unwrap();
    let (resume, saved, redact) = (Resume::default(), false, None);
    let [props, backup, holds, in_clear] = [false; 4];
    let extent = Extent::One(Since::Nothing);
    let request =
        SendRequest { dataset, extent, flags, props, backup, holds, in_clear, resume, saved, redact };
    let plan = Plan::of(request).await.unwrap();
    let kept = Kept::default();
    let mut writer = StreamWriter::new(Box::new(kept.clone()), Endian::NATIVE);
    plan.ready().await.unwrap().send(&mut writer, &Progress::default()).await.unwrap();
    kept.take()
}

async fn take(engine: &Engine, name: &str, bytes: Vec<u8>, reshares: bool) -> Received {
    let order = Order { destination: name.to_owned(), reshares, ..Order::default() };
    receive(engine, &mut StreamReader::new(Box::new(Cursor::new(bytes))), &order, &Alone).await.unwrap()
}

async fn content(mos: &Mos, snapshot: &str) -> String {
    let objset = mos.dataset(snapshot).await.unwrap().objset().await.unwrap();
    let fs = Filesystem::open(objset).await.unwrap();
    manifest_text(&fs, ManifestOptions::default()).await.unwrap()
}

async fn saved_bytes(mos: &Mos) -> u64 {
    mos.cloned_blocks().await.unwrap().iter().map(|table| table.phys.saved_bytes).sum()
}

/// A file, copies of it, and one that is equal in part: the first copies come while their blocks are not on
/// disk yet, the others later.
#[test]
fn equal_blocks_are_stored_once() {
    const BLOCKS: usize = 320;
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let scratch = Scratch::new();
        let engine = scratch.create(&rt).await;
        let original = noise(1, BLOCKS);
        let mut partly = original.clone();
        partly[..RECORD].fill(7);
        partly[RECORD * 2..][..10].fill(9);
        let mut files = vec![("other", noise(2, 5)), ("a", original.clone())];
        files.extend(["b", "c", "d"].map(|name| (name, original.clone())));
        files.push(("partly", partly));
        make(&engine, "taken/sent", &files).await;
        for (name, flags) in [
            ("plain", SendFlags::default()),
            ("compressed", SendFlags { compressed: true, ..SendFlags::default() }),
        ] {
            let (before, to) = (saved_bytes(&engine.mos().await.unwrap()).await, format!("{POOL}/{name}"));
            let stream = send(&engine, "taken/sent@one", flags).await;
            let received = take(&engine, &to, stream, true).await;
            let blocks = (BLOCKS * 4 - 2) as u64;
            assert_eq!(received.reshared, Reshared { blocks, bytes: blocks * RECORD as u64 }, "{name}");
            engine.sync_all().await.unwrap();
            let mos = engine.mos().await.unwrap();
            assert_eq!(saved_bytes(&mos).await - before, blocks * RECORD as u64, "{name}");
            let [sent, here] = ["taken/sent@one".to_owned(), format!("{to}@one")];
            assert_eq!(content(&mos, &sent).await, content(&mos, &here).await, "{name}");
        }
        scratch.close(engine).await;
        zdb_finds_nothing(scratch.path(), POOL);

        let engine = scratch.open_to_write(&rt).await;
        for name in ["taken/plain", "taken/compressed"] {
            let snapshots = [format!("{name}@one")];
            cenote_tasks::destroy_snapshots(&engine, &snapshots, InUse::Refuse).await.unwrap();
            cenote_tasks::destroy_dataset(&engine, name).await.unwrap();
        }
        scratch.close(engine).await;
        let mos = scratch.reopen(&rt).await;
        assert_eq!(saved_bytes(&mos).await, 0);
        drop(mos);
        zdb_finds_nothing(scratch.path(), POOL);
    });
}

/// Small, embedded and empty blocks are not worth an entry; without the option nothing is shared.
#[test]
fn other_blocks_are_written() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let scratch = Scratch::new();
        let engine = scratch.create(&rt).await;
        let small = noise(3, 1)[..2000].to_vec();
        let files = ["a", "b"].map(|name| (name, small.clone()));
        let zeros = ["c", "d"].map(|name| (name, vec![0; RECORD * 3]));
        let like = ["e", "f"].map(|name| (name, vec![5; 4096]));
        make(&engine, "taken/sent", &[&files[..], &zeros, &like].concat()).await;
        let stream = send(&engine, "taken/sent@one", SendFlags::default()).await;
        assert_eq!(take(&engine, "taken/here", stream, true).await.reshared, Reshared::default());
        make(&engine, "taken/twice", &["a", "b"].map(|name| (name, noise(4, 8)))).await;
        let stream = send(&engine, "taken/twice@one", SendFlags::default()).await;
        assert_eq!(take(&engine, "taken/copy", stream, false).await.reshared, Reshared::default());
        engine.sync_all().await.unwrap();
        let mos = engine.mos().await.unwrap();
        assert_eq!(saved_bytes(&mos).await, 0);
        for (sent, here) in [("taken/sent@one", "taken/here@one"), ("taken/twice@one", "taken/copy@one")] {
            assert_eq!(content(&mos, sent).await, content(&mos, here).await);
        }
        drop(mos);
        scratch.close(engine).await;
        zdb_finds_nothing(scratch.path(), POOL);
    });
}
