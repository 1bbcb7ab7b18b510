//! Speed of every RAID-Z kernel, beside OpenZFS's best by `raidz_test -B`.
//!
//! ```text
//! cargo run --release -p cenote-codec --example raidz_speed [RUNS]
//! ```
//!
//! Both measure rows of 8 data columns from one contiguous block of 128 KiB to 1 MiB. `gen_*` computes
//! parity; `rec_*` rebuilds one to three data columns of a triple-parity row from the named parity columns.
//! The unit is MiB/s per disk: block size / 8 / time. Each of the RUNS (default 3) measures Cenote, then
//! `raidz_test -B` (about four minutes), so both see the same load; 0 measures Cenote alone. The table shows
//! medians, and the ratio of Cenote's default kernel (first column) to OpenZFS's best.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that only prints")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cenote_codec::Kernel;
use cenote_codec::raidz::Column;

const DATA_COLUMNS: usize = 8;
const PAGE_BYTES: usize = 4096;
const BLOCK_SIZES: [usize; 4] = [128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Duration and number of measurements of one kernel, operation and size per run.
const SAMPLE: Duration = Duration::from_millis(20);
const SAMPLES: usize = 5;

/// Operations of `raidz_test`: parity columns generated or used.
const GENERATE: [(&str, usize); 3] = [("gen_p", 1), ("gen_pq", 2), ("gen_pqr", 3)];
const REBUILD: [(&str, &[usize]); 7] = [
    ("rec_p", &[0]),
    ("rec_q", &[1]),
    ("rec_r", &[2]),
    ("rec_pq", &[0, 1]),
    ("rec_pr", &[0, 2]),
    ("rec_qr", &[1, 2]),
    ("rec_pqr", &[0, 1, 2]),
];

/// Samples in MiB/s per disk, by operation, block size and implementation.
type Results = BTreeMap<(usize, usize), BTreeMap<String, Vec<f64>>>;

fn main() {
    let runs: usize = std::env::args().nth(1).and_then(|runs| runs.parse().ok()).unwrap_or(3);
    let (mut ours, mut theirs) = (Results::new(), Results::new());
    measure(&mut ours);
    for run in 0..runs {
        eprintln!("run {} of {runs}: raidz_test -B", run + 1);
        if !run_raidz_test(&mut theirs) {
            eprintln!("raidz_test did not run: no comparison");
            break;
        }
        measure(&mut ours);
    }
    report(&ours, &theirs);
}

fn operations() -> impl Iterator<Item = &'static str> {
    GENERATE.iter().map(|(name, _)| *name).chain(REBUILD.iter().map(|(name, _)| *name))
}

/// Each sample covers the whole table, so a burst of other work spoils few samples of a cell.
fn measure(results: &mut Results) {
    for _ in 0..SAMPLES {
        for (operation, name) in operations().enumerate() {
            for block_bytes in BLOCK_SIZES {
                let mut row = Row::new(block_bytes);
                for kernel in Kernel::available() {
                    let slot = results.entry((operation, block_bytes)).or_default();
                    let speed = sample(&mut row, kernel, name);
                    slot.entry(kernel.name().to_owned()).or_default().push(speed);
                }
            }
        }
    }
}

fn sample(row: &mut Row, kernel: Kernel, operation: &str) -> f64 {
    let (start, mut rounds) = (Instant::now(), 0u32);
    while start.elapsed() < SAMPLE {
        for _ in 0..16 {
            row.perform(kernel, operation);
        }
        rounds += 16;
    }
    let column_mib = row.column_bytes as f64 / f64::from(1 << 20);
    f64::from(rounds) * column_mib / start.elapsed().as_secs_f64()
}

struct Row {
    column_bytes: usize,
    buffer: Vec<u8>,
    first_byte: usize,
}

impl Row {
    fn new(block_bytes: usize) -> Row {
        let column_bytes = block_bytes / DATA_COLUMNS;
        let len = column_bytes * (DATA_COLUMNS + 3) + PAGE_BYTES;
        let buffer: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        let first_byte = buffer.as_ptr().align_offset(PAGE_BYTES);
        let mut row = Row { column_bytes, buffer, first_byte };
        row.perform(Kernel::best(), "gen_pqr");
        row
    }

    fn perform(&mut self, kernel: Kernel, operation: &str) {
        let row = &mut self.buffer[self.first_byte..][..self.column_bytes * (DATA_COLUMNS + 3)];
        let (parity, data) = row.split_at_mut(self.column_bytes * 3);
        let result = if let Some((_, count)) = GENERATE.iter().find(|(name, _)| *name == operation) {
            let data: Vec<&[u8]> = data.chunks(self.column_bytes).collect();
            let mut parity: Vec<&mut [u8]> = parity.chunks_mut(self.column_bytes).take(*count).collect();
            kernel.generate(&mut parity, &data)
        } else {
            let used = REBUILD.iter().find(|(name, _)| *name == operation).map_or(&[][..], |(_, used)| used);
            let parity = parity.chunks(self.column_bytes).enumerate();
            let parity = parity.map(|(row, bytes)| match used.contains(&row) {
                true => Column::Present(bytes),
                false => Column::Unknown,
            });
            let data = data.chunks_mut(self.column_bytes).enumerate();
            let data = data.map(|(index, bytes)| match index < used.len() {
                true => Column::Missing(bytes),
                false => Column::Present(bytes),
            });
            kernel.reconstruct(3, &mut parity.chain(data).collect::<Vec<_>>())
        };
        black_box(result).expect("the row is well formed");
    }
}

/// Runs `raidz_test -B` and collects its lines `impl, math, dcols, iosize, disk_bw, ...`.
fn run_raidz_test(results: &mut Results) -> bool {
    let child = Command::new("raidz_test").arg("-B").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else { return false };
    let output = child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines());
    for line in output.map_while(Result::ok) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [implementation, math, _, size, speed, ..] = fields[..] else { continue };
        let operation = operations().position(|name| name == math);
        let (Some(operation), Ok(size), Ok(speed)) = (operation, size.parse(), speed.parse()) else {
            continue;
        };
        let slot = results.entry((operation, size)).or_default();
        slot.entry(implementation.to_owned()).or_default().push(speed);
    }
    child.wait().is_ok_and(|status| status.success())
}

fn report(ours: &Results, theirs: &Results) {
    let names: Vec<&str> = Kernel::available().map(Kernel::name).collect();
    print!("MiB/s a disk     KiB");
    names.iter().for_each(|name| print!(" {name:>12}"));
    println!("  | OpenZFS best            ratio");
    for (&(operation, block_bytes), kernels) in ours {
        print!("{:<12} {:>7}", operations().nth(operation).unwrap_or(""), block_bytes >> 10);
        names.iter().for_each(|&name| print!(" {:>12.0}", kernels.get(name).map_or(0.0, |s| median(s))));
        let chosen = kernels.get(Kernel::best().name()).map(|samples| median(samples));
        let best = theirs.get(&(operation, block_bytes)).and_then(|implementations| {
            let medians = implementations.iter().map(|(name, samples)| (name, median(samples)));
            medians.max_by(|a, b| a.1.total_cmp(&b.1))
        });
        match (chosen, best) {
            (Some(chosen), Some((name, best))) => {
                println!("  | {name:<12} {best:>8.0} {:>8.2}", chosen / best);
            }
            _ => println!("  | not measured"),
        }
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
