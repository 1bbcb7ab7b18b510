//! Job files as people write them, and agreement with the real fio.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that can't go on must stop")]

use std::path::{Path, PathBuf};
use std::process::Command;

use cenote_lab::job::{BlockSizes, Content, Distribution, Job, Jobs, Method, Pattern, ReadWrite, SyncMode};
use cenote_lab::workload::Workload;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn file(name: &str) -> Jobs {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    Jobs::parse(&text, name).unwrap()
}

fn error(text: &str) -> String {
    Jobs::parse(text, "a.fio").unwrap_err().to_string()
}

#[test]
fn global_options_apply_to_all_later_jobs() {
    let Jobs(jobs) = file("report-004.fio");
    let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["seq-write", "seq-read", "rand-read", "rand-write", "mixed"]);
    assert!(jobs.iter().all(|job| {
        job.direct
            && job.time_based
            && job.group
            && job.runtime_ns == Some(60 * SECOND)
            && job.method == Method::IoUring
            && job.size_bytes == 10 << 30
            && job.seed == 4
    }));
    assert_eq!(jobs.iter().map(|job| job.stonewall).collect::<Vec<_>>(), [false, true, true, true, true]);
    assert_eq!(jobs[0].pattern, Pattern { random: false, read_percent: 0 });
    assert_eq!(jobs[0].block_sizes.write, BlockSizes::of(1 << 20));
    assert_eq!((jobs[2].queue_depth, jobs[2].workers), (32, 4));
    assert_eq!(jobs[4].pattern, Pattern { random: true, read_percent: 70 });
}

#[test]
fn a_job_overrides_global() {
    let Jobs(jobs) = file("database.fio");
    let [pages, log] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!(pages.pattern, Pattern { random: true, read_percent: 80 });
    assert_eq!(pages.distribution, Distribution::Zipf(1.2));
    assert_eq!((pages.runtime_ns, pages.ramp_ns), (Some(120 * SECOND), 10 * SECOND));
    assert_eq!(pages.block_sizes.read, BlockSizes::of(8192));
    assert_eq!(log.block_sizes.write, BlockSizes::of(4096));
    assert_eq!((log.method, log.fdatasync_every, log.compress_percent), (Method::Threads, 1, 40));
    assert_eq!(log.rate_iops, ReadWrite { read: None, write: Some(500) });
}

#[test]
fn sizes_come_as_ranges_splits_and_pairs() {
    let Jobs(verified) = file("verified.fio");
    assert_eq!(verified[0].name, "write and read back");
    assert_eq!(verified[0].filename, Some(PathBuf::from("/mnt/tank/a:b")));
    let range: Vec<_> = (1..=16).map(|n| (n * 4096, 1)).collect();
    assert_eq!(verified[0].block_sizes.write, BlockSizes(range));
    assert!(verified[0].verify && verified[0].end_fsync);
    assert_eq!(verified[0].io_size_bytes, Some(1 << 30));

    let Jobs(splits) = file("splits.fio");
    let [split, pair, later] = &splits[..] else { panic!("{splits:?}") };
    assert_eq!(
        split.size_bytes, 1_000_000_000,
        "kb_base comes after the size but is read first, and g is 1000^3"
    );
    assert_eq!(split.block_sizes.read, BlockSizes(vec![(4096, 50), (16384, 20), (65536, 30)]));
    assert_eq!(split.block_sizes.write, BlockSizes::of(1 << 20));
    assert_eq!(split.pattern.read_percent, 50, "the default of a mix");
    assert_eq!(pair.block_sizes, ReadWrite { read: BlockSizes::of(8192), write: BlockSizes::of(32768) });
    assert_eq!((pair.think_ns, pair.think_blocks), (500_000, 16));
    assert_eq!(pair.rate_bytes, ReadWrite { read: Some(10_000_000), write: None });
    assert!(pair.direct && !pair.no_random_map);
    assert!(later.no_random_map, "set by the second global section");
    assert_eq!(later.content, Content::Reused);
    assert_eq!(later.start_delay_ns, 1_500_000_000);
    assert_eq!((later.dedupe_percent, later.sync), (30, SyncMode::Dsync));
    assert_eq!(later.distribution, Distribution::Pareto(0.3));
}

