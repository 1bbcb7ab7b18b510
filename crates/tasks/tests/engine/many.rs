//! Many snapshots cost few txgs, and reads in proportion to the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_dataset::{ImportOptions, Mos, import};
use cenote_device::{FileDevice, Op, OpenOptions, Traced};
use cenote_engine::{Engine, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::deadlist::Deadlist;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{NewObject, Result, ZapEdit};
use cenote_pool::{FoundPool, VdevKind, discover_devices};
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::InUse;

use crate::accounts::assert_accounts;
use crate::common::{Load, Model, POOL, assert_zdb_is_content, create, fill, reopen_to_write, seed, work};

const LOAD: Load = Load { steps: 2, max_offset: 100_000, max_len: 20_000 };

fn name(number: u64) -> String {
    format!("{POOL}@s{number}")
}

/// A pool with that many snapshots, none empty.
async fn make(rt: &Runtime, folder: &std::path::Path, count: u64, rng: &mut Rng) {
    let engine = create(rt, folder, &(VdevKind::Disk, 0, 1)).await;
    let mut model = Model::new();
    for number in 0..count {
        work(&engine, POOL, &mut model, rng, LOAD).await;
        cenote_tasks::snapshot(&engine, &[name(number)]).await.unwrap();
    }
    work(&engine, POOL, &mut model, rng, LOAD).await;
    engine.sync_all().await.unwrap();
}

/// The pool on a traced device.
async fn watched(rt: &Runtime, folder: &std::path::Path) -> (FoundPool, Arc<Traced>) {
    let device = FileDevice::open(folder.join("disk0.img"), OpenOptions::EXCLUSIVE, rt).await.unwrap();
    let device = Arc::new(Traced::new(Arc::new(device), 0, rt));
    let found = discover_devices(vec![device.clone()]).await;
    (found.pools.into_iter().next().unwrap(), device)
}

/// Counts reads of listing all snapshots with the properties of `zfs list`.
async fn reads_of_list(mos: &Mos, device: &Traced) -> u64 {
    let before = device.count(Op::Read).ended;
    let columns = ["used", "referenced", "mountpoint", "available"];
    for snapshot in mos.dataset(POOL).await.unwrap().snapshots().await.unwrap() {
        let properties = snapshot.properties_of(&|name| columns.contains(&name)).await.unwrap();
        assert!(properties.iter().any(|property| property.name == "used"), "{properties:?}");
    }
    device.count(Op::Read).ended - before
}

#[test]
fn a_list_reads_neither_deadlists_nor_contents_of_snapshots() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "many"));
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        make(&rt, folder.path(), 150, &mut rng).await;
        let (found, device) = watched(&rt, folder.path()).await;
        let mos = import(&rt, &found, &ImportOptions::default()).await.unwrap();
        let reads = reads_of_list(&mos, &device).await;
        assert!(reads < 75, "{reads} reads for 150 snapshots");
    });
}

#[test]
fn a_range_of_snapshots_goes_in_one_group() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "many"));
    rt.block_on(async {
        let mut reads = Vec::new();
        for count in [40, 160] {
            let folder = tempfile::tempdir().unwrap();
            make(&rt, folder.path(), count, &mut rng).await;
            let (found, device) = watched(&rt, folder.path()).await;
            let engine =
                Engine::start(&import(&rt, &found, &ImportOptions::default()).await.unwrap()).await.unwrap();
            let (before, txg) = (device.count(Op::Read).ended, engine.mos().await.unwrap().uberblock().txg);
            let names: Vec<String> = (1..count - 1).map(name).collect();
            cenote_tasks::destroy_snapshots(&engine, &names, InUse::Refuse).await.unwrap();
            assert_eq!(engine.mos().await.unwrap().uberblock().txg.0, txg.0 + 1);
            reads.push(device.count(Op::Read).ended - before);
            let cached = engine.cache().stats().blocks;
            assert!(cached < 160, "{cached} blocks cached: those of {count} deadlists are read once");
            drop(engine);
            assert_zdb_is_content(folder.path(), "a range destroyed");
        }
        assert!(reads[1] < reads[0] * 7, "four times as many snapshots: {reads:?} reads");
    });
}

