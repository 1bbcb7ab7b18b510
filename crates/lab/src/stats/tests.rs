#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
//! Reference values are from SciPy 1.17 (`mannwhitneyu(method="exact")`,
//! `bootstrap(method="percentile")`, `median_abs_deviation`) and from enumerating all permutations
//! with `itertools`.

use super::bootstrap::{Random, bootstrap};
use super::effect::{SIGNIFICANT, permutation};
use super::middle::quantile;
use super::*;

const A: [f64; 5] = [12.1, 11.8, 12.6, 12.0, 11.9];
const B: [f64; 5] = [11.2, 11.5, 11.0, 11.95, 11.3];

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs().max(1.0)
}

#[test]
fn spread_matches_scipy() {
    let spread = Spread::of(&[9.2, 10.1, 10.4, 10.0, 9.9, 10.3, 14.0]);
    assert!(near(spread.median, 10.1) && near(spread.mad, 0.2));
    assert!(near(spread.variation.unwrap(), 0.14845151126408498));
    let interval = spread.interval.unwrap();
    assert_eq!((interval.low, interval.high, interval.confidence), (9.9, 10.4, 0.95));
    assert_eq!(spread.outliers, [6], "14.0 and nothing else");
    assert!(spread.unstable && spread.max == 14.0, "the outlier counts");
    assert!(near(quantile(&[9.2, 10.1, 10.4, 10.0, 9.9, 10.3, 14.0], 0.9), 11.84));
}

#[test]
fn two_values_have_no_interval_and_one_has_no_variation() {
    assert_eq!(Spread::of(&[3.0, 5.0]).interval, None);
    assert_eq!(Spread::of(&[3.0]).variation, None);
    let three = Spread::of(&[1.0, 2.0, 3.0]).interval.unwrap();
    assert_eq!(
        (three.low, three.high, three.confidence),
        (1.0, 3.0, 0.75),
        "three values show no more than their range"
    );
    assert_eq!(Spread::of(&[]).n, 0);
    assert!(!Spread::of(&[100.0, 100.1, 101.0, 100.05, 100.0]).unstable);
    assert!(Spread::of(&[100.0, 100.1, 101.0, 100.05, 100.0]).outliers.is_empty(), "1 % is near");
}

#[test]
fn the_permutation_test_is_exact() {
    let d = Difference::of(&A, &B).unwrap();
    assert!(near(d.p, 0.031746031746031744), "{}", d.p);
    assert!(near(d.p_least, 2.0 / 252.0));
    assert!(near(d.shift, -0.7) && near(d.delta, -0.84) && near(d.ratio.unwrap(), 0.9416666666666668));
    assert_eq!(d.support(d.p, 1), Support::Supported);
    let interval = d.ratio_interval.unwrap();
    assert!((interval.low - 0.8968).abs() < 0.004 && (interval.high - 0.9958).abs() < 0.004, "{interval:?}");
    let ties = Difference::of(&[1.0, 2.0, 2.0, 3.0, 5.0], &[2.0, 4.0, 5.0, 6.0, 7.0, 7.0]).unwrap();
    assert!(near(ties.p, 0.06493506493506493), "{}", ties.p);
    assert_eq!(Difference::of(&A, &A).unwrap().p, 1.0);
}

#[test]
fn three_against_three_support_nothing() {
    let d = Difference::of(&[1.0, 1.1, 1.2], &[100.0, 101.0, 102.0]).unwrap();
    assert!(near(d.p, 0.1) && near(d.p_least, 0.1) && d.delta == 1.0);
    assert_eq!(d.support(d.p, 1), Support::TooFew);
    let single = Difference::of(&[1.0], &[28.0]).unwrap();
    assert_eq!((single.support(single.p, 1), single.p, single.ratio_interval), (Support::TooFew, 1.0, None));
    assert!(Difference::of(&[], &[1.0]).is_none());
    assert!(Difference::of(&[0.0, 0.0, 0.0], &[1.0, 1.0, 1.0]).unwrap().ratio.is_none());
}

