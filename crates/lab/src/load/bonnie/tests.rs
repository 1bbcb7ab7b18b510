//! Both implementations of bonnie's tests.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use super::*;

const PHASES: [&str; 10] = [
    "write",
    "rewrite",
    "read",
    "seek",
    "sequential-create",
    "sequential-stat",
    "sequential-delete",
    "random-create",
    "random-stat",
    "random-delete",
];

fn bonnie(real: bool) -> Bonnie {
    Bonnie {
        size_bytes: 4 << 20,
        block_bytes: 8192,
        seeks: 100,
        seekers: 3,
        files: 1024,
        seed: 1,
        fits_in_memory: false,
        real,
    }
}

#[test]
fn each_phase_completes_and_leaves_the_folder_empty() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = bonnie(false).run(dir.path(), &Control::default()).unwrap();
    let names: Vec<&str> = outcome.streams.iter().map(|stream| stream.operation.as_str()).collect();
    assert_eq!(names, PHASES);
    let counts: Vec<(u64, u64)> = outcome.streams.iter().map(|s| (s.operations, s.bytes)).collect();
    let (blocks, files) = ((512, 4 << 20), (1024, 0));
    assert_eq!(counts[..4], [blocks, blocks, blocks, (100, 100 * 8192)]);
    assert!(counts[4..].iter().all(|&count| count == files));
    assert!(outcome.others.iter().any(|figure| figure.name == "random-delete.cpu"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_real_one_gives_the_same_phases() {
    if crate::load::program::find(&["bonnie++"]).is_none() {
        eprintln!("skipped: bonnie++ is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let outcome = bonnie(true).run(dir.path(), &Control::default()).unwrap();
    assert_eq!(outcome.tool.name, "bonnie++");
    for phase in PHASES {
        // Most phases are too fast for it to give a number; then a note says so.
        let measured = outcome.streams.iter().any(|stream| stream.operation == phase);
        assert!(measured || outcome.notes.iter().any(|note| note.starts_with(phase)), "{phase}: {outcome:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_data_set_that_does_not_fit_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let refused = Bonnie { size_bytes: 1 << 60, ..bonnie(false) }.run(dir.path(), &Control::default());
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("1.00 EiB") && said.contains("--size"), "{said}");
    let control = Control::default();
    control.stop();
    assert!(matches!(bonnie(false).run(dir.path(), &control), Err(crate::LabError::Interrupted)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
