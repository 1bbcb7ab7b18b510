//! Writes a report from realistic synthetic data: the four pools of field report 004, five repeats
//! each.
//!
//! `cargo run -p cenote-lab --example report_sample -- FOLDER` writes a result and its report to
//! FOLDER for inspection.

#![allow(clippy::print_stdout, reason = "a program that only prints")]

use std::error::Error;
use std::path::{Path, PathBuf};

use cenote_lab::analysis::report::{self, Study};
use cenote_lab::job::{BlockSizes, Job, Jobs, Method, Pattern, ReadWrite};
use cenote_lab::machine::zpool::{self, Class, Dataset, DatasetKind, Vdev, VdevKind};
use cenote_lab::machine::{Disk, Machine, TargetPlace, Transport};
use cenote_lab::measurement::{Latency, Measurement, Outcome, Second, Stream, Tool};
use cenote_lab::result::{Recorder, ResultFolder, Run};
use cenote_lab::samples::{Kind, Missing, Samples, Series};
use cenote_lab::suite::{Options, Plan, Test, Work};
use cenote_lab::target::{Target, TargetKind};
use cenote_lab::unit::Unit;

const SECONDS: u64 = 30;
const REPEATS: u32 = 5;

enum Layout {
    Stripe,
    Mirrors,
    Raidz1,
}

struct Pool {
    name: &'static str,
    layout: Layout,
    model: &'static str,
    disks: &'static [&'static str],
    disk_bytes: u64,
    fill_percent: u64,
    /// Operations per second: sequential write, sequential read, random read, random write, mixed
    /// (reads).
    rates: [f64; 5],
    /// Variation between repeats.
    noise: f64,
    /// Share of random reads served from memory.
    cached: f64,
}

const POOLS: [Pool; 4] = [
    Pool {
        name: "nvme",
        layout: Layout::Stripe,
        model: "SHGP31-1000GM",
        disks: &["nvme0n1", "nvme1n1"],
        disk_bytes: 1_000_204_886_016,
        fill_percent: 84,
        rates: [317.0, 1837.0, 21_500.0, 48_300.0, 2770.0],
        noise: 0.02,
        cached: 0.0,
    },
    Pool {
        name: "data0",
        layout: Layout::Mirrors,
        model: "WDC WD80EFAX",
        disks: &["sda", "sdb", "sdc", "sdd", "sde", "sdf"],
        disk_bytes: 8_001_563_222_016,
        fill_percent: 91,
        rates: [127.0, 88.8, 419.0, 8803.0, 148.0],
        noise: 0.16,
        cached: 0.02,
    },
    Pool {
        name: "data1",
        layout: Layout::Raidz1,
        model: "WDC WD140EDFZ",
        disks: &["sdg", "sdh", "sdi", "sdj"],
        disk_bytes: 14_000_519_643_136,
        fill_percent: 77,
        rates: [187.0, 240.0, 12_700.0, 15_600.0, 148.0],
        noise: 0.04,
        cached: 0.985,
    },
    Pool {
        name: "data2",
        layout: Layout::Stripe,
        model: "WDC WD140EDFZ",
        disks: &["sdk", "sdl"],
        disk_bytes: 14_000_519_643_136,
        fill_percent: 12,
        rates: [240.0, 262.0, 11_800.0, 16_300.0, 183.0],
        noise: 0.03,
        cached: 0.985,
    },
];

/// Name, description, random, percentage of reads, operation size, workers, depth.
const TESTS: [(&str, &str, bool, u8, u32, u32, u32); 5] = [
    ("seq-write-1m", "Sequential write to a large file", false, 0, 1 << 20, 1, 1),
    ("seq-read-1m", "Sequential read of a large file", false, 100, 1 << 20, 1, 1),
    ("rand-read-4k", "Random page reads from a large file, as a database does", true, 100, 4096, 4, 32),
    ("rand-write-4k", "Random page writes to a large file", true, 0, 4096, 4, 32),
    (
        "mixed-256k",
        "Seven medium-sized reads for every three writes, as several programs do at once",
        true,
        70,
        256 << 10,
        4,
        16,
    ),
];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Roughly normal: mean 0, standard deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: report_sample FOLDER")?);
    let targets: Vec<Target> = POOLS.iter().map(target).collect();
    let recorder = Recorder::create(&folder, &plan(), &targets, &serde_json::to_value(machine())?)?;
    record(recorder)?;
    write(&folder)
}

