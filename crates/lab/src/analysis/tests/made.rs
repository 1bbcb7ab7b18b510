//! Runs made for one question each.

use super::*;
use crate::load::measurement::Second;
use crate::load::samples::Kind::Gauge;
use crate::unit::Unit;

/// 97.5 % of the reads at 130 us, the rest at 400 ms, as pool data1 of report 004.
fn bimodal(samples: Samples) -> Run {
    let mut read = stream("read", 0.0, 0.0, 1.0);
    for n in 0..4000u64 {
        // Spread evenly over a factor of two around each center.
        let factor = 0.7 + (n % 100) as f64 * 0.007;
        let center = if n % 40 == 0 { 400e6 } else { 130e3 };
        read.latency.record((center * factor) as u64);
    }
    read.operations = 4000;
    run("randread", "data1", 1, vec![read], samples)
}

fn analyse_one(run: Run) -> Analysis {
    analyse_runs(&plan(vec![job("randread", 4096, 4, 32)]), &Setting::default(), [Ok(run)]).unwrap()
}

#[test]
fn two_modes_of_reads_are_explained_by_the_cache_with_matching_hits() {
    let arc = |hits: f64, misses: f64| Samples {
        series: vec![
            counter("arcstats", "", "demand_data_hits", hits),
            counter("arcstats", "", "demand_data_misses", misses),
        ],
        ..Samples::default()
    };
    let explained = analyse_one(bimodal(arc(3910.0, 90.0)));
    let modes = &explained.modes[0];
    assert!(
        (modes.modes[0].share - 0.975).abs() < 0.001 && modes.explained_by == Some(Cache::Arc),
        "{modes:?}"
    );
    assert!(modes.slow_time_share > 0.98, "few, but nearly all of the time");
    let finding = find(&explained.findings, "latency.bimodal", "randread")[0];
    assert!(
        finding.sentence.contains("The share of fast operations matches the ARC hits"),
        "{}",
        finding.sentence
    );

    let not = analyse_one(bimodal(arc(2000.0, 2000.0)));
    assert_eq!(not.modes[0].explained_by, None);
    assert!(find(&not.findings, "latency.bimodal", "randread")[0].sentence.contains("do not explain this"));

    let unknown = analyse_one(bimodal(Samples::default()));
    assert!(find(&unknown.findings, "latency.bimodal", "randread")[0].sentence.contains("cause is unknown"));
}

#[test]
fn the_page_cache_explains_only_buffered_reads_without_disk_io() {
    let on_disk = |reads: f64| Samples {
        series: vec![counter("diskstats", "sda", "read_ios", reads)],
        ..Samples::default()
    };
    let explained = |direct: bool, reads: f64| {
        let plan = plan(vec![Job { direct, ..job("randread", 4096, 4, 32) }]);
        let analysis = analyse_runs(&plan, &Setting::default(), [Ok(bimodal(on_disk(reads)))]).unwrap();
        (
            analysis.modes[0].explained_by,
            find(&analysis.findings, "latency.bimodal", "randread")[0].sentence.clone(),
        )
    };
    assert_eq!(explained(false, 100.0).0, Some(Cache::PageCache));
    for (direct, reads) in [(true, 100.0), (true, 4000.0), (false, 4000.0)] {
        let (by, sentence) = explained(direct, reads);
        assert_eq!(by, None, "{direct} {reads}: {sentence}");
        assert!(!sentence.contains("most likely") && !sentence.contains("came from"), "{sentence}");
    }
    // Zero hits explain nothing, however few reads are fast.
    let mut few = bimodal(on_disk(4000.0));
    let read = &mut few.measurement.outcome.streams[0];
    read.latency = Latency::default();
    (0..4000u64).for_each(|n| read.latency.record(if n % 33 == 0 { 90_000 } else { 9_000_000 }));
    let buffered = plan(vec![Job { direct: false, ..job("randread", 4096, 4, 32) }]);
    let analysis = analyse_runs(&buffered, &Setting::default(), [Ok(few)]).unwrap();
    assert_eq!(analysis.modes[0].explained_by, None, "{:?}", analysis.modes[0]);
}

fn cpu(subject: &str, busy: f64, iowait: f64) -> Vec<Series> {
    let all = 30e9;
    vec![
        counter("cpu", subject, "user", busy * all),
        counter("cpu", subject, "iowait", iowait * all),
        counter("cpu", subject, "idle", (1.0 - busy - iowait) * all),
    ]
}

