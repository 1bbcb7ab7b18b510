//! Machines that take a disk from each other, are stopped at any request and return, hear no answers, and
//! delete objects. No flushed write may be lost, and no write that a machine makes after another one has
//! taken the disk may reach it.
//!
//! `CENOTE_BUCKET_TAKEOVERS=10000` runs more histories, `CENOTE_SEED=N` one.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use cenote_bucket::{Behaviour, SimStore};
use cenote_device::{Device, DeviceError};
use cenote_runtime::{Rng, Runtime, SimConfig};
use common::{BLOCK, block, machine, numbers};
use parking_lot::Mutex;

const BLOCKS: u64 = 24;
const MACHINES: u64 = 3;

/// A write, by its number less one.
#[derive(Clone, Copy)]
struct Written {
    at: u64,
    /// Commit that was the newest after its flush, if that succeeded.
    flushed: Option<u64>,
    /// The disk had been taken by another machine before it was made.
    is_late: bool,
}

/// All that the machines did.
#[derive(Default)]
struct Oracle {
    writes: Vec<Written>,
    openings: u64,
    /// The opening with the newest commit known: it has the disk.
    owner: u64,
    newest: u64,
    takeovers: u64,
}

impl Oracle {
    /// Judges a disk as the last owner, or a new one, sees it.
    fn judge(&self, seen: &[u64]) {
        for (at, number) in seen.iter().enumerate() {
            let last = self.writes.iter().enumerate().filter(|(_, write)| write.at == at as u64);
            let last = last.filter_map(|(index, write)| Some((write.flushed?, index as u64 + 1))).max();
            let found = number.checked_sub(1).map(|index| self.writes[index as usize]);
            if let Some(found) = found {
                assert_eq!(found.at, at as u64, "a block at another's place");
                assert!(!found.is_late, "block {at}: a late write reached the disk");
            }
            let Some((flush, expected)) = last else { continue };
            // Newer ones of the same opening, or of later owners, may have reached the disk unflushed.
            let is_newer = found.is_some_and(|found| match found.flushed {
                Some(flushed) => flushed >= flush,
                None => *number > expected,
            });
            assert!(is_newer, "block {at}: a flushed write is lost: {number} instead of {expected}");
        }
    }
}

/// One opening of the disk.
async fn use_disk(store: &SimStore, oracle: &Mutex<Oracle>, rng: &mut Rng, runtime: &Runtime) {
    let behaviour = Behaviour {
        lost: 0.03,
        busy: 0.03,
        stall: 0.03,
        longest_stall: Duration::from_secs(9),
        ..Behaviour::good()
    };
    let Ok(machine) = machine(store, behaviour, runtime).await else { return };
    let opening = {
        let mut oracle = oracle.lock();
        oracle.openings += 1;
        oracle.openings
    };
    let mut took = false;
    for _ in 0..1 + rng.below(12) {
        let mut mine = Vec::new();
        let owner = oracle.lock().owner;
        let lost_before = owner > opening || took && owner != opening;
        for _ in 0..1 + rng.below(6) {
            let at = rng.below(BLOCKS);
            let number = {
                let mut oracle = oracle.lock();
                let is_late = took && oracle.owner != opening;
                oracle.writes.push(Written { at, flushed: None, is_late });
                oracle.writes.len() as u64
            };
            mine.push(number);
            let count = if rng.chance(0.1) { 600 } else { 1 };
            // Padding beyond the blocks in use makes its own segments.
            let padding = block(number).repeat(count);
            let written = machine.disk.write_at((BLOCKS + at * 600) * BLOCK, padding.into()).await;
            if written.is_err() || machine.disk.write_at(at * BLOCK, block(number)).await.is_err() {
                return;
            }
            if rng.chance(0.1) {
                drop(machine.disk.discard((BLOCKS + at * 600) * BLOCK, 600 * BLOCK).await);
            }
        }
        match machine.disk.flush().await {
            Ok(()) => {
                let mut oracle = oracle.lock();
                assert!(!lost_before, "a flush succeeded on a machine that had lost the disk");
                let commit = machine.disk.last_commit();
                // The answer may come after another machine has taken the disk.
                if commit > oracle.newest {
                    oracle.takeovers += u64::from(oracle.owner != opening);
                    (oracle.owner, oracle.newest) = (opening, commit);
                }
                took = true;
                for number in mine {
                    oracle.writes[number as usize - 1].flushed = Some(commit);
                }
            }
            Err(DeviceError::Fenced { .. }) => return,
            Err(_) => break,
        }
        if rng.chance(0.1) {
            runtime.sleep(Duration::from_secs(rng.below(60))).await;
        }
    }
    match rng.below(3) {
        0 => machine.client.cut(),
        // Its background work goes on.
        1 => drop(machine),
        _ => runtime.sleep(Duration::from_secs(rng.below(200))).await,
    }
}

async fn history(seed: u64, runtime: Runtime) -> u64 {
    let (store, oracle) = (SimStore::default(), Arc::new(Mutex::new(Oracle::default())));
    let users = (0..MACHINES).map(|which| {
        let (store, oracle, clock) = (store.clone(), oracle.clone(), runtime.clone());
        runtime.spawn(async move {
            let mut rng = Rng::stream(seed, which + 1);
            for _ in 0..3 {
                clock.sleep(Duration::from_millis(rng.below(20_000))).await;
                use_disk(&store, &oracle, &mut rng, &clock).await;
            }
        })
    });
    for user in users.collect::<Vec<_>>() {
        user.await.unwrap();
    }
    // Whatever is still under way.
    runtime.sleep(Duration::from_secs(400)).await;
    let last = machine(&store, Behaviour::good(), &runtime).await.unwrap();
    let seen = numbers(&last.disk, BLOCKS).await;
    oracle.lock().judge(&seen);
    // A new owner deletes the remains of stopped machines.
    last.disk.write_at(0, block(1)).await.unwrap();
    last.disk.flush().await.unwrap();
    runtime.sleep(Duration::from_secs(10)).await;
    let again = machine(&store, Behaviour::good(), &runtime).await.unwrap();
    let mut expected = seen;
    expected[0] = 1;
    assert_eq!(numbers(&again.disk, BLOCKS).await, expected);
    let oracle = oracle.lock();
    oracle.takeovers
}

#[test]
fn no_flushed_write_is_lost_and_no_late_one_taken_over_takeovers() {
    let wanted = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (seeds, least) = match wanted("CENOTE_SEED") {
        Some(seed) => (seed..seed + 1, 0),
        None => (0..u64::MAX, wanted("CENOTE_BUCKET_TAKEOVERS").unwrap_or(100)),
    };
    let mut takeovers = 0;
    for seed in seeds {
        println!("CENOTE_SEED={seed}, {takeovers} takeovers");
        takeovers += Runtime::simulate(SimConfig::seed(seed), |runtime| history(seed, runtime)).0;
        if takeovers >= least {
            break;
        }
    }
}
