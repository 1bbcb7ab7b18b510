//! Measures how fast write data are generated, beside common alternatives: `cargo run --release -p cenote-lab
//! --example fill_speed [MIB]`.
//!
//! One thread fills a 1 MiB buffer repeatedly, or reads `/dev/urandom` or `openssl rand` into it. The figure
//! is the fastest 8 MiB piece: the speed of an otherwise idle core.

#![allow(clippy::print_stdout, reason = "a program that only prints")]

use std::fs::File;
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::Instant;

use cenote_lab::job::{Content, Job};
use cenote_lab::workload::buffer::Filler;
use cenote_lab::workload::{Kind, Operation};

const BUFFER_BYTES: usize = 1 << 20;
/// Buffers timed together.
const PIECE: usize = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mib: u64 = std::env::args().nth(1).map_or(Ok(4096), |arg| arg.parse())?;
    let fresh = Job { content: Content::Fresh, ..Job::default() };
    for (name, job) in [
        ("fresh data", fresh.clone()),
        ("fresh, half of it compressible", Job { compress_percent: 50, ..fresh.clone() }),
        ("fresh, half of the buffers copies", Job { dedupe_percent: 50, ..fresh.clone() }),
        ("verified", Job { verify: true, ..fresh }),
        ("plain (stamped)", Job::default()),
    ] {
        show(name, fill(&job, mib)?);
    }
    show("checking verified data", check(mib)?);
    show("/dev/urandom", read(File::open("/dev/urandom")?, mib / 8)?);
    let openssl = Command::new("openssl")
        .args(["rand", &(mib / 8 * BUFFER_BYTES as u64).to_string()])
        .stdout(Stdio::piped())
        .spawn();
    match openssl {
        Ok(mut child) => {
            let pipe = child.stdout.take().ok_or("no pipe")?;
            show("openssl rand", read(pipe, mib / 8)?);
            child.wait()?;
        }
        Err(_) => println!("openssl rand: not installed"),
    }
    Ok(())
}

fn show(name: &str, seconds: f64) {
    println!("{name:36} {:6.2} GB/s", (PIECE * BUFFER_BYTES) as f64 / seconds / 1e9);
}

fn write(number: u64) -> Operation {
    Operation { kind: Kind::Write, offset: number * BUFFER_BYTES as u64, bytes: BUFFER_BYTES as u32, number }
}

/// Seconds taken by the fastest piece out of `mib`; `work` fills one buffer.
fn best<E>(mib: u64, mut work: impl FnMut(u64) -> Result<(), E>) -> Result<f64, E> {
    let mut best = f64::INFINITY;
    for piece in 0..mib / PIECE as u64 {
        let begin = Instant::now();
        for number in 0..PIECE as u64 {
            work(piece * PIECE as u64 + number)?;
        }
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn fill(job: &Job, mib: u64) -> cenote_lab::Result<f64> {
    let mut filler = Filler::new(job, 0)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    filler.prepare(&mut buffer);
    best(mib, |number| {
        filler.renew(&mut buffer, &write(number));
        std::hint::black_box(&buffer);
        Ok(())
    })
}

fn check(mib: u64) -> cenote_lab::Result<f64> {
    let mut filler = Filler::new(&Job { verify: true, ..Job::default() }, 0)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    filler.renew(&mut buffer, &write(7));
    best(mib, |_| filler.check("buffer".as_ref(), &buffer, &write(7)))
}

fn read(mut from: impl Read, mib: u64) -> io::Result<f64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    best(mib, |_| from.read_exact(&mut buffer))
}