/// Takes snapshots by as many concurrent commands; returns how many in each txg, by txg.
async fn take_together(rt: &Runtime, engine: &Engine, names: &[String]) -> Vec<usize> {
    let take = |name: &String| {
        let (command, name) = (engine.acting_for(0), [name.clone()]);
        rt.spawn(async move { cenote_tasks::snapshot(&command, &name).await })
    };
    for taking in names.iter().map(take).collect::<Vec<_>>() {
        taking.await.unwrap().unwrap();
    }
    let (mos, mut taken) = (engine.mos().await.unwrap(), BTreeMap::new());
    for name in names {
        *taken.entry(mos.dataset(name).await.unwrap().creation_txg()).or_default() += 1;
    }
    taken.into_values().collect()
}

#[test]
fn snapshots_that_arrive_together_share_txgs_and_those_of_one_dataset_take_turns() {
    const COUNT: usize = 40;
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let engine = create(&rt, folder.path(), &(VdevKind::Disk, 0, 1)).await;
        let heads: Vec<String> = (0..COUNT).map(|number| format!("{POOL}/f{number}")).collect();
        for head in &heads {
            let filled = Box::new(|live| -> _ { Box::pin(fill(live)) as _ });
            cenote_tasks::create_filesystem(&engine, head, Vec::new(), filled).await.unwrap();
        }
        let of_each: Vec<String> = heads.iter().map(|head| format!("{head}@s")).collect();
        let taken = take_together(&rt, &engine, &of_each).await;
        assert!(taken.len() < COUNT / 4, "{taken:?}");
        let of_one: Vec<String> = (0..COUNT).map(|number| format!("{POOL}@t{number}")).collect();
        assert_eq!(take_together(&rt, &engine, &of_one).await, [1; COUNT]);
        drop(engine);
        assert_zdb_is_content(folder.path(), "snapshots taken together");
    });
}

#[test]
fn a_deadlist_of_thousands_of_snapshots_is_copied_for_the_next() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let engine = create(&rt, folder.path(), &(VdevKind::Disk, 0, 1)).await;
        for count in [10, 5000] {
            let copied = engine.run(move |context| Box::pin(copy_deadlist(context, count)));
            copied.await.unwrap();
        }
        engine.run(|context| Box::pin(copy_odd_deadlist(context))).await.unwrap();
        drop(engine);
        assert_zdb_is_content(folder.path(), "deadlists copied");
    });
}

async fn copy_deadlist(context: &mut SyncContext, count: u64) -> Result<()> {
    let edit = context.edit();
    let empties = async || FeatureCounts::of(&edit).count("empty_bpobj").await;
    let before = empties().await?;
    let from = context.make_deadlist().await?;
    for key in 0..count {
        context.add_deadlist_key(from, Txg(7 * key)).await?;
    }
    let keys = async |deadlist| Deadlist::open(&edit.view(), deadlist).await?.by_birth().await;
    let all = keys(from).await?;
    assert_eq!(all.len() as u64, count);
    let copy = context.clone_deadlist(from, Txg(u64::MAX)).await?;
    let part = context.clone_deadlist(from, Txg(40)).await?;
    assert_eq!((keys(copy).await?, keys(part).await?), (all.clone(), all[..6].to_vec()));
    assert_eq!(empties().await?, before.map(|before| before + 2 * count + 6));
    // Every key is in its place.
    let table = ZapEdit::new(&edit, copy);
    for (Txg(key), list) in all {
        assert_eq!(table.get(&format!("{key:x}")).await?.and_then(|list| list.as_u64()), Some(list.0));
    }
    context.add_deadlist_key(copy, Txg(1)).await?;
    for deadlist in [from, copy, part] {
        context.free_deadlist(deadlist).await?;
    }
    assert_eq!(empties().await?, before);
    Ok(())
}

/// Two spellings of a key: the copy has it once.
async fn copy_odd_deadlist(context: &mut SyncContext) -> Result<()> {
    let edit = context.edit();
    let (from, list) = (context.make_deadlist().await?, context.make_list().await?);
    context.add_deadlist_key(from, Txg(0)).await?;
    for key in ["5", "05"] {
        ZapEdit::new(&edit, from).add(key, list.0).await?;
    }
    let copy = context.clone_deadlist(from, Txg(u64::MAX)).await?;
    let keys = Deadlist::open(&edit.view(), copy).await?.by_birth().await?;
    assert_eq!(keys.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [Txg(0), Txg(5)]);
    assert!(keys.iter().all(|(_, of_copy)| *of_copy != list), "{keys:?}");
    context.free_deadlist(copy).await?;
    context.free_deadlist(from).await
}

