//! Full pools and datasets: writes are refused, removing works, nothing breaks; and txgs synced
//! automatically.

use std::time::Duration;

use cenote_dataset::{Mos, Value};
use cenote_engine::{Engine, Need};
use cenote_format::units::ObjectId;
use cenote_fs::write::{NewFile, NewKind};
use cenote_fs::{Filesystem, FsError, FsOptions, FsWriter, Refusal};
use cenote_inspect::verify::{VerifyOptions, verify};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::{Disk, Raidz};
use cenote_runtime::{Rng, Runtime};

use crate::check::{ask_zdb, check_blameless, check_sound};
use crate::cuts::{Replay, number, simulate};
use crate::pools::{Disks, Layout, POOL, Vdev, create, fill, now, open};
use crate::run::recover;

/// A file system filled with incompressible files, and emptied.
pub struct Files {
    engine: Engine,
    fs: FsWriter,
    files: Vec<(Vec<u8>, ObjectId)>,
    made: u64,
    rng: Rng,
}

impl Files {
    pub async fn of(rt: &Runtime, engine: &Engine, dataset: &str) -> Files {
        let open = engine.dataset(dataset).await.unwrap();
        let fs = FsWriter::open(open, FsOptions::default()).await.unwrap();
        Files { engine: engine.clone(), fs, files: Vec::new(), made: 0, rng: rt.rng() }
    }

    pub async fn make(&mut self, len: usize) -> Result<(), FsError> {
        self.made += 1;
        let name = format!("file{}", self.made).into_bytes();
        let new = NewFile { kind: NewKind::Regular, mode: 0o600, umask: 0, uid: 1, gid: 1 };
        let mut data = vec![0; len];
        self.rng.fill(&mut data);
        let own = name.clone();
        let made = self.fs.change(&self.engine, Need::Write(len as u64), move |fs, change| {
            Box::pin(async move {
                let id = fs.create(change, fs.root(), &own, &new).await?;
                fs.write(change, id, 0, data.into()).await?;
                Ok(id)
            })
        });
        self.files.push((name, made.await?));
        Ok(())
    }

    /// Creates files until one is refused; returns the reason.
    async fn fill(&mut self, len: usize) -> Refusal {
        loop {
            if let Err(error) = self.make(len).await {
                return error.refusal().unwrap_or_else(|| panic!("{error}"));
            }
        }
    }

    async fn remove(&mut self) {
        let pick = self.rng.below(self.files.len() as u64) as usize;
        let (name, id) = self.files.swap_remove(pick);
        let removed = self.fs.change(&self.engine, Need::Free, move |fs, change| {
            Box::pin(async move {
                assert_eq!(fs.unlink(change, fs.root(), &name).await?, Some(id));
                fs.free_unlinked(change, id).await
            })
        });
        assert!(removed.await.unwrap());
    }
}

async fn used(mos: &Mos, dataset: &str) -> u64 {
    mos.dataset(dataset).await.unwrap().dir().phys().used_bytes
}

pub async fn make_child(rt: &Runtime, engine: &Engine, name: &str, settings: &[(&str, u64)]) -> Files {
    let now = now(rt);
    let settings = settings.iter().map(|(name, bytes)| ((*name).to_owned(), Value::Number(*bytes)));
    let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
        Box::pin(fill(live, now, FsOptions::default()))
    });
    cenote_tasks::create_filesystem(engine, name, settings.collect(), fill).await.unwrap();
    Files::of(rt, engine, name).await
}

/// Runs a test in the simulator with a new seed.
fn on_pool<F: Future>(test: &str, vdev: Vdev, run: impl FnOnce(Runtime, Disks, Engine) -> F) {
    let layout = Layout { vdevs: vec![vdev], sector_bytes: 512, spares: 0 };
    let seed = number("CENOTE_SEED").unwrap_or_else(|| Runtime::real(Some(1)).random_u64());
    let _replay = Replay { test, seed };
    simulate(seed, |rt| async move {
        let disks = Disks::new(&rt, layout.shape(), layout.blank());
        let engine = create(&rt, &layout, &disks.devices()).await;
        run(rt, disks, engine).await;
    });
}

