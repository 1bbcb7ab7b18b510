//! Creates, sets, renames, snapshots, clones, promotes, rolls back and destroys datasets, from a seed, along
//! with a model.

use std::collections::BTreeMap;

use cenote_dataset::{Mos, Value};
use cenote_engine::{Engine, Touched};
use cenote_format::units::Txg;
use cenote_object::{DatasetError, Result};
use cenote_pool::VdevKind;
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::{InUse, Instead, PoolSetting};

use crate::accounts::assert_accounts;
use crate::common::{
    Layout, Load, Model, POOL, assert_equal, assert_zdb_is_content, create, fill, reopen, reopen_to_write,
    seed, work, zdb,
};

const LAYOUTS: [Layout; 2] = [(VdevKind::Disk, 0, 1), (VdevKind::Raidz, 1, 3)];
const LOAD: Load = Load { steps: 6, max_offset: 200_000, max_len: 60_000 };
/// Times a pool is reopened.
const ROUNDS: u64 = 3;
const OPERATIONS: u64 = 40;
const MAX_DATASETS: usize = 14;

/// Expected contents of a pool.
#[derive(Default)]
struct World {
    heads: BTreeMap<String, Model>,
    /// Oldest first.
    snapshots: Vec<(String, Model)>,
    /// Clones and their origins.
    origins: BTreeMap<String, String>,
    held: Vec<String>,
    names: u64,
}

fn dataset_of(snapshot: &str) -> &str {
    snapshot.split('@').next().unwrap()
}

impl World {
    fn head(&self, rng: &mut Rng) -> String {
        self.heads.keys().nth(rng.below(self.heads.len() as u64) as usize).unwrap().clone()
    }

    fn snapshot(&self, rng: &mut Rng) -> Option<String> {
        let pick = rng.below(self.snapshots.len().max(1) as u64) as usize;
        self.snapshots.get(pick).map(|(name, _)| name.clone())
    }

    fn content(&self, snapshot: &str) -> Model {
        self.snapshots.iter().find(|(name, _)| name == snapshot).unwrap().1.clone()
    }

    fn new_name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn last_snapshot(&self, head: &str) -> Option<&str> {
        self.snapshots.iter().rev().map(|(name, _)| name.as_str()).find(|name| dataset_of(name) == head)
    }

    fn is_depended_on(&self, snapshot: &str) -> bool {
        self.origins.values().any(|origin| origin == snapshot)
            || self.held.iter().any(|held| held == snapshot)
    }

    /// Renames `from` and its descendants.
    fn rename(&mut self, from: &str, to: &str) {
        let renamed = |name: &str| match name.strip_prefix(from) {
            Some(rest) if rest.is_empty() || rest.starts_with(['/', '@']) => format!("{to}{rest}"),
            _ => name.to_owned(),
        };
        self.heads = std::mem::take(&mut self.heads).into_iter().map(|(n, m)| (renamed(&n), m)).collect();
        self.origins =
            std::mem::take(&mut self.origins).into_iter().map(|(n, o)| (renamed(&n), renamed(&o))).collect();
        self.snapshots.iter_mut().for_each(|(name, _)| *name = renamed(name));
        self.held.iter_mut().for_each(|name| *name = renamed(name));
    }
}

fn must_be_busy(outcome: Result<()>, what: &str) {
    assert!(matches!(outcome, Err(DatasetError::Busy { .. })), "{what}: {outcome:?}");
}

/// Applies one operation to the pool and the model.
async fn operate(engine: &Engine, world: &mut World, rng: &mut Rng) {
    let head = world.head(rng);
    match rng.below(20) {
        0..=6 => work(engine, &head, world.heads.get_mut(&head).unwrap(), rng, LOAD).await,
        7 if world.heads.len() < MAX_DATASETS => make(engine, world, &head, rng).await,
        8..=10 => take_snapshots(engine, world, rng).await,
        11 if world.heads.len() < MAX_DATASETS => clone(engine, world, &head, rng).await,
        12..=13 => destroy_snapshot(engine, world, rng).await,
        14 => destroy(engine, world, &head).await,
        15 => roll_back(engine, world, &head).await,
        16 => rename(engine, world, &head, rng).await,
        17 => set(engine, &head, rng).await,
        18 => hold(engine, world, rng).await,
        19 => promote(engine, world, rng).await,
        _ => {}
    }
}