fn target(pool: &Pool) -> Target {
    Target {
        name: pool.name.into(),
        path: format!("/pool/{}/benchmark", pool.name).into(),
        kind: TargetKind::Folder,
    }
}

fn plan() -> Plan {
    let paths = POOLS.map(|pool| format!("/pool/{}/benchmark", pool.name)).join(" ");
    let command = format!("cenote lab run pools --repeats {REPEATS} {paths}");
    let test = |&(name, about, random, read_percent, size, workers, queue_depth): &(
        &str,
        &str,
        bool,
        u8,
        u32,
        u32,
        u32,
    )| {
        let sizes = BlockSizes::of(size);
        let job = Job {
            name: name.into(),
            pattern: Pattern { random, read_percent },
            block_sizes: ReadWrite { read: sizes.clone(), write: sizes },
            size_bytes: 10 << 30,
            workers,
            queue_depth,
            direct: true,
            method: Method::IoUring,
            time_based: true,
            runtime_ns: Some(SECONDS * 1_000_000_000),
            ..Job::default()
        };
        Test { name: name.into(), about: about.into(), work: Work::Io(Jobs(vec![job])) }
    };
    Plan {
        suite: "pools".into(),
        title: "How four pools of xenon compare".into(),
        method: "Which pool suits which work? Each pool runs the same five kinds of I/O, one pool after the \
            other, on its own file, which is laid out once and kept for all tests."
            .into(),
        options: Options { memory_bytes: 64 << 30, command, ..Options::default() },
        repeats: REPEATS,
        tests: TESTS.iter().map(test).collect(),
    }
}

fn machine() -> Machine {
    let mut machine = Machine::describe(&[]);
    machine.host = "xenon".into();
    machine.os = "Ubuntu 24.04.4 LTS".into();
    machine.pools = POOLS.iter().map(pool).collect();
    machine.disks = POOLS.iter().flat_map(|pool| pool.disks.iter().map(|name| disk(pool, name))).collect();
    let place = |pool: &Pool| {
        let Target { name, path, kind } = target(pool);
        let devices = pool.disks.iter().map(|&disk| disk.into()).collect();
        TargetPlace {
            target: name,
            path,
            kind,
            mount: None,
            dataset: Some(format!("{}/benchmark", pool.name)),
            devices,
        }
    };
    machine.places = POOLS.iter().map(place).collect();
    machine
}

fn pool(pool: &Pool) -> zpool::Pool {
    let leaf = |name: &str, class| vdev(name, VdevKind::Leaf, class, vec![]);
    let disks: Vec<Vdev> = pool.disks.iter().map(|name| leaf(name, Class::Normal)).collect();
    let vdevs = match pool.layout {
        Layout::Stripe => disks,
        Layout::Raidz1 => vec![vdev("raidz1-0", VdevKind::Raidz(1), Class::Normal, disks)],
        Layout::Mirrors => {
            let pairs =
                disks.chunks(2).map(|pair| vdev("mirror", VdevKind::Mirror, Class::Normal, pair.to_vec()));
            pairs.chain([leaf("sdz1", Class::Cache)]).collect()
        }
    };
    let size = pool.disks.len() as u64 * pool.disk_bytes;
    zpool::Pool {
        name: pool.name.into(),
        guid: 1,
        state: "ONLINE".into(),
        status: None,
        action: None,
        data_errors: 0,
        scan: None,
        size_bytes: Some(size),
        allocated_bytes: Some(size / 100 * pool.fill_percent),
        fragmentation_percent: Some(pool.fill_percent * 2 / 3),
        dedup_ratio: 1.0,
        properties: [("ashift".to_owned(), "12".to_owned())].into(),
        vdevs,
        datasets: vec![Dataset {
            name: format!("{}/benchmark", pool.name),
            kind: DatasetKind::Filesystem(128 << 10),
            sync: "standard".into(),
            logbias: "latency".into(),
            compression: "lz4".into(),
            compress_ratio: 1.0,
            special_small_bytes: 0,
            used_by_itself_bytes: 40 << 30,
            logical_used_bytes: 40 << 30,
            properties: [].into(),
            counters: None,
        }],
    }
}