/// Checks that the disks are intact.
async fn check(rt: &Runtime, disks: &Disks) {
    let shape = Layout { vdevs: Vec::new(), sector_bytes: 512, spares: 0 }.shape();
    let copy = Disks::new(rt, shape, disks.images());
    check_sound(&open(rt, copy.devices()).await.unwrap()).await.unwrap();
    ask_zdb(&disks.images()).unwrap();
}

async fn fill_and_empty(rt: Runtime, disks: Disks, engine: Engine) {
    let mut files = Files::of(&rt, &engine, POOL).await;
    assert_eq!(files.fill(400_000).await, Refusal::NoSpace);
    let mos = engine.mos().await.unwrap();
    let (used, usable) = (used(&mos, POOL).await, mos.usable_bytes().await.unwrap());
    assert!(used > usable / 10 * 9, "refused at {used} of {usable} bytes");
    check(&rt, &disks).await;
    for _ in 0..6 {
        // A quarter at least: the largest file that comes next needs the room of many small ones.
        let most = files.files.len() as u64;
        let gone = (most / 4 + 1 + files.rng.below(most)).min(most);
        for _ in 0..gone {
            files.remove().await;
        }
        let len = [3_000, 70_000, 900_000][files.rng.below(3) as usize];
        files.make(len).await.unwrap();
        assert_eq!(files.fill(len.max(30_000)).await, Refusal::NoSpace);
        engine.sync_all().await.unwrap();
    }
    while !files.files.is_empty() {
        files.remove().await;
    }
    engine.sync_all().await.unwrap();
    check(&rt, &disks).await;
}

#[test]
fn a_full_pool_refuses_writes_and_can_still_delete() {
    on_pool("a_full_pool_refuses_writes_and_can_still_delete", (Disk, 0, 1, Normal), fill_and_empty);
}

#[test]
fn a_full_raidz_refuses_writes_and_can_still_delete() {
    on_pool("a_full_raidz_refuses_writes_and_can_still_delete", (Raidz, 1, 3, Normal), fill_and_empty);
}

#[test]
fn a_reader_of_an_old_state_does_not_keep_the_pool_full() {
    let test = "a_reader_of_an_old_state_does_not_keep_the_pool_full";
    on_pool(test, (Disk, 0, 1, Normal), async |rt, disks, engine| {
        let mut files = Files::of(&rt, &engine, POOL).await;
        assert_eq!(files.fill(400_000).await, Refusal::NoSpace);
        let (count, mos) = (files.files.len(), engine.mos().await.unwrap());
        for _ in 0..count / 2 {
            files.remove().await;
        }
        for _ in 0..count / 3 {
            files.make(400_000).await.unwrap();
        }
        engine.sync_all().await.unwrap();
        // The report says so, and no disk is blamed for overwritten blocks.
        assert!(!mos.pool().has_whole_tree());
        let report = verify(&mos, VerifyOptions::default(), |_| {}).await.unwrap();
        assert!(report.overtaken && !report.complete && report.findings.is_empty(), "{:?}", report.findings);
        check_blameless(&engine.pool()).unwrap();
        check(&rt, &disks).await;
    });
}

/// A power cut on a full pool: each committed file exists, and no removed one does.
async fn commit_until_full(rt: Runtime, disks: Disks, engine: Engine) {
    let mut files = Files::of(&rt, &engine, POOL).await;
    for _ in 0..4 {
        loop {
            let made = files.make(250_000).await;
            files.fs.commit(None).await.unwrap();
            if let Err(error) = made {
                assert_eq!(error.refusal(), Some(Refusal::NoSpace), "{error}");
                break;
            }
        }
        for _ in 0..files.files.len() / 2 {
            files.remove().await;
            files.fs.commit(None).await.unwrap();
        }
        let copy = Disks::new(
            &rt,
            Layout { vdevs: Vec::new(), sector_bytes: 512, spares: 0 }.shape(),
            disks.images(),
        );
        let pool = recover(&rt, copy.devices()).await.unwrap();
        let mos = pool.engine.mos().await.unwrap();
        let there = Filesystem::open(mos.dataset(POOL).await.unwrap().objset().await.unwrap()).await.unwrap();
        let there = there.list(there.root()).await.unwrap().into_iter();
        let mut there: Vec<_> = there.map(|entry| (entry.name.to_vec(), entry.object)).collect();
        let mut made = files.files.clone();
        there.sort();
        made.sort();
        assert_eq!(there, made);
    }
}