/// Processor time of this program, in seconds.
fn own(seconds: f64) -> Vec<Series> {
    vec![counter("own", "", "user", seconds * 1e9)]
}

fn disk(name: &str, busy: f64, in_flight: f64) -> Vec<Series> {
    let ns = 30e9;
    vec![
        counter("diskstats", name, "io_time", busy * ns),
        counter("diskstats", name, "weighted_io_time", in_flight * ns),
        counter("diskstats", name, "read_ios", 3000.0),
        counter("diskstats", name, "read_bytes", 3000.0 * 4096.0),
    ]
}

fn limits(series: Vec<Vec<Series>>, rotates: Option<bool>, job: Job) -> Limits {
    let run = run(
        "t",
        "x",
        1,
        vec![stream("read", 100.0, 409_600.0, 320e6)],
        Samples { series: series.concat(), ..Samples::default() },
    );
    let disks = ["sda", "nvme0n1"].map(|name| Some((name.to_owned(), rotates?)));
    let setting = Setting { rotates: disks.into_iter().flatten().collect(), ..Setting::default() };
    Limits::of(Observed::of(&run, Some(&Work::Io(Jobs(vec![job]))), &setting), &[])
}

#[test]
fn each_resource_is_found_when_it_is_the_limit() {
    let all = || job("t", 4096, 1, 32);
    let limit = |limits: &Limits| limits.limit().map(|part| part.resource);

    let hdd = limits(vec![disk("sda", 0.98, 20.0), cpu("", 0.1, 0.5)], Some(true), all());
    assert_eq!(limit(&hdd), Some(Resource::Disk));
    let disk_part = &hdd.observed.disks[0];
    assert!(
        (disk_part.busy - 0.98).abs() < 1e-9
            && (disk_part.in_flight - 20.0).abs() < 1e-9
            && disk_part.iops == 100.0
    );
    assert!(
        (hdd.observed.iowait.unwrap() - 0.5).abs() < 1e-9
            && (hdd.observed.cpu.unwrap().busy - 0.1).abs() < 1e-9
    );

    let ssd = limits(vec![disk("nvme0n1", 0.98, 1.0), cpu("", 0.1, 0.0)], Some(false), all());
    assert_ne!(limit(&ssd), Some(Resource::Disk), "busy with one operation at a time is not full");
    assert!(ssd.parts.iter().any(|p| p.resource == Resource::Disk && p.role == Role::Possible));
    let queued = limits(vec![disk("nvme0n1", 0.99, 110.0), cpu("", 0.1, 0.0)], Some(false), all());
    assert_ne!(limit(&queued), Some(Resource::Disk), "any closed loop has a queue");
    let part = queued.parts.iter().find(|p| p.resource == Resource::Disk).unwrap();
    assert!(part.argument.contains("not whether it could do more"), "{}", part.argument);

    let core = limits(
        vec![
            disk("sda", 0.2, 1.0),
            cpu("", 0.3, 0.0),
            cpu("cpu0", 0.99, 0.0),
            cpu("cpu1", 0.05, 0.0),
            own(29.5),
        ],
        None,
        all(),
    );
    assert_eq!(limit(&core), Some(Resource::Core));

    let full = limits(vec![cpu("", 0.97, 0.0), own(28.0)], None, all());
    assert_eq!(limit(&full), Some(Resource::Cpu));

    let link = vec![
        counter("network", "eth0", "rx_bytes", 30.0 * 118e6),
        counter("network", "eth0", "tx_bytes", 30.0 * 2e6),
        series("network", "eth0", "link_speed", Gauge, [125e6, 125e6]),
    ];
    let network = limits(vec![link, cpu("", 0.1, 0.0)], None, all());
    assert_eq!(limit(&network), Some(Resource::Network));

    let throttled = limits(vec![cpu("", 0.1, 0.0)], None, Job { think_ns: 1000, ..all() });
    assert_eq!(limit(&throttled), Some(Resource::Throttle));

    let idle = limits(vec![cpu("", 0.1, 0.0)], None, job("t", 4096, 4, 64));
    assert_eq!(limit(&idle), None, "32 of 256 in flight");
    assert_eq!(idle.findings()[0].id, "limit.unknown");
    assert!(idle.findings()[0].sentence.contains("the submitter may be the limit"));
}

