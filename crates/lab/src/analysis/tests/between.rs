//! Results compared with each other, and misleading targets.

use super::*;

fn five(test: &str, target: &str, iops: [f64; 5]) -> Vec<Run> {
    let one = |(n, iops): (usize, f64)| {
        run(test, target, n as u32 + 1, vec![stream("read", iops, iops * 4096.0, 1e6)], Samples::default())
    };
    iops.into_iter().enumerate().map(one).collect()
}

fn around(iops: f64) -> [f64; 5] {
    [0.99, 1.0, 1.01, 1.02, 0.98].map(|part| part * iops)
}

fn source(name: &str, runs: &[Run], plan: Plan) -> Source {
    Source {
        name: name.into(),
        figures: crate::load::result::summarise(runs),
        setting: Setting::default(),
        plan,
    }
}

#[test]
fn results_are_compared_target_by_target() {
    let source = |name: &str, iops: f64| {
        let runs = [five("t", "tank", around(iops)), five("t", "other", around(900.0))].concat();
        source(name, &runs, plan(vec![]))
    };
    let (comparisons, findings) =
        compare_results(&[source("before", 1000.0), source("after", 400.0)]).unwrap();
    assert!(comparisons.iter().all(|c| c.a.ends_with("(before)") && c.b.ends_with("(after)")));
    assert!(comparisons.iter().filter(|c| c.kind == FigureKind::Headline).all(|c| c.judged == 2));
    let worse: Vec<&Finding> = findings.iter().filter(|f| f.id == "compare.worse").collect();
    assert_eq!(worse.len(), 1, "{findings:#?}");
    assert_eq!((worse[0].target.as_deref(), worse[0].severity), (Some("tank (after)"), Severity::Warning));
    assert!(worse[0].sentence.contains("2.5x slower than tank (before)"), "{}", worse[0].sentence);
    assert!(findings.iter().any(|f| f.id == "compare.same" && f.target.as_deref() == Some("other (after)")));
    assert!(!findings.iter().any(|f| f.id == "compare.options"), "{findings:#?}");
}

#[test]
fn results_with_different_options_list_the_differences() {
    let with = |name: &str, size_bytes: u64, seconds: u64, together: bool| {
        let job = Job { size_bytes, runtime_ns: Some(seconds * 1_000_000_000), ..job("t", 4096, 1, 4) };
        let mut plan = plan(vec![job]);
        plan.options.together = together;
        source(name, &five("t", "tank", around(100.0)), plan)
    };
    let findings = compare_results(&[with("a", 1 << 30, 30, false), with("b", 8 << 30, 2, true)]).unwrap().1;
    let options = findings.iter().find(|f| f.id == "compare.options").unwrap();
    assert_eq!(
        (options.severity, &*findings[0].id),
        (Severity::Warning, "compare.options"),
        "it comes first"
    );
    for part in [
        "data set 1.00 GiB against 8.00 GiB",
        "time 30.0 s against 2.00 s",
        "targets in turn against all targets at once",
    ] {
        assert!(options.sentence.contains(part), "{part}: {}", options.sentence);
    }
}

#[test]
fn results_without_a_common_test_are_not_compared() {
    let of = |name: &str, test: &str| {
        // Two targets each could be compared with each other, but that was not requested.
        let runs = [five(test, "x", around(1.0)), five(test, "y", around(2.0))].concat();
        source(name, &runs, plan(vec![]))
    };
    let refused = compare_results(&[of("a", "randread"), of("b", "bonnie")]).unwrap_err().to_string();
    assert!(refused.contains("no test in common") && refused.contains("randread"), "{refused}");
    let mut more = of("b", "randread");
    more.figures.extend(of("b", "bonnie").figures);
    let findings = compare_results(&[of("a", "randread"), more]).unwrap().1;
    let alone = findings.iter().find(|f| f.id == "compare.alone").unwrap();
    assert!(alone.sentence.contains("Only in b") && alone.sentence.contains("bonnie"), "{}", alone.sentence);
    let one = source("a", &five("t", "x", around(1.0)), plan(vec![]));
    assert!(compare_results(&[one]).unwrap_err().to_string().contains("one target"));
}

