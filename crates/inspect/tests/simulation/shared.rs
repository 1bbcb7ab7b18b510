//! A dataset opened several times: the writers exclude each other, and settings reach them all.

use bytes::Bytes;
use cenote_dataset::Value;
use cenote_engine::{Engine, Need};
use cenote_fs::write::{NewFile, NewKind, XattrStore};
use cenote_fs::{FsOptions, FsWriter, Refusal, VolumeWriter};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::Disk;
use cenote_runtime::Runtime;
use cenote_tasks::{Instead, create_filesystem, create_volume, inherit, rename, set_property};

use crate::cuts::simulate;
use crate::pools::{Disks, Layout, POOL, create, fill, now};

const BLOCK_BYTES: u32 = 8 << 10;
const VOLUME_BYTES: u64 = 64 << 10;

fn on_pool<F: Future<Output = ()>>(test: impl FnOnce(Runtime, Engine) -> F) {
    simulate(11, |rt| async move {
        let layout = Layout { vdevs: vec![(Disk, 0, 1, Normal)], sector_bytes: 512, spares: 0 };
        let disks = Disks::new(&rt, layout.shape(), layout.blank());
        let engine = create(&rt, &layout, &disks.devices()).await;
        test(rt, engine).await;
    });
}

async fn make_files(rt: &Runtime, engine: &Engine, name: &str) {
    let now = now(rt);
    let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
        Box::pin(fill(live, now, FsOptions::default()))
    });
    create_filesystem(engine, name, Vec::new(), fill).await.unwrap();
}

async fn make_file(engine: &Engine, fs: &FsWriter, name: &'static str) -> cenote_fs::Result<u64> {
    let new = NewFile { kind: NewKind::Regular, mode: 0o600, umask: 0, uid: 1, gid: 1 };
    let made = fs.change(engine, Need::Write(1 << 20), move |fs, change| {
        Box::pin(async move {
            let id = fs.create(change, fs.root(), name.as_bytes(), &new).await?;
            fs.write(change, id, 0, vec![7; 300_000].into()).await?;
            Ok(fs.view().objset().object(id).await?.block_bytes())
        })
    });
    made.await
}

#[test]
fn of_two_who_create_the_same_name_one_is_refused() {
    on_pool(async |rt, engine| {
        let making = (0..2).map(|_| {
            let engine = engine.clone();
            // Each opens the dataset by itself.
            rt.spawn(async move {
                let fs = FsWriter::shared(&engine, POOL).await.unwrap();
                make_file(&engine, &fs, "file").await
            })
        });
        let mut refused = 0;
        for made in making.collect::<Vec<_>>() {
            refused += match made.await.unwrap() {
                Ok(_) => 0,
                Err(error) => u32::from(error.refusal() == Some(Refusal::Exists)),
            };
        }
        assert_eq!(refused, 1);
        let fs = FsWriter::shared(&engine, POOL).await.unwrap();
        assert_eq!(fs.list(fs.root()).await.unwrap().len(), 1);
    });
}

#[test]
fn settings_reach_whoever_has_a_file_system_open() {
    on_pool(async |rt, engine| {
        let (above, name) = (format!("{POOL}/above"), format!("{POOL}/above/fs"));
        make_files(&rt, &engine, &above).await;
        make_files(&rt, &engine, &name).await;
        let fs = FsWriter::shared(&engine, &name).await.unwrap();
        let again = FsWriter::shared(&engine, &name).await.unwrap();
        assert_eq!(make_file(&engine, &fs, "default").await.unwrap(), 128 << 10);
        set_property(&engine, &above, "recordsize", Value::Number(4096)).await.unwrap();
        assert_eq!(make_file(&engine, &fs, "inherited").await.unwrap(), 4096);
        assert_eq!(make_file(&engine, &again, "inherited too").await.unwrap(), 4096);
        set_property(&engine, &name, "recordsize", Value::Number(512)).await.unwrap();
        set_property(&engine, &name, "xattr", Value::Number(1)).await.unwrap();
        assert_eq!(make_file(&engine, &fs, "own").await.unwrap(), 512);
        assert_eq!(again.options().xattr, XattrStore::Dir);
        inherit(&engine, &name, "recordsize", Instead::Inherited).await.unwrap();
        assert_eq!(make_file(&engine, &again, "inherited again").await.unwrap(), 4096);
        // At its new place it inherits other settings.
        rename(&engine, &name, &format!("{POOL}/fs")).await.unwrap();
        assert_eq!(make_file(&engine, &fs, "moved").await.unwrap(), 128 << 10);
    });
}

#[test]
fn two_who_write_parts_of_a_volumes_block_lose_nothing() {
    on_pool(async |rt, engine| {
        let make = Box::new(move |live: cenote_object::LiveObjset| {
            let making: futures::future::BoxFuture<'static, cenote_object::Result<()>> =
                Box::pin(async move {
                    let edit = live.edit();
                    VolumeWriter::create(live.clone(), &edit, VOLUME_BYTES, BLOCK_BYTES).await.unwrap();
                    Ok(())
                });
            making
        });
        let name = format!("{POOL}/volume");
        create_volume(&engine, &name, Vec::new(), make).await.unwrap();
        let own = VolumeWriter::shared(&engine, &name).await.unwrap();
        let filling = own.clone();
        let fill = |edit| async move { filling.write(&edit, 0, vec![1; VOLUME_BYTES as usize].into()).await };
        engine.change(own.live(), Need::Write(VOLUME_BYTES), fill).await.unwrap();
        engine.sync_all().await.unwrap();
        engine.cache().set_budget(0);
        let half = u64::from(BLOCK_BYTES) / 2;
        let writing = [0, half].map(|skip| {
            let engine = engine.clone();
            let name = name.clone();
            rt.spawn(async move {
                for block in (0..VOLUME_BYTES).step_by(BLOCK_BYTES as usize) {
                    let volume = VolumeWriter::shared(&engine, &name).await.unwrap();
                    let (changing, data) = (volume.clone(), Bytes::from(vec![2; half as usize]));
                    let write = move |edit| async move { changing.write(&edit, block + skip, data).await };
                    engine.change(volume.live(), Need::Write(half), write).await.unwrap();
                }
            })
        });
        for task in writing {
            task.await.unwrap();
        }
        let shown = own.view().await.unwrap().read(0, VOLUME_BYTES).await.unwrap();
        assert!(shown.iter().all(|byte| *byte == 2));
    });
}
