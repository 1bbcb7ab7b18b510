//! Visible behaviour of the policies: figures published for real traces, bounds, and bookkeeping.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::BTreeMap;

use cenote_policy::curve;
use cenote_policy::policy::{Access, Class, PolicyName};
use cenote_policy::replay::{Second, replay, replay_with};
use cenote_policy::trace::{BLOCK_BYTES, Request, Trace};
use proptest::prelude::*;

const BLOCK: u64 = BLOCK_BYTES as u64;

fn trace(ids: impl IntoIterator<Item = u64>) -> Trace {
    let request = |(index, id): (usize, u64)| {
        let class = if id % 3 == 0 { Class::Metadata } else { Class::Data };
        Request { id, now_ns: index as u64 * 100_000_000, bytes: BLOCK_BYTES, class, is_write: false }
    };
    Trace { requests: ids.into_iter().enumerate().map(request).collect(), ..Trace::default() }
}

/// A fixed sequence with a few popular blocks, and scans in between.
fn mixed() -> Trace {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let ids = (0..60_000_u64).map(move |index| {
        let skewed = (next() % 1000) * (next() % 1000) / 1000;
        if index % 10_000 > 8_000 { 10_000 + index } else { skewed }
    });
    trace(ids)
}

#[test]
fn a_cache_that_holds_everything_misses_each_block_once() {
    let trace = mixed();
    let summary = trace.summary();
    for policy in PolicyName::ALL {
        let outcome = replay(&trace, policy, 20 * summary.footprint_bytes);
        assert_eq!(outcome.requests - outcome.hits, summary.blocks, "{policy}");
    }
}

#[test]
fn nothing_beats_knowing_the_future_and_all_beat_chance() {
    let trace = mixed();
    for blocks in [50, 200, 400] {
        let best = replay(&trace, PolicyName::Belady, blocks * BLOCK).hits;
        for policy in PolicyName::ALL {
            let hits = replay(&trace, policy, blocks * BLOCK).hits;
            assert!(hits <= best, "{policy} at {blocks} blocks: {hits} of at most {best}");
            assert!(hits * 5 > best, "{policy} at {blocks} blocks: only {hits} of {best}");
        }
    }
}

#[test]
fn the_classic_weakness_of_lru_is_not_that_of_lirs() {
    // A loop a little larger than the cache.
    let trace = trace((0..50).flat_map(|_| 0..110));
    let hits = |policy| replay(&trace, policy, 100 * BLOCK).hits;
    assert_eq!(hits(PolicyName::Lru), 0);
    assert!(hits(PolicyName::Lirs) > 4000, "{}", hits(PolicyName::Lirs));
    assert!(hits(PolicyName::WTinyLfu) > 3000, "{}", hits(PolicyName::WTinyLfu));
}

#[test]
fn scans_of_data_leave_metadata_in_openzfs() {
    // A hundred metadata blocks in constant use, and an endless stream of data.
    let mut requests = Vec::new();
    for round in 0..400_u64 {
        for index in 0..50 {
            let (class, id) = if index < 10 {
                (Class::Metadata, (round * 10 + index) % 100)
            } else {
                (Class::Data, 1000 + round * 50 + index)
            };
            let now_ns = requests.len() as u64 * 100_000_000;
            requests.push(Request { id, now_ns, bytes: BLOCK_BYTES, class, is_write: false });
        }
    }
    let trace = Trace { requests, ..Trace::default() };
    let hits = |policy| replay(&trace, policy, 200 * BLOCK).hits;
    assert!(hits(PolicyName::OpenZfs) > 3600, "{} of 3900", hits(PolicyName::OpenZfs));
    assert!(hits(PolicyName::Lru) < 100, "{}", hits(PolicyName::Lru));
}

#[test]
fn the_sampled_curve_is_near_the_exact_one() {
    let trace = mixed();
    let sizes: Vec<u64> = (1..=20).map(|step| step * 50 * BLOCK).collect();
    let exact = curve::exact_lru(&trace, &sizes);
    for (&size, (_, miss)) in sizes.iter().zip(&exact.points) {
        let replayed = replay(&trace, PolicyName::Lru, size).miss_ratio();
        assert!((replayed - miss).abs() < 1e-9, "{size}: {replayed}, not {miss}");
    }
    let sampled = curve::sampled_lru(&trace, &sizes, 0.3);
    assert!(exact.mean_difference(&sampled) < 0.05, "{sampled:?}");
}

