//! Suite `scan`: how long does a look at every file take, with nothing and with everything in memory? (report 000)
//!
//! The tree that is there is scanned, or, if a size was chosen, one of so many files that is made for it. By the walk of this program, by
//! `fd` with `stat`, and by `cenote scan` on the devices of the pool, where they can be read.

use super::{Options, Plan, Test, Work};
use crate::tree::{Leaf, Names, Shape};
use crate::walk::{Cache, PoolScan, Scan, ScanTool};

const REPEATS: u32 = 3;
/// Threads of the walk: more than processors, as a cold scan mostly waits for disks.
const THREADS: u32 = 16;
/// Files of a made tree, in a folder and in all of them.
const PER_FOLDER: u32 = 100;
const DEPTH: u32 = 2;
const FILE_BYTES: u64 = 4096;

/// The plan. `files`: how many files the tree has that is made to be scanned; None scans what is there. `pools`: targets whose
/// data sets can be scanned on their devices.
pub fn plan(options: &Options, files: Option<u64>, pools: &[PoolScan]) -> Plan {
    let repeats = options.repeats.unwrap_or(if options.quick { 1 } else { REPEATS }).max(1);
    let tree = files.map(|count| Shape {
        leaf: Leaf::File { bytes: FILE_BYTES },
        count,
        per_folder: PER_FOLDER,
        depth: DEPTH,
        names: Names::Random,
        seed: 1,
    });
    let mut tools = vec![
        ("walk", "the parallel walk of this program", ScanTool::Walk { threads: THREADS }),
        ("fd", "fd with stat of every file", ScanTool::Fd),
    ];
    // A tree made just now lies in a folder of ours; a scan of the devices would find all that the data set has.
    if !pools.is_empty() && tree.is_none() {
        tools.push((
            "pool",
            "cenote scan on the pool's devices, without the mount",
            ScanTool::Pool(pools.to_vec()),
        ));
    }
    let mut tests = Vec::new();
    for (cache, when) in [(Cache::Cold, "cold"), (Cache::Warm, "warm")] {
        for (name, by, tool) in &tools {
            tests.push(Test {
                name: format!("{name}-{when}"),
                about: format!("All metadata, {when}, by {by}"),
                work: Work::Scan(Scan { tool: tool.clone(), cache, tree }),
            });
        }
    }
    let what = match files {
        Some(files) => format!("A tree of {files} files made for it is scanned"),
        None => "All files that are there are scanned; nothing is written among them".into(),
    };
    Plan {
        suite: "scan".into(),
        title: "Full metadata scans".into(),
        method: format!(
            "How long does it take to find every file with its size? {what}; each tool writes the list to a file elsewhere. Before a cold scan all is \
             written out and the caches are dropped, where that is allowed; before a warm one the same scan is done once without being measured. Other file systems mounted below are not \
             entered, and symbolic links not followed."
        ),
        options: options.clone(),
        repeats,
        tests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plan: &Plan) -> Vec<&str> {
        plan.tests.iter().map(|test| test.name.as_str()).collect()
    }

    #[test]
    fn pools_are_scanned_on_their_devices_only_as_they_are() {
        let pool = PoolScan {
            target: "/tank".into(),
            program: "cenote".into(),
            arguments: PoolScan::arguments("tank"),
        };
        let options = Options::default();
        let expected = ["walk-cold", "fd-cold", "pool-cold", "walk-warm", "fd-warm", "pool-warm"];
        assert_eq!(names(&plan(&options, None, std::slice::from_ref(&pool))), expected);
        let made = plan(&options, Some(1000), &[pool]);
        assert_eq!(names(&made), ["walk-cold", "fd-cold", "walk-warm", "fd-warm"]);
        assert!(made.method.contains("1000 files"), "{}", made.method);
    }
}
