//! Suite `pools`: how do these pools compare? (report 004)
//!
//! Five tests, all bypassing the page cache: sequential write and read in 1 MiB operations; random 4 KiB read
//! and write by four workers with 32 operations in flight each; and 70 % reads with 30 % writes of 256 KiB by
//! four workers with 16 in flight each.

use super::io::{About, Defaults, Shape, Sizes};
use super::{Options, Plan};

/// Data set of a full run.
const SIZE_BYTES: u64 = 8 << 30;
/// Data set of a quick run.
const QUICK_BYTES: u64 = 1 << 30;
const SECONDS: u64 = 30;
/// Fewer than four repeats cannot support any difference.
const REPEATS: u32 = 5;

const ABOUT: About = About {
    suite: "pools",
    title: "Storage comparison",
    question: "How do these targets compare, and what should run where? Each test runs for a fixed time with \
        O_DIRECT and writes incompressible data.",
};

/// Plan for a number of targets.
pub fn plan(options: &Options, targets: usize) -> Plan {
    let tests = [
        (
            "seq-write-1m",
            "Sequential write, 1 MiB, one worker, one operation at a time",
            Shape::sequential(0, 1 << 20),
        ),
        (
            "seq-read-1m",
            "Sequential read, 1 MiB, one worker, one operation at a time",
            Shape::sequential(100, 1 << 20),
        ),
        (
            "rand-read-4k",
            "Random read, 4 KiB, four workers, 32 operations in flight each",
            Shape::random(100, 4096, 4, 32),
        ),
        (
            "rand-write-4k",
            "Random write, 4 KiB, four workers, 32 operations in flight each",
            Shape::random(0, 4096, 4, 32),
        ),
        (
            "mixed-256k",
            "Random 70 % read and 30 % write, 256 KiB, four workers, 16 operations in flight each",
            Shape::random(70, 256 << 10, 4, 16),
        ),
    ];
    let own =
        Defaults { size_bytes: SIZE_BYTES, quick_bytes: QUICK_BYTES, seconds: SECONDS, repeats: REPEATS };
    Sizes::choose(options, targets, &tests, own).plan(options, ABOUT, &tests)
}
