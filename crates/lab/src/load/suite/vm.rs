//! Suite `vm`: how fast is storage for virtual machines, and which resource limits it? (report 002)
//!
//! Random 4 KiB writes by four workers; a mix of 70 % reads and 30 % writes of 4 KiB by four workers with 16
//! operations in flight each; and sequential 1 MiB writes. All bypass the page cache, and everything is
//! sampled meanwhile.

use super::io::{About, Defaults, Shape, Sizes};
use super::{Options, Plan};

/// Data set of a full run: as large as the volume in the report.
const SIZE_BYTES: u64 = 10 << 30;
/// Data set of a quick run.
const QUICK_BYTES: u64 = 1 << 30;
const SECONDS: u64 = 60;
/// Fewer than four repeats cannot support any difference.
const REPEATS: u32 = 5;

const ABOUT: About = About {
    suite: "vm",
    title: "Storage for virtual machines",
    question: "How fast is this storage for virtual machines, and what limits it? Each test runs for a fixed \
        time with O_DIRECT, while counters of disks, processors, network, caches and pressure are sampled.",
};

/// Plan for a number of targets.
pub fn plan(options: &Options, targets: usize) -> Plan {
    let tests = [
        (
            "rand-write-4k",
            "Random write, 4 KiB, four workers, one operation at a time each",
            Shape::random(0, 4096, 4, 1),
        ),
        (
            "mixed-4k",
            "Random 70 % read and 30 % write, 4 KiB, four workers, 16 operations in flight each",
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
    Sizes::choose(options, targets, &tests, own).plan(options, ABOUT, &tests)
}