#[test]
fn a_difference_that_may_be_chance_names_no_winner() {
    let of = |b: [f64; 5]| {
        crate::load::result::summarise(&[five("t", "a", around(1000.0)), five("t", "b", b)].concat())
    };
    let noisy = of([1200.0, 800.0, 1100.0, 950.0, 1050.0]);
    let (_, findings) = compare_targets(&noisy);
    let ranking = &find(&findings, "compare.ranking", "t")[0].sentence;
    assert!(ranking.contains("no winner") && !ranking.contains("best"), "{ranking}");
    let (_, findings) = compare_targets(&of(around(1500.0)));
    let ranking = &find(&findings, "compare.ranking", "t")[0].sentence;
    assert!(ranking.contains("b is best") && ranking.contains("a is 33% slower"), "{ranking}");
    // One run each: far apart, and still no winner.
    let single: Vec<Run> = ["a", "b"]
        .into_iter()
        .zip([100.0, 3000.0])
        .map(|(target, iops)| {
            run("t", target, 1, vec![stream("read", iops, iops * 4096.0, 1e6)], Samples::default())
        })
        .collect();
    let (comparisons, findings) = compare_targets(&crate::load::result::summarise(&single));
    assert!(findings.iter().all(|f| !f.sentence.contains("is best")), "{findings:#?}");
    assert!(comparisons.iter().all(|c| c.verdict != Verdict::Supported));
}

#[test]
fn many_comparisons_are_corrected_for_their_number() {
    // Each pair is as far apart as five repeats can be: p = 0.008. One such pair supports a difference, one
    // among 18 cannot.
    let targets = |names: &[&str], tests: &[&str]| {
        let mut runs = Vec::new();
        for test in tests {
            for (at, name) in names.iter().enumerate() {
                runs.extend(five(test, name, around(1000.0 * (at + 1) as f64)));
            }
        }
        compare_targets(&crate::load::result::summarise(&runs)).0
    };
    let headline = |comparisons: Vec<Comparison>| -> Vec<Comparison> {
        comparisons.into_iter().filter(|c| c.kind == FigureKind::Headline).collect()
    };
    let alone = headline(targets(&["a", "b"], &["t"]));
    assert_eq!((alone[0].judged, alone[0].verdict), (1, Verdict::Supported));
    let many = headline(targets(&["a", "b", "c"], &["t1", "t2", "t3", "t4", "t5", "t6"]));
    assert_eq!(many.len(), 18);
    for comparison in many {
        assert_eq!((comparison.judged, comparison.verdict), (18, Verdict::LargeButFew));
        assert!(comparison.p_corrected.unwrap() > 0.1 && comparison.sentence.contains("in 18 comparisons"));
    }
}

#[test]
fn targets_on_one_device_or_file_system_are_flagged() {
    let place = |target: &str, devices: &[&str], device: [u64; 2]| {
        let mount = serde_json::json!({ "device": device });
        serde_json::json!({ "target": target, "devices": devices, "mount": mount })
    };
    let shared = |places: Vec<serde_json::Value>| -> Vec<String> {
        let setting = Setting::from_machine(&serde_json::json!({ "places": places }));
        shared_devices(&setting).into_iter().map(|finding| finding.sentence).collect()
    };
    let same = shared(vec![place("a", &["dm-0", "sda"], [253, 0]), place("b", &["sda"], [8, 1])]);
    assert!(same.len() == 1 && same[0].contains("a and b") && same[0].contains("device (sda)"), "{same:?}");
    let memory = shared(vec![place("a", &[], [0, 27]), place("b", &[], [0, 27])]);
    assert!(memory.len() == 1 && memory[0].contains("file system"), "{memory:?}");
    assert!(shared(vec![place("a", &["sda"], [8, 1]), place("b", &["sdb"], [8, 17])]).is_empty());
    assert!(shared(vec![place("a", &[], [0, 27]), place("b", &[], [0, 28])]).is_empty());
}