async fn make(engine: &Engine, world: &mut World, parent: &str, rng: &mut Rng) {
    let name = world.new_name(&format!("{parent}/f"));
    let settings = match rng.below(3) {
        0 => vec![("compression".to_owned(), Value::Number(2))],
        1 => vec![("refreservation".to_owned(), Value::Number(300_000))],
        _ => Vec::new(),
    };
    cenote_tasks::create_filesystem(engine, &name, settings, Box::new(|live| Box::pin(fill(live))))
        .await
        .unwrap();
    world.heads.insert(name, Model::new());
}

/// Of one or several datasets at one instant.
async fn take_snapshots(engine: &Engine, world: &mut World, rng: &mut Rng) {
    let own = world.new_name("s");
    let heads: Vec<String> = world.heads.keys().filter(|_| rng.below(3) == 0).cloned().collect();
    let names: Vec<String> = heads.iter().map(|head| format!("{head}@{own}")).collect();
    cenote_tasks::snapshot(engine, &names).await.unwrap();
    for (head, name) in heads.into_iter().zip(names) {
        world.snapshots.push((name, world.heads[&head].clone()));
    }
}

async fn clone(engine: &Engine, world: &mut World, parent: &str, rng: &mut Rng) {
    let Some(origin) = world.snapshot(rng) else { return };
    let name = world.new_name(&format!("{parent}/c"));
    cenote_tasks::clone_snapshot(engine, &origin, &name, Vec::new()).await.unwrap();
    world.heads.insert(name.clone(), world.content(&origin));
    world.origins.insert(name, origin);
}

async fn destroy_snapshot(engine: &Engine, world: &mut World, rng: &mut Rng) {
    let Some(name) = world.snapshot(rng) else { return };
    let outcome = cenote_tasks::destroy_snapshots(engine, std::slice::from_ref(&name), InUse::Refuse).await;
    if world.is_depended_on(&name) {
        return must_be_busy(outcome, &name);
    }
    outcome.unwrap();
    world.snapshots.retain(|(other, _)| *other != name);
}

async fn destroy(engine: &Engine, world: &mut World, head: &str) {
    if head == POOL {
        return;
    }
    let outcome = cenote_tasks::destroy_dataset(engine, head).await;
    let has_children = world.heads.keys().any(|other| other.starts_with(&format!("{head}/")));
    if has_children || world.last_snapshot(head).is_some() {
        return must_be_busy(outcome, head);
    }
    outcome.unwrap();
    world.heads.remove(head);
    world.origins.remove(head);
}

async fn roll_back(engine: &Engine, world: &mut World, head: &str) {
    let Some(last) = world.last_snapshot(head).map(str::to_owned) else { return };
    cenote_tasks::rollback(engine, &last).await.unwrap();
    world.heads.insert(head.to_owned(), world.content(&last));
}

async fn rename(engine: &Engine, world: &mut World, head: &str, rng: &mut Rng) {
    if let (0, Some(from)) = (rng.below(2), world.snapshot(rng)) {
        let to = world.new_name(&format!("{}@r", dataset_of(&from)));
        cenote_tasks::rename(engine, &from, &to).await.unwrap();
        return world.rename(&from, &to);
    }
    let parent = world.head(rng);
    let to = world.new_name(&format!("{parent}/r"));
    if head == POOL {
        return;
    }
    let outcome = cenote_tasks::rename(engine, head, &to).await;
    if parent == head || parent.starts_with(&format!("{head}/")) {
        assert!(matches!(outcome, Err(DatasetError::Unsuitable { .. })), "{outcome:?}");
        return;
    }
    outcome.unwrap();
    world.rename(head, &to);
}

async fn set(engine: &Engine, head: &str, rng: &mut Rng) {
    let (property, number) = match rng.below(7) {
        0 => ("compression", [2, 15, 16][rng.below(3) as usize]),
        1 => ("copies", 1 + rng.below(2)),
        2 => ("checksum", [7, 8, 11][rng.below(3) as usize]),
        3..=4 => ("refreservation", rng.below(3) * 400_000),
        _ => ("reservation", rng.below(3) * 500_000),
    };
    cenote_tasks::set_property(engine, head, property, Value::Number(number)).await.unwrap();
    if property == "copies" && rng.below(2) == 0 {
        cenote_tasks::inherit(engine, head, property, Instead::Inherited).await.unwrap();
    }
}

