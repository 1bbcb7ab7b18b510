//! A replay repeats every accepted operation, and a failing record affects no other.

use std::sync::Arc;

use bytes::Bytes;
use cenote_dataset::{ImportOptions, Mos, import};
use cenote_device::{Device, MemoryDevice};
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::attr::pflags;
use cenote_fs::write::{RenameMode, SetAttr, SetXattr, XattrStore};
use cenote_fs::{
    Change, Counted, FileKind, Filesystem, FsOptions, FsWriter, Refusal, ReplayReport, SpaceBy, replay_logs,
};
use cenote_pool::discover_devices;
use cenote_runtime::{Runtime, SimConfig};

use super::{DISK, NOW, create_on};
use crate::on_disk::POOL;
use crate::scratch::{at, dir, file};

const NEW: &[u8] = b"NEW, acknowledged by fsync";

/// A pool in memory with files `f` and `g` and a directory `d`, all on disk.
struct Bench {
    rt: Runtime,
    memory: Arc<MemoryDevice>,
    engine: Engine,
    fs: FsWriter,
    f: ObjectId,
    g: ObjectId,
    d: ObjectId,
}

macro_rules! op {
    ($bench:expr, |$fs:ident, $change:ident| $body:expr) => {{
        let $fs = &$bench.fs;
        let _hold = $bench.engine.hold().await.unwrap();
        let edit = $fs.live().edit();
        let $change = Change { edit: &edit, now: at(2) };
        $body.await
    }};
}

impl Bench {
    async fn new(rt: Runtime) -> Bench {
        let memory = Arc::new(MemoryDevice::new("disk", 128 << 20));
        let device = memory.clone();
        let engine = create_on(&rt, &[DISK], move |_, _| device.clone()).await;
        let dataset = engine.dataset(POOL).await.unwrap();
        let fs = FsWriter::open(dataset, FsOptions::default()).await.unwrap();
        let [f, g, d] = [ObjectId(0); 3];
        let mut bench = Bench { rt, memory, engine, fs, f, g, d };
        bench.f = op!(bench, |fs, c| fs.create(c, fs.root(), b"f", &file(0o644))).unwrap();
        bench.g = op!(bench, |fs, c| fs.create(c, fs.root(), b"g", &file(0o644))).unwrap();
        bench.d = op!(bench, |fs, c| fs.create(c, fs.root(), b"d", &dir(0o755))).unwrap();
        bench.write(bench.g, b"old").await;
        // The log begins.
        bench.fs.commit(Some(bench.g)).await.unwrap();
        bench.sync().await;
        bench
    }

    async fn sync(&self) {
        self.engine.sync_all().await.unwrap();
    }

    async fn write(&self, file: ObjectId, data: &[u8]) {
        op!(self, |fs, c| fs.write(c, file, 0, Bytes::copy_from_slice(data))).unwrap();
    }

    async fn set(&self, object: ObjectId, set: SetAttr) {
        op!(self, |fs, c| fs.set_attr(c, object, &set)).unwrap();
    }

    async fn flags(&self, object: ObjectId, set_flags: u64, clear_flags: u64) {
        self.set(object, SetAttr { set_flags, clear_flags, ..SetAttr::default() }).await;
    }

    async fn unlink(&self, dir: ObjectId, name: &[u8]) {
        let gone = op!(self, |fs, c| fs.unlink(c, dir, name)).unwrap();
        op!(self, |fs, c| fs.free_unlinked(c, gone.unwrap())).unwrap();
    }

    async fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), mode: RenameMode) {
        op!(self, |fs, c| fs.rename(c, from, to, mode)).unwrap();
    }

    /// Commits a write to `g`, then cuts the power.
    async fn cut(self) -> After {
        self.write(self.g, NEW).await;
        self.fs.commit(Some(self.g)).await.unwrap();
        self.cut_now().await
    }

    async fn cut_now(self) -> After {
        let Bench { rt, memory, engine, fs, .. } = self;
        drop((engine, fs));
        let found = discover_devices(vec![memory as Arc<dyn Device>]).await;
        let mos = import(&rt, &found.pools[0], &ImportOptions::default()).await.unwrap();
        let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
        let records = objset.intent_log().await.records;
        // Replayed in memory and on disk: the results must be equal.
        let (shown, shown_report) = Filesystem::open(objset).await.unwrap().replay(&records, NOW).await;
        let engine = Engine::start(&mos).await.unwrap();
        let report = replay_logs(&engine, NOW).await.unwrap().remove(0).1;
        assert_eq!(shown_report.set_aside, report.set_aside, "{shown_report:?} {report:?}");
        let fs = Filesystem::open(engine.dataset(POOL).await.unwrap().view()).await.unwrap();
        assert_eq!(names(&shown, fs.root()).await, names(&fs, fs.root()).await);
        After { mos, engine, fs, report }
    }
}

