//! A disk against a model: random writes, discards, flushes and reads, and power cuts at any moment. After a
//! cut, the disk must be as after one of the changes, in their order, and no flushed one may be lacking.
//!
//! `CENOTE_BUCKET_CUTS=10000` runs more histories, `CENOTE_SEED=N` one.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use std::time::Duration;

use cenote_bucket::{Behaviour, SimStore};
use cenote_device::{Device, DeviceError};
use cenote_runtime::{Rng, Runtime, SimConfig};
use common::{BLOCK, Machine, block, machine, number_of, numbers};

const BLOCKS: u64 = 96;

/// A change of blocks: the number written, 0 for a discard.
#[derive(Clone, Copy)]
struct Change {
    first: u64,
    count: u64,
    number: u64,
}

fn apply(blocks: &mut [u64], change: Change) {
    blocks[change.first as usize..(change.first + change.count) as usize].fill(change.number);
}

/// Whether a request of the former life came after the disk was opened: it counts as taken, and
/// nothing of this life is kept. Only before the first flush, which takes the disk over.
fn is_late<T>(done: Result<T, DeviceError>, flushed: usize) -> bool {
    match done {
        Ok(_) => false,
        Err(error) => {
            assert!(flushed == 0 && matches!(error, DeviceError::Fenced { .. }), "{error}");
            true
        }
    }
}

/// Works until the power is cut. Returns the changes, and how many were flushed for sure; `None`: the disk
/// counts as taken.
async fn work(
    machine: &Machine,
    rng: &mut Rng,
    next: &mut u64,
    content: &[u64],
) -> Option<(Vec<Change>, usize)> {
    let (mut changes, mut flushed) = (Vec::new(), 0);
    let mut blocks = content.to_vec();
    for _ in 0..rng.below(120) {
        let first = rng.below(BLOCKS);
        let count = 1 + rng.below((BLOCKS - first).min(12));
        match rng.below(20) {
            0..10 => {
                *next += 1;
                let change = Change { first, count, number: *next };
                let data = block(*next).repeat(count as usize);
                if is_late(machine.disk.write_at(first * BLOCK, data.into()).await, flushed) {
                    return None;
                }
                apply(&mut blocks, change);
                changes.push(change);
            }
            10..12 => {
                let change = Change { first, count, number: 0 };
                if is_late(machine.disk.discard(first * BLOCK, count * BLOCK).await, flushed) {
                    return None;
                }
                apply(&mut blocks, change);
                changes.push(change);
            }
            12..15 => {
                if is_late(machine.disk.flush().await, flushed) {
                    return None;
                }
                flushed = changes.len();
            }
            // A flush that the power may cut.
            15 => drop(machine.disk.flush()),
            _ => {
                let read = machine.disk.read_at(first * BLOCK, (count * BLOCK) as usize).await.unwrap();
                let seen: Vec<u64> = read.chunks(BLOCK as usize).map(number_of).collect();
                assert_eq!(seen, blocks[first as usize..(first + count) as usize]);
            }
        }
    }
    Some((changes, flushed))
}

async fn history(seed: u64, runtime: Runtime) {
    let store = SimStore::default();
    let mut rng = Rng::stream(seed, 1);
    let behaviour = Behaviour { lost: 0.02, busy: 0.05, ..Behaviour::good() };
    let (mut content, mut next) = (vec![0; BLOCKS as usize], 0);
    let mut possible = vec![content.clone()];
    for _ in 0..4 {
        let machine = machine(&store, behaviour.clone(), &runtime).await.unwrap();
        let seen = numbers(&machine.disk, BLOCKS).await;
        assert!(possible.contains(&seen), "a state that never was, or that lacks flushed changes");
        content = seen;
        let Some((changes, flushed)) = work(&machine, &mut rng, &mut next, &content).await else {
            machine.client.cut();
            continue;
        };
        if rng.chance(0.5) {
            runtime.sleep(Duration::from_millis(rng.below(100))).await;
        }
        machine.client.cut();
        // Until this life has taken the disk over, late requests of the one before may still be carried out.
        if flushed > 0 {
            possible.clear();
        }
        let mut state = content.clone();
        for (done, change) in changes.iter().enumerate() {
            if done >= flushed {
                possible.push(state.clone());
            }
            apply(&mut state, *change);
        }
        possible.push(state);
        // Requests under way are carried out or not.
        runtime.sleep(Duration::from_secs(rng.below(2))).await;
    }
}

#[test]
fn after_a_power_cut_the_disk_is_as_at_some_moment_after_the_last_flush() {
    let wanted = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match wanted("CENOTE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..wanted("CENOTE_BUCKET_CUTS").unwrap_or(100),
    };
    for seed in seeds {
        println!("CENOTE_SEED={seed}");
        Runtime::simulate(SimConfig::seed(seed), |runtime| history(seed, runtime));
    }
}
