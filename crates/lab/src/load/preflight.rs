//! Refuses hopeless plans before anything is written: contradictory options, too little space, or a missing
//! program.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::load::machine::zpool::Zpool;
use crate::load::program;
use crate::load::recovery::Engine;
use crate::load::suite::{Plan, Work};
use crate::load::target::{Target, TargetKind};
use crate::unit::Unit;
use crate::{LabError, Result};

/// Left free beside the test files for the file system's metadata.
const SPARE_BYTES: u64 = 16 << 20;
/// OpenZFS refuses smaller vdevs.
const LEAST_DISK_BYTES: u64 = 64 << 20;
/// Cenote mounts its pools through this device.
const FUSE: &str = "/dev/fuse";
/// bonnie++ counts in mebibytes.
const LEAST_BONNIE_BYTES: u64 = 1 << 20;

/// Checks a plan for these targets. Writes nothing.
///
/// # Errors
/// The plan cannot work; the text gives the reason and a remedy.
pub fn check(plan: &Plan, targets: &[Target]) -> Result<()> {
    check_with(plan, targets, || Zpool::find().map(drop))
}

/// `module` checks that the OpenZFS module is available.
fn check_with(plan: &Plan, targets: &[Target], module: impl Fn() -> Result<()>) -> Result<()> {
    options(plan)?;
    for work in plan.tests.iter().map(|test| &test.work) {
        able(work, plan.options.real, &module)?;
        if let Some(target) = targets.iter().find(|t| t.kind != TargetKind::Folder && needs_folder(work)) {
            let shown = target.path.display();
            return Err(LabError::Refused(format!("{shown}: this work creates files, so it needs a folder")));
        }
    }
    room(plan, targets)
}

/// Refuses option values that measure nothing.
fn options(plan: &Plan) -> Result<()> {
    let options = &plan.options;
    let misused = |what: String| Err(LabError::Misused(what));
    if options.seconds == Some(0) {
        return misused("--seconds 0 measures nothing; give 1 or more".into());
    }
    if options.repeats == Some(0) {
        return misused("--repeats 0 measures nothing; give 1 or more".into());
    }
    let Some(size) = options.size_bytes else { return Ok(()) };
    let least =
        plan.tests.iter().filter_map(|test| Some((least_bytes(&test.work)?, test))).max_by_key(|l| l.0);
    match least {
        Some((least, test)) if size < least => misused(format!(
            "--size {}: {} needs at least {}, a block for each of its workers",
            Unit::Bytes.show(size as f64),
            test.name,
            Unit::Bytes.show(least as f64)
        )),
        _ => Ok(()),
    }
}

fn least_bytes(work: &Work) -> Option<u64> {
    match work {
        Work::Io(jobs) => {
            let each = |job: &crate::load::job::Job| {
                let sizes = &job.block_sizes;
                u64::from(sizes.read.largest().max(sizes.write.largest())) * u64::from(job.workers.max(1))
            };
            jobs.0.iter().map(each).max()
        }
        Work::Bonnie(_) => Some(LEAST_BONNIE_BYTES),
        Work::Recovery(recovery) if recovery.devices.is_empty() => Some(LEAST_DISK_BYTES),
        _ => None,
    }
}

fn able(work: &Work, real: bool, module: &impl Fn() -> Result<()>) -> Result<()> {
    let needs = |program: &str| match program::find(&[program]) {
        Some(_) => Ok(()),
        None => Err(LabError::Refused(format!(
            "{program} is not installed (package {program}); without --real, Cenote does the work itself"
        ))),
    };
    match work {
        Work::Recovery(recovery) => match recovery.engine {
            Engine::Module => module().map_err(|error| {
                LabError::Refused(format!(
                    "recovery creates pools with OpenZFS's own programs and kernel module, which cannot be \
                     used here: {error}; with --engine cenote, Cenote holds them itself"
                ))
            }),
            Engine::Cenote if Path::new(FUSE).exists() => Ok(()),
            Engine::Cenote => Err(LabError::Refused(format!(
                "recovery fills pools through a mount, and {FUSE} is not there; load the kernel's module fuse"
            ))),
        },
        Work::Io(jobs) => {
            let wrong = |job: &crate::load::job::Job| Some((job.name.clone(), job.contradiction()?));
            match jobs.0.iter().find_map(wrong) {
                Some((name, what)) => Err(LabError::Refused(format!("job {name}: {what}"))),
                None if real => needs("fio"),
                None => Ok(()),
            }
        }
        Work::Bonnie(_) if real => needs("bonnie++"),
        _ => Ok(()),
    }
}