struct After {
    mos: Mos,
    engine: Engine,
    fs: Filesystem,
    report: ReplayReport,
}

impl After {
    async fn content(&self, name: &[u8]) -> Bytes {
        let entry = self.fs.lookup(self.fs.root(), name).await.unwrap().unwrap();
        let open = self.fs.open_file(entry.object).await.unwrap();
        open.read(0, open.attr().size).await.unwrap()
    }

    /// Acknowledged data are there, and every record was applied.
    async fn is_whole(&self, what: &str) {
        assert_eq!(self.report.set_aside, 0, "{what}: {:?}", self.report);
        assert_eq!(self.content(b"g").await, NEW, "{what}");
    }
}

async fn names(fs: &Filesystem, dir: ObjectId) -> Vec<String> {
    let entries = fs.list(dir).await.unwrap();
    let mut names: Vec<_> = entries.iter().map(|e| String::from_utf8(e.name.to_vec()).unwrap()).collect();
    names.sort();
    names
}

fn simulate<F: Future>(test: impl FnOnce(Runtime) -> F) {
    Runtime::simulate(SimConfig::default(), test);
}

#[test]
fn a_file_is_removed_after_the_flag_that_kept_it() {
    for flag in [pflags::IMMUTABLE, pflags::APPENDONLY, pflags::NOUNLINK] {
        simulate(|rt| async move {
            let bench = Bench::new(rt).await;
            bench.flags(bench.f, flag, 0).await;
            bench.sync().await;
            bench.flags(bench.f, 0, flag).await;
            bench.unlink(bench.fs.root(), b"f").await;
            let after = bench.cut().await;
            after.is_whole("chattr -i f; rm f").await;
            assert_eq!(names(&after.fs, after.fs.root()).await, ["d", "g"]);
        });
    }
}

#[test]
fn names_of_a_directory_change_after_the_flag_that_kept_them() {
    for flag in [pflags::IMMUTABLE, pflags::APPENDONLY] {
        simulate(|rt| async move {
            let bench = Bench::new(rt).await;
            let d = bench.d;
            for name in [b"x", b"y"] {
                op!(bench, |fs, c| fs.create(c, d, name, &file(0o644))).unwrap();
            }
            bench.flags(d, flag, 0).await;
            bench.sync().await;
            bench.flags(d, 0, flag).await;
            bench.unlink(d, b"x").await;
            bench.rename((d, b"y"), (d, b"z"), RenameMode::Replace).await;
            op!(bench, |fs, c| fs.create(c, d, b"new", &file(0o644))).unwrap();
            let after = bench.cut().await;
            after.is_whole("chattr -i d; rm d/x; mv d/y d/z; touch d/new").await;
            assert_eq!(names(&after.fs, d).await, ["new", "z"]);
        });
    }
}

#[test]
fn files_move_between_directories_of_projects_that_changed() {
    let inherit = SetAttr { project: Some(5), set_flags: pflags::PROJINHERIT, ..SetAttr::default() };
    let project = SetAttr { project: Some(5), ..SetAttr::default() };
    for what in ["touch", "exchange", "link"] {
        simulate(|rt| async move {
            let bench = Bench::new(rt).await;
            let (f, d, root) = (bench.f, bench.d, bench.fs.root());
            bench.set(d, inherit).await;
            let first: &[u8] = if what == "touch" { b"a" } else { b"x" };
            let made = op!(bench, |fs, c| fs.create(c, d, first, &file(0o644))).unwrap();
            if what == "touch" {
                bench.fs.commit(Some(made)).await.unwrap();
                bench.rename((d, b"a"), (d, b"b"), RenameMode::Replace).await;
            } else {
                bench.sync().await;
                bench.set(f, project).await;
                match what {
                    "link" => op!(bench, |fs, c| fs.link(c, f, d, b"f2")).unwrap(),
                    _ => bench.rename((root, b"f"), (d, b"x"), RenameMode::Exchange).await,
                }
            }
            let after = bench.cut().await;
            after.is_whole(what).await;
            let attr = after.fs.attr(made).await.unwrap();
            assert_eq!(attr.project, 5, "{what}: inherited from a directory that was not committed");
            let expected: &[&str] = match what {
                "touch" => &["b"],
                "link" => &["f2", "x"],
                _ => &["x"],
            };
            assert_eq!(names(&after.fs, d).await, expected);
        });
    }
}

