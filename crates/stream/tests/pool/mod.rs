//! A pool on a sparse file, for tests that receive.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout, reason = "each test uses only part of this")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, KeySource, Mos, import};
use cenote_device::{FileDevice, OpenOptions};
use cenote_engine::Engine;
use cenote_format::dnode::ObjectType;
use cenote_format::features::SPA_FEATURES;
use cenote_format::label::PoolState;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::{LiveObjset, NewZap, Result};
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind, discover};
use cenote_runtime::Runtime;
use cenote_tasks::NewPool;

pub const POOL: &str = "taken";

pub struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A pool with all features.
    pub async fn create(&self, rt: &Runtime) -> Engine {
        let path = self.path().join("disk.img");
        std::fs::File::create(&path).unwrap().set_len(2 << 30).unwrap();
        let device = FileDevice::open(&path, OpenOptions::EXCLUSIVE, rt).await.unwrap();
        let device = NewDevice { path: path.display().to_string(), device: Arc::new(device), is_file: true };
        let devices = vec![device];
        let vdev =
            NewVdev { kind: VdevKind::Disk, parity: 0, draid: None, class: VdevClass::Normal, devices };
        let new = NewPool {
            plan: plan(rt, POOL, &[vdev], None, (1, "here"), Txg(4)).unwrap(),
            // The installed zdb may be older than this feature, and reads counts of clones without it.
            features: SPA_FEATURES.iter().filter(|feature| feature.name != "block_cloning_endian").collect(),
            properties: Vec::new(),
            root_properties: Vec::new(),
            keys: KeySource::default(),
            cache: CacheOptions::metadata(64 << 20),
        };
        cenote_tasks::create_pool(rt, new, Box::new(|live| Box::pin(fill(live)))).await.unwrap()
    }

    pub async fn close(&self, engine: Engine) {
        engine.frees().finish().await.unwrap();
        engine.close(PoolState::Exported).await.unwrap();
    }

    pub async fn open_to_write(&self, rt: &Runtime) -> Engine {
        let found = discover(rt, &[PathBuf::from(self.path())]).await;
        let found = found.pools[0].open_for_writing(rt).await.unwrap();
        Engine::start(&import(rt, &found, &ImportOptions::default()).await.unwrap()).await.unwrap()
    }

    pub async fn reopen(&self, rt: &Runtime) -> Mos {
        self.reopen_with(rt, KeySource::default()).await
    }

    pub async fn reopen_with(&self, rt: &Runtime, keys: KeySource) -> Mos {
        let found = discover(rt, &[PathBuf::from(self.path())]).await;
        let options = ImportOptions { keys, ..ImportOptions::default() };
        import(rt, &found.pools[0], &options).await.unwrap()
    }
}

async fn fill(live: LiveObjset) -> Result<()> {
    NewZap::of(ObjectType::MASTER_NODE).create_at(&live.edit(), ObjectId(1)).await
}

/// Makes a file system without files.
pub async fn make(engine: &Engine, name: &str) {
    let name = format!("{POOL}/{name}");
    let fill = Box::new(|live| -> futures::future::BoxFuture<'static, Result<()>> { Box::pin(fill(live)) });
    cenote_tasks::create_filesystem(engine, &name, Vec::new(), fill).await.unwrap();
}
