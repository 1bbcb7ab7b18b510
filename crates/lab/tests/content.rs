//! The content of writes: compressible, duplicated and recognisable as requested.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::HashSet;
use std::path::Path;

use cenote_lab::LabError;
use cenote_lab::job::{BlockSizes, Content, Job, ReadWrite};
use cenote_lab::workload::buffer::{Filler, SECTOR_BYTES};
use cenote_lab::workload::{Kind, Operation};
use proptest::prelude::*;

fn write(offset: u64, bytes: usize, number: u64) -> Operation {
    Operation { kind: Kind::Write, offset, bytes: bytes as u32, number }
}

/// The data of the first `count` writes of `bytes` each.
fn written(job: &Job, bytes: usize, count: u64) -> Vec<Vec<u8>> {
    let mut filler = Filler::new(job, 0).unwrap();
    let mut buffer = vec![0xaa; bytes];
    filler.prepare(&mut buffer);
    let one = |number| {
        filler.renew(&mut buffer, &write(number * bytes as u64, bytes, number));
        buffer.clone()
    };
    (0..count).map(one).collect()
}

fn fresh() -> Job {
    Job { content: Content::Fresh, ..Job::default() }
}

fn compressed_share(data: &[u8]) -> f64 {
    lz4_flex::block::compress(data).len() as f64 / data.len() as f64
}

#[test]
fn plain_writes_reuse_their_buffer_but_no_sector_is_written_twice() {
    let [first, second] = &written(&Job::default(), 65536, 2)[..] else { panic!() };
    let mut sectors = HashSet::new();
    for sector in first.chunks(SECTOR_BYTES).chain(second.chunks(SECTOR_BYTES)) {
        assert!(sectors.insert(sector.to_vec()), "a sector is repeated");
    }
    let same = first.iter().zip(second).filter(|(a, b)| a == b).count();
    assert!(same > 65536 * 9 / 10, "most of it is reused: {same}");
    assert!(compressed_share(first) > 0.99);
}

#[test]
fn buffers_are_reused_renewed_or_zero_as_requested() {
    let of = |content| written(&Job { content, ..Job::default() }, 4096, 2);
    let reused = of(Content::Reused);
    assert!(reused[0] == reused[1] && compressed_share(&reused[0]) > 0.99);
    assert!(of(Content::Zeros).iter().flatten().all(|&byte| byte == 0));
    let renewed = of(Content::Fresh);
    let same = renewed[0].iter().zip(&renewed[1]).filter(|(a, b)| a == b).count();
    assert!(same < 64, "{same} of 4096, where 16 are expected");
}

#[test]
fn data_compress_as_requested() {
    for percent in [0, 10, 25, 50, 75, 90, 100] {
        let job = Job { compress_percent: percent, ..fresh() };
        for bytes in [8192, 131_072] {
            let buffers = written(&job, bytes, 3);
            let found = compressed_share(&buffers.concat());
            let expected = 1.0 - f64::from(percent) / 100.0;
            assert!((found - expected).abs() < 0.02, "{percent} % in {bytes}: {found}");
            assert!(percent == 100 || buffers[0] != buffers[2]);
        }
    }
}

#[test]
fn copies_have_their_share() {
    let job = Job { dedupe_percent: 30, ..Job::default() };
    let unique: HashSet<_> = written(&job, 4096, 1000).into_iter().collect();
    assert!((700..=701).contains(&unique.len()), "{}", unique.len());
    let both = Job { compress_percent: 50, ..job };
    let buffers = written(&both, 8192, 1000);
    let unique: HashSet<_> = buffers.iter().collect();
    assert!((700..=701).contains(&unique.len()), "{}", unique.len());
    assert!((compressed_share(&buffers[0]) - 0.5).abs() < 0.02);
}

#[test]
fn all_sizes_are_filled_to_the_end() {
    for bytes in [1, 15, 16, 17, 511, 4095, 4097] {
        let ends: HashSet<u8> = written(&fresh(), bytes, 20).iter().map(|buffer| buffer[bytes - 1]).collect();
        assert!(ends.len() > 10, "{bytes}: {ends:?}");
    }
}

fn verified() -> Job {
    Job { verify: true, ..Job::default() }
}

