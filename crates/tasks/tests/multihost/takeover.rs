//! Machines that import one pool, change it, stop, crash and export it, in any order.
//!
//! A seed is wrong if an import writes after a later one did, or if an acknowledged change is lost. With
//! locks in the storage (RBD), machines take the pool from each other at any time, without a watch; the
//! storage sees to the first, so that only lost changes can be wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_engine::Engine;
use cenote_pool::{PoolState, Standstill, VdevKind};
use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_tasks::{PoolSetting, set_pool};

use crate::machine::{Disks, Locks, Machine};

const NOTE: &str = "org:number";
/// Virtual time of a seed.
const LENGTH: Duration = Duration::from_secs(60);

/// The last number acknowledged; each change writes the next.
type Acknowledged = Arc<AtomicU64>;

#[derive(Default, Clone, Copy)]
struct Met {
    fenced: u64,
    taken: u64,
    refused: u64,
}

/// `None`: another machine has taken the disks.
async fn number(engine: &Engine) -> Option<u64> {
    let properties = engine.mos().await.ok()?.pool_properties().await.ok()?;
    let note = properties.iter().find(|entry| entry.name == NOTE);
    Some(note.and_then(|entry| entry.value.as_text()).map_or(0, |text| text.parse().unwrap()))
}

/// A machine, until the end of the simulation.
async fn live(machine: Machine, acknowledged: Acknowledged, mut rng: Rng) -> Met {
    let (rt, mut met) = (machine.disks.rt.clone(), Met::default());
    let pause = |rng: &mut Rng, most_ms| Duration::from_millis(rng.below(most_ms));
    while rt.now().as_ns() < LENGTH.as_nanos() as u64 {
        // Before the import: a change of another machine must not come between.
        let before = acknowledged.load(Ordering::SeqCst);
        if rng.below(4) == 0 {
            machine.stop_for(pause(&mut rng, 4000));
        }
        let Ok(engine) = machine.take().await else {
            met.refused += 1;
            rt.sleep(pause(&mut rng, 3000)).await;
            continue;
        };
        met.taken += 1;
        let Some(mut last) = number(&engine).await else { continue };
        assert!(last >= before, "a change was lost: {last} after {before}");
        for _ in 0..rng.below(20) {
            if rng.below(5) == 0 {
                let time = pause(&mut rng, 4000);
                machine.stop_for(time);
                // Part of the time, the stopped machine is in the middle of a change.
                if rng.below(2) == 0 {
                    rt.sleep(time).await;
                }
            }
            let next = PoolSetting::Text(NOTE.into(), (last + 1).to_string());
            if set_pool(&engine, next).await.is_err() {
                break;
            }
            last += 1;
            acknowledged.fetch_max(last, Ordering::SeqCst);
            rt.sleep(pause(&mut rng, 500)).await;
        }
        if machine.disks.locks.is_some() {
            // The engine stops in its own task.
            rt.sleep(Duration::from_millis(1)).await;
        }
        met.fenced += u64::from(engine.pool().status().standstill == Some(Standstill::Multihost));
        if rng.below(2) == 0 {
            // A fenced pool is let go as it is.
            engine.close(PoolState::Exported).await.ok();
        }
        drop(engine);
        rt.sleep(pause(&mut rng, 2000)).await;
    }
    met
}

fn run(seed: u64, storage_locks: bool) -> Met {
    let main = |rt: Runtime| async move {
        let mut disks = Disks::new(&rt, 2);
        disks.create(VdevKind::Mirror, 0, u64::from(!storage_locks || seed.is_multiple_of(2))).await;
        disks.locks = storage_locks.then(Locks::default);
        let acknowledged = Acknowledged::default();
        let machines = (1..=2).map(|id| live(Machine::new(id, &disks), acknowledged.clone(), rt.rng()));
        let met = futures::future::join_all(machines.map(|machine| rt.spawn(machine))).await;
        disks.oracle.assert_one_at_a_time(&format!("seed {seed}"));
        assert!(disks.oracle.owners() > 2, "seed {seed}: the pool hardly changed hands");
        let last = acknowledged.load(Ordering::SeqCst);
        // At the end, a third machine finds all.
        rt.sleep(Duration::from_secs(10)).await;
        let engine = Machine::new(3, &disks).take().await.unwrap();
        assert!(number(&engine).await >= Some(last), "seed {seed}");
        met.into_iter().map(|met| met.unwrap()).fold(Met::default(), |a, b| Met {
            fenced: a.fenced + b.fenced,
            taken: a.taken + b.taken,
            refused: a.refused + b.refused,
        })
    };
    Runtime::simulate(SimConfig { step_limit: u64::MAX, ..SimConfig::seed(seed) }, main).0
}

#[allow(clippy::print_stdout, reason = "shown on failure, and by --nocapture")]
fn run_all(storage_locks: bool) -> (u64, Met) {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (of("CENOTE_SEED").unwrap_or(0), of("CENOTE_TAKEOVERS").unwrap_or(6));
    let mut met = Met::default();
    for seed in first..first + count {
        let one = run(seed, storage_locks);
        met = Met {
            fenced: met.fenced + one.fenced,
            taken: met.taken + one.taken,
            refused: met.refused + one.refused,
        };
    }
    println!("{} imports, {} refused, {} suspended", met.taken, met.refused, met.fenced);
    (count, met)
}

/// `CENOTE_TAKEOVERS` sets the number of seeds, `CENOTE_SEED` the first.
#[test]
fn never_two_machines_have_a_pool_and_nothing_acknowledged_is_lost() {
    let (count, met) = run_all(false);
    assert!(met.taken > 2 * count && met.refused > count && met.fenced >= count / 2);
}

/// Variables as above.
#[test]
fn with_locks_in_the_storage_too() {
    let (count, met) = run_all(true);
    assert!(met.taken > 2 * count && met.fenced >= count);
}
