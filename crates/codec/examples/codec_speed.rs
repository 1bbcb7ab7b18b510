//! Speed of every kernel but RAID-Z, in gigabytes per second on one core.
//!
//! `cargo run --release -p cenote-codec --example codec_speed [KIB]` (block size, default 128). Prints the
//! best of several runs. Compression speed counts plaintext.

#![allow(clippy::print_stdout, reason = "a program that only prints")]

use cenote_codec::Endian;
use cenote_codec::checksum::{Checksum, ChecksumSalt};
use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_codec::crypto::{BlockKey, Cipher};
use std::hint::black_box;
use std::time::{Duration, Instant};

const RUNS: usize = 7;
const BYTES_PER_RUN: usize = 8 << 20;

fn main() {
    let kib = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(128usize);
    let data = text_like(kib << 10);
    println!("{:<28}{:>8}", format!("blocks of {kib} KiB"), "GB/s");
    checksums(&data);
    ciphers(&data);
    compressors(&data);
}

fn report(name: &str, bytes: usize, mut work: impl FnMut()) {
    let calls = (BYTES_PER_RUN / bytes).max(1);
    let best = (0..RUNS).map(|_| time(calls, &mut work)).min().unwrap_or(Duration::MAX);
    println!("{name:<28}{:>8.2}", (bytes * calls) as f64 / best.as_secs_f64() / 1e9);
}

fn time(calls: usize, work: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..calls).for_each(|_| work());
    start.elapsed()
}

fn checksums(data: &[u8]) {
    use Checksum::*;
    let salt = ChecksumSalt::new([7; 32]);
    for checksum in [Fletcher2, Fletcher4, Sha256, Sha512, Skein, EdonR, Blake3] {
        report(checksum.name(), data.len(), || {
            black_box(checksum.compute(black_box(data), Endian::Little, Some(&salt)).ok());
        });
    }
}

fn ciphers(data: &[u8]) {
    for cipher in Cipher::ALL {
        let key = BlockKey::new(cipher, &[7; 32]);
        let mut block = data.to_vec();
        let Ok(mac) = key.seal(&[1; 12], b"", &mut block) else { continue };
        let mut opened = block.clone();
        report(&format!("{} open", cipher.name()), data.len(), || {
            opened.copy_from_slice(&block);
            black_box(key.open(&[1; 12], &mac, b"", &mut opened).is_ok());
        });
    }
}

fn compressors(data: &[u8]) {
    use Compression::*;
    for compression in [Lzjb, Zle, Gzip6, Lz4, Zstd] {
        let name = compression.name();
        let compress = || compression.compress(black_box(data), data.len(), ZstdLevel::DEFAULT);
        report(&format!("{name} compress"), data.len(), || {
            black_box(compress().ok());
        });
        let Ok(Some(stored)) = compress() else { continue };
        let mut block = vec![0; data.len()];
        let percent = stored.len() * 100 / data.len();
        report(&format!("{name} decompress ({percent} %)"), data.len(), || {
            black_box(compression.decompress_into(black_box(&stored), &mut block).is_ok());
        });
    }
}

/// Words and runs of zeros with random bytes: compresses to about a third.
fn text_like(bytes: usize) -> Vec<u8> {
    const WORDS: [&[u8]; 8] =
        [b"alpha", b"beta ", b"storage", b"pool", b"zfs ", b"metaslab ", &[0; 24], b"block pointer "];
    let mut state = 1u64;
    let mut data = Vec::with_capacity(bytes + 32);
    while data.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        data.extend_from_slice(WORDS[(state >> 61) as usize]);
        if state >> 40 & 7 == 0 {
            data.push((state >> 33) as u8);
        }
    }
    data.truncate(bytes);
    data
}
