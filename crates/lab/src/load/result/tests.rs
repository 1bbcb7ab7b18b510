#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
//! Evidence is present, complete, exact and never overwritten; damage is reported.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;
use crate::load::job::Jobs;
use crate::load::measurement::{Figure, Measurement, Outcome, Second, Stream, Tool};
use crate::load::samples::{Kind, Missing, SampledHistogram, Samples, Series};
use crate::load::suite::{Options, Plan, Test, Work};
use crate::load::target::{Target, TargetKind};
use crate::unit::Unit;

fn plan() -> Plan {
    Plan {
        suite: "pools".into(),
        title: "Pools".into(),
        method: "Each test on each pool.".into(),
        options: Options { quick: true, ..Options::default() },
        repeats: 2,
        tests: vec![Test { name: "randread".into(), about: "reads".into(), work: Work::Io(Jobs::default()) }],
    }
}

fn targets() -> Vec<Target> {
    vec![Target { name: "tank/a b".into(), path: "/tank".into(), kind: TargetKind::Folder }]
}

fn stream(operation: &str, seed: u64) -> Stream {
    let mut stream = Stream {
        operation: operation.into(),
        operations: 3000 + seed,
        bytes: 3000 * 4096,
        runtime_ns: 3_000_000_001,
        errors: 1,
        latency: Default::default(),
        seconds: Vec::new(),
    };
    for n in 0..3000u64 {
        stream.latency.record(n.wrapping_mul(n).wrapping_mul(37 + seed) % 9_000_000_000);
    }
    for n in 0..3 {
        let at_ns = n * 1_000_000_000;
        stream.seconds.push(Second {
            at_ns,
            operations: 1000,
            bytes: 4096,
            latency_sum_ns: 77,
            latency_max_ns: n,
        });
    }
    stream
}

pub(super) fn run(repeat: u32) -> Run {
    let series = |subject: &str, points: Vec<(u64, f64)>| Series {
        source: "diskstats".into(),
        subject: subject.into(),
        name: "busy".into(),
        kind: Kind::Counter,
        unit: Unit::Nanoseconds,
        points,
    };
    let histogram = |name: &str, buckets| SampledHistogram {
        source: "iostat_latency".into(),
        subject: "tank".into(),
        name: name.into(),
        unit: Unit::Nanoseconds,
        buckets,
    };
    Run {
        measurement: Measurement {
            test: "randread".into(),
            target: "tank/a b".into(),
            repeat,
            started_unix_ns: 1_763_779_286_123_456_789,
            elapsed_ns: 3_100_000_000,
            outcome: Outcome {
                tool: Tool {
                    name: "cenote".into(),
                    version: "0.1.0".into(),
                    command: Some(format!("x {repeat}")),
                },
                cpu: None,
                streams: vec![stream("read", 1), stream("read", 2), stream("write", 3)],
                others: vec![Figure::lower("resilver.time", 0.1 + 0.2, Unit::Nanoseconds)],
                notes: vec!["O_DIRECT refused".into()],
            },
        },
        samples: Samples {
            series: vec![
                series("sda", vec![(0, 0.1), (100, 1e300), (u64::MAX, -0.0)]),
                series("sdb", vec![]),
                series("größe \"x\"\n", vec![(5, 1.0 / 3.0)]),
            ],
            histograms: vec![
                histogram("a", vec![(0.0, 1.0, 3), (1.0, 2.0, u64::MAX)]),
                histogram("b", vec![]),
            ],
            missing: vec![Missing { source: "smart".into(), why: "no smartctl".into() }],
        },
    }
}

fn add(recorder: &mut Recorder, run: Run) -> crate::Result<()> {
    recorder.add(run.measurement, run.samples)
}

fn machine() -> Value {
    json!({"cpu": "N100", "long": "x".repeat(5000)})
}

#[test]
fn results_read_back_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create_in(dir.path(), &plan(), &targets(), &machine()).unwrap();
    add(&mut recorder, run(1)).unwrap();
    add(&mut recorder, run(2)).unwrap();
    let folder = ResultFolder::open(recorder.path()).unwrap();
    let runs: Vec<Run> = folder.runs().map(|run| run.unwrap()).collect();
    assert_eq!(runs, [run(1), run(2)]);
    assert_eq!((folder.plan(), folder.targets(), folder.machine()), (&plan(), &targets()[..], &machine()));
    assert!(folder.name().starts_with("pools-2"), "{}", folder.name());
}