#[test]
fn time_in_fsync_is_the_limit_where_it_is_most_of_the_time() {
    let streams = vec![stream("write", 100.0, 409_600.0, 1e6), stream("sync", 100.0, 0.0, 8e6)];
    let run = run("t", "x", 1, streams, Samples::default());
    let work = Work::Io(Jobs(vec![Job { fsync_every: 1, ..job("t", 4096, 1, 1) }]));
    let limits = Limits::of(Observed::of(&run, Some(&work), &Setting::default()), &[]);
    let share = limits.observed.sync_share.unwrap();
    assert!((share - 0.8).abs() < 0.01, "100 a second of 8 ms: {share}");
    assert_eq!(limits.limit().unwrap().resource, Resource::SyncLatency);
}

#[test]
fn writes_durable_one_by_one_are_limited_by_durability() {
    let write = Job {
        pattern: Pattern { random: true, read_percent: 0 },
        sync: crate::load::job::SyncMode::Dsync,
        ..job("t", 4096, 1, 1)
    };
    let run = run("t", "x", 1, vec![stream("write", 125.0, 512_000.0, 8e6)], Samples::default());
    let limits = Limits::of(Observed::of(&run, Some(&Work::Io(Jobs(vec![write]))), &Setting::default()), &[]);
    assert_eq!(limits.limit().unwrap().resource, Resource::SyncLatency);
    assert_eq!(limits.findings()[0].id, "limit.sync");
}

#[test]
fn a_link_that_carries_other_traffic_has_no_part() {
    let chatter = vec![
        counter("network", "eth0", "rx_bytes", 30.0 * 2e3),
        counter("network", "eth0", "tx_bytes", 30.0 * 1e3),
        series("network", "eth0", "link_speed", Gauge, [125e6, 125e6]),
    ];
    let local = limits(vec![chatter, disk("sda", 0.98, 20.0)], Some(true), job("t", 4096, 1, 32));
    let network = local.parts.iter().find(|part| part.resource == Resource::Network).unwrap();
    assert!(network.argument.contains("did not go over the network"), "{}", network.argument);
    let projected = project(&local.observed, &DEVICES).unwrap();
    assert!(projected.projections.iter().all(|p| p.instead_of == Resource::Disk));
}

#[test]
fn figures_from_memory_are_marked() {
    let series = vec![
        counter("arcstats", "", "demand_data_hits", 2_990_000.0),
        counter("arcstats", "", "demand_data_misses", 10_000.0),
    ];
    let run = run(
        "randread",
        "x",
        1,
        vec![stream("read", 1e5, 4e8, 1e4)],
        Samples { series, ..Samples::default() },
    );
    let cached = analyse_one(run);
    let finding = find(&cached.findings, "limit.cached", "randread")[0];
    assert!(finding.sentence.contains("99.7 % of the reads came from the ARC"), "{}", finding.sentence);
}

#[test]
fn unstable_repeats_and_outliers_are_flagged_and_kept() {
    let one = |target: &str, repeat: usize, iops: f64| {
        run(
            "randread",
            target,
            repeat as u32 + 1,
            vec![stream("read", iops, iops * 4096.0, 1e6)],
            Samples::default(),
        )
    };
    let of = |target: &'static str, all: [f64; 5]| {
        all.into_iter().enumerate().map(move |(n, iops)| one(target, n, iops))
    };
    let runs = of("calm", [1000.0, 1010.0, 995.0, 1002.0, 998.0])
        .chain(of("wild", [1000.0, 1010.0, 995.0, 1002.0, 400.0]));
    let analysis = analyse_runs(&plan(vec![]), &Setting::default(), runs.map(Ok)).unwrap();
    let unstable = find(&analysis.findings, "repeats.unstable", "randread");
    assert_eq!(unstable.len(), 1, "{unstable:#?}");
    assert_eq!(unstable[0].target.as_deref(), Some("wild"));
    let outlier = find(&analysis.findings, "repeats.outlier", "randread")[0];
    assert!(outlier.sentence.contains("repeat 5 (400 /s)"), "{}", outlier.sentence);
    let wild = analysis.figures.iter().find(|f| f.target == "wild" && f.figure == "read.iops").unwrap();
    assert_eq!((wild.values.len(), wild.spread.min), (5, 400.0));
    assert!(analysis.findings.iter().any(|f| f.id == "repeats.stable" && f.sentence.starts_with("1 of 2")));
}