#[test]
fn a_full_pool_keeps_what_was_committed() {
    on_pool("a_full_pool_keeps_what_was_committed", (Disk, 0, 1, Normal), commit_until_full);
}

#[test]
fn quotas_and_reservations_hold() {
    const MIB: u64 = 1 << 20;
    on_pool("quotas_and_reservations_hold", (Disk, 0, 1, Normal), async |rt, disks, engine| {
        let name = |own: &str| format!("{POOL}/{own}");
        let mut small = make_child(&rt, &engine, &name("small"), &[("quota", 4 * MIB)]).await;
        let mut narrow = make_child(&rt, &engine, &name("narrow"), &[("refquota", 3 * MIB)]).await;
        let kept = [("refreservation", 12 * MIB)];
        let mut promised = make_child(&rt, &engine, &name("promised"), &kept).await;
        for (files, quota) in [(&mut small, 4 * MIB), (&mut narrow, 3 * MIB)] {
            assert_eq!(files.fill(100_000).await, Refusal::Quota);
            engine.sync_all().await.unwrap();
            let dataset = files.fs.view().objset().dataset_id();
            let mos = engine.mos().await.unwrap();
            let referenced = mos.dataset_by_id(dataset).await.unwrap().phys().referenced_bytes;
            assert!((quota / 10 * 9..quota / 10 * 13).contains(&referenced), "{referenced} of {quota}");
            for _ in 0..5 {
                files.remove().await;
            }
            files.make(50_000).await.unwrap();
        }
        let mut root = Files::of(&rt, &engine, POOL).await;
        assert_eq!(root.fill(300_000).await, Refusal::NoSpace);
        // The reserved space is usable although the pool is full for all other datasets, except the last of
        // it, since changes are charged at their worst case.
        for _ in 0..20 {
            promised.make(200_000).await.unwrap();
        }
        assert_eq!(promised.fill(200_000).await, Refusal::NoSpace);
        engine.sync_all().await.unwrap();
        check(&rt, &disks).await;
    });
}

#[test]
fn groups_write_themselves_and_memory_keeps_its_bound() {
    const MAX: u64 = 2 << 20;
    on_pool(
        "groups_write_themselves_and_memory_keeps_its_bound",
        (Disk, 0, 1, Normal),
        async |rt, disks, engine| {
            engine.load().set_dirty_bytes_max(MAX);
            let groups = engine.sync_in_background();
            let mut files = Files::of(&rt, &engine, POOL).await;
            let begun = engine.mos().await.unwrap().uberblock().txg.0;
            for _ in 0..150 {
                files.make(100_000).await.unwrap();
                let dirty = engine.load().dirty_bytes();
                assert!(dirty < MAX + 300_000, "{dirty} bytes");
            }
            assert!(engine.mos().await.unwrap().uberblock().txg.0 > begun + 5);
            rt.sleep(Duration::from_secs(11)).await;
            assert_eq!(engine.load().dirty_bytes(), 0, "everything was synced automatically");
            drop(groups);
            check(&rt, &disks).await;
        },
    );
}

#[test]
fn txgs_are_written_as_long_as_anybody_wants_it() {
    on_pool("txgs_are_written_as_long_as_anybody", (Disk, 0, 1, Normal), async |rt, _, engine| {
        let mut files = Files::of(&rt, &engine, POOL).await;
        let [first, second] = [engine.sync_in_background(), engine.sync_in_background()];
        for (wants, is_written) in [(Some(first), true), (Some(second), false)] {
            drop(wants);
            files.make(10_000).await.unwrap();
            rt.sleep(Duration::from_secs(11)).await;
            assert_eq!(engine.load().dirty_bytes() == 0, is_written);
        }
    });
}

#[test]
fn a_group_is_written_though_nobody_waits_for_it_any_more() {
    on_pool("a_group_is_written_though_nobody_waits", (Disk, 0, 1, Normal), async |rt, disks, engine| {
        let mut files = Files::of(&rt, &engine, POOL).await;
        for _ in 0..5 {
            files.make(100_000).await.unwrap();
            // Cancelled in the middle.
            assert!(rt.timeout(Duration::from_micros(300), engine.sync_all()).await.is_err());
        }
        engine.sync_all().await.unwrap();
        assert_eq!(engine.load().dirty_bytes(), 0);
        check(&rt, &disks).await;
    });
}
