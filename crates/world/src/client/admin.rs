//! An administrator: verbs as values, run by the daemon.

use std::io::Seek;
use std::pin::Pin;

use cenote_control::zfs::{self, points, properties, tree};
use cenote_control::{Answered, ControlError, Outcome as Ended, Verb, files, zpool};
use cenote_runtime::Rng;

use super::{Stage, devices, pick, posix};
use crate::machine::POOL;
use crate::model::call::Path;
use crate::model::{Action, Call, CallId, ClientId, Content, DatasetId, Outcome, Pool};
use crate::oracle::space;

/// Kinds of calls: see [`Program::choose`].
pub const KINDS: usize = 18;
/// The kind of verbs on devices.
pub const DEVICES: usize = 13;
/// Most datasets, and snapshots of one.
const DATASETS: usize = 8;
const SNAPSHOTS: usize = 5;
/// The blocks of a volume.
pub const VOLUME_BLOCKS: u64 = 256;

/// An administrator.
pub struct Program {
    stage: Stage,
    client: ClientId,
    rng: Rng,
}

impl Program {
    /// A client with this number.
    pub fn new(stage: Stage, client: ClientId) -> Program {
        let rng = stage.runtime.rng();
        Program { stage, client, rng }
    }

    /// Runs until the world ends.
    pub async fn run(mut self) {
        while !self.stage.is_over() {
            self.stage.think(&mut self.rng, self.stage.swarm.admin_pause).await;
            let state = self.stage.scene.state();
            let swarm = self.stage.swarm.clone();
            let chosen = swarm.choose(&mut self.rng, |rng| choose(&self.stage, rng, &state));
            let Some(action) = chosen.filter(|_| self.stage.scene.takes(self.client)) else { continue };
            let turn = match &action {
                // One at a time: each may use up the budget.
                Action::Device { verb } => match self.stage.bay.turn.try_lock() {
                    Ok(turn) if devices::takes(&self.stage, verb) => Some(turn),
                    _ => continue,
                },
                _ => None,
            };
            perform(&self.stage, None, self.client, &state, action).await;
            drop(turn);
        }
    }
}

fn new_name(stage: &Stage, kind: &str) -> String {
    format!("{POOL}/{kind}{}", stage.scene.next())
}

/// The next verb; `None`: this kind is not possible now.
fn choose(stage: &Stage, rng: &mut Rng, state: &Pool) -> Option<Action> {
    let kind = super::choose(rng, &stage.swarm.admin);
    let all: Vec<DatasetId> = state.datasets.keys().copied().collect();
    if kind == 0 || all.is_empty() {
        if all.len() >= DATASETS {
            return None;
        }
        let is_volume = rng.chance(0.3);
        let name = new_name(stage, if is_volume { "v" } else { "f" });
        return Some(Action::Create { name, volume_blocks: is_volume.then_some(VOLUME_BLOCKS) });
    }
    // Half of the time that of another verb under way.
    let other = stage.scene.dataset_at_work().filter(|dataset| all.contains(dataset));
    let dataset = match other.filter(|_| rng.chance(0.5)) {
        Some(dataset) => dataset,
        None => *pick(rng, &all)?,
    };
    let mut snapshots: Vec<String> =
        state.datasets[&dataset].snapshots.iter().map(|snapshot| snapshot.name.clone()).collect();
    // A verb that guesses the name may get into the same txg.
    snapshots.extend(stage.scene.snapshots_at_work(dataset));
    let last = snapshots.last().cloned();
    let mut one = || pick(rng, &snapshots).cloned();
    Some(match kind {
        1 | 2 if snapshots.len() < SNAPSHOTS => {
            Action::Snapshot { dataset, name: format!("s{}", stage.scene.next()) }
        }
        1 | 3 => Action::DestroySnapshot { dataset, name: one()? },
        4 | 5 => Action::Rollback { dataset, name: last? },
        6 if all.len() < DATASETS => Action::Clone { dataset, snapshot: one()?, name: new_name(stage, "k") },
        17 if all.len() < DATASETS => {
            let (name, received) = (new_name(stage, "n"), format!("r{}", stage.scene.next()));
            Action::Receive { dataset, snapshot: one()?, name, received }
        }
        7 => Action::Promote { dataset },
        8 => Action::Destroy { dataset },
        9 => Action::RenameDataset { dataset, name: new_name(stage, "r") },
        10 => Action::Hold { dataset, snapshot: one()?, tag: "tag".into() },
        11 => Action::Release { dataset, snapshot: one()?, tag: "tag".into() },
        12 => {
            let is_volume = matches!(state.datasets[&dataset].content, Content::Blocks(_));
            setting(stage, rng, dataset, is_volume)
        }
        15 | 16 if !matches!(state.datasets[&dataset].content, Content::Files(_)) => return None,
        15 => Action::CommandRemove { dataset, path: path(rng) },
        16 => Action::CommandMake { dataset, path: path(rng) },
        DEVICES => Action::Device { verb: devices::choose(stage, rng)? },
        _ => {
            let verbs = ["sync", "scrub", "sync", "reopen", "trim", "verify"];
            Action::Pool { verb: pick(rng, &verbs)?.to_string() }
        }
    })
}