async fn hold(engine: &Engine, world: &mut World, rng: &mut Rng) {
    if let Some(held) = world.held.pop() {
        return cenote_tasks::release_snapshots(engine, &[held], "tag").await.unwrap();
    }
    let Some(name) = world.snapshot(rng) else { return };
    cenote_tasks::hold_snapshots(engine, std::slice::from_ref(&name), "tag").await.unwrap();
    let mark = world.new_name(&format!("{}#m", dataset_of(&name)));
    cenote_tasks::bookmark(engine, &name, &mark).await.unwrap();
    world.held.push(name);
}

async fn promote(engine: &Engine, world: &mut World, rng: &mut Rng) {
    let pick = rng.below(world.origins.len().max(1) as u64) as usize;
    let Some((clone, origin)) = world.origins.iter().nth(pick).map(|(c, o)| (c.clone(), o.clone())) else {
        return;
    };
    cenote_tasks::promote(engine, &clone).await.unwrap();
    // The origin and older snapshots now belong to the clone; the old head depends on it.
    let old = dataset_of(&origin).to_owned();
    let last = world.snapshots.iter().position(|(name, _)| *name == origin).unwrap();
    let moved: Vec<String> = world.snapshots[..=last].iter().map(|(name, _)| name.clone()).collect();
    match world.origins.remove(&old) {
        Some(older) => world.origins.insert(clone.clone(), older),
        None => world.origins.remove(&clone),
    };
    world.origins.insert(old.clone(), origin);
    for from in moved.iter().filter(|name| dataset_of(name) == old) {
        world.rename(from, &format!("{clone}@{}", from.split('@').nth(1).unwrap()));
    }
}

/// The pool holds exactly the model's contents, and its accounts are right.
async fn check(mos: &Mos, world: &World, name: &str) {
    let mut found = Vec::new();
    for head in mos.all_datasets().await.unwrap() {
        found.extend(head.snapshots().await.unwrap().iter().map(|snapshot| snapshot.name().to_owned()));
        found.push(head.name().to_owned());
    }
    let snapshots = world.snapshots.iter().map(|(name, model)| (name, model));
    let all: BTreeMap<&String, &Model> = world.heads.iter().chain(snapshots).collect();
    found.sort();
    assert_eq!(found.iter().collect::<Vec<_>>(), all.keys().copied().collect::<Vec<_>>(), "{name}");
    for (dataset, model) in all {
        assert_equal(mos, dataset, model, name).await;
    }
    for (clone, origin) in &world.origins {
        let found = mos.dataset(clone).await.unwrap().origin().await.unwrap().unwrap();
        assert_eq!(found.name(), origin, "{name}: origin of {clone}");
    }
    assert_accounts(mos, name).await;
}

#[test]
fn datasets_and_their_accounts_are_as_a_model_has_them() {
    let rt = Runtime::real(Some(2));
    for layout in &LAYOUTS {
        let name = format!("{layout:?}");
        let mut rng = Rng::new(seed(&rt, &name));
        let folder = tempfile::tempdir().unwrap();
        rt.block_on(async {
            let mut world = World::default();
            world.heads.insert(POOL.into(), Model::new());
            let mut engine = create(&rt, folder.path(), layout).await;
            for _ in 0..ROUNDS {
                for _ in 0..OPERATIONS {
                    operate(&engine, &mut world, &mut rng).await;
                }
                engine.sync_all().await.unwrap();
                drop(engine);
                check(&reopen(&rt, folder.path()).await, &world, &name).await;
                assert_zdb_is_content(folder.path(), &name);
                zdb(&["-d"], folder.path(), &name);
                engine = reopen_to_write(&rt, folder.path()).await;
            }
        });
    }
}

/// Names of the datasets that a task of a command touched, with `/*` if those below are, `!` for new ones.
async fn touched<T>(engine: &Engine, task: impl AsyncFnOnce(&Engine) -> Result<T>) -> Vec<String> {
    let command = engine.acting_for(0);
    task(&command).await.unwrap();
    let Touched { is_all, heads } = command.touched();
    assert!(!is_all, "a frequent command must not make all mounts follow");
    let shown = heads.into_values().map(|touch| {
        let (below, new) = (if touch.with_below { "/*" } else { "" }, if touch.is_new { "!" } else { "" });
        format!("{}{below}{new}", touch.name)
    });
    shown.collect()
}

