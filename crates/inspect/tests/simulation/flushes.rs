//! Flushes fail, of txgs and of commits, and then the power does. A system reports a failed flush once; the
//! writes before it are on the disk or not. No acknowledged data may depend on them.
//!
//! `CENOTE_FLUSH_HISTORIES=100000` cuts as often instead of a few times; `CENOTE_SEED` replays one run.

use cenote_device::{Fault, Op};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::Disk;
use cenote_runtime::Rng;

use crate::cuts::{number, on_seeds, simulate};
use crate::faults::{CUTS, cut_while, pools};
use crate::pools::Layout;
use crate::run::recover_damaged;

/// Cuts; `CENOTE_FLUSH_HISTORIES` sets another number.
const HISTORIES: u64 = 28;

/// One run, and the cuts of it.
fn run(seed: u64) {
    let mut rng = Rng::stream(seed, 13);
    let mut cases = pools();
    cases.push((Layout { vdevs: vec![(Disk, 0, 1, Normal)], sector_bytes: 512, spares: 0 }, Vec::new()));
    let (layout, within) = cases.swap_remove(rng.below(cases.len() as u64) as usize);
    // Beyond redundancy the pool waits, and repeats all writes that a failed flush has lost.
    let all: Vec<usize> = (0..layout.disk_count()).collect();
    let is_beyond = within.is_empty() || rng.chance(0.4);
    let victims = if is_beyond { &all } else { &within };
    let chance = [0.02, 0.1, 0.4][rng.below(3) as usize];
    let without: &[&[usize]] = if is_beyond { &[&[]] } else { &[&[], &within] };
    let faults = || vec![Fault::error(Op::Flush).chance(chance)];
    // The next txg notes that a disk lacks data; until then only a read finds out.
    simulate(seed, |rt| async {
        cut_while(rt, &layout, victims, without, faults, recover_damaged).await;
    });
}

#[test]
fn flushes_that_fail_before_a_power_cut_cost_nothing_acknowledged() {
    let runs = number("CENOTE_FLUSH_HISTORIES").unwrap_or(HISTORIES).div_ceil(CUTS as u64);
    on_seeds("flushes_that_fail_before_a_power_cut_cost_nothing_acknowledged", runs, run);
}