/// The data of write 7 to byte 8192.
fn block(job: &Job, worker: u32) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    Filler::new(job, worker).unwrap().renew(&mut buffer, &write(8192, 4096, 7));
    buffer
}

/// Offset and description of the error when `found` is read in place of write 7.
fn wrong(found: &[u8]) -> (u64, String) {
    let filler = Filler::new(&verified(), 0).unwrap();
    match filler.check(Path::new("file"), found, &write(8192, 4096, 7)).unwrap_err() {
        LabError::Verify { offset, what, path } if path == Path::new("file") => (offset, what),
        other => panic!("{other}"),
    }
}

#[test]
fn correct_data_and_later_writes_are_accepted() {
    let filler = Filler::new(&verified(), 0).unwrap();
    let found = block(&verified(), 0);
    for least in [0, 6, 7] {
        filler.check(Path::new("file"), &found, &write(8192, 4096, least)).unwrap();
    }
}

#[test]
fn each_kind_of_wrong_data_is_reported() {
    let right = block(&verified(), 0);
    let change = |at: usize, byte: u8| {
        let mut found = right.clone();
        found[at] = byte;
        found
    };
    let (offset, what) = wrong(&change(1000, right[1000] ^ 1));
    assert_eq!(offset, 8192 + 1000);
    assert!(what.contains(&format!("{:#04x}", right[1000] ^ 1)) && what.contains("1 bytes"), "{what}");

    let (offset, what) = wrong(&[0; 4096]);
    assert!(offset == 8192 && what.contains("zeros: write 7 is missing"), "{what}");
    let (_, what) = wrong(&block(&verified(), 1));
    assert!(what.contains("not written by this run"), "{what}");

    let mut other = vec![0; 4096];
    let mut filler = Filler::new(&verified(), 0).unwrap();
    filler.renew(&mut other, &write(4096, 4096, 9));
    let (_, what) = wrong(&other);
    assert!(what.contains("from write 9 to byte 4096: it is misplaced"), "{what}");
    filler.renew(&mut other, &write(8192, 4096, 3));
    let (_, what) = wrong(&other);
    assert!(what.contains("from write 3, but write 7 came later"), "{what}");

    filler.renew(&mut other, &write(8192, 4096, 9));
    let torn = [&other[..1536], &right[1536..]].concat();
    let (offset, what) = wrong(&torn);
    assert_eq!(offset, 8192 + 1536);
    assert!(what.contains("from write 7, but the block starts with write 9: it is torn"), "{what}");
}

#[test]
fn blocks_of_several_sizes_may_overlap() {
    let sizes = BlockSizes(vec![(4096, 1), (8192, 1)]);
    let job = Job { block_sizes: ReadWrite { read: sizes.clone(), write: sizes }, ..verified() };
    let mut filler = Filler::new(&job, 0).unwrap();
    let mut file = vec![0; 8192];
    filler.renew(&mut file, &write(0, 8192, 1));
    filler.renew(&mut file[4096..], &write(4096, 4096, 2));
    filler.check(Path::new("file"), &file, &write(0, 8192, 1)).unwrap();
}

#[test]
fn conflicting_options_are_refused() {
    let error = |job| Filler::new(&job, 0).unwrap_err().to_string();
    assert!(error(Job { dedupe_percent: 1, ..verified() }).contains("dedupe_percentage"));
    let odd = ReadWrite { read: BlockSizes::of(1000), write: BlockSizes::of(1000) };
    assert!(error(Job { block_sizes: odd, ..verified() }).contains("multiples of 512"));
}

proptest! {
    #[test]
    fn any_changed_byte_is_found(
        (seed, worker, number) in any::<(u64, u32, u64)>(),
        sector in 0u64..1 << 50,
        compress_percent in 0u8..=100,
        (at, change) in (0usize..8192, 1u8..),
    ) {
        let job = Job { seed, compress_percent, ..verified() };
        let written = write(sector * 512, 8192, number);
        let mut buffer = vec![0; 8192];
        Filler::new(&job, worker).unwrap().renew(&mut buffer, &written);
        let filler = Filler::new(&job, worker).unwrap();
        prop_assert!(filler.check(Path::new("file"), &buffer, &written).is_ok());
        buffer[at] ^= change;
        let found = filler.check(Path::new("file"), &buffer, &written);
        prop_assert!(found.is_err(), "byte {} of {:?}", at, written);
    }
}
