//! The operations of a workload: all blocks, the right shares and distributions, and the same
//! operations from the same seed.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::{HashMap, HashSet};

use cenote_lab::job::{BlockSizes, Distribution, Job, Pattern, ReadWrite};
use cenote_lab::workload::{Kind, Operation, Workload};
use proptest::prelude::*;

/// Random 4 KiB blocks, without end.
fn random(read_percent: u8) -> Job {
    let pattern = Pattern { random: true, read_percent };
    Job { pattern, time_based: true, runtime_ns: Some(1), ..Job::default() }
}

fn sequential(read_percent: u8) -> Job {
    Job { pattern: Pattern { random: false, read_percent }, ..random(read_percent) }
}

fn workload(job: &Job, blocks: u64) -> Workload {
    Workload::new(job, 0, 0..blocks * 4096).unwrap()
}

/// The blocks in which the first `count` operations start.
fn blocks(job: &Job, blocks: u64, count: usize) -> Vec<u64> {
    workload(job, blocks).take(count).map(|operation| operation.offset / 4096).collect()
}

/// How often blocks are visited, most popular first.
fn popularity(blocks: &[u64]) -> Vec<(usize, u64)> {
    let mut counts = HashMap::new();
    for &block in blocks {
        *counts.entry(block).or_insert(0) += 1;
    }
    let mut counts: Vec<(usize, u64)> = counts.into_iter().map(|(block, count)| (count, block)).collect();
    counts.sort_unstable_by_key(|&(count, _)| std::cmp::Reverse(count));
    counts
}

fn close(found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() < within, "found {found}, expected {expected}");
}

#[test]
fn each_pass_visits_each_block_once_in_a_new_order() {
    for n in [1, 2, 3, 5, 64, 1000, 4097] {
        let order = blocks(&random(100), n, 2 * n as usize);
        let (first, second) = order.split_at(n as usize);
        for pass in [first, second] {
            assert_eq!(pass.iter().collect::<HashSet<_>>().len(), n as usize, "{n}");
        }
        assert!(n < 64 || first != second);
    }
}

#[test]
fn a_shuffled_order_has_no_trend() {
    let n = 100_000;
    let order = blocks(&random(100), n, n as usize);
    let distances: u64 = order.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
    close(distances as f64 / n as f64, n as f64 / 3.0, 0.01);
    let rising = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
    close(rising as f64, n as f64 / 2.0, 0.01);
    let neighbours = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
    assert!(neighbours < 15, "{neighbours}, where 2 are expected");
    let first_tenth: u64 = order.iter().take(n as usize / 10).sum();
    close(first_tenth as f64 / (n as f64 / 10.0), n as f64 / 2.0, 0.01);
}

#[test]
fn reads_have_exactly_their_share() {
    for percent in [1, 30, 70, 99] {
        let reads =
            |count| workload(&random(percent), 1000).take(count).filter(|o| o.kind == Kind::Read).count();
        assert_eq!(reads(10_000), 100 * usize::from(percent));
        assert_eq!(reads(100), usize::from(percent));
    }
    let mut kinds = workload(&random(50), 1000).map(|operation| operation.kind);
    let order: Vec<Kind> = kinds.by_ref().take(200).collect();
    assert_ne!(order[..100], order[100..], "the choice of reads is random");
}

#[test]
fn reads_and_writes_share_the_blocks_of_a_pass() {
    let order = blocks(&random(70), 1000, 1000);
    assert_eq!(order.iter().collect::<HashSet<_>>().len(), 1000);
}

#[test]
fn sequential_reads_and_writes_advance_independently_and_restart() {
    let job = Job {
        block_sizes: ReadWrite { read: BlockSizes::of(4096), write: BlockSizes::of(8192) },
        ..sequential(50)
    };
    let all: Vec<Operation> = Workload::new(&job, 0, 1 << 20..(1 << 20) + 20480).unwrap().take(200).collect();
    let offsets = |kind| all.iter().filter(move |o| o.kind == kind).map(|o| o.offset - (1 << 20));
    assert!(offsets(Kind::Read).take(7).eq([0, 4096, 8192, 12288, 16384, 0, 4096]));
    assert!(
        offsets(Kind::Write).take(5).eq([0, 8192, 0, 8192, 0]),
        "operations that do not fit are left out"
    );
}