proptest! {
    /// The rules of every policy: it stays within its size, evicts only resident blocks, and hits exactly the
    /// resident ones.
    #[test]
    fn books_are_kept(
        ids in proptest::collection::vec((0..60_u64, 1..20_u32), 1..400),
        capacity in 20..400_u64,
        resized in 20..400_u64,
    ) {
        for name in PolicyName::ALL {
            let mut policy = name.build(capacity, 10);
            let mut resident: BTreeMap<u64, u32> = BTreeMap::new();
            let mut evicted = Vec::new();
            let (mut limit, half) = (capacity, ids.len() / 2);
            for (index, &(id, bytes)) in ids.iter().enumerate() {
                // A block keeps its size while it is known.
                let bytes = 1 + (id as u32 * 7 + bytes / 100) % 19;
                let class = if id % 2 == 0 { Class::Data } else { Class::Metadata };
                let now_ns = index as u64 * 30_000_000;
                let next_use = (index as u64 * 7) % 100 + index as u64;
                let access = Access { id, bytes, class, now_ns, next_use };
                if id % 17 == 3 {
                    policy.remove(id);
                    resident.remove(&id);
                } else {
                    let is_hit = policy.touch(&access);
                    prop_assert_eq!(is_hit, resident.contains_key(&id), "{} {}", name, index);
                    if !is_hit {
                        policy.insert(&access, &mut evicted);
                        resident.insert(id, bytes);
                    }
                }
                if index == half {
                    policy.resize(resized, &mut evicted);
                    limit = resized;
                }
                for id in evicted.drain(..) {
                    prop_assert!(resident.remove(&id).is_some(), "{}: {} was not resident", name, id);
                }
                let held: u64 = resident.values().map(|&bytes| u64::from(bytes)).sum();
                prop_assert_eq!(policy.resident_bytes(), held, "{} {}", name, index);
                prop_assert!(held <= limit, "{}: {} of {}", name, held, limit);
            }
        }
    }
}

#[test]
fn what_is_written_is_there_for_who_wants_it_next() {
    let write = |id| Request { id, now_ns: id, bytes: BLOCK_BYTES, is_write: true, ..Request::default() };
    let read = |id| Request { is_write: false, ..write(id) };
    let trace = Trace { requests: (0..10).map(write).chain((0..20).map(read)).collect(), ..Trace::default() };
    assert_eq!((trace.summary().requests, trace.summary().writes), (20, 10));
    for policy in PolicyName::ALL {
        let outcome = replay(&trace, policy, 40 * BLOCK);
        assert_eq!((outcome.requests, outcome.hits), (20, 10), "{policy}");
    }
    assert!((curve::exact_lru(&trace, &[40 * BLOCK]).at(40 * BLOCK) - 0.5).abs() < 1e-9);
}

#[test]
fn a_cache_device_has_what_memory_let_go_as_far_as_it_is_fed() {
    // A loop of 100 blocks, one second each round.
    let requests = (0..1000_u64).map(|n| Request {
        id: n % 100,
        now_ns: n * 10_000_000,
        bytes: BLOCK_BYTES,
        ..Request::default()
    });
    let trace = Trace { requests: requests.collect(), ..Trace::default() };
    let hits = |bytes, bytes_per_s| {
        let outcome = replay_with(&trace, PolicyName::Lru, 50 * BLOCK, Some(Second { bytes, bytes_per_s }));
        assert_eq!((outcome.requests, outcome.hits), (1000, 0));
        outcome.second_hits
    };
    // The device has everything after the first round; a quarter more after each round; too small for a loop.
    assert_eq!(hits(200 * BLOCK, 1000 * BLOCK), 900);
    let slowly = hits(200 * BLOCK, 25 * BLOCK);
    assert!((600..900).contains(&slowly), "{slowly}");
    assert_eq!(hits(99 * BLOCK, 1000 * BLOCK), 0);
}
