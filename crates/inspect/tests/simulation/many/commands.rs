//! Commands given while clients work: on their file systems, on others, and on the pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_dataset::{Mos, Value};
use cenote_engine::Need;
use cenote_format::units::Txg;
use cenote_fs::write::{NewFile, NewKind};
use cenote_fs::{FsOptions, FsWriter};
use cenote_tasks::InUse;
use parking_lot::Mutex;

use super::client::{self, Record};
use super::{Head, Stage};
use crate::journal::Moment;
use crate::pools::{POOL, fill, now};

const MOST_SNAPSHOTS: usize = 4;

/// A snapshot of all clients' file systems.
#[derive(Clone)]
struct Taken {
    /// Known to be on disk.
    done: Option<Moment>,
    destroyed: Option<Moment>,
    /// By client: the first state that it may hold, and one past the last.
    states: Vec<(usize, usize)>,
}

/// The snapshots requested, by name.
#[derive(Clone, Default)]
pub struct Snapshots(BTreeMap<String, Taken>);

impl Snapshots {
    /// Checks that snapshots hold the files of their file systems at the time, and that no finished one is
    /// missing.
    pub async fn check(&self, clients: &[Record], mos: &Mos, at: Option<Moment>) -> Result<(), String> {
        let at = at.unwrap_or(Moment::MAX);
        let mut found: BTreeMap<&str, Vec<(Head, cenote_fs::Filesystem)>> = BTreeMap::new();
        for head in mos.all_datasets().await.unwrap() {
            for snapshot in head.snapshots().await.unwrap() {
                let own = snapshot.name().split_once('@').unwrap().1;
                if let Some((name, _)) = self.0.get_key_value(own) {
                    found.entry(name).or_default().push((head.id(), client::open(&snapshot).await?));
                }
            }
        }
        for (name, taken) in &self.0 {
            let is_sure =
                taken.done.is_some_and(|done| done <= at) && taken.destroyed.is_none_or(|asked| asked > at);
            let heads = found.remove(&name[..]).unwrap_or_default();
            if heads.len() != super::HEADS && (is_sure || !heads.is_empty()) {
                return Err(format!("there are {} snapshots @{name}", heads.len()));
            }
            for (head, fs) in heads {
                for (number, record) in clients.iter().enumerate().filter(|(_, record)| record.head == head) {
                    let (from, to) = taken.states[number];
                    let tree = client::read(&fs, number).await?;
                    if !record.is_one_of(from..to, &tree) {
                        return Err(format!("@{name} has other files of client {number}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Takes and destroys snapshots of the clients' file systems, renames these and changes their settings.
pub async fn on_heads(stage: Arc<Stage>, records: Vec<Arc<Mutex<Record>>>, snapshots: Arc<Mutex<Snapshots>>) {
    let mut rng = stage.rt.rng();
    let mut names: Vec<String> = (0..super::HEADS).map(super::head_name).collect();
    for number in 0.. {
        stage.think(&mut rng).await;
        if stage.is_over() {
            return;
        }
        let there: Vec<String> = {
            let is_there = |taken: &Taken| taken.done.is_some() && taken.destroyed.is_none();
            snapshots
                .lock()
                .0
                .iter()
                .filter(|(_, taken)| is_there(taken))
                .map(|(name, _)| name.clone())
                .collect()
        };
        match rng.below(6) {
            0..=1 if there.len() < MOST_SNAPSHOTS => {
                let own = format!("all{number}");
                let full: Vec<String> = names.iter().map(|name| format!("{name}@{own}")).collect();
                let from: Vec<usize> = records.iter().map(|record| record.lock().current).collect();
                let done =
                    stage.ask(&mut rng, "a snapshot", cenote_tasks::snapshot(&stage.engine, &full)).await;
                let states = from.into_iter().zip(records.iter().map(|record| record.lock().states.len()));
                let done = done.map(|done| {
                    done.unwrap();
                    stage.now()
                });
                let taken = Taken { done, destroyed: None, states: states.collect() };
                snapshots.lock().0.insert(own, taken);
            }
            2 if !there.is_empty() => {
                let own = &there[rng.below(there.len() as u64) as usize];
                snapshots.lock().0.get_mut(own).unwrap().destroyed = Some(stage.now());
                let full: Vec<String> = names.iter().map(|name| format!("{name}@{own}")).collect();
                let destroy = cenote_tasks::destroy_snapshots(&stage.engine, &full, InUse::Refuse);
                if let Some(done) = stage.ask(&mut rng, "to destroy snapshots", destroy).await {
                    done.unwrap();
                }
            }
            3 => {
                let head = rng.below(names.len() as u64) as usize;
                let to = format!("{POOL}/renamed{number}");
                let rename = cenote_tasks::rename(&stage.engine, &names[head], &to);
                let done = stage.ask(&mut rng, "a rename", rename).await;
                let is_done = match done {
                    Some(done) => {
                        done.unwrap();
                        true
                    }
                    None => stage.engine.mos().await.unwrap().dataset(&to).await.is_ok(),
                };
                if is_done {
                    names[head] = to;
                }
            }
            _ => {
                let head = &names[rng.below(names.len() as u64) as usize];
                let (property, value) = match rng.below(3) {
                    0 => ("recordsize", 512 << rng.below(9)),
                    1 => ("compression", [2, 15, 3][rng.below(3) as usize]),
                    _ => ("logbias", rng.below(2)),
                };
                let set = cenote_tasks::set_property(&stage.engine, head, property, Value::Number(value));
                if let Some(done) = stage.ask(&mut rng, "a setting", set).await {
                    done.unwrap();
                }
            }
        }
    }
}

/// Makes file systems, clones them and destroys both.
pub async fn apart(stage: Arc<Stage>) {
    let mut rng = stage.rt.rng();
    for number in 0.. {
        stage.think(&mut rng).await;
        if stage.is_over() {
            return;
        }
        let engine = &stage.engine;
        let (name, clone) = (format!("{POOL}/apart{number}"), format!("{POOL}/clone{number}"));
        let at = now(&stage.rt);
        let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
            Box::pin(fill(live, at, FsOptions::default()))
        });
        let made = cenote_tasks::create_filesystem(engine, &name, Vec::new(), fill);
        if !matches!(stage.ask(&mut rng, "to make a file system", made).await, Some(Ok(()))) {
            continue;
        }
        {
            let fs = FsWriter::shared(engine, &name).await.unwrap();
            let new = NewFile { kind: NewKind::Regular, mode: 0o600, umask: 0, uid: 7, gid: 8 };
            let made = fs.change(engine, Need::Write(100_000), move |fs, change| {
                Box::pin(async move {
                    let id = fs.create(change, fs.root(), b"file", &new).await?;
                    fs.write(change, id, 0, vec![number as u8; 50_000].into()).await
                })
            });
            stage.ask(&mut rng, "a change", made).await;
        }
        let origin = [format!("{name}@origin")];
        cenote_tasks::snapshot(engine, &origin).await.unwrap();
        let cloned = cenote_tasks::clone_snapshot(engine, &origin[0], &clone, Vec::new());
        if stage.ask(&mut rng, "a clone", cloned).await.is_some() {
            cenote_tasks::destroy_dataset(engine, &clone).await.unwrap();
            cenote_tasks::destroy_snapshots(engine, &origin, InUse::Refuse).await.unwrap();
            let destroyed = cenote_tasks::destroy_dataset(engine, &name);
            if let Some(done) = stage.ask(&mut rng, "to destroy a file system", destroyed).await {
                done.unwrap();
            }
        }
    }
}

/// Begins scrubs, and pauses or cancels them; a resilver may be under way instead.
pub async fn scrubs(stage: Arc<Stage>) {
    let mut rng = stage.rt.rng();
    loop {
        stage.think(&mut rng).await;
        if stage.is_over() {
            return;
        }
        let engine = &stage.engine;
        match rng.below(4) {
            0 => drop(stage.ask(&mut rng, "to pause a scrub", cenote_tasks::pause_scrub(engine)).await),
            1 => drop(stage.ask(&mut rng, "to cancel a scrub", cenote_tasks::cancel_scrub(engine)).await),
            _ => {
                drop(stage.ask(&mut rng, "to begin a scrub", cenote_tasks::start_scrub(engine, Txg(0))).await)
            }
        }
    }
}