#[test]
fn without_time_it_ends_when_everything_is_transferred() {
    let ending = |job: Job| Job { time_based: false, ..job };
    assert_eq!(workload(&ending(random(0)), 1000).count(), 1000);
    assert_eq!(workload(&ending(sequential(100)), 1000).count(), 1000);
    let more = Job { io_size_bytes: Some(1500 * 4096), ..ending(random(50)) };
    assert_eq!(workload(&more, 1000).count(), 1500);
    let less = Job { io_size_bytes: Some(10_000), ..ending(sequential(0)) };
    assert_eq!(workload(&less, 1000).count(), 3, "the last one is whole");
}

#[test]
fn syncs_follow_the_number_of_writes() {
    let job = Job { fsync_every: 3, fdatasync_every: 2, ..sequential(0) };
    let kinds: Vec<Kind> = workload(&job, 100).take(11).map(|operation| operation.kind).collect();
    use Kind::{Datasync, Sync, Write};
    assert_eq!(kinds, [Write, Write, Datasync, Write, Sync, Write, Datasync, Write, Write, Datasync, Sync]);
    let numbers = workload(&job, 100).filter(|o| o.kind == Write).map(|o| o.number);
    assert!(numbers.take(5).eq(0..5), "syncs have no number of their own");
}

#[test]
fn sizes_have_their_shares() {
    let split = BlockSizes(vec![(4096, 50), (16384, 30), (65536, 20), (1 << 20, 0)]);
    let job = Job { block_sizes: ReadWrite { read: split.clone(), write: split }, ..random(100) };
    let all: Vec<u32> = workload(&job, 1 << 20).take(100_000).map(|operation| operation.bytes).collect();
    for (bytes, share) in [(4096, 0.5), (16384, 0.3), (65536, 0.2)] {
        close(all.iter().filter(|&&b| b == bytes).count() as f64 / 1e5, share, 0.02);
    }
    assert!(!all.contains(&(1 << 20)));
}

#[test]
fn without_a_map_blocks_are_uniform() {
    let job = Job { no_random_map: true, ..random(100) };
    let mut bins = [0u32; 100];
    for block in blocks(&job, 1_000_000, 100_000) {
        bins[block as usize / 10_000] += 1;
    }
    let chi_square: f64 = bins.iter().map(|&count| (f64::from(count) - 1000.0).powi(2) / 1000.0).sum();
    assert!((60.0..149.0).contains(&chi_square), "{chi_square}: 99 degrees of freedom, 99.9 % lie there");
}

#[test]
fn zipf_has_the_theoretical_head() {
    let n = 100_000;
    for theta in [0.5, 0.8, 1.0, 1.2, 2.0] {
        let sum = |to: u64| (1..=to).map(|k| (k as f64).powf(-theta)).sum::<f64>();
        let job = Job { distribution: Distribution::Zipf(theta), ..random(100) };
        let counts = popularity(&blocks(&job, n, 400_000));
        for head in [1, 10, 1000] {
            // Below some hundred hits, the most visited blocks are not always the most probable ones.
            let expected = 400_000.0 * sum(head) / sum(n);
            if expected / head as f64 > 100.0 {
                let found: usize = counts.iter().take(head as usize).map(|count| count.0).sum();
                close(found as f64, expected, 0.05);
            }
        }
    }
}

#[test]
fn hot_blocks_lie_anywhere() {
    let job = Job { distribution: Distribution::Zipf(1.2), ..random(100) };
    let hot: Vec<u64> = popularity(&blocks(&job, 1000, 50_000)).iter().take(100).map(|hot| hot.1).collect();
    let in_first_half = hot.iter().filter(|&&block| block < 500).count();
    assert!((30..70).contains(&in_first_half), "{in_first_half} of 100");
}

#[test]
fn pareto_gives_a_fifth_of_the_blocks_four_fifths_of_the_work() {
    let job = Job { distribution: Distribution::Pareto(0.2), ..random(100) };
    let counts = popularity(&blocks(&job, 1000, 500_000));
    let head: usize = counts.iter().take(200).map(|count| count.0).sum();
    close(head as f64 / 500_000.0, 0.8, 0.01);
}