#[test]
fn a_bare_job_has_fios_defaults() {
    let Jobs(jobs) = Jobs::parse("[a]\n", "a.fio").unwrap();
    assert_eq!(jobs, [Job { name: "a".into(), ..Job::default() }]);
}

#[test]
fn an_unknown_option_is_named_with_its_line_and_a_similar_one() {
    assert_eq!(
        error("[a]\nrw=read\n\niodpeth=4\n"),
        "a.fio:4: `iodpeth` is unknown; did you mean `iodepth`?"
    );
    assert!(error("[a]\nfrobnicate\n").starts_with("a.fio:2: `frobnicate` is unknown, or"));
}

#[test]
fn unsupported_options_are_refused_with_an_alternative() {
    for (text, line, says) in [
        ("[a]\nloops=3\n", 2, "io_size"),
        ("[a]\nnrfiles=16\n", 2, "each worker has one file"),
        ("[a]\nrw=randtrim\n", 2, "trims"),
        ("[a]\nrw=read:8\n", 2, "after the colon"),
        ("[a]\nioengine=rados\n", 2, "io_uring"),
        ("[a]\n\nsize=20%\n", 3, "percentages"),
        ("[a]\nbs=4KiB\n", 2, "write 4k for 1024"),
        ("[a]\nbs=4x\n", 2, "not a size"),
        ("[a]\nbs=0\n", 2, "1 byte"),
        ("[a]\nsize=99999999p\n", 2, "too large"),
        ("[a]\nbs\n", 2, "needs a value"),
        ("[a]\nrwmixread=101\n", 2, "0 to 100"),
        ("[a]\nnumjobs=$ncpus\n", 2, "variables"),
        ("[a]\nbssplit=4k/50:8k/40\n", 2, "add up to 90"),
        ("[a]\nbsrange=1-1g\n", 2, "more than 65536"),
        (&format!("[a]\nbssplit={}4k\n", "4k:".repeat(64)), 2, "at most 64"),
        ("[a]\nrandom_distribution=zipf:1\n", 2, "other than 1"),
        ("[a]\nrandom_distribution=normal\n", 2, "normal:10"),
        ("[a]\nfilename=/dev/a:/dev/b\n", 2, "one file per job"),
        ("[b]\n[a]\ntime_based\n", 2, "needs a runtime"),
        ("[a]\nverify=md5\ndedupe_percentage=10\n", 1, "drop verify"),
        ("rw=read\n", 1, "before any section"),
        ("[a\nrw=read\n", 1, "name in brackets"),
        ("[global]\nrw=read\n", 2, "contains no job"),
        ("", 1, "contains no job"),
    ] {
        let error = error(text);
        assert!(error.starts_with(&format!("a.fio:{line}: ")) && error.contains(says), "{text:?}: {error}");
    }
}

#[test]
fn options_without_effect_are_accepted() {
    let text = "[a]\nthread\nloops=1\nnrfiles=1\nrandrepeat=0\nwrite_lat_log=x\nzonemode=none\n";
    assert_eq!(Jobs::parse(text, "a.fio").unwrap(), Jobs::parse("[a]\n", "a.fio").unwrap());
}

#[test]
fn names_that_a_job_file_cannot_express_are_refused() {
    for name in ["", " a", "a;b", "a#b", "a\nb", "$a"] {
        let jobs = Jobs(vec![Job { name: name.into(), ..Job::default() }]);
        assert!(jobs.to_fio().is_err(), "{name:?}");
    }
    let global = Jobs(vec![Job { name: "globally".into(), ..Job::default() }]);
    assert_eq!(Jobs::parse(&global.to_fio().unwrap(), "a.fio").unwrap(), global);
}

fn fio() -> Option<()> {
    let found = Command::new("fio").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: fio is not installed");
    }
    found.then_some(())
}

/// fio's reaction to a job file; nothing is run.
fn fio_says(text: &str) -> std::process::Output {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.fio");
    std::fs::write(&path, text).unwrap();
    Command::new("fio").arg("--parse-only").arg(&path).output().unwrap()
}