/// Adds a key that is no txg to the head's deadlist, or takes it off.
async fn spoil_deadlist(context: &mut SyncContext, is_spoilt: bool) -> Result<()> {
    let head = context.mos().await?.dataset(POOL).await?;
    let edit = context.edit();
    let table = ZapEdit::new(&edit, head.phys().deadlist);
    match is_spoilt {
        true => table.add("no txg", 7u64).await,
        false => table.remove("no txg").await,
    }
}

#[test]
fn tasks_on_a_damaged_deadlist_are_refused_before_they_change_anything() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "many"));
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        make(&rt, folder.path(), 4, &mut rng).await;
        let engine = reopen_to_write(&rt, folder.path()).await;
        let (clone, gone) = (format!("{POOL}/clone"), [name(1), name(2), name(3)]);
        for is_spoilt in [true, false] {
            engine.run(move |context| Box::pin(spoil_deadlist(context, is_spoilt))).await.unwrap();
            for (verb, done) in [
                ("snapshot", cenote_tasks::snapshot(&engine, &[name(4)]).await),
                ("clone", cenote_tasks::clone_snapshot(&engine, &name(0), &clone, Default::default()).await),
                ("destroy", cenote_tasks::destroy_snapshots(&engine, &[name(4)], InUse::Refuse).await),
                ("rollback", cenote_tasks::rollback(&engine, &name(3)).await),
                ("destroy", cenote_tasks::destroy_snapshots(&engine, &gone, InUse::Refuse).await),
            ] {
                match done {
                    Ok(()) => assert!(!is_spoilt || verb == "destroy", "{verb}"),
                    Err(error) => assert!(is_spoilt && error.is_damage(), "{verb}: {error:?}"),
                }
            }
            engine.force_sync().await.unwrap();
            let left = engine.mos().await.unwrap().dataset(POOL).await.unwrap().snapshots().await.unwrap();
            assert_eq!(left.len(), if is_spoilt { 4 } else { 1 });
        }
        assert_accounts(&engine.mos().await.unwrap(), "mended").await;
        drop(engine);
        assert_zdb_is_content(folder.path(), "a damaged deadlist, mended");
    });
}

async fn dead_bytes(engine: &Engine) -> u64 {
    let mos = engine.mos().await.unwrap();
    let deadlist = mos.dataset(POOL).await.unwrap().phys().deadlist;
    Deadlist::open(mos.objset(), deadlist).await.unwrap().bytes()
}

/// Writes a block of an object.
async fn overwrite(engine: &Engine, object: ObjectId, block: u64, rng: &mut Rng) {
    let dataset = engine.dataset(POOL).await.unwrap();
    let hold = engine.hold().await.unwrap();
    let noise: Vec<u8> = (0..512).flat_map(|_| rng.next_u64().to_ne_bytes()).collect();
    dataset.edit(&hold).write(object, block * 4096, noise.into()).await.unwrap();
    drop(hold);
    engine.sync_all().await.unwrap();
}

/// Another look at the deadlist would find the key that is no txg.
#[test]
fn a_heads_deadlist_is_not_read_again_by_each_txg() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "many"));
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let engine = create(&rt, folder.path(), &(VdevKind::Disk, 0, 1)).await;
        let object = {
            let dataset = engine.dataset(POOL).await.unwrap();
            let hold = engine.hold().await.unwrap();
            let new = NewObject::of(ObjectType::UINT64_OTHER).block_bytes(4096);
            dataset.edit(&hold).create(&new).await.unwrap()
        };
        for block in 0..8 {
            overwrite(&engine, object, block, &mut rng).await;
        }
        for number in 0..3 {
            cenote_tasks::snapshot(&engine, &[name(number)]).await.unwrap();
            overwrite(&engine, object, number, &mut rng).await;
        }
        let before = dead_bytes(&engine).await;
        engine.run(|context| Box::pin(spoil_deadlist(context, true))).await.unwrap();
        overwrite(&engine, object, 5, &mut rng).await;
        let after = dead_bytes(&engine).await;
        assert!(after > before, "{before}, then {after} dead bytes");
        engine.run(|context| Box::pin(spoil_deadlist(context, false))).await.unwrap();
        cenote_tasks::destroy_snapshots(&engine, &[name(1), name(2)], InUse::Refuse).await.unwrap();
        overwrite(&engine, object, 6, &mut rng).await;
        assert_accounts(&engine.mos().await.unwrap(), "with open deadlists").await;
        drop(engine);
        assert_zdb_is_content(folder.path(), "deadlists of heads stay open");
    });
}

