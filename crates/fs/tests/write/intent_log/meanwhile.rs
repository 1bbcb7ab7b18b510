//! Data truncated or removed while a commit writes it to the log: after a power cut, all of it is present, or
//! it is truncated.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Delayed, Device, FileDevice, Latency, OpenOptions};
use cenote_engine::Engine;
use cenote_fs::write::{NewFile, NewKind, SetAttr};
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter};
use cenote_runtime::{Runtime, SimConfig};

use super::{DISK, NOW, create_on, reopen};
use crate::on_disk::POOL;
use crate::scratch::at;

/// More than one log write, so that the commit takes the rest after the first part is written.
const BYTES: usize = 9 << 20;
const PIECE: usize = 4 << 10;

#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    CutTo(usize),
    Removed,
}

#[test]
fn a_commit_does_not_take_holes_for_content() {
    let cases =
        [Meanwhile::Nothing, Meanwhile::CutTo(0), Meanwhile::CutTo(BYTES - PIECE - 1), Meanwhile::Removed];
    for meanwhile in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        Runtime::simulate(SimConfig::default(), move |rt| async move {
            commit_and(&rt, &path, meanwhile).await;
            let mos = reopen(&rt, &path).await;
            let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
            let log = objset.intent_log().await;
            let (fs, report) = Filesystem::open(objset).await.unwrap().replay(&log.records, NOW).await;
            assert!(report.set_aside == 0, "{report:?}");
            let found = fs.lookup(fs.root(), b"file").await.unwrap();
            let is_either = match (meanwhile, found) {
                (Meanwhile::Removed, None) => return,
                (_, None) => panic!("{meanwhile:?}: the committed data is missing"),
                (_, Some(entry)) => {
                    let file = fs.open_file(entry.object).await.unwrap();
                    let size = file.attr().size as usize;
                    let is_after = matches!(meanwhile, Meanwhile::CutTo(bytes) if bytes == size);
                    (size == BYTES || is_after)
                        && file.read(0, size as u64).await.unwrap() == content().slice(..size)
                }
            };
            assert!(is_either, "{meanwhile:?}: content is neither the old nor the new one");
        });
    }
}

/// Writes a file and commits it; while its blocks are being written, something happens to it. Then the power
/// is cut.
async fn commit_and(rt: &Runtime, folder: &Path, meanwhile: Meanwhile) {
    let path = folder.join("disk.img");
    std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    let latency = Latency { fixed: Duration::from_millis(1), ..Latency::default() };
    let file = Arc::new(FileDevice::open(&path, OpenOptions::EXCLUSIVE, rt).await.unwrap());
    let disk = Arc::new(Delayed::new(file, latency, rt));
    let engine = create_on(rt, &[DISK], |_, _| disk.clone() as Arc<dyn Device>).await;
    let dataset = engine.dataset(POOL).await.unwrap();
    let fs = FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap();
    let new = NewFile { kind: NewKind::Regular, mode: 0o600, umask: 0, uid: 0, gid: 0 };
    let file = change(&engine, &fs, async |change| fs.create(change, fs.root(), b"file", &new).await).await;
    // The first commit starts the log, with a txg.
    fs.commit(None).await.unwrap();
    let all = content();
    for at in (0..BYTES).step_by(PIECE) {
        let piece = all.slice(at..at + PIECE);
        change(&engine, &fs, async |change| fs.write(change, file, at as u64, piece.clone()).await).await;
    }
    let commit = {
        let fs = fs.clone();
        rt.spawn(async move { fs.commit(Some(file)).await })
    };
    rt.sleep(latency.fixed / 2).await;
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::CutTo(bytes) => {
            let set = SetAttr { size: Some(bytes as u64), ..SetAttr::default() };
            change(&engine, &fs, async |change| fs.set_attr(change, file, &set).await).await;
        }
        Meanwhile::Removed => {
            change(&engine, &fs, async |change| {
                fs.unlink(change, fs.root(), b"file").await?;
                fs.free_unlinked(change, file).await
            })
            .await;
        }
    }
    commit.await.unwrap().unwrap();
}

async fn change<T>(
    engine: &Engine,
    fs: &FsWriter,
    work: impl AsyncFnOnce(Change<'_>) -> cenote_fs::Result<T>,
) -> T {
    let _hold = engine.hold().await.unwrap();
    let edit = fs.live().edit();
    work(Change { edit: &edit, now: at(5) }).await.unwrap()
}

/// Contains no zero byte.
fn content() -> Bytes {
    (0..BYTES).map(|at| (at % 251) as u8 + 1).collect()
}