#[test]
fn fio_accepts_written_job_files() {
    let Some(()) = fio() else { return };
    for name in ["report-004.fio", "database.fio", "verified.fio", "splits.fio"] {
        let text = file(name).to_fio().unwrap();
        let said = fio_says(&text);
        assert!(said.status.success(), "{text}\n{}", String::from_utf8_lossy(&said.stderr));
        assert_eq!(Jobs::parse(&text, name).unwrap(), file(name));
    }
    assert!(!fio_says("[a]\niodpeth=4\n").status.success(), "--parse-only finds errors");
}

/// Operations and bytes moved by the real fio with its `null` engine, which does no I/O.
fn fio_moves(job: &Job) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.fio");
    let text = Jobs(vec![job.clone()]).to_fio().unwrap().replace("ioengine=psync", "ioengine=null");
    std::fs::write(&path, text).unwrap();
    let said = Command::new("fio").arg("--output-format=json").arg(&path).output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let sum =
        |what: &str| ["read", "write"].iter().map(|way| said["jobs"][0][way][what].as_u64().unwrap()).sum();
    (sum("total_ios"), sum("io_bytes"))
}

#[test]
fn fio_moves_as_much_as_the_engine() {
    let Some(()) = fio() else { return };
    for text in [
        "rw=write\nsize=1m",
        "rw=randrw\nsize=1m",
        "rw=rw\nsize=1m\nrwmixread=20",
        "rw=write\nsize=10k",
        "rw=randwrite\nsize=10k",
        "rw=randread\nsize=1m\nio_size=10000",
        "rw=write\nsize=1m\nio_size=3m",
        "rw=randread\nsize=1m\nrandom_distribution=zipf:1.2",
    ] {
        let Jobs(jobs) = Jobs::parse(&format!("[a]\n{text}\n"), "a.fio").unwrap();
        let ours = Workload::new(&jobs[0], 0, 0..jobs[0].size_bytes).unwrap();
        let ours = ours.fold((0, 0), |(count, bytes), one| (count + 1, bytes + u64::from(one.bytes)));
        assert_eq!(ours, fio_moves(&jobs[0]), "{text}");
    }
}

fn sizes() -> impl Strategy<Value = BlockSizes> {
    let size = || (1u32..=2048).prop_map(|n| n * 512);
    prop_oneof![
        size().prop_map(BlockSizes::of),
        (size(), size()).prop_map(|(a, b)| BlockSizes(vec![(a, 25), (b, 75)])),
        (size(), size(), size()).prop_map(|(a, b, c)| BlockSizes(vec![(a, 10), (b, 0), (c, 90)])),
    ]
}

fn range() -> impl Strategy<Value = BlockSizes> {
    (1u32..64, 1u32..40).prop_map(|(n, times)| BlockSizes((1..=times).map(|t| (t * n * 512, 1)).collect()))
}

fn pair<T: std::fmt::Debug + Clone>(
    of: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = ReadWrite<T>> {
    (of.clone(), of).prop_map(|(read, write)| ReadWrite { read, write })
}

fn micros(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), (1..=most).prop_map(|us| us * 1000), (1..100u64).prop_map(|s| s * SECOND)]
}

prop_compose! {
    fn what()(
        name in "[a-z][a-z0-9 _-]{0,8}[a-z0-9]",
        random: bool,
        read_percent in 0u8..=100,
        block_sizes in prop_oneof![pair(sizes().boxed()), pair(range().boxed())],
        filename in proptest::option::of("/[a-zA-Z0-9:_.]{1,12}".prop_map(PathBuf::from)),
        size_bytes in 0..1u64 << 50,
        io_size_bytes in proptest::option::of(1..1u64 << 50),
        offset_bytes in 0..1u64 << 50,
        distribution in prop_oneof![
            Just(Distribution::Random),
            (0.1..0.99f64).prop_map(Distribution::Zipf),
            (0.01..0.99f64).prop_map(Distribution::Pareto),
            (0.5..100f64).prop_map(Distribution::Normal),
        ],
        no_random_map: bool,
        seed in 0..1u64 << 63,
    ) -> Job {
        let pattern = Pattern { random, read_percent };
        Job {
            name, pattern, block_sizes, filename, size_bytes, io_size_bytes, offset_bytes, distribution,
            no_random_map, seed, ..Job::default()
        }
    }
}