#[test]
fn an_interrupted_result_resumes_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(&dir.path().join("out"), &plan(), &targets(), &machine()).unwrap();
    add(&mut recorder, run(1)).unwrap();
    let path = recorder.path().to_owned();
    let summary = recorder.finish().unwrap();
    assert!(!summary.complete && summary.runs == 1 && summary.planned == 2);
    assert!(Recorder::resume(&path).unwrap_err().to_string().contains("another process"));
    drop(recorder);

    fs::create_dir(path.join("runs/.partial-0002-x")).unwrap();
    fs::write(path.join("runs/.partial-0002-x/series.parquet"), "half").unwrap();
    let refused = Recorder::create(&path, &plan(), &targets(), &machine()).unwrap_err().to_string();
    assert!(refused.contains("--resume"), "{refused}");
    let mut recorder = Recorder::resume(&path).unwrap();
    assert!(recorder.done("randread", "tank/a b", 1) && !recorder.done("randread", "tank/a b", 2));
    assert!(add(&mut recorder, run(1)).is_err(), "existing runs are not overwritten");
    add(&mut recorder, run(2)).unwrap();
    let summary = recorder.finish().unwrap();
    assert!(summary.complete);
    assert!(!path.join("runs/.partial-0002-x").exists());
    assert_eq!(fs::read_dir(path.join("runs")).unwrap().count(), 2);
}

#[test]
fn the_summary_has_figures_and_lists_sources() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create_in(dir.path(), &plan(), &targets(), &machine()).unwrap();
    add(&mut recorder, run(1)).unwrap();
    add(&mut recorder, run(2)).unwrap();
    let summary = recorder.finish().unwrap();
    let read: Summary = file::read_json(&recorder.path().join("summary.json")).unwrap();
    assert_eq!(read, summary);
    assert_eq!((read.schema.as_str(), read.options.quick), ("cenote-lab/1", true));
    assert_eq!(
        (read.sampled, read.missing.len()),
        (vec!["diskstats".to_owned(), "iostat_latency".into()], 1)
    );
    assert_eq!(read.machine, json!({"cpu": "N100"}), "long facts stay in machine.json");
    let of = |name: &str| read.figures.iter().find(|f| f.figure == name).unwrap().spread.n;
    assert_eq!(
        (of("read.iops"), of("read.iops (2)")),
        (2, 2),
        "a second stream of the same kind is not a repeat"
    );
    let time = read.figures.iter().find(|f| f.figure == "resilver.time").unwrap();
    assert_eq!((time.spread.n, time.spread.median, &time.spread.interval), (2, 0.1 + 0.2, &None));
}

#[test]
fn merged_tables_hold_the_rows_of_all_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create_in(dir.path(), &plan(), &targets(), &machine()).unwrap();
    add(&mut recorder, run(1)).unwrap();
    add(&mut recorder, run(2)).unwrap();
    recorder.finish().unwrap();
    let bytes = file::read(&recorder.path().join("seconds.parquet")).unwrap();
    let table = table::Table::read(bytes, rows::SECONDS).unwrap();
    let repeats: Vec<u64> = table.counts("repeat").iter().flatten().copied().collect();
    assert_eq!(repeats, [[1; 9], [2; 9]].concat());
    assert_eq!(table.texts("target")[17], Some("tank/a b"));
}

#[test]
fn non_finite_figures_are_named_instead_of_stored() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create_in(dir.path(), &plan(), &targets(), &machine()).unwrap();
    let mut broken = run(1);
    broken.measurement.outcome.others.push(Figure::lower("x", f64::NAN, Unit::Number));
    add(&mut recorder, broken).unwrap();
    let read = recorder.runs().next().unwrap().unwrap();
    assert_eq!(read.measurement.outcome.others, run(1).measurement.outcome.others);
    assert!(read.measurement.outcome.notes[1].starts_with("x is not a finite number"));
}

