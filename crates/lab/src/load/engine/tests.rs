//! The engine follows the job: number of operations, bytes, offsets, and order.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::fs;
use std::path::Path;

use super::{WorkFiles, run, run_with};
use crate::LabError;
use crate::load::control::Control;
use crate::load::job::{BlockSizes, Job, Jobs, Method, Pattern, ReadWrite};
use crate::load::measurement::{Outcome, Stream};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const READ: Pattern = Pattern { random: false, read_percent: 100 };
const WRITE: Pattern = Pattern { random: false, read_percent: 0 };
const RANDOM_READ: Pattern = Pattern { random: true, read_percent: 100 };
const RANDOM_WRITE: Pattern = Pattern { random: true, read_percent: 0 };

/// A job of 1 MiB in 4 KiB blocks, up to 8 in flight.
fn job(pattern: Pattern) -> Job {
    Job { pattern, size_bytes: MIB, queue_depth: 8, method: Method::IoUring, group: true, ..Job::default() }
}

fn done(folder: &Path, jobs: Vec<Job>) -> Outcome {
    run(&Jobs(jobs), &WorkFiles::Folder(folder.into()), &Control::default()).unwrap()
}

fn failed(place: WorkFiles, job: Job) -> LabError {
    run(&Jobs(vec![job]), &place, &Control::default()).unwrap_err()
}

fn stream<'a>(outcome: &'a Outcome, name: &str) -> &'a Stream {
    outcome.streams.iter().find(|stream| stream.operation == name).unwrap()
}

/// Runs the job with rings, with threads in place of rings, and on one thread.
fn each_way(job: Job, check: impl Fn(&Outcome, &Path)) {
    for (method, rings) in [(Method::IoUring, true), (Method::IoUring, false), (Method::Threads, false)] {
        let dir = tempfile::tempdir().unwrap();
        let jobs = Jobs(vec![Job { method, ..job.clone() }]);
        let outcome =
            run_with(&jobs, &WorkFiles::Folder(dir.path().into()), &Control::default(), rings).unwrap();
        let refused = outcome.notes.iter().any(|note| note.contains("no io_uring"));
        assert_eq!(refused, method == Method::IoUring && !rings, "{:?}", outcome.notes);
        check(&outcome, dir.path());
    }
}

#[test]
fn each_worker_writes_each_block_once_and_correctly() {
    for pattern in [WRITE, RANDOM_WRITE] {
        each_way(Job { workers: 2, verify: true, ..job(pattern) }, |outcome, folder| {
            let write = stream(outcome, "write");
            assert_eq!((write.operations, write.bytes, write.errors), (512, 2 * MIB, 0));
            assert_eq!(write.latency.count(), 512);
            assert_eq!(write.seconds.iter().map(|second| second.bytes).sum::<u64>(), 2 * MIB);
            let read_back =
                outcome.notes.iter().filter(|note| note.contains("1.00 MiB of written data read back"));
            assert_eq!(read_back.count(), 2, "{:?}", outcome.notes);
            for file in ["job.0.0", "job.1.0"] {
                assert_eq!(fs::metadata(folder.join(file)).unwrap().len(), MIB);
            }
        });
    }
}

#[test]
fn a_mix_has_its_share_of_reads_of_existing_content() {
    each_way(
        Job { pattern: Pattern { random: true, read_percent: 70 }, direct: true, ..job(READ) },
        |outcome, folder| {
            let counts = |name| stream(outcome, name).operations;
            assert_eq!(counts("read") + counts("write"), 256);
            assert!((176..=182).contains(&counts("read")), "{} reads of 256", counts("read"));
            let content = fs::read(folder.join("job.0.0")).unwrap();
            assert!(
                content.chunks(512).all(|sector| sector.iter().any(|&byte| byte != 0)),
                "laid out before"
            );
        },
    );
}

#[test]
fn syncs_follow_each_number_of_writes_and_the_end() {
    let job = Job { fsync_every: 100, fdatasync_every: 64, end_fsync: true, ..job(WRITE) };
    each_way(job, |outcome, _| {
        assert_eq!(stream(outcome, "write").operations, 256);
        assert_eq!(stream(outcome, "sync").operations, 2 + 4 + 1);
        assert_eq!(stream(outcome, "sync").bytes, 0);
    });
}

#[test]
fn io_size_sets_the_amount_whatever_the_file_size() {
    for io_size_bytes in [MIB / 4, 3 * MIB] {
        each_way(Job { io_size_bytes: Some(io_size_bytes), ..job(RANDOM_READ) }, |outcome, folder| {
            assert_eq!(stream(outcome, "read").bytes, io_size_bytes);
            assert_eq!(fs::metadata(folder.join("job.0.0")).unwrap().len(), MIB);
        });
    }
}

#[test]
fn repeatedly_written_blocks_hold_the_last_write() {
    let sizes = BlockSizes(vec![(4096, 1), (16384, 1)]);
    let block_sizes = ReadWrite { read: sizes.clone(), write: sizes };
    let job = Job {
        size_bytes: 64 << 10,
        io_size_bytes: Some(8 * MIB),
        no_random_map: true,
        queue_depth: 32,
        verify: true,
        ..job(RANDOM_WRITE)
    };
    each_way(job.clone(), |outcome, _| assert_eq!(stream(outcome, "write").bytes, 8 * MIB));
    each_way(Job { block_sizes, ..job }, |outcome, _| assert!(stream(outcome, "write").bytes >= 8 * MIB));
}

