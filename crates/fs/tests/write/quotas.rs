//! Quotas of users, groups and projects: bytes and objects, as of the last synced txg.

use bytes::Bytes;
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::write::{NewFile, SetAttr};
use cenote_fs::{Change, Counted, FsOptions, FsWriter, Refusal, SpaceBy, replay_logs};
use cenote_runtime::Runtime;

use crate::intent_log::{DISK, NOW, create, reopen_to_write};
use crate::on_disk::{POOL, assert_zdb_is_content};
use crate::scratch::{at, dir, file, noise};

const USER: u64 = 1000;
const GROUP: u64 = 100;
const PROJECT: u64 = 7;
const MIB: u64 = 1 << 20;
/// More writes in a log than one txg of a replay.
const RECORDS: u64 = 600;

struct World {
    engine: Engine,
    fs: FsWriter,
}

impl World {
    async fn open(engine: Engine) -> World {
        let dataset = engine.dataset(POOL).await.unwrap();
        let fs = FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap();
        World { engine, fs }
    }

    /// Runs an operation in the open txg; returns how it was refused.
    async fn change<T>(
        &self,
        act: impl AsyncFnOnce(&FsWriter, Change<'_>) -> cenote_fs::Result<T>,
    ) -> Result<T, Refusal> {
        let _hold = self.engine.hold().await.unwrap();
        let edit = self.fs.live().edit();
        act(&self.fs, Change { edit: &edit, now: at(2) }).await.map_err(|error| error.refusal().unwrap())
    }

    async fn limit(&self, by: SpaceBy, counted: Counted, owner: u64, limit: u64) {
        self.change(async |fs, change| fs.set_quota(change.edit, by, counted, owner, limit).await)
            .await
            .unwrap();
    }

    async fn make(&self, parent: ObjectId, name: &str, new: NewFile<'_>) -> Result<ObjectId, Refusal> {
        self.change(async |fs, change| fs.create(change, parent, name.as_bytes(), &new).await).await
    }

    async fn write(&self, id: ObjectId, offset: u64, len: u64) -> Result<(), Refusal> {
        // Different at every offset: repetitions would be compressed.
        let data = Bytes::from(noise(offset + len, len as usize));
        self.change(async |fs, change| fs.write(change, id, offset, data).await).await
    }

    async fn set(&self, id: ObjectId, set: SetAttr) -> Result<(), Refusal> {
        self.change(async |fs, change| fs.set_attr(change, id, &set).await).await
    }
}

fn of(uid: u64, gid: u64) -> NewFile<'static> {
    NewFile { uid, gid, ..file(0o644) }
}

#[test]
fn owners_get_no_more_than_their_limits() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let world = World::open(create(&rt, folder.path(), &[DISK], 128 << 20).await).await;
        let root = world.fs.root();
        world.limit(SpaceBy::User, Counted::Bytes, USER, MIB).await;
        world.limit(SpaceBy::Group, Counted::Objects, GROUP, 2).await;
        let first = world.make(root, "first", of(USER, GROUP)).await.unwrap();
        // Usage is counted only when the txg is synced.
        world.write(first, 0, 2 * MIB).await.unwrap();
        world.write(first, 2 * MIB, MIB).await.unwrap();
        world.engine.sync_all().await.unwrap();
        assert_eq!(world.write(first, 0, 10).await, Err(Refusal::Quota));
        assert_eq!(world.make(root, "second", of(USER, 1)).await, Err(Refusal::Quota));
        let other = world.make(root, "other", of(1, GROUP)).await.unwrap();
        world.write(other, 0, MIB).await.unwrap();
        assert_eq!(
            world.set(other, SetAttr { uid: Some(USER), ..SetAttr::default() }).await,
            Err(Refusal::Quota)
        );

        // The group now owns two objects, but its bytes are free.
        world.engine.sync_all().await.unwrap();
        assert_eq!(world.make(root, "third", of(1, GROUP)).await, Err(Refusal::Quota));
        world.write(other, MIB, MIB).await.unwrap();

        // Freeing space is always allowed.
        world.set(first, SetAttr { size: Some(0), ..SetAttr::default() }).await.unwrap();
        world.engine.sync_all().await.unwrap();
        world.write(first, 0, 10).await.unwrap();
        world.limit(SpaceBy::User, Counted::Bytes, USER, 0).await;
        world.write(first, 0, 2 * MIB).await.unwrap();
        world.engine.sync_all().await.unwrap();
        world.write(first, 0, 10).await.unwrap();
        world.engine.sync_all().await.unwrap();
        assert_zdb_is_content(folder.path());
    });
}

#[test]
fn projects_are_limited_from_their_folder_down() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let world = World::open(create(&rt, folder.path(), &[DISK], 128 << 20).await).await;
        let top = world.make(world.fs.root(), "top", dir(0o755)).await.unwrap();
        let inherits = cenote_fs::attr::pflags::PROJINHERIT;
        let set = SetAttr { project: Some(PROJECT as u32), set_flags: inherits, ..SetAttr::default() };
        world.set(top, set).await.unwrap();
        world.limit(SpaceBy::Project, Counted::Bytes, PROJECT, MIB).await;
        let inside = world.make(top, "inside", of(1, 1)).await.unwrap();
        world.write(inside, 0, 2 * MIB).await.unwrap();
        world.engine.sync_all().await.unwrap();
        let space = world.fs.view().space_of(SpaceBy::Project, PROJECT).await.unwrap();
        assert!(space.used_bytes >= 2 * MIB && space.used_objects == 2, "{space:?}");
        assert_eq!(world.write(inside, 0, 10).await, Err(Refusal::Quota));
        assert_eq!(world.make(top, "more", of(1, 1)).await, Err(Refusal::Quota));
        world.make(world.fs.root(), "outside", of(1, 1)).await.unwrap();
    });
}

#[test]
fn what_a_log_says_was_done_is_done_again() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let world = World::open(create(&rt, folder.path(), &[DISK], 128 << 20).await).await;
        world.limit(SpaceBy::User, Counted::Bytes, USER, MIB).await;
        let id = world.make(world.fs.root(), "full", of(USER, GROUP)).await.unwrap();
        // The first commit syncs a txg; from then on there is a log.
        world.fs.commit(None).await.unwrap();
        for index in 0..RECORDS {
            // With gaps: consecutive writes would be merged into one record.
            world.write(id, index * 8192, 4096).await.unwrap();
        }
        world.fs.commit(None).await.unwrap();
        drop(world);

        // A replay syncs a txg every 512 records: after the first the user exceeds the quota.
        let engine = reopen_to_write(&rt, folder.path()).await;
        let reports = replay_logs(&engine, NOW).await.unwrap();
        let [(_, report)] = &reports[..] else { panic!("one log: {reports:?}") };
        assert!(report.set_aside == 0 && report.applied == RECORDS, "{report:?}");
        let world = World::open(engine).await;
        assert_eq!(world.write(id, 0, 10).await, Err(Refusal::Quota));
    });
}
