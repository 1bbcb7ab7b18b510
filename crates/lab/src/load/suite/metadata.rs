//! Suite `metadata`: how fast are files and folders created and copied, and how much must be read meanwhile?
//! (report 001)
//!
//! Seven tests of fixed duration: creating empty folders, empty files, files of 4 KiB and of 4096 KiB;
//! copying trees of empty folders, of empty files and of 4 KiB files as rsync does.

use super::{Options, Plan, Test, Work};
use crate::load::tree::{Leaf, Names, Order, Shape, Step, TreeWork, Verb};

const SECONDS: u64 = 60;
/// Seven tests of 5 s, three trees prepared in at most 5 s each, and deleting all, which on a busy disk takes
/// several times as long as creating: under four minutes in total.
const QUICK_SECONDS: u64 = 5;
const REPEATS: u32 = 3;
const WORKERS: u32 = 4;
/// Number of 4096 KiB files in a quick run: unwritten data must not take minutes to flush afterwards.
const QUICK_LARGE_FILES: u64 = 512;
/// Leaves per folder.
const PER_FOLDER: u32 = 1000;
const DEPTH: u32 = 2;
/// Leaves of a tree to copy.
const COPIED_LEAVES: u64 = 1_000_000;
const QUICK_COPIED_LEAVES: u64 = 20_000;

/// Plan for a number of targets.
pub fn plan(options: &Options, targets: usize) -> Plan {
    let in_turn = if options.together { 1 } else { targets.max(1) as u64 };
    let own = if options.quick { (QUICK_SECONDS / in_turn).max(2) } else { SECONDS };
    let seconds = options.seconds.unwrap_or(own).max(1);
    let repeats = options.repeats.unwrap_or(if options.quick { 1 } else { REPEATS }).max(1);
    let copied = if options.quick { QUICK_COPIED_LEAVES } else { COPIED_LEAVES };
    let large = if options.quick { QUICK_LARGE_FILES } else { u64::MAX };
    let kib = |kib: u64| Leaf::File { bytes: kib << 10 };
    let tests = vec![
        create("create-folders", "Creates empty folders", Leaf::Folder, u64::MAX, seconds),
        create("create-files", "Creates empty files", kib(0), u64::MAX, seconds),
        create("create-files-4k", "Creates 4 KiB files", kib(4), u64::MAX, seconds),
        create("create-files-4m", "Creates 4096 KiB files", kib(4096), large, seconds),
        copy("rsync-folders", "Copies a tree of empty folders as rsync does", Leaf::Folder, copied, seconds),
        copy("rsync-files", "Copies a tree of empty files as rsync does", kib(0), copied, seconds),
        copy("rsync-files-4k", "Copies a tree of 4 KiB files as rsync does", kib(4), copied, seconds),
    ];
    let quick = match options.quick {
        true => " This is a quick run: shorter tests, smaller trees to copy, one repeat by default.",
        false => "",
    };
    Plan {
        suite: "metadata".into(),
        title: "Metadata operations".into(),
        method: format!(
            "How fast are files and folders created and copied, and how much must be read from disks \
             meanwhile? {WORKERS} workers run each test for {seconds} s, in folders of {PER_FOLDER} entries. \
             A tree to copy has {copied} leaves, or as many as can be created in {seconds} s, and is copied \
             repeatedly until the time is up. Disk reads are those of the file system's device, or of all \
             disks if it has none of its own (pools). Data still in memory at the end are then flushed, and \
             the time for that is given separately.{quick}"
        ),
        options: options.clone(),
        repeats,
        tests,
    }
}

fn shape(leaf: Leaf, count: u64) -> Shape {
    Shape { leaf, count, per_folder: PER_FOLDER, depth: DEPTH, names: Names::Sequential, seed: 1 }
}

fn test(name: &str, about: &str, shape: Shape, steps: Vec<Step>) -> Test {
    Test {
        name: name.into(),
        about: about.into(),
        work: Work::Tree(TreeWork { shape, workers: WORKERS, steps }),
    }
}

fn create(name: &str, about: &str, leaf: Leaf, count: u64, seconds: u64) -> Test {
    let step = Step { seconds: Some(seconds), ..Step::measured(Verb::Create, Order::Sequential) };
    test(name, about, shape(leaf, count), vec![step])
}

fn copy(name: &str, about: &str, leaf: Leaf, leaves: u64, seconds: u64) -> Test {
    let for_seconds = |verb| Step { seconds: Some(seconds), ..Step::measured(verb, Order::Sequential) };
    let prepare = Step { measured: false, ..for_seconds(Verb::Create) };
    test(name, about, shape(leaf, leaves), vec![prepare, for_seconds(Verb::Copy)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(plan: &Plan) -> u64 {
        let steps = plan.tests.iter().flat_map(|test| match &test.work {
            Work::Tree(tree) => tree.steps.clone(),
            _ => Vec::new(),
        });
        u64::from(plan.repeats) * steps.filter_map(|step| step.seconds).sum::<u64>()
    }

    #[test]
    fn a_quick_run_leaves_most_of_its_four_minutes_for_deleting() {
        let quick = Options { quick: true, ..Options::default() };
        for targets in 1..=4 {
            assert!(seconds(&plan(&quick, targets)) * targets as u64 <= 80, "{targets} targets");
        }
        let full = plan(&Options::default(), 1);
        assert_eq!((full.tests.len(), full.repeats, seconds(&full)), (7, 3, 3 * 10 * 60));
    }

    #[test]
    fn options_override_defaults() {
        let chosen = Options { quick: true, seconds: Some(3), repeats: Some(2), ..Options::default() };
        let plan = plan(&chosen, 1);
        assert_eq!((plan.repeats, seconds(&plan)), (2, 2 * 10 * 3));
        assert!(plan.method.contains("for 3 s"), "{}", plan.method);
    }
}