prop_compose! {
    fn how()(
        queue_depth in 1u32..1000,
        workers in 1u32..100,
        method in prop_oneof![Just(Method::IoUring), Just(Method::Threads)],
        flags: [bool; 5],
        sync in prop_oneof![Just(SyncMode::None), Just(SyncMode::Sync), Just(SyncMode::Dsync)],
        fsync_every in 0u32..100,
        fdatasync_every in 0u32..100,
        content in prop_oneof![
            Just(Content::Stamped), Just(Content::Reused), Just(Content::Fresh), Just(Content::Zeros),
        ],
        compress_percent in 0u8..=100,
        (dedupe_percent, verify) in prop_oneof![(0u8..=100, Just(false)), (Just(0), Just(true))],
    ) -> Job {
        let [direct, end_fsync, group, stonewall, invalidate] = flags;
        Job {
            queue_depth, workers, method, direct, end_fsync, group, stonewall, invalidate, sync,
            fsync_every, fdatasync_every, content, compress_percent, dedupe_percent, verify,
            ..Job::default()
        }
    }
}

prop_compose! {
    fn when()(
        runtime_ns in proptest::option::of((1..100_000u64).prop_map(|us| us * 1000)),
        time_based: bool,
        ramp_ns in micros(100_000),
        start_delay_ns in micros(100_000),
        think_ns in micros(100_000),
        think_blocks in 1u32..1000,
        rate_bytes in pair(proptest::option::of(1..1u64 << 40)),
        rate_iops in pair(proptest::option::of(1..1u64 << 30)),
    ) -> Job {
        Job {
            runtime_ns, time_based: time_based && runtime_ns.is_some(), ramp_ns, start_delay_ns, think_ns,
            think_blocks: if think_ns > 0 { think_blocks } else { 1 }, rate_bytes, rate_iops, ..Job::default()
        }
    }
}

fn job() -> impl Strategy<Value = Job> {
    (what(), how(), when()).prop_map(|(what, how, when)| Job {
        queue_depth: how.queue_depth,
        workers: how.workers,
        method: how.method,
        direct: how.direct,
        invalidate: how.invalidate,
        sync: how.sync,
        fsync_every: how.fsync_every,
        fdatasync_every: how.fdatasync_every,
        end_fsync: how.end_fsync,
        content: how.content,
        compress_percent: how.compress_percent,
        dedupe_percent: how.dedupe_percent,
        verify: how.verify,
        group: how.group,
        stonewall: how.stonewall,
        runtime_ns: when.runtime_ns,
        time_based: when.time_based,
        ramp_ns: when.ramp_ns,
        start_delay_ns: when.start_delay_ns,
        think_ns: when.think_ns,
        think_blocks: when.think_blocks,
        rate_bytes: when.rate_bytes,
        rate_iops: when.rate_iops,
        ..what
    })
}

proptest! {
    #[test]
    fn written_job_files_parse_to_the_same_jobs(jobs in proptest::collection::vec(job(), 1..4)) {
        let jobs = Jobs(jobs);
        let text = jobs.to_fio().unwrap();
        prop_assert_eq!(Jobs::parse(&text, "written").unwrap(), jobs, "{}", text);
    }

    #[test]
    fn no_text_makes_it_panic(
        text in "(\\[[a-z\\]]{0,3}|[a-z_]{1,9}=?[0-9a-z:/,%;#-]{0,9}|bs=|size=|bssplit=|rate=|\n){0,30}",
    ) {
        let _ = Jobs::parse(&text, "any");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn fio_accepts_any_written_job(job in job()) {
        if fio().is_some() {
            let text = Jobs(vec![job]).to_fio().unwrap();
            let said = fio_says(&text);
            prop_assert!(said.status.success(), "{}\n{}", text, String::from_utf8_lossy(&said.stderr));
        }
    }
}