#[test]
fn any_snapshots_may_go_together() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "many"));
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        make(&rt, folder.path(), 40, &mut rng).await;
        let engine = reopen_to_write(&rt, folder.path()).await;
        let clone = format!("{POOL}/clone");
        cenote_tasks::clone_snapshot(&engine, &name(20), &clone, Default::default()).await.unwrap();
        cenote_tasks::bookmark(&engine, &name(10), &format!("{POOL}#mark")).await.unwrap();
        let mut left: Vec<u64> = (0..40).filter(|number| *number != 20).collect();
        while !left.is_empty() {
            let (mut gone, kept): (Vec<u64>, Vec<u64>) =
                left.iter().copied().partition(|_| rng.below(2) == 0);
            left = kept;
            // In any order.
            if rng.below(2) == 0 {
                gone.reverse();
            }
            let names: Vec<String> = gone.into_iter().map(name).collect();
            cenote_tasks::destroy_snapshots(&engine, &names, InUse::Refuse).await.unwrap();
            assert_accounts(&engine.mos().await.unwrap(), "some destroyed").await;
        }
        drop(engine);
        assert_zdb_is_content(folder.path(), "all but one destroyed");
    });
}

/// Snapshots and their bookmarks come and go in any order; several bookmarks are of one snapshot.
#[test]
fn bookmarks_outlive_their_snapshots() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "many"));
    rt.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let engine = create(&rt, folder.path(), &(VdevKind::Disk, 0, 1)).await;
        let (mut model, mut snapshots, mut marks) = (Model::new(), Vec::new(), Vec::new());
        let clone = format!("{POOL}/clone");
        for step in 0..120 {
            work(&engine, POOL, &mut model, &mut rng, LOAD).await;
            match rng.below(4) {
                0 => {
                    cenote_tasks::snapshot(&engine, &[name(step)]).await.unwrap();
                    snapshots.push(name(step));
                }
                1 if !snapshots.is_empty() => {
                    // Mostly the newest.
                    let of = snapshots.len() - 1 - rng.below(snapshots.len().min(2) as u64) as usize;
                    for mark in ["a", "b"].map(|mark| format!("{POOL}#{mark}{step}")) {
                        cenote_tasks::bookmark(&engine, &snapshots[of], &mark).await.unwrap();
                        marks.push(mark);
                    }
                }
                2 if !snapshots.is_empty() => {
                    let gone = snapshots.swap_remove(rng.below(snapshots.len() as u64) as usize);
                    cenote_tasks::destroy_snapshots(&engine, &[gone], InUse::Refuse).await.unwrap();
                }
                3 if !marks.is_empty() => {
                    let gone = marks.swap_remove(rng.below(marks.len() as u64) as usize);
                    cenote_tasks::destroy_bookmark(&engine, &gone).await.unwrap();
                }
                _ => {}
            }
            if step == 60 {
                cenote_tasks::snapshot(&engine, &[format!("{POOL}@origin")]).await.unwrap();
                let origin = format!("{POOL}@origin");
                cenote_tasks::clone_snapshot(&engine, &origin, &clone, Default::default()).await.unwrap();
            }
        }
        for gone in marks {
            cenote_tasks::destroy_bookmark(&engine, &gone).await.unwrap();
        }
        engine.sync_all().await.unwrap();
        assert_accounts(&engine.mos().await.unwrap(), "with a clone").await;
        drop(engine);
        assert_zdb_is_content(folder.path(), "bookmarks came and went");
    });
}