#[test]
fn five_clear_repeats_support_a_difference_and_five_noisy_ones_do_not() {
    let side = |name: &str, values: [f64; 5]| {
        let run = |(n, iops): (usize, f64)| {
            run("t", name, n as u32 + 1, vec![stream("read", iops, iops * 4096.0, 1e6)], Samples::default())
        };
        Side {
            name: name.into(),
            figures: crate::load::result::summarise(
                &values.into_iter().enumerate().map(run).collect::<Vec<_>>(),
            ),
        }
    };
    let before = side("before", [1000.0, 1020.0, 980.0, 1010.0, 990.0]);
    let iops = |other: &Side| compare(&before, other).into_iter().find(|c| c.figure == "read.iops").unwrap();
    let faster = iops(&side("after", [1200.0, 1180.0, 1220.0, 1210.0, 1190.0]));
    assert_eq!(
        (faster.verdict, faster.b_from_a.as_str(), faster.a_from_b.as_str()),
        (Verdict::Supported, "20% faster", "17% slower")
    );
    assert!(
        faster.sentence.contains("after is 20% faster than before") && faster.sentence.contains("p = 0.008"),
        "{}",
        faster.sentence
    );
    let noisy = iops(&side("noisy", [1200.0, 800.0, 1100.0, 950.0, 1050.0]));
    assert_eq!(noisy.verdict, Verdict::Unsupported);
    assert!(noisy.sentence.contains("do not support"), "{}", noisy.sentence);
}

#[test]
fn a_run_that_slows_down_was_not_in_a_steady_state() {
    let with = |speed: fn(u64) -> u64| {
        let mut write = stream("write", 1000.0, 4e6, 1e6);
        let second = |n: u64| Second { at_ns: n * 1_000_000_000, operations: speed(n), ..Second::default() };
        write.seconds = (0..30).map(second).collect();
        let run = run("randwrite", "x", 1, vec![write], Samples::default());
        analyse_runs(&plan(vec![]), &Setting::default(), [Ok(run)]).unwrap()
    };
    let slower = with(|n| if n < 12 { 2000 } else { 500 });
    assert!(find(&slower.findings, "run.drift", "randwrite")[0].sentence.contains("-75 %"));
    assert!(find(&with(|n| 1000 + n % 3 * 100).findings, "run.drift", "randwrite").is_empty());
}

fn points(speed: impl Fn(f64) -> f64, fills: &[f64]) -> Vec<FillPoint> {
    fills.iter().map(|&fill| FillPoint { fill_percent: fill, speed: speed(fill) }).collect()
}

#[test]
fn a_knee_is_located_with_an_interval_and_a_straight_line_has_none() {
    let fills = [10.0, 30.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 95.0];
    let ripple = |fill: f64| 1.0 + 0.03 * (fill * 1.7).sin();
    let speed = |fill: f64| 12_000.0 * ripple(fill) * (-0.2 * (fill - 82.0).max(0.0)).exp();
    let found = cliff(&points(speed, &fills)).unwrap();
    assert!((found.knee_percent.unwrap() - 82.0).abs() <= 2.0, "{found:?}");
    assert!(
        found.low_percent <= 82.0
            && found.high_percent >= 82.0
            && found.high_percent - found.low_percent < 10.0,
        "{found:?}"
    );
    assert!(found.factor > 8.0 && found.before_factor < 1.2);
    let steady = |fill: f64| 12_000.0 * ripple(fill) * (-0.03 * fill).exp();
    assert_eq!(cliff(&points(steady, &fills)), Err(NoCliff::None), "12x slower in the end, and no cliff");
    assert_eq!(cliff(&points(ripple, &fills)), Err(NoCliff::None));
}