#[test]
fn normal_lies_around_the_middle() {
    let n = 1_000_000.0;
    let job = Job { distribution: Distribution::Normal(10.0), ..random(100) };
    let blocks = blocks(&job, n as u64, 100_000);
    let mean = blocks.iter().sum::<u64>() as f64 / 1e5;
    close(mean, n / 2.0, 0.005);
    let variance = blocks.iter().map(|&block| (block as f64 - mean).powi(2)).sum::<f64>() / 1e5;
    close(variance.sqrt(), n / 10.0, 0.01);
    let within_two = blocks.iter().filter(|&&block| (block as f64 - n / 2.0).abs() < n / 5.0).count();
    close(within_two as f64 / 1e5, 0.9545, 0.005);
}

/// A seed means the same operations on any machine and in any version: comparisons of results depend on it.
#[test]
fn a_seed_keeps_its_meaning() {
    let of = |distribution| Job { distribution, seed: 42, ..random(100) };
    let five = |job: &Job| blocks(job, 1_000_000, 5);
    let found = [
        five(&of(Distribution::Random)),
        five(&Job { no_random_map: true, ..of(Distribution::Random) }),
        five(&of(Distribution::Zipf(1.2))),
        five(&of(Distribution::Pareto(0.2))),
        five(&of(Distribution::Normal(10.0))),
    ];
    let always = [
        [886332, 170713, 413797, 522412, 866362],
        [192955, 350079, 129157, 481570, 252621],
        [170713, 219393, 886332, 674011, 824680],
        [57710, 411790, 170713, 649348, 575005],
        [446695, 449601, 287694, 387877, 514607],
    ];
    assert_eq!(found, always);
}

#[test]
fn seeds_and_workers_differ() {
    let job = random(50);
    let of =
        |job: &Job, worker| Workload::new(job, worker, 0..4096 * 1000).unwrap().take(20).collect::<Vec<_>>();
    assert_eq!(of(&job, 0), of(&job, 0));
    assert_ne!(of(&job, 0), of(&job, 1));
    assert_ne!(of(&job, 0), of(&Job { seed: 2, ..job.clone() }, 0));
}

#[test]
fn blocks_larger_than_the_region_are_refused() {
    let error = Workload::new(&random(50), 0, 0..4095).unwrap_err().to_string();
    assert!(error.contains("4096 bytes in a region of 4095") && error.contains("smaller bs"), "{error}");
    let odd =
        Job { block_sizes: ReadWrite { read: BlockSizes(vec![]), write: BlockSizes::of(0) }, ..random(50) };
    assert!(Workload::new(&odd, 0, 0..1 << 20).is_err());
}

fn sizes() -> impl Strategy<Value = BlockSizes> {
    proptest::collection::vec((1u32..20_000, 1u32..100), 1..4).prop_map(BlockSizes)
}

proptest! {
    #[test]
    fn operations_lie_in_the_region_and_are_aligned(
        (read, write, is_random, read_percent) in (sizes(), sizes(), any::<bool>(), 0u8..=100),
        distribution in prop_oneof![
            Just(Distribution::Random),
            (0.01f64..3.0).prop_map(Distribution::Zipf),
            (0.01f64..0.99).prop_map(Distribution::Pareto),
            (0.1f64..100.0).prop_map(Distribution::Normal),
        ],
        (start, length) in (0u64..1 << 60, 1u64..1 << 40),
        no_random_map: bool,
        (seed, worker) in any::<(u64, u32)>(),
    ) {
        let smallest = |sizes: &BlockSizes| sizes.0.iter().map(|size| u64::from(size.0)).min().unwrap();
        let (smallest_read, smallest_write) = (smallest(&read), smallest(&write));
        let region = start..start + length.max(smallest_read).max(smallest_write);
        let job = Job {
            pattern: Pattern { random: is_random, read_percent },
            block_sizes: ReadWrite { read: read.clone(), write: write.clone() },
            distribution, no_random_map, seed, ..random(0)
        };
        for operation in Workload::new(&job, worker, region.clone()).unwrap().take(300) {
            prop_assert!(operation.offset >= region.start);
            prop_assert!(operation.offset + u64::from(operation.bytes) <= region.end);
            let (sizes, smallest) = match operation.kind {
                Kind::Read => (&read, smallest_read),
                _ => (&write, smallest_write),
            };
            prop_assert!(sizes.0.iter().any(|size| size.0 == operation.bytes));
            prop_assert!(!is_random || (operation.offset - start) % smallest == 0);
        }
    }
}