#[test]
fn mounts_of_datasets_that_a_command_does_not_change_have_nothing_to_follow() {
    let (rt, folder) = (Runtime::real(Some(2)), tempfile::tempdir().unwrap());
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &LAYOUTS[0]).await;
        let make = |name: String| {
            let filled = Box::new(|live| Box::pin(fill(live)) as _);
            async move |engine: &Engine| {
                cenote_tasks::create_filesystem(engine, &name, Vec::new(), filled).await
            }
        };
        let (a, b, snapshot) = (format!("{POOL}/a"), format!("{POOL}/b"), format!("{POOL}/a@s"));
        assert_eq!(touched(&engine, make(a.clone())).await, [format!("{a}!")]);
        let set = async |engine: &Engine| {
            cenote_tasks::set_property(engine, &a, "atime", Value::Number(0)).await?;
            cenote_tasks::inherit(engine, &a, "atime", Instead::Inherited).await
        };
        assert_eq!(touched(&engine, set).await, [format!("{a}/*")]);
        let take = async |engine: &Engine| {
            cenote_tasks::snapshot(engine, std::slice::from_ref(&snapshot)).await?;
            cenote_tasks::hold_snapshots(engine, std::slice::from_ref(&snapshot), "tag").await?;
            cenote_tasks::release_snapshots(engine, std::slice::from_ref(&snapshot), "tag").await
        };
        assert_eq!(touched(&engine, take).await, std::slice::from_ref(&a));
        let note = Value::Text("x".into());
        let annotate = async |engine: &Engine| {
            cenote_tasks::set_property(engine, &snapshot, "org.example:note", note).await
        };
        assert!(touched(&engine, annotate).await.is_empty());
        let clone = async |engine: &Engine| {
            cenote_tasks::clone_snapshot(engine, &snapshot, &b, Vec::new()).await?;
            cenote_tasks::rename(engine, &b, &format!("{b}2")).await
        };
        assert_eq!(touched(&engine, clone).await, [format!("{b}2/*!")]);
        let destroy = async |engine: &Engine| {
            cenote_tasks::destroy_dataset(engine, &format!("{b}2")).await?;
            cenote_tasks::destroy_snapshots(engine, std::slice::from_ref(&snapshot), InUse::Refuse).await
        };
        assert_eq!(touched(&engine, destroy).await, [a.clone(), format!("{b}2")]);
        let promote = async |engine: &Engine| {
            cenote_tasks::snapshot(engine, std::slice::from_ref(&snapshot)).await?;
            cenote_tasks::clone_snapshot(engine, &snapshot, &b, Vec::new()).await?;
            cenote_tasks::promote(engine, &b).await
        };
        assert_eq!(touched(&engine, promote).await, [a.clone(), format!("{b}!")]);
        let roll_back = async |engine: &Engine| {
            engine.close_datasets(vec![engine.mos().await?.dataset(&b).await?.id()]).await?;
            cenote_tasks::rollback(engine, &format!("{b}@s")).await
        };
        assert_eq!(touched(&engine, roll_back).await, std::slice::from_ref(&b));
        // With its last clone, a deferred snapshot leaves the other dataset, too.
        let defer = async |engine: &Engine| {
            cenote_tasks::destroy_snapshots(engine, &[format!("{b}@s")], InUse::Defer).await?;
            engine.close_datasets(vec![engine.mos().await?.dataset(&a).await?.id()]).await?;
            cenote_tasks::destroy_dataset(engine, &a).await
        };
        assert_eq!(touched(&engine, defer).await, [a.clone(), b.clone()]);
        assert!(engine.mos().await.unwrap().dataset(&format!("{b}@s")).await.is_err());
        let of_pool = async |engine: &Engine| {
            cenote_tasks::set_pool(engine, PoolSetting::Comment("x".into())).await?;
            cenote_tasks::start_scrub(engine, Txg(0)).await?;
            cenote_tasks::cancel_scrub(engine).await?;
            cenote_tasks::change_guid(engine, None).await
        };
        assert!(touched(&engine, of_pool).await.is_empty());
        // A task that does not say may concern any mount.
        let command = engine.acting_for(0);
        command.run(|_| Box::pin(async { Ok(()) })).await.unwrap();
        assert!(command.touched().is_all);
        // Background work notes nothing.
        assert_eq!(engine.touched(), Touched::default());
    });
}
