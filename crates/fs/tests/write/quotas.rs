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

    async fn limit_others(&self, by: SpaceBy, counted: Counted, limit: u64) {
        self.change(async |fs, change| fs.set_default_quota(change.edit, by, counted, limit).await)
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

/// All combinations of default and own quotas (none, exhausted, or not): the own one applies, else the
/// default (`zfs_id_overblockquota`, `zfs_id_overobjquota`).
#[test]
fn defaults_bind_owners_without_their_own_quota() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let world = World::open(create(&rt, folder.path(), &[DISK], 128 << 20).await).await;
        let root = world.fs.root();
        let top = world.make(root, "top", dir(0o755)).await.unwrap();
        let inherits = cenote_fs::attr::pflags::PROJINHERIT;
        let of_project = SetAttr { project: Some(PROJECT as u32), ..SetAttr::default() };
        world.set(top, SetAttr { set_flags: inherits, ..of_project }).await.unwrap();
        let used = world.make(top, "used", of(USER, GROUP)).await.unwrap();
        world.write(used, 0, 2 * MIB).await.unwrap();
        for name in ["second", "third"] {
            world.make(top, name, of(USER, GROUP)).await.unwrap();
        }
        let without_project = world.make(root, "without", of(3, 3)).await.unwrap();
        world.write(without_project, 0, 2 * MIB).await.unwrap();
        world.engine.sync_all().await.unwrap();

        let (mut case, mut refusals) = (0, 0);
        for by in SpaceBy::ALL {
            for counted in [Counted::Bytes, Counted::Objects] {
                let (owner, set) = match by {
                    SpaceBy::User => (USER, SetAttr { uid: Some(USER), ..SetAttr::default() }),
                    SpaceBy::Group => (GROUP, SetAttr { gid: Some(GROUP), ..SetAttr::default() }),
                    SpaceBy::Project => (PROJECT, of_project),
                };
                let (used_up, ample) = if counted == Counted::Bytes { (MIB, 100 * MIB) } else { (2, 100) };
                let both = [0, used_up, ample];
                for (default, own) in both.into_iter().flat_map(|default| both.map(|own| (default, own))) {
                    case += 1;
                    let what = format!("{by:?} {counted:?}: default {default}, own {own}");
                    // Other owners have no usage yet.
                    let (id, name) = (5000 + case, format!("given {case}"));
                    let given = world.make(root, &name, of(id, id)).await.unwrap();
                    world.limit_others(by, counted, default).await;
                    world.limit(by, counted, owner, own).await;
                    let binds = if own == 0 { default } else { own } == used_up;
                    let mut expect = |done: Result<(), Refusal>, applies: bool, act: &str| {
                        let expected = if binds && applies { Err(Refusal::Quota) } else { Ok(()) };
                        assert_eq!(done, expected, "{what}: {act}");
                        refusals += u64::from(done.is_err());
                    };
                    expect(world.write(used, 0, 10).await, counted == Counted::Bytes, "write");
                    let made = world.make(top, &format!("made {case}"), of(USER, GROUP)).await;
                    expect(made.map(|_| ()), true, "create");
                    expect(world.set(given, set).await, true, "give away");
                    // Project 0 is no project.
                    if by == SpaceBy::Project {
                        expect(world.write(without_project, 0, 10).await, false, "write without a project");
                    }
                    world.limit(by, counted, owner, 0).await;
                    world.limit_others(by, counted, 0).await;
                }
            }
        }
        assert_eq!((case, refusals), (54, 60));
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
