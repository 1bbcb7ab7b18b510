//! Blocks get and lose owners while disks come and go: clones, moves, deduplicated writes, snapshots,
//! rollbacks, promotions and checkpoints between the slices of a resilver, rebuild, removal, expansion or
//! scrub. Then the old disks are taken away: every file is readable, in the pool and in its checkpoint.
//!
//! ```text
//!   history   a pool and its model; an event changes its disks             -> disks, files, checkpoint
//!             work | a slice of the event | work | a slice ...                (owners/history)
//!   end       without the old disks: files and snapshots, the checkpoint    (owners/end)
//! ```
//!
//! `CENOTE_HISTORIES=10000` runs as many instead of one per case; `CENOTE_SEED` repeats one of them.

mod end;
mod history;

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_pool::VdevClass::{Normal, Special};
use cenote_pool::VdevKind::{Disk, Draid, Mirror, Raidz};
use cenote_runtime::Rng;

use crate::cuts::{number, on_kinds, simulate};
use crate::pools::{Layout, Vdev};

use history::History;

/// A file system: its files by name.
type Files = BTreeMap<String, Arc<Vec<u8>>>;

/// All file systems by name, and all snapshots by number: a promotion moves snapshots between file systems.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    heads: BTreeMap<String, Files>,
    snapshots: BTreeMap<u64, Files>,
}

/// A change of a pool's disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The last disk replaces the first, or joins it if the first is alone.
    Joins,
    /// The same by a sequential rebuild.
    IsRebuilt,
    /// The first disk is away for a while.
    IsAway,
    /// The first vdev leaves.
    Leaves,
    /// The first vdev gets the last disk.
    Grows,
    /// Everything is verified.
    IsScrubbed,
}

/// Disks and their change, and the disks then dispensable.
struct Case {
    vdevs: &'static [Vdev],
    event: Event,
    gone: &'static [usize],
}

const SINGLE: &[Vdev] = &[(Disk, 0, 1, Normal)];
const MIRROR: &[Vdev] = &[(Mirror, 0, 2, Normal)];
const RAIDZ1: &[Vdev] = &[(Raidz, 1, 3, Normal)];
const RAIDZ2: &[Vdev] = &[(Raidz, 2, 4, Normal)];
const DRAID: &[Vdev] = &[(Draid, 1, 4, Normal)];
const BESIDE_SPECIAL: &[Vdev] = &[(Mirror, 0, 2, Normal), (Mirror, 0, 2, Special)];
const SPECIAL: &[Vdev] = &[(Mirror, 0, 2, Special), (Mirror, 0, 2, Normal)];
const DISKS: &[Vdev] = &[(Disk, 0, 1, Normal), (Disk, 0, 1, Normal), (Disk, 0, 1, Normal)];
const MIRRORS: &[Vdev] = &[(Mirror, 0, 2, Normal), (Disk, 0, 1, Normal), (Mirror, 0, 2, Normal)];

const CASES: &[Case] = &[
    Case { vdevs: SINGLE, event: Event::Joins, gone: &[0] },
    Case { vdevs: SINGLE, event: Event::IsRebuilt, gone: &[0] },
    Case { vdevs: MIRROR, event: Event::Joins, gone: &[0, 1] },
    Case { vdevs: MIRROR, event: Event::IsRebuilt, gone: &[0, 1] },
    Case { vdevs: MIRROR, event: Event::IsAway, gone: &[1] },
    Case { vdevs: RAIDZ1, event: Event::Joins, gone: &[0, 1] },
    Case { vdevs: RAIDZ1, event: Event::IsAway, gone: &[2] },
    Case { vdevs: RAIDZ1, event: Event::Grows, gone: &[1] },
    Case { vdevs: RAIDZ2, event: Event::Joins, gone: &[0, 1, 2] },
    Case { vdevs: RAIDZ2, event: Event::IsAway, gone: &[1, 2] },
    Case { vdevs: RAIDZ2, event: Event::Grows, gone: &[0, 3] },
    Case { vdevs: DRAID, event: Event::Joins, gone: &[0, 1] },
    Case { vdevs: DRAID, event: Event::IsRebuilt, gone: &[0, 1] },
    Case { vdevs: BESIDE_SPECIAL, event: Event::Joins, gone: &[0, 1] },
    Case { vdevs: SPECIAL, event: Event::Joins, gone: &[0, 1] },
    Case { vdevs: SPECIAL, event: Event::IsAway, gone: &[1] },
    Case { vdevs: DISKS, event: Event::Leaves, gone: &[0] },
    Case { vdevs: MIRRORS, event: Event::Leaves, gone: &[0, 1, 3] },
    Case { vdevs: MIRROR, event: Event::IsScrubbed, gone: &[1] },
];

fn case_of(rng: &mut Rng) -> usize {
    rng.below(CASES.len() as u64) as usize
}

fn run(seed: u64) {
    let mut rng = Rng::stream(seed, 11);
    let case = &CASES[case_of(&mut rng)];
    let layout = Layout { vdevs: case.vdevs.to_vec(), sector_bytes: 512, spares: 0 };
    let what = format!("{:?} {:?}", case.vdevs, case.event);
    let left =
        simulate(seed, async |rt| History::begin(&rt, &layout, case.event, &mut rng).await.run().await);
    simulate(seed, async |rt| end::check(&rt, &layout, &left, case.gone).await)
        .unwrap_or_else(|why| panic!("{what}: {why}\n{}", left.log.join("\n")));
}

/// Runs the cases of some events, by default each case once.
fn on_events(test: &str, events: &[Event]) {
    let cases: Vec<usize> = (0..CASES.len()).filter(|case| events.contains(&CASES[*case].event)).collect();
    let all = number("CENOTE_HISTORIES").unwrap_or(CASES.len() as u64);
    let runs = (all * cases.len() as u64).div_ceil(CASES.len() as u64);
    on_kinds(test, runs, &cases, |seed| case_of(&mut Rng::stream(seed, 11)), run);
}

#[test]
fn blocks_that_change_their_owners_while_a_disk_joins_are_not_lost() {
    on_events("blocks_that_change_their_owners_while_a_disk_joins_are_not_lost", &[Event::Joins]);
}

#[test]
fn blocks_that_change_their_owners_while_a_disk_is_rebuilt_are_not_lost() {
    on_events("blocks_that_change_their_owners_while_a_disk_is_rebuilt_are_not_lost", &[Event::IsRebuilt]);
}

#[test]
fn blocks_that_change_their_owners_while_a_disk_is_away_are_not_lost() {
    on_events("blocks_that_change_their_owners_while_a_disk_is_away_are_not_lost", &[Event::IsAway]);
}

#[test]
fn blocks_that_change_their_owners_while_a_vdev_changes_or_is_scrubbed_are_not_lost() {
    let test = "blocks_that_change_their_owners_while_a_vdev_changes_or_is_scrubbed_are_not_lost";
    on_events(test, &[Event::Leaves, Event::Grows, Event::IsScrubbed]);
}
