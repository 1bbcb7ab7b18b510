//! Measures the cost of choosing the next operation: `cargo run --release -p cenote-lab --example
//! operation_speed [MILLIONS]`.
//!
//! The figure is the fastest piece of 50,000 operations: the speed of an otherwise idle core.

#![allow(clippy::print_stdout, reason = "a program that only prints")]

use std::hint::black_box;
use std::time::Instant;

use cenote_lab::job::{BlockSizes, Distribution, Job, Pattern, ReadWrite};
use cenote_lab::workload::Workload;

/// Operations timed together.
const PIECE: u64 = 50_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let millions: u64 = std::env::args().nth(1).map_or(Ok(5), |arg| arg.parse())?;
    let random = |read_percent| Job {
        pattern: Pattern { random: true, read_percent },
        time_based: true,
        runtime_ns: Some(1),
        ..Job::default()
    };
    let split = BlockSizes(vec![(4096, 50), (16384, 30), (65536, 20)]);
    for (name, job) in [
        ("sequential read", Job { pattern: Pattern { random: false, read_percent: 100 }, ..random(0) }),
        ("random read, each block once", random(100)),
        ("random mix 70/30, each block once", random(70)),
        (
            "random mix of three sizes",
            Job { block_sizes: ReadWrite { read: split.clone(), write: split }, ..random(70) },
        ),
        ("random, no map", Job { no_random_map: true, ..random(100) }),
        ("zipf 1.2", Job { distribution: Distribution::Zipf(1.2), ..random(100) }),
        ("zipf 0.8", Job { distribution: Distribution::Zipf(0.8), ..random(100) }),
        ("pareto 0.2", Job { distribution: Distribution::Pareto(0.2), ..random(100) }),
        ("normal 10%", Job { distribution: Distribution::Normal(10.0), ..random(100) }),
    ] {
        let mut workload = Workload::new(&job, 0, 0..100 << 30)?;
        let mut best = f64::INFINITY;
        for _ in 0..millions * 1_000_000 / PIECE {
            let begin = Instant::now();
            for _ in 0..PIECE {
                black_box(workload.next());
            }
            best = best.min(begin.elapsed().as_secs_f64());
        }
        let nanoseconds = best * 1e9 / PIECE as f64;
        println!("{name:36} {nanoseconds:5.1} ns an operation");
    }
    Ok(())
}
