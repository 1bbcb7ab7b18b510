//! Suite `scan`: how long does it take to stat every file, with cold and with warm caches? (report 000)
//!
//! It scans the existing files, or a new tree of a given number of files: with the lab's own walk, with `fd`
//! and `stat`, and with `cenote scan` on the pool's devices, if they can be read.

use super::{Options, Plan, Test, Work};
use crate::load::tree::{Leaf, Names, Shape};
use crate::load::walk::{Cache, PoolScan, Scan, ScanTool};

const REPEATS: u32 = 3;
/// Threads of the walk: more than processors, because a cold scan mostly waits for disks.
const THREADS: u32 = 16;
/// Files per folder of a created tree.
const PER_FOLDER: u32 = 100;
const DEPTH: u32 = 2;
const FILE_BYTES: u64 = 4096;

/// The plan. `files` is the size of the tree to create; None scans existing files. `pools` are targets whose
/// datasets can be scanned on their devices.
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
        ("walk", "Cenote's parallel walk", ScanTool::Walk { threads: THREADS }),
        ("fd", "fd with stat on every file", ScanTool::Fd),
    ];
    // A tree just created is in the lab's folder; a scan of the devices would find the whole dataset.
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
        Some(files) => format!("A tree of {files} files is created and scanned"),
        None => "All existing files are scanned; nothing is written among them".into(),
    };
    Plan {
        suite: "scan".into(),
        title: "Full metadata scans".into(),
        method: format!(
            "How long does it take to find every file and its size? {what}; each tool writes its list to a \
             file elsewhere. Before a cold scan, dirty data are flushed and the caches dropped, if \
             permitted; before a warm one, the same scan runs once unmeasured. Other file systems mounted \
             below are not entered, and symbolic links are not followed."
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
    fn pools_are_scanned_on_their_devices_only_without_a_new_tree() {
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
