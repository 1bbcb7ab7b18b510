//! Files that share blocks, within a file system and between two, until the last owner is freed, and across a
//! power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use cenote_dataset::{FeatureState, Mos};
use cenote_engine::Engine;
use cenote_format::features::Feature;
use cenote_format::units::ObjectId;
use cenote_fs::write::CloneSource;
use cenote_fs::{Change, Filesystem, FsOptions, FsWriter, Refusal, replay_logs};
use cenote_object::Zap;
use cenote_runtime::Runtime;
use cenote_tasks::PoolSetting;

use crate::intent_log::{DISK, NOW, create, empty_filesystem, export, reopen, reopen_to_write};
use crate::on_disk::{POOL, assert_zdb_is_content};
use crate::scratch::{at, file, noise};

const RECORD: u64 = 128 << 10;
const DISK_BYTES: u64 = 128 << 20;
const OTHER: &str = "made/other";

/// File systems being changed, and the expected content of their files: for each file, its file system and
/// bytes.
struct World {
    engine: Engine,
    filesystems: Vec<(&'static str, FsWriter)>,
    files: BTreeMap<&'static str, (usize, Vec<u8>)>,
}

impl World {
    async fn new(rt: &Runtime, folder: &Path, names: &[&'static str]) -> World {
        let engine = create(rt, folder, &[DISK], DISK_BYTES).await;
        let mut filesystems = Vec::new();
        for name in names {
            if *name != POOL {
                cenote_tasks::create_filesystem(&engine, name, Vec::new(), empty_filesystem()).await.unwrap();
            }
            let dataset = engine.dataset(name).await.unwrap();
            let fs = FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap();
            filesystems.push((*name, fs));
        }
        World { engine, filesystems, files: BTreeMap::new() }
    }

    fn fs_of(&self, name: &str) -> &FsWriter {
        &self.filesystems[self.files[name].0].1
    }

    async fn id_of(&self, name: &str) -> ObjectId {
        let fs = self.fs_of(name);
        fs.lookup(fs.root(), name.as_bytes()).await.unwrap().unwrap().object
    }

    /// Runs an operation in the open txg, on the file system of a file.
    async fn change<T>(&self, name: &str, act: impl AsyncFnOnce(&FsWriter, Change<'_>) -> T) -> T {
        let _hold = self.engine.hold().await.unwrap();
        let fs = self.fs_of(name);
        let edit = fs.live().edit();
        act(fs, Change { edit: &edit, now: at(2) }).await
    }

    async fn make(&mut self, filesystem: usize, name: &'static str) {
        self.files.insert(name, (filesystem, Vec::new()));
        let make = async |fs: &FsWriter, change: Change<'_>| {
            fs.create(change, fs.root(), name.as_bytes(), &file(0o644)).await
        };
        self.change(name, make).await.unwrap();
    }

    async fn write(&mut self, name: &'static str, offset: u64, data: &[u8]) {
        let (id, bytes) = (self.id_of(name).await, Bytes::copy_from_slice(data));
        let write = async |fs: &FsWriter, change: Change<'_>| fs.write(change, id, offset, bytes).await;
        self.change(name, write).await.unwrap();
        let (content, offset) = (&mut self.files.get_mut(name).unwrap().1, offset as usize);
        content.resize(content.len().max(offset + data.len()), 0);
        content[offset..offset + data.len()].copy_from_slice(data);
    }

    /// Incompressible blocks, a hole, a block embedded in its pointer, and half a block.
    async fn fill(&mut self, name: &'static str) {
        self.write(name, 0, &noise(11, 2 * RECORD as usize)).await;
        self.write(name, 3 * RECORD, &vec![7; RECORD as usize]).await;
        self.write(name, 4 * RECORD, &noise(13, RECORD as usize / 2)).await;
    }

    async fn clone_range(&self, from: (&str, u64), to: (&str, u64), len: u64) -> Result<u64, Refusal> {
        let (source, target) = ((self.id_of(from.0).await, from.1), (self.id_of(to.0).await, to.1));
        let live = CloneSource::Live(self.fs_of(from.0));
        let clone =
            async |fs: &FsWriter, change: Change<'_>| fs.clone_range(change, live, source, target, len).await;
        self.change(to.0, clone).await.map_err(|error| error.refusal().unwrap())
    }

    async fn clone_file(&mut self, from: &str, to: &'static str) {
        let content = self.files[from].1.clone();
        let len = content.len() as u64;
        assert_eq!(self.clone_range((from, 0), (to, 0), len).await, Ok(len));
        self.files.get_mut(to).unwrap().1 = content;
    }

    async fn remove(&mut self, name: &'static str) {
        let remove = async |fs: &FsWriter, change: Change<'_>| {
            let gone = fs.unlink(change, fs.root(), name.as_bytes()).await.unwrap().unwrap();
            assert!(fs.free_unlinked(change, gone).await.unwrap());
        };
        self.change(name, remove).await;
        self.files.remove(name);
    }

