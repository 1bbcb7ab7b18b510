//! Recorded output of a real fio (`tests/recorded/fio`: version 3.33, with its job file), and the output of
//! the installed one, if any.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::path::{Path, PathBuf};

use super::{Report, failed, job_file, log, run};
use crate::load::control::Control;
use crate::load::engine::{self, WorkFiles};
use crate::load::job::{Job, Jobs, Method, Pattern};
use crate::load::program;

const MIX: Pattern = Pattern { random: true, read_percent: 70 };

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/fio").join(name)
}

#[test]
fn a_recorded_report_becomes_streams() {
    let report = Report::read(&recorded("output.json")).unwrap();
    assert_eq!(report.version(), "3.33");
    // usr 0 and 0 %, sys 2.67 and 1.23 % of 3 s each.
    let cpu = report.cpu();
    assert_eq!((cpu.user_ns, cpu.system_ns / 1_000_000), (0, 117));
    let workers = report.into_workers().unwrap();
    assert_eq!(workers.len(), 2);
    let job = Job { pattern: MIX, ..Job::default() };
    let streams = workers.into_iter().next().unwrap().into_streams(&job, Default::default());
    let shown = |at: usize| {
        let stream = &streams[at];
        (stream.operation.as_str(), stream.operations, stream.bytes, stream.runtime_ns / 1_000_000)
    };
    assert_eq!(shown(0), ("read", 600, 2_461_696, 3001));
    assert_eq!(shown(1), ("write", 300, 1_228_800, 3001));
    assert_eq!(shown(2), ("sync", 101, 0, 3001));
    // fio itself reports: min 1552, max 6223353, mean 274132, p50 173056.
    let latency = &streams[0].latency;
    assert_eq!((latency.min_ns(), latency.max_ns() / 10_000), (1552, 622));
    assert!((latency.mean_ns() / 274_132.0 - 1.0).abs() < 0.02, "{}", latency.mean_ns());
    assert!(
        (latency.percentile_ns(50.0) as f64 / 173_056.0 - 1.0).abs() < 0.02,
        "{}",
        latency.percentile_ns(50.0)
    );
}

#[test]
fn recorded_logs_become_seconds() {
    let began_unix_ms = 1_795_318_952_000;
    let seconds = log::read_all(&recorded("log"), &[(0, 0), (0, 1)], began_unix_ms).unwrap();
    let reads = &seconds[1].read;
    assert_eq!(reads.iter().map(|second| second.at_ns / 1_000_000).collect::<Vec<_>>(), [550, 1550, 2550]);
    assert!(reads.iter().all(|second| (199..=201).contains(&second.operations)), "{reads:?}");
    assert!(reads.iter().all(|second| (810_000..=830_000).contains(&second.bytes)), "{reads:?}");
    // The logged mean of its first second: 374 us.
    let write = &seconds[0].write[0];
    assert_eq!((write.operations, write.latency_sum_ns / write.operations / 1000), (100, 373));
}

#[test]
fn a_failed_job_is_an_error() {
    let text = std::fs::read_to_string(recorded("output.json")).unwrap().replacen(
        "\"error\" : 0",
        "\"error\" : 28",
        1,
    );
    let error = Report::parse(&text).unwrap().into_workers().unwrap_err().to_string();
    assert!(error.contains("job mixed: No space left on device"), "{error}");
    let error = Report::parse("fio: out of memory").unwrap_err().to_string();
    assert!(error.starts_with(&failed("unexpected report format").to_string()), "{error}");
}

#[test]
fn it_never_leaves_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let outside = Job { filename: Some("../other".into()), size_bytes: 1 << 20, ..Job::default() };
    assert!(run(&Jobs(vec![outside]), &WorkFiles::Folder(dir.path().into()), &Control::default()).is_err());
    let inside = Job { filename: Some("a".into()), ..Job::default() };
    let text = job_file(&Jobs(vec![inside]), &WorkFiles::Folder(dir.path().into())).unwrap();
    assert!(
        text.contains(&format!("directory={}\n", dir.path().display())) && text.contains("filename=a\n"),
        "{text}"
    );
}

#[test]
fn the_engine_and_fio_do_the_same() {
    if program::find(&["fio"]).is_none() {
        return eprintln!("skipped: fio is not installed");
    }
    let job = |pattern, name: &str| Job {
        name: name.into(),
        pattern,
        size_bytes: 1 << 20,
        workers: 2,
        queue_depth: 8,
        method: Method::IoUring,
        group: true,
        ..Job::default()
    };
    let write = Job { fsync_every: 32, ..job(Pattern { random: false, read_percent: 0 }, "write") };
    let read =
        Job { group: false, stonewall: true, ..job(Pattern { random: true, read_percent: 100 }, "read") };
    let jobs = Jobs(vec![write, read]);
    let streams =
        |run: fn(&Jobs, &WorkFiles, &Control) -> crate::Result<crate::load::measurement::Outcome>| {
            let dir = tempfile::tempdir().unwrap();
            let outcome = run(&jobs, &WorkFiles::Folder(dir.path().into()), &Control::default()).unwrap();
            assert!(outcome.cpu.is_some());
            let shown = outcome.streams.iter().map(|stream| {
                assert_eq!(stream.latency.count(), stream.operations, "{}", stream.operation);
                (stream.operation.clone(), stream.operations, stream.bytes)
            });
            shown.collect::<Vec<_>>()
        };
    let (ours, theirs) = (streams(engine::run), streams(run));
    let without_syncs = |all: &[(String, u64, u64)]| {
        all.iter().filter(|stream| !stream.0.ends_with("sync")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(without_syncs(&ours), without_syncs(&theirs));
    // fio's number of syncs depends on the operations in flight.
    let syncs = |all: &[(String, u64, u64)]| all.iter().find(|stream| stream.0 == "write/sync").unwrap().1;
    assert_eq!(syncs(&ours), 16);
    assert!(syncs(&theirs) > 0);
}

#[test]
fn a_stop_ends_the_run() {
    if program::find(&["fio"]).is_none() {
        return eprintln!("skipped: fio is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let control = Control::default();
    let job = Job {
        size_bytes: 1 << 20,
        time_based: true,
        runtime_ns: Some(1000 * 1_000_000_000),
        ..Job::default()
    };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&Jobs(vec![job]), &WorkFiles::Folder(dir.path().into()), &control));
        while !dir.path().join("job.0.0").exists() {
            std::thread::yield_now();
        }
        control.stop();
        assert!(matches!(running.join().unwrap(), Err(crate::LabError::Interrupted)));
    });
}

#[test]
fn notes_around_a_report_are_passed_over() {
    let report = std::fs::read_to_string(recorded("output.json")).unwrap();
    for text in [
        format!("fio: note {{ with a brace }} {{\n{report}"),
        format!("{report}fio: note after the report\n"),
        format!("{{\"note\": 1}}\n{report}\n{{ and more }}"),
    ] {
        assert_eq!(Report::parse(&text).unwrap().into_workers().unwrap().len(), 2);
    }
    assert!(Report::parse("fio: nothing at all").is_err());
}