fn vdev(name: &str, kind: VdevKind, class: Class, children: Vec<Vdev>) -> Vdev {
    Vdev {
        name: name.into(),
        path: None,
        kind,
        class,
        state: "ONLINE".into(),
        errors: [0; 3],
        slow_ios: 0,
        ashift: Some(12),
        physical_ashift: None,
        size_bytes: None,
        allocated_bytes: None,
        fragmentation_percent: None,
        latencies: None,
        children,
    }
}

fn disk(pool: &Pool, name: &str) -> Disk {
    let flash = pool.name == "nvme";
    Disk {
        name: name.into(),
        model: Some(pool.model.into()),
        serial: None,
        firmware: None,
        size_bytes: pool.disk_bytes,
        transport: if flash { Transport::Nvme } else { Transport::Sata },
        rotational: Some(!flash),
        rotation_rpm: None,
        logical_sector_bytes: Some(512),
        physical_sector_bytes: Some(if flash { 512 } else { 4096 }),
        scheduler: Some(if flash { "none" } else { "mq-deadline" }.into()),
        write_back: Some(true),
        discards: Some(flash),
    }
}

fn record(mut recorder: Recorder) -> Result<(), Box<dyn Error>> {
    let mut random = Random(4);
    for repeat in 1..=REPEATS {
        for test in 0..TESTS.len() {
            for pool in &POOLS {
                let run = run(pool, test, repeat, &mut random);
                recorder.add(run.measurement, run.samples)?;
            }
        }
    }
    recorder.finish()?;
    Ok(())
}

fn run(pool: &Pool, test: usize, repeat: u32, random: &mut Random) -> Run {
    let (name, _, _, reads, size, workers, depth) = TESTS[test];
    let speed = pool.rates[test] * (1.0 + pool.noise * random.normal()).max(0.2);
    let in_flight = f64::from(workers * depth);
    let cached = if name == "rand-read-4k" { pool.cached } else { 0.0 };
    let mut streams = Vec::new();
    if reads > 0 {
        streams.push(stream("read", speed, size, in_flight, cached, random));
    }
    if reads < 100 {
        let speed = if reads > 0 { speed * 0.43 } else { speed };
        streams.push(stream("write", speed, size, in_flight, 0.0, random));
    }
    let outcome = Outcome {
        tool: Tool { name: "fio".into(), version: "3.36".into(), command: None },
        cpu: None,
        streams,
        others: Vec::new(),
        notes: if cached > 0.0 {
            vec!["caches could not be dropped (no permission), so reads may be warm".into()]
        } else {
            vec![]
        },
    };
    let measurement = Measurement {
        test: name.into(),
        target: pool.name.into(),
        repeat,
        started_unix_ns: 1_772_150_400_000_000_000 + u64::from(repeat) * 1_000_000_000_000,
        elapsed_ns: SECONDS * 1_000_000_000,
        outcome,
    };
    Run { measurement, samples: samples(pool, speed, size, cached, random) }
}