#[test]
fn what_an_exchange_or_a_link_shows_was_written_before() {
    for what in ["exchange", "link"] {
        simulate(|rt| async move {
            let bench = Bench::new(rt).await;
            let (f, d, root) = (bench.f, bench.d, bench.fs.root());
            let other = op!(bench, |fs, c| fs.create(c, d, b"x", &file(0o644))).unwrap();
            bench.sync().await;
            bench.write(f, b"written before").await;
            bench.write(other, b"written before").await;
            match what {
                "link" => op!(bench, |fs, c| fs.link(c, f, root, b"x")).unwrap(),
                _ => bench.rename((d, b"x"), (root, b"f"), RenameMode::Exchange).await,
            }
            let after = bench.cut().await;
            after.is_whole(what).await;
            assert_eq!(after.content(b"f").await, &b"written before"[..], "{what}");
            if what == "exchange" {
                let size = after.fs.attr(f).await.unwrap().size;
                assert_eq!(size, 14, "both files were written before they swapped names");
            }
        });
    }
}

/// `xattr` was changed in between: the value goes from the hidden directory to the packed list, or back.
#[test]
fn an_extended_attribute_that_moves_is_there_before_and_after() {
    for (from, to) in [(XattrStore::Dir, XattrStore::Sa), (XattrStore::Sa, XattrStore::Dir)] {
        simulate(|rt| async move {
            let bench = Bench::new(rt).await;
            let f = bench.f;
            let store = |xattr| bench.fs.set_options(FsOptions { xattr, ..bench.fs.options() });
            let put = async |value: &[u8]| {
                op!(bench, |fs, c| fs.set_xattr(c, f, b"user.a", Some(value), SetXattr::Any)).unwrap();
            };
            store(from);
            put(b"old").await;
            bench.fs.commit(Some(f)).await.unwrap();
            store(to);
            put(b"new").await;
            let after = bench.cut().await;
            after.is_whole("xattr").await;
            let xattrs = after.fs.xattrs(f).await.unwrap();
            let values: Vec<&[u8]> = xattrs.iter().map(|xattr| &*xattr.value).collect();
            assert!(values == [b"old"] || values == [b"new"], "{from:?} to {to:?}: {xattrs:?}");
        });
    }
}

#[test]
fn a_whiteout_is_left_in_one_operation() {
    simulate(|rt| async move {
        let bench = Bench::new(rt).await;
        let root = bench.fs.root();
        let leaves = |replaces| RenameMode::Whiteout { replaces, owner: (7, 8) };
        bench.rename((root, b"f"), (root, b"h"), leaves(true)).await;
        let refused = op!(bench, |fs, c| fs.rename(c, (root, b"h"), (root, b"g"), leaves(false)));
        assert_eq!(refused.unwrap_err().refusal(), Some(Refusal::Exists));
        let records = bench.engine.clone();
        let after = bench.cut().await;
        drop(records);
        after.is_whole("whiteout").await;
        assert_eq!(names(&after.fs, root).await, ["d", "f", "g", "h"]);
        let left = after.fs.lookup(root, b"f").await.unwrap().unwrap();
        let attr = after.fs.attr(left.object).await.unwrap();
        assert_eq!((attr.kind(), attr.rdev, attr.permissions()), (FileKind::CharDevice, 0, 0));
        assert_eq!((attr.uid, attr.gid), (7, 8), "whoever renames owns it");
        // One record for the rename, one for the write.
        assert_eq!(after.report.applied, 2, "{:?}", after.report);
        drop(after.mos);
        drop(after.engine);
    });
}

#[test]
fn a_whiteout_over_quota_leaves_the_names_as_they_are() {
    simulate(|rt| async move {
        let bench = Bench::new(rt).await;
        let root = bench.fs.root();
        op!(bench, |fs, c| fs.set_quota(c.edit, SpaceBy::User, Counted::Objects, 0, 1)).unwrap();
        bench.sync().await;
        for replaces in [true, false] {
            let mode = RenameMode::Whiteout { replaces, owner: (0, 0) };
            let refused = op!(bench, |fs, c| fs.rename(c, (root, b"f"), (root, b"h"), mode));
            assert_eq!(refused.unwrap_err().refusal(), Some(Refusal::Quota));
        }
        assert_eq!(names(&bench.fs.view(), root).await, ["d", "f", "g"]);
    });
}
