//! Random work on everything in a pool (files, volumes, snapshots, clones) and its expected result.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::collections::BTreeMap;

use bytes::Bytes;
use cenote_dataset::{Dataset, DatasetKind, Mos};
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::attr::Timestamp;
use cenote_fs::write::{NewFile, NewFilesystem, NewKind, SetAttr, create_filesystem};
use cenote_fs::{Change, FileKind, Filesystem, FsOptions, FsWriter, Volume, VolumeWriter};
use cenote_object::LiveObjset;
use cenote_runtime::Rng;

/// How many files of a dataset are examined.
const MAX_FILES: usize = 40;
/// How many bytes of a file are compared.
const MAX_COMPARED_BYTES: u64 = 1 << 20;
const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 7 };
/// How many datasets are changed.
const MAX_DATASETS: usize = 8;

/// Expected content of files and volumes: the beginning of each, by dataset and object.
#[derive(Default)]
pub struct Expected(BTreeMap<(String, ObjectId), Bytes>);

impl Expected {
    pub async fn compare(&self, mos: &Mos) {
        for ((name, object), content) in &self.0 {
            let objset = mos.dataset(name).await.unwrap().objset().await.unwrap();
            let found = match Volume::open(objset.clone()).await {
                Ok(volume) => volume.read(0, content.len() as u64).await.unwrap(),
                Err(_) => start_of(&Filesystem::open(objset).await.unwrap(), *object).await.unwrap(),
            };
            assert!(found == content, "{name} object {object} differs");
        }
    }
}

async fn start_of(fs: &Filesystem, object: ObjectId) -> Option<Bytes> {
    fs.open_file(object).await.ok()?.read(0, MAX_COMPARED_BYTES).await.ok()
}

/// Creates an empty file system below the root, of the version that its pool supports, with the root's key if
/// the root is encrypted.
async fn make_filesystem(engine: &Engine, name: &str) {
    let fill = |live: LiveObjset| async move {
        let edit = live.edit();
        let change = Change { edit: &edit, now: NOW };
        let options = FsOptions { projects: false, ..FsOptions::default() };
        create_filesystem(&live, change, &NewFilesystem::default(), options).await.unwrap();
        Ok(())
    };
    cenote_tasks::create_filesystem(engine, name, Vec::new(), Box::new(move |live| Box::pin(fill(live))))
        .await
        .unwrap();
}

/// Changes some of each dataset, creates one, and takes snapshots and clones.
pub async fn work(engine: &Engine, expected: &mut Expected, rng: &mut Rng, round: u64) {
    let mos = engine.mos().await.unwrap();
    make_filesystem(engine, &format!("{}/made{round}", mos.pool().name())).await;
    let mos = engine.mos().await.unwrap();
    let mut heads: Vec<Dataset> = mos.all_datasets().await.unwrap();
    heads.retain(|dataset| !dataset.is_snapshot() && !dataset.name().contains('$'));
    while heads.len() > MAX_DATASETS {
        heads.remove(1 + rng.below(heads.len() as u64 - 1) as usize);
    }
    for head in &heads {
        match head.kind().await.unwrap() {
            DatasetKind::Volume => change_volume(engine, head.name(), expected, rng).await,
            _ => change_files(engine, head.name(), expected, rng, round).await,
        }
        if rng.below(2) == 0 {
            engine.sync_all().await.unwrap();
        }
    }
    engine.sync_all().await.unwrap();
    // Some pools can't do this, and some datasets are encrypted; that is not tested here.
    for (index, head) in heads.iter().enumerate() {
        let snapshot = format!("{}@cenote{round}", head.name());
        if cenote_tasks::snapshot(engine, std::slice::from_ref(&snapshot)).await.is_ok() && rng.below(2) == 0
        {
            let clone = format!("{}/cenote{round}-{index}", mos.pool().name());
            _ = cenote_tasks::clone_snapshot(engine, &snapshot, &clone, Vec::new()).await;
        }
    }
}