#[test]
fn stonewall_waits_and_the_next_job_reads_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let shared = |name: &str, pattern| Job {
        name: name.into(),
        filename: Some("shared".into()),
        verify: true,
        stonewall: true,
        ..job(pattern)
    };
    let outcome = done(dir.path(), vec![shared("first", WRITE), shared("second", RANDOM_READ)]);
    let (first, second) = (stream(&outcome, "first/write"), stream(&outcome, "second/read"));
    assert_eq!((first.operations, second.operations), (256, 256));
    assert!(second.seconds[0].at_ns >= first.seconds[0].at_ns + first.runtime_ns);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "one file");
}

#[test]
fn without_stonewall_jobs_start_together() {
    let dir = tempfile::tempdir().unwrap();
    let named = |name: &str| Job { name: name.into(), ..job(WRITE) };
    let late = Job { start_delay_ns: 20 * MS, ..named("late") };
    let outcome = done(dir.path(), vec![named("first"), named("second"), late]);
    let began = |name: &str| stream(&outcome, name).seconds[0].at_ns;
    assert_eq!(began("first/write"), began("second/write"));
    assert_eq!(began("late/write"), began("first/write") + 20 * MS);
}

#[test]
fn damage_is_found_while_reading() {
    for method in [Method::IoUring, Method::Threads] {
        let dir = tempfile::tempdir().unwrap();
        let read = Job { verify: true, method, ..job(RANDOM_READ) };
        done(dir.path(), vec![read.clone()]);
        let path = dir.path().join("job.0.0");
        let mut content = fs::read(&path).unwrap();
        content[700_000] ^= 1;
        fs::write(&path, content).unwrap();
        match failed(WorkFiles::Folder(dir.path().into()), read) {
            LabError::Verify { path: found, offset, .. } => assert_eq!((found, offset), (path, 700_000)),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_runtime_ends_an_endless_job_and_a_ramp_does_not_count() {
    let job = Job {
        time_based: true,
        runtime_ns: Some(60 * MS),
        ramp_ns: 40 * MS,
        rate_iops: ReadWrite { read: Some(500), write: None },
        ..job(RANDOM_READ)
    };
    each_way(job, |outcome, _| {
        let read = stream(outcome, "read");
        assert!(read.runtime_ns >= 60 * MS);
        // At most what the rate allows, plus the permitted catch-up.
        let allowed = 500.0 * read.runtime_ns as f64 / 1e9 + 6.0;
        assert!(read.operations as f64 <= allowed, "{} operations, {allowed} allowed", read.operations);
        assert!(read.seconds[0].at_ns >= 40 * MS);
    });
}

#[test]
fn think_time_pauses_the_job() {
    each_way(Job { think_ns: 2 * MS, think_blocks: 32, ..job(WRITE) }, |outcome, _| {
        let write = stream(outcome, "write");
        assert_eq!(write.operations, 256);
        assert!(write.runtime_ns >= 7 * 2 * MS, "seven pauses between eight times 32 blocks");
    });
}

#[test]
fn a_stop_ends_the_run() {
    for (method, rings) in [(Method::IoUring, true), (Method::IoUring, false), (Method::Threads, true)] {
        let dir = tempfile::tempdir().unwrap();
        let endless = Job { time_based: true, runtime_ns: Some(u64::MAX / 4), method, ..job(RANDOM_READ) };
        let control = Control::default();
        let outcome = std::thread::scope(|scope| {
            let run =
                || run_with(&Jobs(vec![endless]), &WorkFiles::Folder(dir.path().into()), &control, rings);
            let running = scope.spawn(run);
            while control.seen().operations == 0 {
                std::thread::yield_now();
            }
            control.stop();
            running.join().unwrap()
        });
        assert!(matches!(outcome, Err(LabError::Interrupted)));
    }
}

#[test]
fn a_full_disk_is_reported_with_its_path_and_a_remedy() {
    for method in [Method::IoUring, Method::Threads] {
        let error =
            failed(WorkFiles::File("/dev/full".into()), Job { method, workers: 2, ..job(WRITE) }).to_string();
        assert!(
            error.contains("/dev/full: write of 4096 bytes") && error.contains("free some space"),
            "{error}"
        );
    }
}

#[test]
fn invalid_jobs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = || WorkFiles::Folder(dir.path().into());
    let shown = |place, job| failed(place, job).to_string();
    assert!(shown(folder(), Job { size_bytes: 0, ..job(READ) }).contains("size is missing"));
    assert!(shown(folder(), Job { time_based: true, ..job(READ) }).contains("time_based needs a runtime"));
    let shared = Job { filename: Some("one".into()), workers: 2, verify: true, ..job(WRITE) };
    assert!(shown(folder(), shared).contains("a file for each worker"));
    let gone = dir.path().join("gone");
    assert!(
        shown(WorkFiles::Folder(gone.clone()), job(READ)).contains(&format!("{}/job.0.0", gone.display()))
    );
    assert!(shown(WorkFiles::File(gone), job(READ)).contains("gone: cannot be used"));
}