#[test]
fn points_that_cannot_show_a_cliff_are_refused_with_the_reason() {
    let refused = |fills: &[f64]| match cliff(&points(|fill| 1000.0 - fill, fills)) {
        Err(NoCliff::CantTell(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(&[12.0, 91.0]).contains("2 different fill levels"));
    assert!(refused(&[12.0, 12.2, 91.0]).contains("2 different fill levels"), "12.0 and 12.2 are one");
    assert!(refused(&[80.0, 85.0, 90.0]).contains("within 20 percent"));
    assert!(refused(&[]).contains("no points"));
    let even = points(|fill| 12_000.0 * (-0.02 * fill).exp(), &[10.0, 50.0, 90.0]);
    assert_eq!(cliff(&even), Err(NoCliff::None));
}

#[test]
fn other_disks_are_projected_as_ranges() {
    // A disk always busy with 4 KiB reads: 120 per second at depth 32.
    let hdd = limits(vec![disk("sda", 0.99, 32.0)], Some(true), job("t", 4096, 1, 32)).observed;
    let projected = project(&hdd, &DEVICES).unwrap();
    assert!(projected.projections.iter().all(|p| p.instead_of == Resource::Disk), "no link had a part");
    let with = |name: &str| projected.projections.iter().find(|p| p.with == name).unwrap();
    let (ssd, nvme) = (with("SATA SSD"), with("NVMe SSD"));
    assert!(ssd.iops.0 < ssd.iops.1 && nvme.iops.1 >= ssd.iops.1, "{ssd:?} {nvme:?}");
    assert!(ssd.gain > 10.0, "{ssd:?}");
    let same = with("HDD, 7200 rpm");
    assert!(same.iops.0 < 100.0 && same.iops.1 >= 100.0, "another of the kind: {same:?}");
    let none = Observed { throttled: true, ..hdd };
    assert!(project(&none, &DEVICES).is_none());
}

/// A virtual disk, busy 99 % with 110 operations in flight: its maximum was never seen.
#[test]
fn a_disk_that_does_several_operations_at_once_limits_no_projection() {
    let shown = |rotates| {
        let mut observed = limits(vec![disk("sda", 0.99, 110.0)], rotates, job("t", 4096, 1, 128)).observed;
        observed.links = vec![LinkLoad {
            name: "eth0".into(),
            bandwidth: observed.bandwidth,
            speed: observed.bandwidth * 1.05,
        }];
        (observed.iops, project(&observed, &DEVICES).unwrap())
    };
    let (measured, projected) = shown(None);
    let with = |projected: &Projected, name: &str| {
        projected.projections.iter().find(|p| p.with == name).cloned().unwrap()
    };
    let (link, slow) = (with(&projected, "100 GbE"), with(&projected, "HDD, 7200 rpm"));
    assert_ne!(link.next_limit, Resource::Disk, "{link:?}");
    assert!(link.iops.1 > measured * 1.05 && link.least_gain >= 1.0, "{link:?}");
    assert!(
        link.sentence.contains(&format!("x the measured {}", Unit::PerSecond.show(measured))),
        "{link:?}"
    );
    // Another disk may be slower than one with only its queue known.
    assert!(slow.least_gain < 1.0 && slow.sentence.contains("it may be slower"), "{slow:?}");
    assert!(projected.assumptions.iter().any(|a| a.contains("several operations at once")));
    // A rotating disk can't do much more than it did.
    let (measured, projected) = shown(Some(true));
    let link = with(&projected, "100 GbE");
    assert!(link.next_limit == Resource::Disk && link.iops.1 < measured * 1.05, "{link:?}");
}

#[test]
fn fill_medium_and_layout_come_from_the_machine() {
    let machine = serde_json::json!({
        "disks": [
            {"name": "sda", "transport": "sata", "rotational": true},
            {"name": "nvme0n1", "transport": "nvme", "rotational": false},
            {"name": "vda", "transport": "virtual", "rotational": true},
        ],
        "places": [
            {"target": "tank", "dataset": "tank/data", "devices": ["sda", "nvme0n1"]},
            {"target": "disk", "devices": ["vda"]},
        ],
        "pools": [{"name": "tank", "size_bytes": 200, "allocated_bytes": 182, "vdevs": [
            {"class": "normal", "kind": "mirror"},
            {"class": "normal", "kind": "mirror"},
            {"class": "normal", "kind": {"raidz": 1}},
            {"class": "cache", "kind": "leaf"},
        ]}],
    });
    let setting = Setting::from_machine(&machine);
    let tank = TargetFacts {
        fill_percent: Some(91.0),
        medium: Some("HDD".into()),
        layout: Some("2 x mirror and raidz1".into()),
        devices: vec!["sda".into(), "nvme0n1".into()],
        file_system: None,
    };
    assert_eq!(setting.targets["tank"], tank);
    let disk =
        TargetFacts { medium: Some("virtual".into()), devices: vec!["vda".into()], ..TargetFacts::default() };
    assert!(
        setting.is_below("tank", "sda")
            && !setting.is_below("tank", "vda")
            && setting.is_below("else", "vda")
    );
    assert_eq!(setting.targets["disk"], disk, "a virtual disk does not know its medium");
    assert_eq!(
        [setting.rotates("sda1"), setting.rotates("nvme0n1p2"), setting.rotates("vda")],
        [Some(true), Some(false), None]
    );
    assert_eq!(Setting::from_machine(&serde_json::Value::Null), Setting::default());
}
