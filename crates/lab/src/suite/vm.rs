//! Suite `vm`: what does storage give to virtual machines, and what limits it? (report 002)
//!
//! 4 KiB random writes by four workers, a mix of 70 % reads and 30 % writes of 4 KiB by four workers with 16 at once, and sequential 1 MiB
//! writes; all past the page cache, with everything sampled meanwhile.

use super::io::{About, Defaults, Shape, Sizes};
use super::{Options, Plan};

/// Data set of a full run: as large as the volume in the report.
const SIZE_BYTES: u64 = 10 << 30;
/// Data set of a quick run.
const QUICK_BYTES: u64 = 1 << 30;
const SECONDS: u64 = 60;
/// Fewer than four can't support any difference.
const REPEATS: u32 = 5;

/// What it asks.
const ABOUT: About = About {
    suite: "vm",
    title: "Storage for virtual machines",
    question: "What does this storage give to virtual machines, and what limits it? Each test goes on for a fixed time with O_DIRECT; counters of disks, processors, network, caches and pressure are sampled meanwhile.",
};

/// The plan for so many targets.
pub fn plan(options: &Options, targets: usize) -> Plan {
    let tests = [
        (
            "rand-write-4k",
            "Random write, 4 KiB, four workers, one operation at a time each",
            Shape::random(0, 4096, 4, 1),
        ),
        (
            "mixed-4k",
            "Random 70 % read and 30 % write, 4 KiB, four workers, 16 operations at once each",
            Shape::random(70, 4096, 4, 16),
        ),
        (
            "sync-write-4k",
            "Random write, 4 KiB, one worker, each durable before the next (O_DSYNC): a database's log",
            Shape::random(0, 4096, 1, 1).durable(),
        ),
        (
            "seq-write-1m",
            "Sequential write, 1 MiB, one worker, one operation at a time",
            Shape::sequential(0, 1 << 20),
        ),
    ];
    let own =
        Defaults { size_bytes: SIZE_BYTES, quick_bytes: QUICK_BYTES, seconds: SECONDS, repeats: REPEATS };
    Sizes::choose(options, targets, tests.len() as u64, own).plan(options, ABOUT, &tests)
}
