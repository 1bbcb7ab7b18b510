//! Takeovers in virtual time: machines that are killed, cut off, or stopped, a witness that loses answers and
//! carries out requests late, and disks that come and go.
//!
//! The oracle knows all: no machine writes once another has the pool, no acknowledged write is lost, and a
//! pool is open again soon after the last fault. `CENOTE_SEEDS` says how many seeds are tried;
//! `CENOTE_SEED` repeats one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote_bucket::{Behaviour, SimStore};
use cenote_device::Tenure;
use cenote_ha::{BucketWitness, Head, Held, Leave, Nodes, Opened, Role, Settings, Taking, Witness};
use cenote_runtime::{AbortOnDrop, Runtime, SimConfig};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

const LEASE: Duration = Duration::from_secs(3);
/// Disks, by number.
const LEGS: u64 = 3;

/// The truth.
#[derive(Default)]
struct World {
    /// The last write on each disk: who wrote it, and its number.
    legs: BTreeMap<u64, (u64, u64)>,
    /// Tenures so far: the last one may write.
    tenure: u64,
    /// The last acknowledged write.
    acked: (u64, u64),
    takeovers: u64,
    refused: u64,
    writes: u64,
    /// What must not happen, and did.
    wrong: Option<String>,
}

impl World {
    fn must(&mut self, is_right: bool, wrong: impl FnOnce() -> String) {
        if !is_right {
            self.wrong.get_or_insert_with(wrong);
        }
    }
}

/// A machine's way to the disks.
#[derive(Default)]
struct Reach {
    legs: Mutex<BTreeSet<u64>>,
    is_alive: AtomicBool,
    /// The way to the witness is cut.
    is_cut: Arc<AtomicBool>,
    /// The next swap gets no answer.
    is_deaf: Arc<AtomicBool>,
}

/// A pool of which each write goes to all disks that are in reach.
struct Model {
    runtime: Runtime,
    world: Arc<Mutex<World>>,
    reach: Arc<Reach>,
    open: Arc<Mutex<Option<Open>>>,
}

struct Open {
    tenure: Tenure,
    number: u64,
    last: u64,
    in_sync: BTreeSet<u64>,
    is_lost: bool,
    _writing: Option<AbortOnDrop<()>>,
}

impl Model {
    fn lacking_of(open: &Open) -> BTreeSet<u64> {
        (0..LEGS).filter(|leg| !open.in_sync.contains(leg)).collect()
    }
}

/// Writes while the pool is open.
async fn keep_writing(
    runtime: Runtime,
    world: Arc<Mutex<World>>,
    reach: Arc<Reach>,
    open: Arc<Mutex<Option<Open>>>,
) {
    loop {
        // Now and then the machine is stopped for longer than a lease.
        let pause_ms = if runtime.random_u64().is_multiple_of(400) { 6000 } else { 40 };
        runtime.sleep(Duration::from_millis(1 + runtime.random_u64() % pause_ms)).await;
        let (tenure, lacking, id) = {
            let mut open = open.lock();
            let Some(open) = &mut *open else { return };
            if open.is_lost || open.tenure.has_ended(runtime.now()) {
                continue;
            }
            let (reachable, mut world) = (reach.legs.lock().clone(), world.lock());
            if reachable.is_empty() {
                continue;
            }
            let is_its_turn = world.tenure == open.number;
            world.must(is_its_turn, || format!("tenure {} writes after its end", open.number));
            open.last += 1;
            let id = (open.number, open.last);
            reachable.iter().for_each(|leg| _ = world.legs.insert(*leg, id));
            world.writes += 1;
            // A disk that comes back is resilvered by the next write.
            open.in_sync = reachable;
            (open.tenure.clone(), Model::lacking_of(open), id)
        };
        if tenure.agree(lacking).await.is_ok() {
            let mut world = world.lock();
            world.acked = world.acked.max(id);
        }
    }
}

