//! Studies as values: their progress and their answers.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use cenote_policy::PolicyName;
use cenote_runtime::Runtime;
use cenote_study::trace::{CacheSize, Draw, Replay, Show};
use cenote_study::{Answer, Part, Progress, Study, StudyError, arc, cache};

/// The answer, and the loads that ended before it.
fn run<S: Study>(study: S) -> (S::Answer, Vec<String>) {
    let rt = Runtime::real(Some(1));
    let mut ended = Vec::new();
    let mut progress = |progress: Progress<'_>| {
        if let Progress::Ended { load, .. } = progress {
            ended.push(load.to_owned());
        }
    };
    let answer = rt.block_on(study.run(&rt, &mut progress)).unwrap();
    (answer, ended)
}

fn tables(answer: &impl Answer) -> Vec<Vec<Vec<String>>> {
    let table = |part: Part| match part {
        Part::Table(table) => {
            assert!(table.rows.iter().all(|row| row.len() == table.heads.len()));
            Some(table.rows)
        }
        Part::Text(_) => None,
    };
    answer.report().0.into_iter().filter_map(table).collect()
}

#[test]
fn each_run_of_a_study_is_told_and_the_same_request_has_the_same_answer() {
    let request = || arc::Request {
        scale: arc::Scale { inodes: 100, cache_bytes: 1 << 20 },
        tests: vec![arc::Test::ALL[0], arc::Test::ALL[5]],
        policies: vec![PolicyName::Lru, PolicyName::OpenZfs],
    };
    let (answer, ended) = run(request());
    let names = ["test 1, lru", "test 1, openzfs-2.3", "test 6, lru", "test 6, openzfs-2.3"];
    assert_eq!(ended, names);
    let rows = tables(&answer);
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(rows[0][0][..3], ["lru".to_owned(), answer.runs[0].reads.to_string(), "0.0 %".into()]);
    assert_eq!(answer.attachments().len(), 4);
    let json = |answer: &arc::Answer| serde_json::to_value(answer).unwrap();
    assert_eq!(json(&answer)["runs"][3]["policy"], "openzfs-2.3");
    assert_eq!(json(&run(request()).0), json(&answer));
}

#[test]
fn a_log_device_makes_durable_writes_faster() {
    let cases = [false, true].map(|has_log| cache::Case::Durable { clients: 1, has_log });
    let (answer, _) = run(cache::Request { cases: cases.into(), operations: 200 });
    let [without, with] = &answer.runs[..] else { panic!("{answer:?}") };
    assert!(with.per_second() > without.per_second() && with.p50_ns < without.p50_ns, "{answer:?}");
    let Some(Part::Text(verdicts)) = answer.report().0.pop() else { panic!("no verdicts") };
    assert!(verdicts.contains("**durable writes, 1 client, SLOG**"), "{verdicts}");
}

#[test]
fn a_trace_is_shown_replayed_and_drawn() {
    let rt = Runtime::real(Some(1));
    let dir = tempfile::tempdir().unwrap();
    let (file, none) = (dir.path().join("trace"), dir.path().join("none"));
    // Ten blocks, ten times in turn.
    std::fs::write(&file, (0..100).map(|n| format!("{}\n", n % 10)).collect::<String>()).unwrap();
    std::fs::write(&none, "id,op\n1,write\n").unwrap();
    let shown = rt.block_on(Show { file: file.clone() }.run(&rt)).unwrap();
    assert_eq!((shown.requests, shown.blocks), (100, 10));
    let policies = vec![PolicyName::Lru, PolicyName::Belady];
    let sizes = vec![CacheSize::Percent(50.0), CacheSize::Bytes(shown.footprint_bytes)];
    let replay = Replay { file: file.clone(), policies, sizes, second: None };
    let replayed = rt.block_on(replay.run(&rt)).unwrap();
    let hits: Vec<u64> = replayed.iter().map(|cell| cell.hits).collect();
    // In this cyclic order, LRU always evicts the next block.
    assert_eq!((hits[0], hits[1], hits[3]), (0, 90, 90));
    assert!(hits[2] > 30, "{hits:?}");
    let draw = |file| Draw { file, policy: PolicyName::Lru, rate: 1.0, points: 3 }.run(&rt);
    let drawn = rt.block_on(draw(file)).unwrap();
    let ratios: Vec<f64> = drawn.points.iter().map(|point| point.hit_ratio).collect();
    let near = |(ratio, truth): (&f64, f64)| (ratio - truth).abs() < 1e-9;
    assert!(ratios.len() == 3 && ratios.iter().zip([0.0, 0.0, 0.9]).all(near), "{ratios:?}");
    assert!(matches!(rt.block_on(draw(none)), Err(StudyError::Empty)));
}