/// A path that files of clients may have; most often where the calls of all clients meet.
fn path(rng: &mut Rng) -> Path {
    let mut of = |names: &[&str]| names[rng.below(names.len() as u64) as usize].to_owned();
    let top = of(&["common", "common", "common", "c0", "c1", "c2"]);
    let mut path = vec![top, of(&posix::NAMES)];
    if path[0] != "common" && of(&["shallow", "deep"]) == "deep" {
        path.insert(1, of(&posix::DIRS));
    }
    path
}

fn setting(stage: &Stage, rng: &mut Rng, dataset: DatasetId, is_volume: bool) -> Action {
    let settings: [(&str, &[&str]); 5] = [
        ("compression", &["off", "lz4", "zstd", "zle"]),
        ("logbias", &["latency", "throughput"]),
        ("checksum", &["on", "sha256", "off"]),
        ("copies", &["1", "2"]),
        ("recordsize", &["4K", "16K", "128K"]),
    ];
    // The last applies to file systems only.
    let count = settings.len() as u64 - u64::from(is_volume);
    let (property, mut values) = settings[rng.below(count) as usize];
    if property == "checksum" && stage.swarm.has_faults() {
        // Without a checksum nothing tells wrong data.
        values = &values[..2];
    }
    match rng.chance(0.3) {
        true => Action::Inherit { dataset, property: property.into() },
        false => {
            let value = values[rng.below(values.len() as u64) as usize].into();
            Action::Set { dataset, property: property.into(), value }
        }
    }
}

/// Carries out a verb. Names are those of `state`, which may be out of date.
pub async fn perform(stage: &Stage, id: Option<CallId>, client: ClientId, state: &Pool, action: Action) {
    let is_known = |dataset: DatasetId| state.datasets.contains_key(&dataset);
    let call = Call { client, action: action.clone() };
    if !call.dataset().is_none_or(is_known) {
        return;
    }
    let work = carry_out(stage, state, action.clone());
    let id = stage.scene.begin(&stage.runtime, id, client, action);
    match work.await {
        Ok(outcome) => stage.scene.end(&stage.runtime, id, &outcome),
        Err(GivenUp(why)) => stage.scene.abandon(&stage.runtime, id, &why),
    }
    stage.note_txgs();
}

/// A device did not answer for long: the verb goes on without its caller.
pub struct GivenUp(pub String);

/// A verb that runs.
pub type Work<'a> = Pin<Box<dyn Future<Output = Result<Outcome, GivenUp>> + 'a>>;