    /// All files have the expected content, in memory and on disk.
    async fn assert_whole(&self, mos: Option<&Mos>) {
        for (name, (filesystem, content)) in &self.files {
            let (dataset, fs) = &self.filesystems[*filesystem];
            let fs = match mos {
                None => fs.view(),
                Some(mos) => {
                    let objset = mos.dataset(dataset).await.unwrap().objset().await.unwrap();
                    Filesystem::open(objset).await.unwrap()
                }
            };
            let id = fs.lookup(fs.root(), name.as_bytes()).await.unwrap().unwrap().object;
            let open = fs.open_file(id).await.unwrap();
            assert_eq!(open.attr().size, content.len() as u64, "{name}");
            assert!(open.read(0, content.len() as u64).await.unwrap()[..] == content[..], "{name} differs");
        }
    }
}

#[test]
fn clones_share_blocks_until_their_last_owner_goes() {
    let orders = [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]];
    for (order, home_of_c) in orders.into_iter().zip([0, 1, 1]) {
        let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
        rt.block_on(async {
            let mut world = World::new(&rt, folder.path(), &[POOL, OTHER]).await;
            world.make(0, "a").await;
            world.make(0, "b").await;
            world.make(home_of_c, "c").await;
            world.fill("a").await;
            assert_eq!(world.clone_range(("a", 0), ("b", 0), RECORD).await, Err(Refusal::Again));
            world.engine.sync_all().await.unwrap();

            // A clone, and a clone of that in the same txg, which is then modified.
            world.clone_file("a", "b").await;
            world.clone_file("b", "c").await;
            world.write("c", RECORD + 10, b"changed").await;
            world.assert_whole(None).await;
            world.engine.sync_all().await.unwrap();
            let mos = reopen(&rt, folder.path()).await;
            world.assert_whole(Some(&mos)).await;
            // Two and a half blocks: once for b, and all but one once for c.
            let saved = mos.cloned_summary().await.unwrap().saved_bytes;
            assert!((4 * RECORD..5 * RECORD).contains(&saved), "{saved}");
            assert_zdb_is_content(folder.path());

            for name in order {
                world.remove(name).await;
                world.engine.sync_all().await.unwrap();
                let mos = reopen(&rt, folder.path()).await;
                world.assert_whole(Some(&mos)).await;
                assert_zdb_is_content(folder.path());
            }
            assert!(reopen(&rt, folder.path()).await.cloned_blocks().await.unwrap().is_empty());
        });
    }
}

/// Counts of cloned blocks: how many tables there are, and whether their ZAPs have numbers.
async fn forms(mos: &Mos) -> (usize, BTreeSet<bool>) {
    let mut forms = BTreeSet::new();
    let tables = mos.cloned_blocks().await.unwrap();
    for table in &tables {
        let entries =
            Zap::open_id(mos.objset(), table.phys.entries_zap).await.unwrap().to_vec().await.unwrap();
        forms.extend(entries.iter().map(|entry| entry.value.as_bytes().is_none()));
    }
    (tables.len(), forms)
}

/// How a feature is used, by its name.
async fn state(mos: &Mos, name: &str) -> FeatureState {
    let features = mos.features().await.unwrap();
    features.iter().find(|(feature, _)| feature.name == name).unwrap().1
}

#[test]
fn counts_are_numbers_only_if_nothing_was_cloned_before_the_feature() {
    const FEATURE: &str = "block_cloning_endian";
    for has_clones in [false, true] {
        let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
        rt.block_on(async {
            let mut world = World::new(&rt, folder.path(), &[POOL]).await;
            for name in ["a", "b", "c"] {
                world.make(0, name).await;
            }
            world.fill("a").await;
            world.engine.sync_all().await.unwrap();
            if has_clones {
                world.clone_file("a", "b").await;
                world.engine.sync_all().await.unwrap();
            }
            let feature = PoolSetting::Feature(Feature::by_name(FEATURE).unwrap());
            cenote_tasks::set_pool(&world.engine, feature).await.unwrap();
            world.clone_file("a", "c").await;
            world.engine.sync_all().await.unwrap();
            let mos = reopen(&rt, folder.path()).await;
            world.assert_whole(Some(&mos)).await;
            assert_eq!(forms(&mos).await, (1, [!has_clones].into()));
            let used = if has_clones { FeatureState::Enabled } else { FeatureState::Active };
            assert_eq!(state(&mos, FEATURE).await, used);

            // Shared blocks are freed with their last owner, and the next table has the new form.
            for name in ["a", "b"] {
                world.remove(name).await;
                world.engine.sync_all().await.unwrap();
                world.assert_whole(Some(&reopen(&rt, folder.path()).await)).await;
            }
            let mos = reopen(&rt, folder.path()).await;
            assert_eq!(forms(&mos).await, (0, BTreeSet::new()));
            for name in [FEATURE, "block_cloning"] {
                assert_eq!(state(&mos, name).await, FeatureState::Enabled, "{name}");
            }
            // Without clones `zdb` of OpenZFS 2.3 knows every feature.
            assert_zdb_is_content(folder.path());
            world.make(0, "d").await;
            world.clone_file("c", "d").await;
            world.engine.sync_all().await.unwrap();
            assert_eq!(forms(&reopen(&rt, folder.path()).await).await, (1, [true].into()));
        });
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let mut world = World::new(&rt, folder.path(), &[POOL]).await;
        for name in ["large", "small", "new"] {
            world.make(0, name).await;
        }
        world.fill("large").await;
        world.write("small", 0, b"a few bytes").await;
        world.engine.sync_all().await.unwrap();
        let refused = [
            (("large", 512), ("new", 0), RECORD),
            (("large", 0), ("new", 512), RECORD),
            (("large", 0), ("new", 0), RECORD - 1),
            // Within a file, overlapping.
            (("large", 0), ("large", RECORD), 2 * RECORD),
            // Smaller blocks than the target has.
            (("small", 0), ("large", 0), 11),
            // A file of several small blocks would be stuck with their size.
            (("small", 0), ("new", 512), 11),
        ];
        for (from, to, len) in refused {
            assert_eq!(
                world.clone_range(from, to, len).await,
                Err(Refusal::Invalid),
                "{from:?} {to:?} {len}"
            );
        }
        world.assert_whole(None).await;
        assert_eq!(world.clone_range(("large", 0), ("large", 3 * RECORD), 2 * RECORD).await, Ok(2 * RECORD));
        assert_eq!(world.clone_range(("small", 0), ("new", 0), 4096).await, Ok(11));
        assert_eq!(world.clone_range(("small", 11), ("new", 0), 4096).await, Ok(0));
    });
}