fn needs_folder(work: &Work) -> bool {
    match work {
        Work::Io(_) => false,
        Work::Scan(scan) => scan.tree.is_some(),
        Work::Tree(_) | Work::Bonnie(_) | Work::Recovery(_) => true,
    }
}

#[derive(Debug, Default)]
struct Room {
    needed: u64,
    free: u64,
    targets: Vec<String>,
}

/// All test files of a plan exist at once, and targets on one file system share its free space.
fn room(plan: &Plan, targets: &[Target]) -> Result<()> {
    let mut rooms: BTreeMap<u64, Room> = BTreeMap::new();
    for target in targets {
        let path = &target.path;
        let metadata = fs::metadata(path).map_err(LabError::io(path.display().to_string()))?;
        let needed = match target.kind {
            TargetKind::Folder => all_files(plan),
            TargetKind::File => end(plan).saturating_sub(metadata.len()),
            TargetKind::Device => {
                fits(plan, path)?;
                continue;
            }
        };
        let room = rooms.entry(metadata.dev()).or_default();
        room.needed = room.needed.saturating_add(needed);
        room.free = free(path)?;
        room.targets.push(path.display().to_string());
    }
    for room in rooms.values().filter(|room| room.needed > 0) {
        if room.needed.saturating_add(SPARE_BYTES) > room.free {
            return Err(LabError::Refused(too_little(plan, room)));
        }
    }
    Ok(())
}

/// Bytes of all files of all tests; tests that use the same file names share them.
fn all_files(plan: &Plan) -> u64 {
    let mut files: BTreeMap<String, u64> = BTreeMap::new();
    for needed in plan.tests.iter().flat_map(|test| test.work.needs()) {
        let bytes = files.entry(needed.name).or_default();
        *bytes = needed.bytes.max(*bytes);
    }
    files.values().copied().fold(0, u64::saturating_add)
}

/// Last byte that any test uses of one shared file or device.
fn end(plan: &Plan) -> u64 {
    plan.tests.iter().flat_map(|test| test.work.needs()).map(|needed| needed.bytes).max().unwrap_or(0)
}

fn fits(plan: &Plan, device: &Path) -> Result<()> {
    let shown = device.display();
    let file = fs::File::open(device).map_err(LabError::io(shown.to_string()))?;
    let length = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0));
    let length = length.map_err(|e| LabError::io(shown.to_string())(e.into()))?;
    let end = end(plan);
    if end <= length {
        return Ok(());
    }
    Err(LabError::Refused(format!(
        "{shown} has {}, but the tests need {} of it; nothing was written. Use a smaller --size",
        Unit::Bytes.show(length as f64),
        Unit::Bytes.show(end as f64)
    )))
}

/// Bytes free to users of the file system at `path`.
fn free(path: &Path) -> Result<u64> {
    let said = rustix::fs::statvfs(path).map_err(std::io::Error::from);
    let said = said.map_err(LabError::io(path.display().to_string()))?;
    Ok(said.f_bavail.saturating_mul(said.f_frsize))
}

