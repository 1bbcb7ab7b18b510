//! Measures the cost of recording one operation (histogram, second, totals), in nanoseconds. The limit is 50.

#![allow(clippy::print_stdout, reason = "a program that only prints")]

use std::hint::black_box;
use std::time::Instant;

use cenote_lab::measurement::Recorder;

const OPERATIONS: u64 = 50_000_000;

fn main() {
    let mut recorder = Recorder::new(0);
    let began = Instant::now();
    for number in 0..OPERATIONS {
        let completed_ns = number * 2_000;
        // Latencies from 60 us to about 4 ms, unordered.
        let latency_ns = 60_000 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42);
        recorder.record(4096, black_box(completed_ns.saturating_sub(latency_ns)), black_box(completed_ns));
    }
    let elapsed = began.elapsed();
    let stream = black_box(recorder).into_stream("read", OPERATIONS * 2_000);
    println!(
        "{:.1} ns a record ({} recorded)",
        elapsed.as_nanos() as f64 / OPERATIONS as f64,
        stream.operations
    );
}
