//! Speed of every Fletcher kernel over a cached block.
//!
//! ```text
//! cargo run --release -p cenote-codec --example fletcher_speed
//! ```
//!
//! Prints GB/s, the median of many short samples, so other work matters little.

#![allow(clippy::print_stdout, reason = "a program that only prints")]

use std::hint::black_box;
use std::time::Instant;

use cenote_codec::Kernel;

const BLOCK_SIZES: [usize; 4] = [512, 4 << 10, 16 << 10, 128 << 10];
const SAMPLES: usize = 101;
/// Bytes per sample: some 100 microseconds.
const SAMPLE_BYTES: usize = 4 << 20;

type Sum = fn(Kernel, &[u8]) -> [u64; 4];

const SUMS: [(&str, Sum); 4] = [
    ("fletcher4", |kernel, data| kernel.fletcher4(data, false)),
    ("fletcher4 byteswap", |kernel, data| kernel.fletcher4(data, true)),
    ("fletcher2", |kernel, data| kernel.fletcher2(data, false)),
    ("fletcher2 byteswap", |kernel, data| kernel.fletcher2(data, true)),
];

fn main() {
    print!("{:<20} {:<10}", "GB/s", "kernel");
    BLOCK_SIZES.iter().for_each(|size| print!(" {size:>9} B"));
    println!();
    for (name, sum) in SUMS {
        // Fletcher ignores GFNI, so those kernels are duplicates.
        for kernel in Kernel::available().filter(|kernel| !kernel.name().contains("gfni")) {
            print!("{name:<20} {:<10}", kernel.name());
            for size in BLOCK_SIZES {
                let data: Vec<u8> = (0..size).map(|i| (i * 31) as u8).collect();
                let mut samples: Vec<f64> = (0..SAMPLES).map(|_| sample(&data, kernel, sum)).collect();
                samples.sort_by(f64::total_cmp);
                print!(" {:>11.1}", samples[SAMPLES / 2]);
            }
            println!();
        }
    }
}

fn sample(data: &[u8], kernel: Kernel, sum: Sum) -> f64 {
    let rounds = SAMPLE_BYTES / data.len();
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(sum(kernel, black_box(data)));
    }
    (rounds * data.len()) as f64 / start.elapsed().as_secs_f64() / 1e9
}
