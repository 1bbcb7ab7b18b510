//! The cross-pool table of report 004: three disk pools at 12, 77 and 91 %, and one NVMe pool, one
//! run each.

use super::*;

const TABLE: &str = include_str!("../../../tests/reports/004.tsv");

fn runs() -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| cells[at].parse::<f64>().unwrap();
        let stream = stream(cells[2], number(3), number(4) * 1048576.0, number(5) * 1e6);
        match runs.iter_mut().find(|r| r.measurement.target == cells[0] && r.measurement.test == cells[1]) {
            Some(run) => run.measurement.outcome.streams.push(stream),
            None => runs.push(run(cells[1], cells[0], 1, vec![stream], Samples::default())),
        }
    }
    runs
}

fn setting() -> Setting {
    let facts = |fill, medium: &str, layout: &str| TargetFacts {
        fill_percent: Some(fill),
        medium: Some(medium.into()),
        layout: Some(layout.into()),
        ..TargetFacts::default()
    };
    let targets = [
        ("nvme", facts(84.0, "NVMe", "stripe")),
        ("data0", facts(91.0, "HDD", "mirror")),
        ("data1", facts(77.0, "HDD", "raidz1")),
        ("data2", facts(12.0, "HDD", "stripe")),
    ];
    Setting { targets: targets.map(|(name, facts)| (name.to_owned(), facts)).into(), ..Setting::default() }
}

fn analysis() -> Analysis {
    let one = |mut job: Job| {
        job.method = Method::Threads;
        job
    };
    let jobs = vec![
        one(job("seqwrite", 1 << 20, 1, 1)),
        one(job("seqread", 1 << 20, 1, 1)),
        job("randread", 4096, 4, 32),
        job("randwrite", 4096, 4, 32),
        job("mixed", 262_144, 4, 16),
    ];
    analyse_runs(&plan(jobs), &setting(), runs().into_iter().map(Ok)).unwrap()
}

fn pair<'a>(analysis: &'a Analysis, test: &str, figure: &str, a: &str, b: &str) -> &'a Comparison {
    analysis
        .comparisons
        .iter()
        .find(|c| (&*c.test, &*c.figure, &*c.a, &*c.b) == (test, figure, a, b))
        .unwrap()
}

#[test]
fn differences_match_the_report_in_both_directions() {
    let analysis = analysis();
    for (test, figure, slower, faster) in [
        ("seqwrite", "write.bandwidth", "47% slower", "89% faster"),
        ("seqread", "read.bandwidth", "3.0x slower", "3.0x faster"),
        ("randread", "read.iops", "28x slower", "28x faster"),
        ("randwrite", "write.iops", "46% slower", "85% faster"),
        ("mixed", "read.bandwidth", "19% slower", "24% faster"),
        ("mixed", "write.bandwidth", "16% slower", "19% faster"),
    ] {
        let c = pair(&analysis, test, figure, "data0", "data2");
        assert_eq!((c.a_from_b.as_str(), c.b_from_a.as_str()), (slower, faster), "{test}");
    }
    assert_eq!(pair(&analysis, "randread", "read.iops", "data0", "data1").a_from_b, "30x slower");
    assert_eq!(pair(&analysis, "seqwrite", "write.bandwidth", "data1", "data2").b_from_a, "28% faster");
    assert_eq!(pair(&analysis, "randread", "read.mean", "data0", "data2").a_from_b, "28x higher");
}

#[test]
fn single_runs_prove_nothing_and_say_so() {
    let analysis = analysis();
    let verdict = |test, figure, a, b| pair(&analysis, test, figure, a, b).verdict;
    assert_eq!(verdict("randread", "read.iops", "data0", "data2"), Verdict::LargeButFew);
    assert_eq!(verdict("randread", "read.iops", "data1", "data2"), Verdict::Unclear, "12,700 and 11,800");
    assert_eq!(verdict("randwrite", "write.iops", "data1", "data2"), Verdict::Unclear);
    assert_eq!(verdict("mixed", "read.bandwidth", "data0", "data1"), Verdict::Equal);
    let few = analysis.findings.iter().find(|f| f.id == "repeats.few").unwrap();
    assert!(few.sentence.contains("fewer than three repeats"), "{}", few.sentence);
    assert!(!analysis.findings.iter().any(|f| f.id == "repeats.stable"));
}

#[test]
fn data0_stands_out_only_in_random_reads() {
    let analysis = analysis();
    let far: Vec<&Finding> = analysis.findings.iter().filter(|f| f.id == "compare.far_behind").collect();
    assert_eq!(far.len(), 1, "{far:#?}");
    assert_eq!((far[0].test.as_deref(), far[0].target.as_deref()), (Some("randread"), Some("data0")));
    assert!(far[0].sentence.contains("28x slower than even the next slowest, data2"), "{}", far[0].sentence);
    assert_eq!(find(&analysis.findings, "compare.ranking", "mixed").len(), 2, "reads and writes");
}

#[test]
fn the_mixed_test_hides_the_difference_that_random_reads_show() {
    let analysis = analysis();
    let masked = find(&analysis.findings, "compare.masked", "mixed");
    assert!(
        masked.iter().any(|f| f.sentence.contains("data0 and data1") && f.sentence.contains("30.3x apart")),
        "{masked:#?}"
    );
}

#[test]
fn the_cliff_lies_between_77_and_91_percent_and_no_finer() {
    let analysis = analysis();
    let cliffs: Vec<&Finding> = analysis.findings.iter().filter(|f| f.id == "fill.cliff").collect();
    let tests: Vec<&str> = cliffs.iter().filter_map(|f| f.test.as_deref()).collect();
    assert_eq!(tests, ["seqread", "randread"], "writes lose less than half, and mixed hides the fall");
    for cliff in cliffs {
        assert!(cliff.sentence.contains("between 77.0 and 91.0 % full"), "{}", cliff.sentence);
        assert!(
            cliff.sentence.contains("is unknown") && cliff.sentence.contains("differ in layout"),
            "{}",
            cliff.sentence
        );
    }
    let only_nvme =
        Setting { targets: setting().targets.into_iter().filter(|t| t.0 == "nvme").collect(), ..setting() };
    assert!(
        fill_against_speed(&analysis.figures, &only_nvme).is_empty(),
        "one pool has no fill levels to compare"
    );
}

#[test]
fn a_full_queue_alone_does_not_name_the_limit() {
    let analysis = analysis();
    let limits = analysis.limits.iter().find(|l| l.test == "randread" && l.target == "data0").unwrap();
    let in_flight = limits.observed.in_flight().unwrap();
    assert!((in_flight - 118.6).abs() < 0.5, "419 x 283 ms: {in_flight}");
    assert_eq!(limits.limit(), None, "no disk was sampled: a full queue does not show what it waits for");
    let finding = &limits.findings()[0];
    assert_eq!(finding.id, "limit.unknown");
    assert!(
        finding.sentence.contains("118.6 in flight (Little's law) of 128 allowed"),
        "{}",
        finding.sentence
    );
    assert!(
        finding.sentence.contains("Not sampled, or idle: network, busiest disk, processors"),
        "{}",
        finding.sentence
    );
    let one = analysis.limits.iter().find(|l| l.test == "seqread" && l.target == "data0").unwrap();
    assert_eq!(
        one.limit().unwrap().resource,
        Resource::Concurrency,
        "one at a time is limited by latency, whatever it waits for"
    );
}