impl Head for Model {
    fn take(&self, taking: Taking) -> BoxFuture<'static, Result<Opened, String>> {
        let (runtime, world, reach) = (self.runtime.clone(), self.world.clone(), self.reach.clone());
        let slot = self.open.clone();
        async move {
            runtime.sleep(Duration::from_millis(10 + runtime.random_u64() % 800)).await;
            if !reach.is_alive.load(Ordering::Relaxed) {
                return Err("off".into());
            }
            let number = {
                let mut world = world.lock();
                if taking.tenure.has_ended(runtime.now()) {
                    return Err("the lease has ended".into());
                }
                let reachable = reach.legs.lock().clone();
                // With all disks nothing is missing.
                let usable = match reachable.len() as u64 {
                    LEGS => reachable,
                    _ => &reachable - &taking.lacking,
                };
                let newest = usable.iter().map(|leg| world.legs.get(leg).copied().unwrap_or_default()).max();
                let Some(newest) = newest else {
                    world.refused += 1;
                    return Err("no disk with all data is in reach".into());
                };
                let acked = world.acked;
                world.must(newest >= acked, || format!("{newest:?} is open, but {acked:?} was acknowledged"));
                world.tenure += 1;
                world.takeovers += 1;
                // The state goes on as a write of this tenure.
                let (number, now) = (world.tenure, (world.tenure, 0));
                usable.iter().for_each(|leg| _ = world.legs.insert(*leg, now));
                let open = Open {
                    tenure: taking.tenure.clone(),
                    number,
                    last: 0,
                    in_sync: usable,
                    is_lost: false,
                    _writing: None,
                };
                *slot.lock() = Some(open);
                number
            };
            let writing = keep_writing(runtime.clone(), world, reach, slot.clone());
            let writing = runtime.spawn(writing).abort_on_drop();
            if let Some(open) = slot.lock().as_mut().filter(|open| open.number == number) {
                open._writing = Some(writing);
            }
            Ok(Opened { guid: 1, needs_no_lease: false })
        }
        .boxed()
    }

    fn held(&self) -> Held {
        match &*self.open.lock() {
            None => Held::Gone,
            Some(open) if open.is_lost => Held::Lost("told so".into()),
            Some(_) if self.reach.legs.lock().is_empty() => Held::Suspended("no disks".into()),
            Some(_) => Held::Works,
        }
    }

    fn lacking(&self) -> Option<BTreeSet<u64>> {
        self.open.lock().as_ref().map(Model::lacking_of)
    }

    fn lose(&self, _why: &str) {
        self.open.lock().iter_mut().for_each(|open| open.is_lost = true);
    }

    fn leave(&self, how: Leave) -> BoxFuture<'static, Result<(), String>> {
        let (runtime, slot) = (self.runtime.clone(), self.open.clone());
        async move {
            runtime.sleep(Duration::from_millis(runtime.random_u64() % 300)).await;
            if how == Leave::Whole && runtime.random_u64().is_multiple_of(10) {
                return Err("a file system is busy".into());
            }
            drop(slot.lock().take());
            Ok(())
        }
        .boxed()
    }
}

/// A machine that runs a daemon.
struct Machine {
    name: &'static str,
    reach: Arc<Reach>,
    nodes: Option<Nodes>,
    open: Arc<Mutex<Option<Open>>>,
}

struct Run {
    runtime: Runtime,
    store: SimStore,
    world: Arc<Mutex<World>>,
}

impl Run {
    fn boot(&self, machine: &mut Machine, is_bad: bool) {
        let behaviour = match is_bad {
            true => Behaviour {
                lost: 0.03,
                busy: 0.02,
                stall: 0.05,
                longest_stall: LEASE / 2,
                ..Behaviour::good()
            },
            false => Behaviour::good(),
        };
        machine.reach.is_alive.store(true, Ordering::Relaxed);
        let client = self.store.client(behaviour, &self.runtime);
        let witness: Arc<dyn Witness> = Arc::new(Unprobed {
            inner: BucketWitness::new(Arc::new(client), &self.runtime),
            is_cut: machine.reach.is_cut.clone(),
            is_deaf: machine.reach.is_deaf.clone(),
        });
        let text = format!("node = \"{}\"\nwitness = \"/\"\n[[pool]]\nname = \"tank\"\n", machine.name);
        let settings = Settings { lease: LEASE, ..Settings::parse(&text).expect("valid") };
        let (world, reach, open) = (&self.world, &machine.reach, &machine.open);
        let head = |_: &cenote_ha::PoolSettings| -> Arc<dyn Head> {
            let (world, reach, open) = (world.clone(), reach.clone(), open.clone());
            Arc::new(Model { runtime: self.runtime.clone(), world, reach, open })
        };
        let say: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(|_| {});
        machine.nodes = Some(Nodes::start(&settings, &witness, &self.runtime, head, &say));
    }
}

