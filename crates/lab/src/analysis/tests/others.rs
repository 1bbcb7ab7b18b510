//! Work of other processes and the host is never taken for the work's own limit.

use super::*;

/// Busy processors by owner: shares of the time of two processors over half a minute.
struct Machine {
    own: f64,
    kernel: f64,
    others: f64,
    stolen: f64,
}

const CORES: f64 = 2.0;

fn sampled(machine: &Machine) -> Vec<Series> {
    let all = CORES * 30e9;
    let Machine { own, kernel, others, stolen } = machine;
    vec![
        counter("cpu", "", "user", (own + others) * all),
        counter("cpu", "", "system", kernel * all),
        counter("cpu", "", "steal", stolen * all),
        counter("cpu", "", "idle", (1.0 - own - kernel - others - stolen) * all),
        counter("own", "", "user", own * all),
        counter("kernel_threads", "", "used", kernel * all),
        counter("pressure", "cpu", "some_total", 0.9 * 30e9),
    ]
}

fn disk(busy: f64, in_flight: f64, bytes: f64) -> Vec<Series> {
    vec![
        counter("diskstats", "sda", "io_time", busy * 30e9),
        counter("diskstats", "sda", "weighted_io_time", in_flight * 30e9),
        counter("diskstats", "sda", "read_ios", bytes / 4096.0),
        counter("diskstats", "sda", "read_bytes", bytes),
    ]
}

/// 32 of 32 in flight, 100 per second.
fn analysed(series: Vec<Vec<Series>>) -> Analysis {
    let samples = Samples { series: series.concat(), ..Samples::default() };
    let run = run("t", "x", 1, vec![stream("read", 100.0, 409_600.0, 320e6)], samples);
    let setting = Setting { rotates: [("sda".to_owned(), true)].into(), ..Setting::default() };
    analyse_runs(&plan(vec![job("t", 4096, 1, 32)]), &setting, [Ok(run)]).unwrap()
}

fn verdict(analysis: &Analysis) -> (Vec<Resource>, String) {
    let limits = &analysis.limits[0];
    (limits.limited_by().iter().map(|part| part.resource).collect(), limits.findings()[0].sentence.clone())
}

#[test]
fn processors_saturated_by_others_are_not_the_limit() {
    // 0.35 of 6 core-seconds; other processes used the rest.
    let busy = analysed(vec![sampled(&Machine { own: 0.058, kernel: 0.01, others: 0.93, stolen: 0.0 })]);
    let (limit, sentence) = verdict(&busy);
    assert_eq!(limit, [], "{sentence}");
    assert!(sentence.contains("other work used much of the processor time"), "{sentence}");
    assert!(sentence.contains("this test 6 %, kernel 1 %, other processes 93 %"), "{sentence}");
    assert!(sentence.contains("some task waited for a processor 90 %"), "{sentence}");
    let first = &busy.findings[0];
    assert_eq!((&*first.id, first.severity), ("machine.busy", Severity::Warning));
    assert!(first.sentence.starts_with("The machine was not quiet in 1 of 1 run"), "{}", first.sentence);
    assert!(first.sentence.contains("other processes used 93 %"), "{}", first.sentence);
    assert_eq!((busy.quiet.runs, busy.quiet.disturbed), (1, 1));

    let ours = analysed(vec![sampled(&Machine { own: 0.90, kernel: 0.05, others: 0.02, stolen: 0.0 })]);
    assert_eq!(verdict(&ours).0, [Resource::Cpu]);
    assert_eq!(ours.findings[0].id, "machine.quiet");
}

#[test]
fn time_taken_by_the_host_is_reported_as_steal() {
    let stolen = analysed(vec![sampled(&Machine { own: 0.30, kernel: 0.0, others: 0.0, stolen: 0.60 })]);
    let (limit, sentence) = verdict(&stolen);
    assert_eq!(limit, [], "{sentence}");
    assert!(sentence.contains("host (steal) 60 %"), "{sentence}");
    assert!(
        stolen.findings[0].sentence.contains("took up to 60 % (steal)"),
        "{}",
        stolen.findings[0].sentence
    );
}

#[test]
fn without_its_own_time_no_process_is_blamed() {
    let mut series = sampled(&Machine { own: 0.0, kernel: 0.0, others: 0.97, stolen: 0.0 });
    series.retain(|s| s.source != "own");
    let unknown = analysed(vec![series]);
    let (limit, sentence) = verdict(&unknown);
    assert_eq!(limit, [], "{sentence}");
    assert!(sentence.contains("who used them is unknown"), "{sentence}");
    assert_eq!(unknown.findings[0].id, "machine.unknown");
}

#[test]
fn a_disk_saturated_by_others_is_not_the_limit() {
    let quiet = || sampled(&Machine { own: 0.1, kernel: 0.0, others: 0.0, stolen: 0.0 });
    let moved = |own: f64, all: f64| {
        let own = vec![counter("own", "", "read_bytes", own), counter("own", "", "write_bytes", 0.0)];
        analysed(vec![quiet(), disk(0.98, 20.0, all), own])
    };
    assert_eq!(verdict(&moved(12e9, 12e9)).0, [Resource::Disk]);
    let others = moved(12e6, 12e9);
    let (limit, sentence) = verdict(&others);
    assert_eq!(limit, [], "{sentence}");
    assert!(sentence.contains("The disks were busy with other work"), "{sentence}");
    assert!(
        others.findings[0].sentence.contains("100 % of a disk's traffic came from other work"),
        "{}",
        others.findings[0].sentence
    );
}

#[test]
fn several_saturated_resources_make_one_conclusion() {
    let both = analysed(vec![
        sampled(&Machine { own: 0.95, kernel: 0.02, others: 0.0, stolen: 0.0 }),
        disk(0.98, 20.0, 12e6),
    ]);
    let (limit, sentence) = verdict(&both);
    assert_eq!(limit, [Resource::Disk, Resource::Cpu]);
    assert!(
        sentence
            .contains("No single resource is the limit: busiest disk and processors were saturated at once"),
        "{sentence}"
    );
    assert!(
        !sentence.contains("is the limit:") || sentence.matches("is the limit").count() == 1,
        "{sentence}"
    );
    assert_eq!(both.limits[0].findings()[0].id, "limit.several");
    assert_eq!(both.limits[0].limit(), None);
}

#[test]
fn no_run_ever_has_two_contradicting_limits() {
    let parts = [0.0, 0.5, 0.97];
    for own in parts {
        for others in parts.into_iter().filter(|others| own + others <= 1.0) {
            for busy in parts {
                let analysis = analysed(vec![
                    sampled(&Machine { own, kernel: 0.0, others, stolen: 0.0 }),
                    disk(busy, 20.0, 12e6),
                ]);
                let (limit, sentence) = verdict(&analysis);
                assert!(sentence.matches("the limit").count() <= 2, "{limit:?} {sentence}");
                let waits =
                    [Resource::Concurrency, Resource::SyncLatency, Resource::Submitter, Resource::Throttle];
                let is_waiting = limit.iter().any(|resource| waits.contains(resource));
                assert!(!is_waiting || limit.len() == 1, "{limit:?} {sentence}");
                if others > 0.25 {
                    assert!(!limit.contains(&Resource::Cpu) && !is_waiting, "{limit:?} {sentence}");
                }
            }
        }
    }
}
