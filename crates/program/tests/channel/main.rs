//! Channel programs on a pool in a file.

#![allow(clippy::unwrap_used, reason = "tests")]

mod language;

use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_dataset::{KeySource, Value as Setting};
use cenote_device::{FileDevice, OpenOptions};
use cenote_engine::Engine;
use cenote_format::dnode::ObjectType;
use cenote_format::features::SPA_FEATURES;
use cenote_format::label::PoolState;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::{LiveObjset, NewZap, Result};
use cenote_pool::create::{NewDevice, NewVdev, plan};
use cenote_pool::{VdevClass, VdevKind};
use cenote_program::{DEFAULT_INSTRUCTIONS, DEFAULT_MEMORY_BYTES, Ended, Failure, Program, Run, Value, run};
use cenote_runtime::Runtime;
use cenote_tasks::NewPool;

const POOL: &str = "lua";

async fn fill(live: LiveObjset) -> Result<()> {
    NewZap::of(ObjectType::MASTER_NODE).create_at(&live.edit(), ObjectId(1)).await
}

/// A pool with file systems `a` and `b`.
async fn pool(rt: &Runtime, folder: &tempfile::TempDir) -> Engine {
    let path = folder.path().join("disk.img");
    std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    let device = FileDevice::open(&path, OpenOptions::EXCLUSIVE, rt).await.unwrap();
    let device = NewDevice { path: path.display().to_string(), device: Arc::new(device), is_file: true };
    let devices = vec![device];
    let vdev = NewVdev { kind: VdevKind::Disk, parity: 0, draid: None, class: VdevClass::Normal, devices };
    let new = NewPool {
        plan: plan(rt, POOL, &[vdev], None, (1, "here"), Txg(4)).unwrap(),
        features: SPA_FEATURES.iter().collect(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        keys: KeySource::default(),
        cache: CacheOptions::metadata(16 << 20),
    };
    let engine = cenote_tasks::create_pool(rt, new, Box::new(|live| Box::pin(fill(live)))).await.unwrap();
    for name in ["lua/a", "lua/b"] {
        let fill = Box::new(|live| -> _ { Box::pin(fill(live)) as _ });
        cenote_tasks::create_filesystem(&engine, name, Vec::new(), fill).await.unwrap();
    }
    engine
}

fn program(script: &str) -> Program {
    Program {
        pool: POOL.into(),
        script: script.into(),
        arguments: vec!["one".into(), "two".into()],
        instructions: DEFAULT_INSTRUCTIONS,
        memory_bytes: DEFAULT_MEMORY_BYTES,
        is_read_only: false,
    }
}

/// Runs `test` on a pool, which is then exported.
fn with_pool<F: Future<Output = ()>>(test: impl FnOnce(Engine) -> F) {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let engine = pool(&rt, &folder).await;
        test(engine.clone()).await;
        engine.close(PoolState::Exported).await.unwrap();
    });
}