async fn change_volume(engine: &Engine, name: &str, expected: &mut Expected, rng: &mut Rng) {
    let Ok(dataset) = engine.dataset(name).await else { return };
    let volume = VolumeWriter::open(dataset.clone()).await.unwrap();
    let hold = engine.hold().await.unwrap();
    let edit = dataset.edit(&hold);
    for _ in 0..10 {
        let block = volume.block_bytes();
        let offset = rng.below(volume.size_bytes() / block) * block;
        volume.write(&edit, offset, content(rng, block as usize)).await.unwrap();
    }
    let start = volume.view().await.unwrap().read(0, MAX_COMPARED_BYTES.min(volume.size_bytes())).await;
    expected.0.insert((name.into(), ObjectId(1)), start.unwrap());
}

async fn change_files(engine: &Engine, name: &str, expected: &mut Expected, rng: &mut Rng, round: u64) {
    // Its key is missing, or it is damaged.
    let Ok(dataset) = engine.dataset(name).await else { return };
    let fs = match FsWriter::open(dataset.clone(), FsOptions::default()).await {
        Ok(fs) => fs,
        Err(error) => return println!("{name}: files are not changed: {error}"),
    };
    let hold = engine.hold().await.unwrap();
    let edit = dataset.edit(&hold);
    let change = Change { edit: &edit, now: NOW };
    let mut touched = Vec::new();
    for (dir, entry, object) in files(&fs.view(), fs.root()).await {
        match rng.below(8) {
            0..2 => {
                if let Ok(Some(last)) = fs.unlink(change, dir, &entry).await {
                    // A large file is freed in steps.
                    while !fs.free_unlinked(change, last).await.unwrap() {}
                }
            }
            2..4 => {
                let offset = rng.below(300_000);
                let len = 1 + rng.below(50_000) as usize;
                _ = fs.write(change, object, offset, content(rng, len)).await;
            }
            4 => {
                let size = SetAttr { size: Some(rng.below(100_000)), ..SetAttr::default() };
                _ = fs.set_attr(change, object, &size).await;
            }
            _ => {}
        }
        touched.push(object);
    }
    touched.extend(add_files(&fs, change, rng, round).await);
    let view = fs.view();
    for object in touched {
        // Missing or damaged files are not compared.
        match start_of(&view, object).await {
            Some(start) => expected.0.insert((name.into(), object), start),
            None => expected.0.remove(&(name.into(), object)),
        };
    }
}

/// A folder of new files, some of which have equal content.
async fn add_files(fs: &FsWriter, change: Change<'_>, rng: &mut Rng, round: u64) -> Vec<ObjectId> {
    let new = |kind| NewFile { kind, mode: 0o755, umask: 0, uid: 1000, gid: 100 };
    let folder = format!("cenote{round}");
    let dir = fs.create(change, fs.root(), folder.as_bytes(), &new(NewKind::Directory)).await.unwrap();
    let same = content(rng, 150_000);
    let mut made = Vec::new();
    for index in 0..10 {
        let name = format!("file {index}");
        let file = fs.create(change, dir, name.as_bytes(), &new(NewKind::Regular)).await.unwrap();
        let data = if index % 4 == 0 { same.clone() } else { content(rng, index * 9_000) };
        fs.write(change, file, 0, data).await.unwrap();
        made.push(file);
    }
    made
}

/// Half of it is compressible.
fn content(rng: &mut Rng, len: usize) -> Bytes {
    (0..len).map(|i| if i % 2 == 0 { 0 } else { rng.below(256) as u8 }).collect()
}

/// Some regular files: folder, name, object.
async fn files(fs: &Filesystem, root: ObjectId) -> Vec<(ObjectId, Bytes, ObjectId)> {
    let (mut found, mut pending) = (Vec::new(), vec![root]);
    while let Some(dir) = pending.pop() {
        for entry in fs.list(dir).await.unwrap_or_default() {
            match fs.attr(entry.object).await.map(|attr| attr.kind()) {
                Ok(FileKind::Regular) if found.len() < MAX_FILES => {
                    found.push((dir, entry.name.clone(), entry.object));
                }
                Ok(FileKind::Directory) => pending.push(entry.object),
                _ => {}
            }
        }
        if found.len() >= MAX_FILES {
            break;
        }
    }
    found
}