#[test]
fn intervals_cover_as_often_as_claimed() {
    // Log-normal, like speeds and latencies; the true median is 1.
    let mut random = Random(7);
    for (n, least) in [(3, 0.70), (5, 0.90), (10, 0.90), (25, 0.90)] {
        let mut covered = 0;
        const TRIALS: usize = 400;
        for _ in 0..TRIALS {
            let values: Vec<f64> = (0..n).map(|_| normal(&mut random).exp()).collect();
            let interval = bootstrap(&[&values], |s| median(&s[0]));
            covered += usize::from(interval.low <= 1.0 && 1.0 <= interval.high);
        }
        let part = covered as f64 / TRIALS as f64;
        assert!(part >= least && part <= 0.99, "{n} values: {part}");
    }
}

#[test]
fn chance_is_called_a_difference_at_most_once_in_twenty() {
    let mut random = Random(8);
    let mut false_alarms = 0;
    for _ in 0..1000 {
        let mut five = || -> Vec<f64> { (0..5).map(|_| normal(&mut random).exp()).collect() };
        let d = Difference::of(&five(), &five()).unwrap();
        false_alarms += usize::from(d.support(d.p, 1) == Support::Supported);
    }
    assert!((15..=50).contains(&false_alarms), "{false_alarms} of 1000");
}

#[test]
fn among_many_comparisons_chance_is_called_a_difference_at_most_once_in_twenty() {
    let mut random = Random(11);
    let mut studies_with_false_alarms = 0;
    for _ in 0..400 {
        let mut seven = || -> Vec<f64> { (0..7).map(|_| normal(&mut random).exp()).collect() };
        let p: Vec<f64> = (0..20).map(|_| permutation(&seven(), &seven())).collect();
        studies_with_false_alarms += usize::from(holm(&p).iter().any(|p| *p <= SIGNIFICANT));
    }
    // 5 % of 400 is 20; three standard deviations more can be chance.
    assert!(studies_with_false_alarms <= 33, "{studies_with_false_alarms} of 400");
}

#[test]
fn statistics_are_the_same_each_time() {
    assert_eq!(Spread::of(&A), Spread::of(&A));
    assert_eq!(Difference::of(&A, &B), Difference::of(&A, &B));
}

fn normal(random: &mut Random) -> f64 {
    let (u, v) = (random.unit(), random.unit());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// A histogram of random draws around some centers: (center in ns, width as a factor's logarithm,
/// count).
fn histogram(groups: &[(f64, f64, usize)]) -> Vec<(u64, u64, u64)> {
    let mut latency = crate::load::measurement::Latency::default();
    let mut random = Random(9);
    for &(center, width, count) in groups {
        for _ in 0..count {
            latency.record((center * (width * normal(&mut random)).exp()) as u64);
        }
    }
    latency.buckets().collect()
}

#[test]
fn modes_are_separated_and_none_is_invented() {
    let one = modes(histogram(&[(130e3, 0.6, 20_000)]));
    assert_eq!(one.len(), 1, "{one:?}");
    assert!((one[0].center_ns / 130e3 - 1.0).abs() < 0.05 && one[0].share == 1.0);

    let two = modes(histogram(&[(130e3, 0.4, 19_000), (300e6, 0.4, 1000)]));
    assert_eq!(two.len(), 2, "{two:?}");
    assert!((two[1].share - 0.05).abs() < 0.001 && (two[1].center_ns / 300e6 - 1.0).abs() < 0.1, "{two:?}");

    let three = modes(histogram(&[(2e3, 0.2, 5000), (90e3, 0.2, 3000), (8e6, 0.3, 2000)]));
    let shares: Vec<f64> = three.iter().map(|m| (m.share * 100.0).round()).collect();
    assert_eq!(shares, [50.0, 30.0, 20.0]);

    assert_eq!(modes(histogram(&[(130e3, 0.4, 20_000), (300e6, 0.2, 40)])).len(), 1, "0.2 % is not a mode");
    assert_eq!(modes(histogram(&[(1e6, 0.3, 60)])).len(), 1, "few operations are ragged, not many modes");
    assert!(modes([]).is_empty());
}