/// The probe takes long, and has tests of its own.
struct Unprobed {
    inner: BucketWitness,
    is_cut: Arc<AtomicBool>,
    is_deaf: Arc<AtomicBool>,
}

impl Unprobed {
    /// A request that no answer comes to if the way is cut before or after it.
    fn over<T: Send + 'static>(&self, asking: cenote_ha::Asking<T>) -> cenote_ha::Asking<T> {
        let is_cut = self.is_cut.clone();
        async move {
            if is_cut.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let answer = asking.await;
            if is_cut.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            answer
        }
        .boxed()
    }
}

impl Witness for Unprobed {
    fn read(&self, name: &str) -> cenote_ha::Asking<Option<cenote_ha::Seen>> {
        self.over(self.inner.read(name))
    }

    fn write(
        &self,
        name: &str,
        before: Option<&cenote_ha::Tag>,
        bytes: bytes::Bytes,
    ) -> cenote_ha::Asking<cenote_ha::Written> {
        if self.is_deaf.swap(false, Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        self.over(self.inner.write(name, before, bytes))
    }
}

fn run(seed: u64) -> (u64, u64, u64) {
    let config = SimConfig { seed, ..SimConfig::default() };
    let (totals, _) = Runtime::simulate(config, |runtime| async move {
        let world: Arc<Mutex<World>> = Arc::default();
        let run = Run { runtime: runtime.clone(), store: SimStore::default(), world: world.clone() };
        let mut machines: Vec<Machine> = ["a", "b", "c"]
            .map(|name| Machine { name, reach: Arc::default(), nodes: None, open: Arc::default() })
            .into();
        let all: BTreeSet<u64> = (0..LEGS).collect();
        for machine in &mut machines {
            *machine.reach.legs.lock() = all.clone();
            run.boot(machine, true);
        }
        for _ in 0..100 {
            let random = |below: u64| runtime.random_u64() % below;
            let longest_ms = [150, 4000][random(2) as usize];
            runtime.sleep(Duration::from_millis(random(longest_ms))).await;
            assert_eq!(world.lock().wrong, None);
            let (index, leg) = (random(machines.len() as u64) as usize, random(LEGS));
            let machine = &mut machines[index];
            match random(10) {
                // Killed: nothing of it runs any more.
                0 | 1 => {
                    machine.reach.is_alive.store(false, Ordering::Relaxed);
                    machine.nodes = None;
                    drop(machine.open.lock().take());
                }
                2 if machine.nodes.is_none() => run.boot(machine, true),
                3 => _ = machine.reach.legs.lock().remove(&leg),
                9 => {
                    // A disk that comes back for a moment, around a renewal.
                    machine.reach.legs.lock().insert(leg);
                    runtime.sleep(Duration::from_millis(random(900))).await;
                    machine.reach.legs.lock().remove(&leg);
                    runtime.sleep(Duration::from_millis(random(200))).await;
                    // With it, the only one with the newest writes goes.
                    machine.reach.is_alive.store(false, Ordering::Relaxed);
                    machine.nodes = None;
                    drop(machine.open.lock().take());
                }
                4 | 5 => _ = machine.reach.legs.lock().insert(leg),
                6 => {
                    let to = (random(2) == 0).then(|| ["a", "b", "c"][random(3) as usize]);
                    machine.nodes.iter().for_each(|nodes| drop(nodes.switch("tank", to)));
                }
                7 => machine.reach.is_cut.store(random(2) == 0, Ordering::Relaxed),
                8 if random(3) == 0 => machine.nodes.iter().for_each(|nodes| drop(nodes.fence("tank"))),
                _ => {}
            }
        }
        // The faults are over.
        for machine in &mut machines {
            *machine.reach.legs.lock() = all.clone();
            machine.reach.is_cut.store(false, Ordering::Relaxed);
            machine.nodes = None;
            drop(machine.open.lock().take());
            run.boot(machine, false);
        }
        let (begun, before) = (runtime.now(), world.lock().acked);
        let limit = Duration::from_secs(120);
        while world.lock().acked <= before {
            assert!(runtime.now().since(begun) < limit, "no machine has the pool: {}", shown(&machines));
            runtime.sleep(LEASE / 4).await;
        }
        drop(machines);
        let world = world.lock();
        assert_eq!(world.wrong, None);
        (world.takeovers, world.writes, world.refused)
    });
    totals
}

fn shown(machines: &[Machine]) -> String {
    let status =
        |machine: &Machine| format!("{} {:?}", machine.name, machine.nodes.as_ref().map(Nodes::status));
    machines.iter().map(status).collect::<Vec<_>>().join("; ")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn no_acknowledged_write_is_lost_and_no_late_one_is_taken() {
    let seeds: Vec<u64> = match number("CENOTE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("CENOTE_SEEDS").unwrap_or(200)).collect(),
    };
    let (mut takeovers, mut writes, mut refused) = (0, 0, 0);
    for seed in &seeds {
        println!("seed {seed}");
        let (taken, written, no) = run(*seed);
        (takeovers, writes, refused) = (takeovers + taken, writes + written, refused + no);
    }
    println!("{} seeds: {takeovers} takeovers, {refused} refused, {writes} writes", seeds.len());
    assert!(
        seeds.len() == 1 || takeovers > 2 * seeds.len() as u64 && refused > 0,
        "hardly anything happened"
    );
}

#[test]
fn a_pool_is_handed_over_and_moves_soon_after_a_failure() {
    let (times, _) = Runtime::simulate(SimConfig::default(), |runtime| async move {
        let world: Arc<Mutex<World>> = Arc::default();
        let run = Run { runtime: runtime.clone(), store: SimStore::default(), world: world.clone() };
        let mut machines: Vec<Machine> = ["a", "b"]
            .map(|name| Machine { name, reach: Arc::default(), nodes: None, open: Arc::default() })
            .into();
        for machine in &mut machines {
            *machine.reach.legs.lock() = (0..LEGS).collect();
            run.boot(machine, false);
            let nodes = machine.nodes.as_ref().unwrap();
            // The first to boot has it.
            if machine.name == "a" {
                until(&runtime, || nodes.status()[0].role == Role::Has, Duration::from_secs(5)).await;
            }
        }
        let role =
            |machines: &[Machine], index: usize| machines[index].nodes.as_ref().unwrap().status()[0].role;
        assert_eq!((role(&machines, 0), role(&machines, 1)), (Role::Has, Role::Watches));
        let begun = runtime.now();
        machines[1].nodes.as_ref().unwrap().switch("tank", None).unwrap();
        until(&runtime, || role(&machines, 1) == Role::Has, Duration::from_secs(60)).await;
        let handed_over = runtime.now().since(begun);
        machines[1].nodes = None;
        drop(machines[1].open.lock().take());
        let begun = runtime.now();
        until(&runtime, || role(&machines, 0) == Role::Has, Duration::from_secs(60)).await;
        (handed_over, runtime.now().since(begun))
    });
    assert!(times.0 < Duration::from_secs(4) && times.1 < Duration::from_secs(5), "{times:?}");
}

/// A wish whose answer never comes must not end the watch.
#[test]
fn a_machine_whose_wish_was_not_answered_still_takes_over() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let run = Run { runtime: runtime.clone(), store: SimStore::default(), world: Arc::default() };
        let new = |name| Machine { name, reach: Arc::default(), nodes: None, open: Arc::default() };
        let (mut a, mut b) = (new("a"), new("b"));
        let has = |machine: &Machine| machine.nodes.as_ref().unwrap().status()[0].role == Role::Has;
        for machine in [&mut a, &mut b] {
            *machine.reach.legs.lock() = (0..LEGS).collect();
            run.boot(machine, false);
            runtime.sleep(LEASE).await;
        }
        assert!(has(&a));
        b.reach.is_deaf.store(true, Ordering::Relaxed);
        b.nodes.as_ref().unwrap().switch("tank", None).unwrap();
        runtime.sleep(LEASE).await;
        assert!(!b.reach.is_deaf.load(Ordering::Relaxed), "it has asked");
        a.nodes = None;
        drop(a.open.lock().take());
        until(&runtime, || has(&b), LEASE * 3).await;
    });
}

async fn until(runtime: &Runtime, is_so: impl Fn() -> bool, limit: Duration) {
    let begun = runtime.now();
    while !is_so() {
        assert!(runtime.now().since(begun) < limit, "not within {limit:?}");
        runtime.sleep(Duration::from_millis(20)).await;
    }
}