fn carry_out<'a>(stage: &'a Stage, state: &Pool, action: Action) -> Work<'a> {
    let name = |dataset: &DatasetId| state.datasets[dataset].name.clone();
    let at = |dataset: &DatasetId, snapshot: &str| format!("{}@{snapshot}", name(dataset));
    match action {
        Action::Create { name, volume_blocks } => {
            let volume = volume_blocks.map(|blocks| tree::create::NewVolume {
                size_bytes: blocks * crate::model::BLOCK_BYTES,
                block_bytes: None,
                sparse: true,
            });
            let create = tree::create::Create {
                name,
                volume,
                settings: Vec::new(),
                parents: false,
                dry_run: false,
                no_mount: false,
            };
            run(stage, create)
        }
        Action::Destroy { dataset } => destroy(stage, name(&dataset)),
        Action::DestroySnapshot { dataset, name } => {
            let destroyed = destroy(stage, at(&dataset, &name));
            Box::pin(async move {
                let outcome = destroyed.await?;
                // As in OpenZFS, a missing snapshot is destroyed already; if its dataset was renamed
                // meanwhile, it exists by another name. Own names of snapshots are unique.
                match outcome == Outcome::Done && exists(stage, &name).await {
                    true => Ok(Outcome::Refused(format!("{name} does not exist by its old name"))),
                    false => Ok(outcome),
                }
            })
        }
        Action::Snapshot { dataset, name } => {
            let snapshots = vec![at(&dataset, &name)];
            run(stage, points::snapshot::Snapshot { snapshots, recursive: false, settings: Vec::new() })
        }
        Action::Rollback { dataset, name } => {
            let snapshot = at(&dataset, &name);
            run(stage, points::rollback::Rollback { snapshot, recursive: false, with_clones: false })
        }
        Action::Clone { dataset, snapshot, name } => {
            let clone = tree::clone::Clone {
                snapshot: at(&dataset, &snapshot),
                name,
                parents: false,
                recursive: false,
                settings: Vec::new(),
                no_mount: false,
            };
            run(stage, clone)
        }
        Action::Receive { dataset, snapshot, name, received } => {
            let (from, to) = (at(&dataset, &snapshot), format!("{name}@{received}"));
            Box::pin(send_and_receive(stage, from, to))
        }
        Action::Promote { dataset } => run(stage, tree::promote::Promote { clone: name(&dataset) }),
        Action::RenameDataset { dataset, name: to } => {
            let from = name(&dataset);
            let (parents, recursive, no_remount) = (false, false, false);
            run(stage, tree::rename::Rename { from, to, parents, recursive, no_remount })
        }
        Action::Hold { dataset, snapshot, tag } => {
            let snapshots = vec![at(&dataset, &snapshot)];
            run(stage, points::hold::Hold { tag, snapshots, recursive: false })
        }
        Action::Release { dataset, snapshot, tag } => {
            let snapshots = vec![at(&dataset, &snapshot)];
            run(stage, points::release::Release { tag, snapshots, recursive: false })
        }
        Action::Set { dataset, property, value } => {
            let settings = vec![properties::settings::Setting { property, value }];
            run(stage, properties::set::Set { settings, names: vec![name(&dataset)], no_mount: false })
        }
        Action::Inherit { dataset, property } => {
            let names = vec![name(&dataset)];
            run(stage, properties::inherit::Inherit { property, names, recursive: false, received: false })
        }
        Action::CommandRemove { dataset, path } => {
            let targets = vec![target(&name(&dataset), &path)];
            run(stage, files::rm::Rm { targets, recursive: false })
        }
        Action::CommandMake { dataset, path } => {
            let targets = vec![target(&name(&dataset), &path)];
            run(stage, files::mkdir::Mkdir { targets, parents: false })
        }
        Action::Pool { verb } => {
            let pools = vec![POOL.to_owned()];
            match &*verb {
                "scrub" => {
                    let (order, dates, thorough) = Default::default();
                    let wait = false;
                    run(stage, zpool::activity::scrub::Scrub { pools, order, dates, wait, thorough })
                }
                "verify" => Box::pin(verify(stage)),
                "trim" => {
                    let (order, pool) = (zpool::activity::trim::Order::Start, pools.into_iter().next());
                    let (devices, rate_bytes, wait) = (Vec::new(), 0, false);
                    run(stage, zpool::activity::trim::Trim { pool, devices, order, rate_bytes, wait })
                }
                _ => run(stage, zpool::whole::sync::Sync { pools }),
            }
        }
        Action::Device { verb } => devices::carry_out(stage, verb),
        _ => unreachable!("it is not a verb"),
    }
}