/// Changes a bit of every file of a result, or truncates it, in many positions. The outcome is an error that
/// names the file, or (in JSON, where a changed letter may be valid) a result; never a panic, never other
/// rows.
#[test]
fn damage_is_found_and_located() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create_in(dir.path(), &plan(), &targets(), &machine()).unwrap();
    let mut small = run(1);
    for stream in &mut small.measurement.outcome.streams {
        stream.latency = Default::default();
        stream.latency.record(5);
    }
    add(&mut recorder, small.clone()).unwrap();
    let folder = recorder.path().join("runs/0001-randread-tank-a-b-1");
    for name in ["series.parquet", "seconds.parquet", "histograms.parquet"] {
        damage(&folder.join(name), &mut || {
            let error = recorder.runs().next().unwrap().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("damaged"), "{error}");
        });
    }
    let path = recorder.path().to_owned();
    for name in ["plan.json", "machine.json", "runs/0001-randread-tank-a-b-1/measurement.json"] {
        damage(&path.join(name), &mut || {
            if let Ok(folder) = ResultFolder::open(&path) {
                let _ = folder.runs().filter(|run| run.is_ok()).count();
                let _ = folder.summary();
            }
        });
    }
    assert_eq!(recorder.runs().next().unwrap().unwrap(), small);
}

fn damage(path: &Path, check: &mut dyn FnMut()) {
    let good = fs::read(path).unwrap();
    let step = good.len() / 31 + 1;
    for at in (0..good.len()).step_by(step) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(path, &bytes).unwrap();
        check();
        fs::write(path, &good[..at]).unwrap();
        check();
    }
    fs::write(path, good).unwrap();
}

#[test]
fn other_folders_are_reported_as_no_result() {
    let dir = tempfile::tempdir().unwrap();
    let error = ResultFolder::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("not a result"), "{error}");
    fs::write(dir.path().join("plan.json"), r#"{"schema": "cenote-lab/9"}"#).unwrap();
    let error = ResultFolder::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("cenote-lab/9"), "{error}");
}

fn any_run() -> impl proptest::strategy::Strategy<Value = Run> {
    use proptest::prelude::*;
    let point = (any::<u64>(), any::<f64>().prop_filter("numbers", |v| !v.is_nan()));
    let units = prop_oneof![Just(Unit::Bytes), Just(Unit::Percent), Just(Unit::Nanoseconds)];
    let kinds = prop_oneof![Just(Kind::Counter), Just(Kind::Gauge)];
    let any_series = (".*", ".*", kinds, units, prop::collection::vec(point, 0..5));
    let second = prop::array::uniform5(any::<u64>());
    let any_stream =
        (".*", prop::collection::vec(0..4_000_000_000u64, 0..9), prop::collection::vec(second, 0..4));
    let all =
        (prop::collection::vec(any_series, 0..6), prop::collection::vec(any_stream, 0..4), any::<f64>());
    all.prop_map(|(series, streams, figure)| {
        let mut run = run(1);
        let numbered = series.into_iter().enumerate();
        run.samples.series = numbered
            .map(|(n, (source, subject, kind, unit, points))| Series {
                source,
                subject,
                name: n.to_string(),
                kind,
                unit,
                points,
            })
            .collect();
        let made = |(operation, latencies, seconds): (String, Vec<u64>, Vec<[u64; 5]>)| {
            let mut made = stream(&operation, 1);
            made.latency = Default::default();
            latencies.into_iter().for_each(|ns| made.latency.record(ns));
            let second = |[at_ns, operations, bytes, latency_sum_ns, latency_max_ns]: [u64; 5]| Second {
                at_ns,
                operations,
                bytes,
                latency_sum_ns,
                latency_max_ns,
            };
            made.seconds = seconds.into_iter().map(second).collect();
            made
        };
        run.measurement.outcome.streams = streams.into_iter().map(made).collect();
        let figure = if figure.is_finite() { figure } else { 0.0 };
        run.measurement.outcome.others = vec![Figure::lower("x", figure, Unit::Number)];
        run
    })
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(16))]
    #[test]
    fn any_result_reads_back_as_written(run in any_run()) {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::create_in(dir.path(), &plan(), &targets(), &machine()).unwrap();
        add(&mut recorder, run.clone()).unwrap();
        let read = ResultFolder::open(recorder.path()).unwrap().runs().next().unwrap().unwrap();
        proptest::prop_assert_eq!(read, run);
    }
}
