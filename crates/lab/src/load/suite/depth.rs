//! Suite `depth`: how many operations in flight can a target use?
//!
//! One worker reads, then writes, 4 KiB at random offsets with 1, 2, 4 ... 128 operations in flight. Beyond
//! some depth, which only such a sweep finds, more bring longer waits and no throughput.

use super::io::{About, Defaults, Shape, Sizes};
use super::{Options, Plan};

/// Data set of a full run.
const SIZE_BYTES: u64 = 8 << 30;
/// Data set of a quick run.
const QUICK_BYTES: u64 = 1 << 30;
const SECONDS: u64 = 10;
const REPEATS: u32 = 3;
const BLOCK_BYTES: u32 = 4096;
const DEPTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

const ABOUT: About = About {
    suite: "depth",
    title: "Throughput by queue depth",
    question: "How many operations in flight can this storage use? One worker keeps a number of operations \
        in flight, with O_DIRECT, for a fixed time; only that number differs between tests.",
};

/// Plan for a number of targets.
pub fn plan(options: &Options, targets: usize) -> Plan {
    let kinds = [("rand-read-4k", "Random read", 100), ("rand-write-4k", "Random write", 0)];
    let mut named = Vec::new();
    for (name, about, read_percent) in kinds {
        for depth in DEPTHS {
            let shape = Shape::random(read_percent, BLOCK_BYTES, 1, depth);
            let at_once = if depth == 1 {
                "one operation at a time".into()
            } else {
                format!("{depth} operations in flight")
            };
            named.push((format!("{name}-{depth}"), format!("{about}, 4 KiB, one worker, {at_once}"), shape));
        }
    }
    let tests: Vec<(&str, &str, Shape)> =
        named.iter().map(|(n, a, shape)| (n.as_str(), a.as_str(), *shape)).collect();
    let own =
        Defaults { size_bytes: SIZE_BYTES, quick_bytes: QUICK_BYTES, seconds: SECONDS, repeats: REPEATS };
    Sizes::choose(options, targets, &tests, own).plan(options, ABOUT, &tests)
}