/// Verifies the pool while others change it: everything must be right but for guilty disks.
async fn verify(stage: &Stage) -> Result<Outcome, GivenUp> {
    // After a repair, no disk would be guilty of what was read before.
    let Ok(_repair) = stage.bay.repair.try_lock() else { return Ok(Outcome::Refused("a repair".into())) };
    let checked = space::check(&stage.daemon, POOL, || stage.bay.ledger()).await;
    stage.scene.judge(|_| checked);
    Ok(Outcome::Done)
}

fn target(dataset: &str, path: &Path) -> files::Target {
    format!("{dataset}:/{}", path.join("/")).parse().expect("a plain name and path")
}

async fn exists(stage: &Stage, snapshot: &str) -> bool {
    let Some(pool) = stage.daemon.pools.get(POOL) else { return false };
    let Ok(mos) = pool.engine.mos().await else { return false };
    for dataset in mos.all_datasets().await.unwrap_or_default() {
        let all = dataset.snapshots().await.unwrap_or_default();
        if all.iter().any(|one| one.name().ends_with(&format!("@{snapshot}"))) {
            return true;
        }
    }
    false
}

/// Sends a snapshot into a file, and receives that.
async fn send_and_receive(stage: &Stage, from: String, to: String) -> Result<Outcome, GivenUp> {
    let mut flags = stage.runtime.rng();
    let (large_blocks, embedded) = (flags.chance(0.5), flags.chance(0.5));
    let compressed = flags.chance(0.5);
    let send =
        zfs::send::Send { target: from, large_blocks, embedded, compressed, ..zfs::send::Send::default() };
    let stream = tempfile::tempfile().map_err(|error| GivenUp(error.to_string()))?;
    let (sent, said) = stage.daemon.run_with(send, Some(&stream)).await;
    match ended(sent, said)? {
        Outcome::Done => {}
        refused => return Ok(refused),
    }
    let mut start = &stream;
    start.rewind().map_err(|error| GivenUp(error.to_string()))?;
    let receive = zfs::receive::Receive { target: to, ..zfs::receive::Receive::default() };
    let (received, said) = stage.daemon.run_with(receive, Some(&stream)).await;
    ended(received, said)
}

fn destroy(stage: &Stage, target: String) -> Work<'_> {
    run(
        stage,
        tree::destroy::Destroy {
            target,
            recursive: false,
            with_clones: false,
            defer: false,
            dry_run: false,
            measure: false,
        },
    )
}

/// In refusals while a device does not answer.
const SUSPENDED: &str = "I/O is currently suspended";

/// Runs a verb.
pub fn run<V: Verb>(stage: &Stage, verb: V) -> Work<'_> {
    Box::pin(async move {
        let (done, said) = stage.daemon.run(verb).await;
        ended(done, said)
    })
}

/// The outcome of a verb.
///
/// # Errors
/// A device did not answer for long.
pub fn ended<A>(done: Result<Answered<A>, ControlError>, said: String) -> Result<Outcome, GivenUp> {
    Ok(match done {
        // The change was made, even if a busy mount could not follow.
        Ok(answered) if answered.outcome == Ended::Done || said.contains("the change was made") => {
            Outcome::Done
        }
        Ok(_) if said.contains(SUSPENDED) => return Err(GivenUp(said)),
        Ok(_) => Outcome::Refused(said),
        Err(error) if error.is_suspended() || error.to_string().contains(SUSPENDED) => {
            return Err(GivenUp(error.to_string()));
        }
        Err(error) => Outcome::Refused(format!("{error} {said}")),
    })
}