fn too_little(plan: &Plan, room: &Room) -> String {
    let show = |bytes: u64| Unit::Bytes.show(bytes as f64);
    let (verb, share) = match room.targets.len() {
        1 => ("needs", ""),
        _ => ("share a file system and need", " together"),
    };
    let size = plan.tests.iter().filter_map(|test| test.work.data_bytes()).max().unwrap_or(0);
    // Half of the maximum, because free space changes.
    let part = u128::from(size) * u128::from(room.free / 2) / u128::from(room.needed.max(1));
    let mib = (part >> 20) as u64;
    let help = if mib > 0 { format!("--size {mib}M would fit") } else { "choose another target".into() };
    format!(
        "{} {verb} {} for test files{share}, but only {} are free; nothing was written: {help}",
        room.targets.join(" and "),
        show(room.needed),
        show(room.free)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;
    use crate::load::suite::{Options, bonnie, depth, pools, recovery, vm};

    fn target(dir: &Path) -> Target {
        Target { name: "a".into(), path: dir.to_owned(), kind: TargetKind::Folder }
    }

    fn check_here(plan: &Plan, targets: &[Target]) -> Result<()> {
        check_with(plan, targets, || Ok(()))
    }

    fn sized(size: u64) -> Options {
        Options { size_bytes: Some(size), memory_bytes: 1 << 30, ..Options::default() }
    }

    #[test]
    fn every_suite_refuses_a_data_set_that_does_not_fit_before_writing() {
        let dir = tempfile::tempdir().unwrap();
        let options = sized(1 << 60);
        let plans = [
            pools::plan(&options, 1),
            vm::plan(&options, 1),
            depth::plan(&options, 1),
            bonnie::plan(&options, 1),
            recovery::plan(&options, &[]),
        ];
        for plan in plans {
            let refused = check_here(&plan, &[target(dir.path())]).unwrap_err().to_string();
            assert!(refused.contains("nothing was written") && refused.contains("--size"), "{refused}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{}", plan.suite);
        }
        check_here(&pools::plan(&sized(8 << 20), 1), &[target(dir.path())]).unwrap();
    }

    #[test]
    fn targets_on_one_file_system_share_its_space() {
        let dir = tempfile::tempdir().unwrap();
        let third = free(dir.path()).unwrap() / 3;
        // The files of one worker, and those of four: two data sets.
        let plan = pools::plan(&sized(third), 2);
        assert!(check_here(&plan, &[target(dir.path())]).is_ok());
        let refused = check_here(&plan, &[target(dir.path()), target(dir.path())]).unwrap_err().to_string();
        assert!(refused.contains("share a file system"), "{refused}");
    }

    #[test]
    fn options_that_measure_nothing_are_misuse() {
        let dir = tempfile::tempdir().unwrap();
        let targets = [target(dir.path())];
        let misused = |plan: &Plan| match check_here(plan, &targets) {
            Err(LabError::Misused(what)) => what,
            other => panic!("{other:?}"),
        };
        for (size, least) in [(0, "1.00 MiB"), (4095, "1.00 MiB"), ((1 << 20) - 1, "1.00 MiB")] {
            assert!(misused(&pools::plan(&sized(size), 1)).contains(least));
        }
        assert!(misused(&depth::plan(&sized(4095), 1)).contains("4.00 KiB"));
        assert!(misused(&bonnie::plan(&sized(512), 1)).contains("1.00 MiB"));
        assert!(misused(&recovery::plan(&sized(1 << 20), &[])).contains("64.0 MiB"));
        let none = |repeats, seconds| Options { repeats, seconds, ..Options::default() };
        assert!(misused(&pools::plan(&none(Some(0), None), 1)).contains("--repeats 0"));
        assert!(misused(&pools::plan(&none(None, Some(0)), 1)).contains("--seconds 0"));
    }

    #[test]
    fn recovery_needs_the_module_and_says_so_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let absent = || {
            Err(LabError::Program { program: "zpool".into(), what: "the ZFS module is not loaded".into() })
        };
        let plan = recovery::plan(&Options { quick: true, ..Options::default() }, &[]);
        let refused = check_with(&plan, &[target(dir.path())], absent).unwrap_err().to_string();
        assert!(refused.contains("kernel module") && refused.contains("not loaded"), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