/// Runs a script that must return; the value as in Lua.
#[track_caller]
fn returned(run: Run) -> Value {
    match run.ended {
        Ended::Returned(Some(value)) => value,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn failure(run: Run) -> Failure {
    match run.ended {
        Ended::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

fn table(entries: &[(&str, Value)]) -> Value {
    Value::Table(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

#[test]
fn all_changes_of_a_program_are_in_one_txg() {
    with_pool(async |engine| {
        let before = engine.mos().await.unwrap().pool().uberblock().txg;
        let script = "
            assert(zfs.sync.snapshot('lua/a@s') == 0)
            assert(zfs.sync.snapshot('lua/b@s') == 0)
            assert(zfs.sync.snapshot('lua/b@t') == EAGAIN)
            assert(zfs.sync.snapshot('lua/a@s') == EEXIST)
            assert(zfs.sync.bookmark('lua/a@s', 'lua/a#mark') == 0)
            assert(zfs.sync.rename_snapshot('lua/b', 's', 'r') == 0)
            assert(zfs.sync.set_prop('lua/a', 'org.example:x', 'y') == 0)
            assert(zfs.sync.destroy('lua/a@s') == 0)
            assert(zfs.exists('lua/b@r') and not zfs.exists('lua/b@s'))
            return (zfs.get_prop('lua/b@r', 'createtxg'))";
        let Value::Number(txg) = returned(run(&engine, program(script)).await.unwrap()) else { panic!() };
        let mos = engine.mos().await.unwrap();
        let (a, b) = (mos.dataset("lua/a").await.unwrap(), mos.dataset("lua/b").await.unwrap());
        assert!(a.snapshots().await.unwrap().is_empty());
        let marks = a.bookmarks().await.unwrap();
        assert_eq!((marks.len(), marks[0].phys.creation_txg), (1, Txg(txg as u64)));
        let set = a.property("org.example:x").await.unwrap().unwrap();
        assert_eq!(set.value, Setting::Text("y".into()));
        let taken = b.snapshots().await.unwrap();
        assert_eq!((taken.len(), taken[0].creation_txg()), (1, Txg(txg as u64)));
        assert!(Txg(txg as u64) > before);
    });
}

/// The first error that a script meets is for the script to handle, by its number.
#[test]
fn refused_changes_have_their_numbers() {
    with_pool(async |engine| {
        cenote_tasks::snapshot(&engine, &["lua/a@s".to_owned()]).await.unwrap();
        let script = "
            local long = ('a'):rep(256)
            local sync, failed = zfs.sync, {}
            local function expect(number, what, ...)
                local got = sync[what](...)
                if got ~= number then table.insert(failed, what .. ': ' .. got .. ', not ' .. number) end
            end
            expect(EINVAL, 'snapshot', 'ceci_nest_pas_une_dataset')
            expect(EINVAL, 'snapshot', 'lua/a')
            expect(EINVAL, 'snapshot', 'lua/a@')
            expect(ENAMETOOLONG, 'snapshot', 'lua/a@' .. long)
            expect(ENOENT, 'snapshot', 'lua/none@s')
            expect(EXDEV, 'snapshot', 'tank@s')
            expect(EEXIST, 'snapshot', 'lua/a@s')
            expect(ENOENT, 'destroy', 'lua/none')
            expect(ENOENT, 'destroy', 'lua/a@none')
            expect(EBUSY, 'destroy', 'lua/a')
            expect(ENOENT, 'clone', 'lua/a@none', 'lua/c')
            expect(EINVAL, 'clone', 'lua/a', 'lua/c')
            expect(EEXIST, 'clone', 'lua/a@s', 'lua/b')
            expect(ENOENT, 'clone', 'lua/a@s', 'lua/none/c')
            expect(EXDEV, 'clone', 'lua/a@s', 'tank/c')
            expect(ENOENT, 'promote', 'lua/none')
            expect(EINVAL, 'promote', 'lua/a')
            expect(ENOENT, 'rollback', 'lua/none')
            expect(ESRCH, 'rollback', 'lua/b')
            expect(ENOENT, 'rename_snapshot', 'lua/none', 's', 't')
            expect(ENOENT, 'bookmark', 'lua/a@none', 'lua/a#m')
            expect(EINVAL, 'bookmark', 'lua/a@s', 'lua/a@m')
            expect(0, 'bookmark', 'lua/a@s', 'lua/a#m')
            expect(0, 'bookmark', 'lua/a#m', 'lua/a#copy')
            expect(EEXIST, 'bookmark', 'lua/a@s', 'lua/a#m')
            expect(EINVAL, 'set_prop', 'lua/a', 'mountpoint', '/x')
            expect(ENAMETOOLONG, 'set_prop', 'lua/a', 'a:' .. long, 'b')
            expect(E2BIG, 'set_prop', 'lua/a', 'a:b', ('v'):rep(8192))
            expect(ENOENT, 'set_prop', 'lua/none', 'a:b', 'c')
            expect(EINVAL, 'inherit', 'lua/a', 'guid')
            expect(EINVAL, 'inherit', 'lua/a', 'none')
            return failed";
        assert_eq!(returned(run(&engine, program(script)).await.unwrap()), table(&[]));
    });
}

#[test]
fn a_clone_is_made_promoted_and_its_conflicts_are_named() {
    with_pool(async |engine| {
        let taken = "for _, s in ipairs({'lua/a@1'}) do assert(zfs.sync.snapshot(s) == 0) end";
        assert_eq!(run(&engine, program(taken)).await.unwrap().ended, Ended::Returned(None));
        let cloned = "
            assert(zfs.check.clone('lua/a@1', 'lua/c') == 0)
            assert(not zfs.exists('lua/c'))
            assert(zfs.sync.clone('lua/a@1', 'lua/c') == 0)
            for clone in zfs.list.clones('lua/a@1') do assert(clone == 'lua/c') end
            assert(zfs.sync.destroy('lua/a@1') == EEXIST)
            assert(zfs.sync.destroy('lua') == EINVAL)
            return (zfs.get_prop('lua/c', 'origin'))";
        assert_eq!(returned(run(&engine, program(cloned)).await.unwrap()), text("lua/a@1"));
        let in_the_way = "
            assert(zfs.sync.snapshot('lua/c@1') == 0)
            return {zfs.check.promote('lua/c')}";
        let conflict = table(&[("1", Value::Number(17)), ("2", table(&[("1", text("1"))]))]);
        assert_eq!(returned(run(&engine, program(in_the_way)).await.unwrap()), conflict);
        let promoted = "
            assert(zfs.sync.destroy('lua/c@1') == 0)
            assert(zfs.sync.promote('lua/a') == EINVAL)
            assert(zfs.sync.promote('lua/c') == 0)
            return (zfs.get_prop('lua/a', 'origin'))";
        assert_eq!(returned(run(&engine, program(promoted)).await.unwrap()), text("lua/c@1"));
    });
}

#[test]
fn a_rollback_and_the_destruction_of_its_snapshot_go_together() {
    with_pool(async |engine| {
        for snapshot in ["lua/a@1", "lua/a@2"] {
            cenote_tasks::snapshot(&engine, &[snapshot.to_owned()]).await.unwrap();
        }
        let script = "
            assert(zfs.sync.rollback('lua/b') == ESRCH)
            assert(zfs.sync.rollback('lua/a@2') == EINVAL)
            assert(zfs.sync.rollback('lua/a') == 0)
            assert(zfs.sync.destroy('lua/a@2') == 0)
            assert(zfs.sync.rollback('lua/a') == 0)
            assert(zfs.sync.destroy{'lua/a@1', defer=true} == 0)
            assert(zfs.sync.destroy('lua/a') == 0)
            return zfs.exists('lua/a')";
        assert_eq!(returned(run(&engine, program(script)).await.unwrap()), Value::Boolean(false));
    });
}

#[test]
fn the_mounts_of_datasets_that_a_program_does_not_change_have_nothing_to_follow() {
    with_pool(async |engine| {
        let touched = async |script: &str| {
            let command = engine.acting_for(0);
            run(&command, program(script)).await.unwrap();
            let touched = command.touched();
            assert!(!touched.is_all, "{script}");
            touched.heads.into_values().map(|touch| (touch.name, touch.with_below)).collect::<Vec<_>>()
        };
        let own = |name: &str| (name.to_owned(), false);
        assert_eq!(touched("return zfs.exists('lua/a')").await, []);
        assert_eq!(touched("zfs.sync.snapshot('lua/a@1') error('enough')").await, [own("lua/a")]);
        assert_eq!(touched("zfs.sync.clone('lua/a@1', 'lua/c')").await, []);
        let script = "zfs.sync.promote('lua/c') zfs.sync.set_prop('lua/b', 'org.example:x', 'y')";
        assert_eq!(touched(script).await, [own("lua/a"), ("lua/b".to_owned(), true), own("lua/c")]);
        assert_eq!(touched("zfs.sync.destroy('lua/a')").await, [own("lua/a"), own("lua/c")]);
        assert_eq!(touched("zfs.sync.rollback('lua/c')").await, [own("lua/c")]);
    });
}

#[test]
fn a_failed_program_keeps_its_changes() {
    with_pool(async |engine| {
        let script = "zfs.sync.snapshot('lua/a@kept')\nerror('enough')";
        let failed = failure(run(&engine, program(script)).await.unwrap());
        let first = failed.text.lines().next().unwrap();
        assert_eq!(first, "[string \"channel program\"]:2: enough");
        assert!(failed.text.ends_with("[string \"channel program\"]:2: in main chunk"), "{}", failed.text);
        assert!(engine.mos().await.unwrap().dataset("lua/a@kept").await.is_ok());
    });
}

#[test]
fn a_read_only_program_looks_and_writes_nothing() {
    with_pool(async |engine| {
        cenote_tasks::snapshot(&engine, &["lua/a@s".to_owned()]).await.unwrap();
        engine.sync_all().await.unwrap();
        let before = engine.mos().await.unwrap().pool().uberblock().txg;
        let looks = "
            local seen = {}
            for child in zfs.list.children('lua') do table.insert(seen, child) end
            for snapshot in zfs.list.snapshots('lua/a') do table.insert(seen, snapshot) end
            assert(zfs.check.destroy('lua/a') == EBUSY)
            assert(zfs.check.destroy('lua/b') == 0)
            assert(zfs.check.inherit('lua/a', 'compression') == 0)
            assert(zfs.check.set_prop('lua/a', 'compression', 'on') == EINVAL)
            zfs.debug('seen ' .. #seen)
            return seen";
        let looked = run(&engine, Program { is_read_only: true, ..program(looks) }).await.unwrap();
        assert!(looked.debug.len() == 1 && looked.debug[0].ends_with("ZCP: seen 3"), "{:?}", looked.debug);
        let names = table(&[("1", text("lua/a")), ("2", text("lua/b")), ("3", text("lua/a@s"))]);
        assert_eq!(returned(looked), names);
        let changes = program("zfs.sync.snapshot('lua/b@s')");
        let failed = failure(run(&engine, Program { is_read_only: true, ..changes }).await.unwrap());
        assert!(failed.text.contains("requires passing sync=TRUE"), "{}", failed.text);
        assert_eq!(engine.mos().await.unwrap().pool().uberblock().txg, before);
    });
}

#[test]
fn properties_come_with_the_place_where_they_are_set() {
    with_pool(async |engine| {
        for (dataset, property, value) in [
            ("lua", "compression", Setting::Number(2)),
            ("lua/a", "quota", Setting::Number(64 << 20)),
            ("lua", "org.example:x", Setting::Text("y".into())),
        ] {
            cenote_tasks::set_property(&engine, dataset, property, value).await.unwrap();
        }
        let script = "
            local function get(...) return {zfs.get_prop(...)} end
            return {
                guid = zfs.get_prop('lua/a', 'guid'),
                compression = get('lua/a', 'compression'),
                quota = get('lua/a', 'quota'),
                none = get('lua/b', 'quota'),
                user = get('lua/a', 'org.example:x'),
                mine = get('lua/a', 'org.example:z'),
                kind = get('lua/a', 'type'),
                count = get('lua/a', 'snapshot_count'),
                mounted = get('lua/a', 'mounted'),
            }";
        let got = returned(run(&engine, program(script)).await.unwrap());
        let guid = engine.mos().await.unwrap().dataset("lua/a").await.unwrap().guid().0;
        let nothing = table(&[]);
        let pair = |value: Value, source: &str| table(&[("1", value), ("2", text(source))]);
        let expected = table(&[
            ("compression", pair(text("off"), "lua")),
            ("count", nothing.clone()),
            ("guid", Value::Number(guid as i64)),
            ("kind", table(&[("1", text("filesystem"))])),
            ("mine", nothing.clone()),
            ("mounted", nothing),
            ("none", pair(Value::Number(0), "default")),
            ("quota", pair(Value::Number(64 << 20), "lua/a")),
            ("user", pair(text("y"), "lua")),
        ]);
        assert_eq!(got, expected);
        for (call, why) in [
            ("get_prop('lua/a', 'colour')", "'colour' is not a valid property"),
            ("get_prop('lua/z', 'used')", "bad argument #1 to 'get_prop' (no such dataset 'lua/z')"),
            ("exists('tank/a')", "dataset 'tank/a' is not in the target pool"),
            ("list.holds('lua/a')", "bad argument #1 to 'holds' (lua/a is not a snapshot)"),
            (
                "sync.destroy('lua/a', 1)",
                "too many positional arguments: destroy{<filesystem | snapshot(string)>, \
                                          defer=(boolean)}",
            ),
            ("sync.destroy{'lua/a', defer=1}", "kwarg 'defer' wrong type (is 'number', expected 'boolean')"),
            ("sync.destroy()", "too few arguments: destroy{"),
        ] {
            let failed = failure(run(&engine, program(&format!("\nzfs.{call}"))).await.unwrap());
            let line = failed.text.lines().next().unwrap();
            assert!(line.starts_with("[string \"channel program\"]:2: ") && line.contains(why), "{line}");
        }
    });
}