#[test]
fn a_log_keeps_what_it_shares_until_it_is_replayed() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let mut world = World::new(&rt, folder.path(), &[POOL]).await;
        world.make(0, "a").await;
        world.make(0, "b").await;
        world.fill("a").await;
        world.engine.sync_all().await.unwrap();
        // The first commit syncs a txg; from then on there is a log.
        world.make(0, "c").await;
        world.fs_of("c").commit(None).await.unwrap();
        // In the log, the source is removed before the target has its blocks.
        world.clone_file("a", "b").await;
        let b = world.id_of("b").await;
        let fs = world.fs_of("a").clone();
        world.remove("a").await;
        fs.commit(None).await.unwrap();
        fs.commit(Some(b)).await.unwrap();
        let World { engine, files, filesystems } = world;
        drop((engine, fs, filesystems));

        // A second cut, after the log is claimed and before anything is replayed.
        let engine = reopen_to_write(&rt, folder.path()).await;
        engine.sync_all().await.unwrap();
        drop(engine);
        assert_zdb_is_content(folder.path());

        let engine = reopen_to_write(&rt, folder.path()).await;
        let reports = replay_logs(&engine, NOW).await.unwrap();
        let [(_, report)] = &reports[..] else { panic!("one log: {reports:?}") };
        assert!(report.set_aside == 0 && report.applied == 2, "{report:?}");
        export(&engine).await;
        let dataset = engine.dataset(POOL).await.unwrap();
        let fs = FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap();
        let world = World { engine, files, filesystems: vec![(POOL, fs)] };
        let mos = reopen(&rt, folder.path()).await;
        world.assert_whole(Some(&mos)).await;
        // b is the only owner of its blocks.
        assert!(mos.cloned_blocks().await.unwrap().is_empty());
        assert_zdb_is_content(folder.path());
    });
}

#[test]
fn a_dataset_can_be_destroyed_in_a_txg_of_many_clones() {
    const FILE_BYTES: u64 = 16 << 20;
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &[DISK], DISK_BYTES).await;
        cenote_tasks::create_filesystem(&engine, OTHER, Vec::new(), empty_filesystem()).await.unwrap();
        let fs = FsWriter::open(engine.dataset(POOL).await.unwrap(), FsOptions::default()).await.unwrap();
        let source = {
            let _hold = engine.hold().await.unwrap();
            let edit = fs.live().edit();
            let now = Change { edit: &edit, now: at(2) };
            let source = fs.create(now, fs.root(), b"source", &file(0o644)).await.unwrap();
            let data = Bytes::from(noise(1, FILE_BYTES as usize));
            fs.write(now, source, 0, data).await.unwrap();
            source
        };
        engine.sync_all().await.unwrap();
        {
            let _hold = engine.hold().await.unwrap();
            let edit = fs.live().edit();
            let now = Change { edit: &edit, now: at(2) };
            // Without sharing, these would not fit into the pool.
            for i in 0..16 {
                let name = format!("clone{i}");
                let clone = fs.create(now, fs.root(), name.as_bytes(), &file(0o644)).await.unwrap();
                let from = CloneSource::Live(&fs);
                let len = fs.clone_range(now, from, (source, 0), (clone, 0), FILE_BYTES).await.unwrap();
                assert_eq!(len, FILE_BYTES);
            }
        }
        cenote_tasks::destroy_dataset(&engine, OTHER).await.unwrap();
    });
}