/// Operations of one kind, with latencies whose mean follows Little's law.
fn stream(
    operation: &str,
    speed: f64,
    size: u32,
    in_flight: f64,
    cached: f64,
    random: &mut Random,
) -> Stream {
    let mean_ns = in_flight / speed * 1e9;
    // Reads from memory take 130 us; the others make up the mean.
    let slow_ns = if cached > 0.0 { ((mean_ns - cached * 130e3) / (1.0 - cached)).max(1e6) } else { mean_ns };
    let mut latency = Latency::default();
    let mut seconds = Vec::new();
    for at in 0..SECONDS {
        let dip = if at % 5 == 4 { 0.82 } else { 1.0 };
        let operations = (speed * dip * (1.0 + 0.04 * random.normal())).max(1.0) as u64;
        let (mut sum, mut longest) = (0.0, 0.0f64);
        let drawn = operations.clamp(1, 400);
        for _ in 0..drawn {
            let middle = if random.unit() < cached { 130e3 } else { slow_ns * 0.8 };
            let ns = middle * (0.45 * random.normal()).exp();
            latency.record_many(ns as u64, operations.div_ceil(drawn));
            sum += ns * operations as f64 / drawn as f64;
            longest = longest.max(ns * 1.4);
        }
        seconds.push(Second {
            at_ns: at * 1_000_000_000,
            operations,
            bytes: operations * u64::from(size),
            latency_sum_ns: sum as u64,
            latency_max_ns: longest as u64,
        });
    }
    let operations = seconds.iter().map(|s| s.operations).sum();
    let bytes = seconds.iter().map(|s| s.bytes).sum();
    let runtime_ns = SECONDS * 1_000_000_000;
    Stream { operation: operation.into(), operations, bytes, runtime_ns, errors: 0, latency, seconds }
}

fn samples(pool: &Pool, speed: f64, size: u32, cached: f64, random: &mut Random) -> Samples {
    let mut all = Samples::default();
    let mut put =
        |source: &str, subject: &str, name: &str, kind: Kind, unit: Unit, next: &mut dyn FnMut() -> f64| {
            let mut sum = 1e6;
            let points = (0..=SECONDS).map(|at| {
                sum = if kind == Kind::Counter { sum + next() } else { next() };
                (at * 1_000_000_000, sum)
            });
            let points = points.collect();
            all.series.push(Series {
                source: source.into(),
                subject: subject.into(),
                name: name.into(),
                kind,
                unit,
                points,
            });
        };
    let mut around = |mean: f64| (mean * (1.0 + 0.06 * random.normal())).max(0.0);
    let hit = cached.max(0.4);
    put("arcstats", "", "hits", Kind::Counter, Unit::Count, &mut || around(speed * hit));
    put("arcstats", "", "misses", Kind::Counter, Unit::Count, &mut || around(speed * (1.0 - hit)));
    put("arcstats", "", "size", Kind::Gauge, Unit::Bytes, &mut || 30e9 + around(1e9));
    put("arcstats", "", "c", Kind::Gauge, Unit::Bytes, &mut || 32e9);
    if pool.name == "data0" {
        put("arcstats", "", "l2_hits", Kind::Counter, Unit::Count, &mut || around(speed * 0.05));
        put("arcstats", "", "l2_misses", Kind::Counter, Unit::Count, &mut || around(speed * 0.5));
    }
    for disk in pool.disks {
        let busy = if pool.name == "nvme" { 0.35e9 } else { 0.93e9 };
        put("diskstats", disk, "io_time", Kind::Counter, Unit::Nanoseconds, &mut || around(busy).min(1e9));
        let bytes = speed * f64::from(size) * (1.0 - cached) / pool.disks.len() as f64;
        put("diskstats", disk, "read_bytes", Kind::Counter, Unit::Bytes, &mut || around(bytes));
        put("diskstats", disk, "write_bytes", Kind::Counter, Unit::Bytes, &mut || around(bytes * 0.1));
    }
    for (name, part) in [("user", 0.03), ("system", 0.14), ("iowait", 0.3), ("idle", 0.53)] {
        put("cpu", "", name, Kind::Counter, Unit::Nanoseconds, &mut || around(part * 32e9));
    }
    put("pressure", "io", "some_total", Kind::Counter, Unit::Nanoseconds, &mut || around(0.6e9).min(1e9));
    let why = "smartctl is not installed: apt install smartmontools".into();
    all.missing.push(Missing { source: "smart".into(), why });
    all
}

/// Reads the result back and writes its report.
fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    let result = ResultFolder::open(folder)?;
    let study = Study::read(&result)?;
    report::write(&study.document(report::build), folder)?;
    let essentials = study.document(report::essentials);
    println!("{}", report::text(&essentials, report::Style { colour: false, width: 100 }));
    Ok(())
}
