//! Plots are valid XML, stay within their bounds and size, and describe their content.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use proptest::prelude::*;

use super::thin::thin;
use super::*;
use crate::unit::Unit;

fn line(name: &str, points: Vec<(u64, f64)>) -> Line {
    Line { name: name.into(), points }
}

fn over_time(lines: Vec<Line>) -> Plot {
    let panel = Panel { name: "reads".into(), unit: Unit::PerSecond, log: false, lines };
    Plot { title: "Reads over time".into(), shape: Shape::OverTime(vec![panel]) }
}

/// Parses it, and checks that all coordinates lie within the view box.
fn check(svg: &str) {
    let document = roxmltree::Document::parse(svg).unwrap();
    let root = document.root_element();
    assert_eq!(root.attribute("role"), Some("img"));
    assert!(root.attribute("aria-label").is_some_and(|label| !label.is_empty()));
    let size: Vec<f64> = root.attribute("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    for node in document.descendants() {
        for name in ["x", "y", "cx", "cy"] {
            let Some(value) = node.attribute(name) else { continue };
            let value: f64 = value.parse().unwrap();
            let most = if name.ends_with('x') { size[2] } else { size[3] };
            assert!((0.0..=most).contains(&value), "{name}={value} in {node:?}");
        }
        let numbers =
            node.attribute("d").unwrap_or_default().split(|c: char| c.is_ascii_alphabetic() || c == ' ');
        for number in numbers.filter(|n| !n.is_empty()) {
            assert!((0.0..=size[2].max(size[3])).contains(&number.parse().unwrap()), "{number} in {node:?}");
        }
    }
}

fn each(name: &str, value: f64) -> Vec<Plot> {
    let spread = |name: &str| Spread {
        name: name.into(),
        unit: Unit::Nanoseconds,
        buckets: vec![(value, value, 3), (value.abs() + 5e6, value.abs() + 6e6, 9)],
    };
    let bar = |value| Bar {
        name: name.into(),
        colour: 1,
        value,
        interval: Some((value, 2.0 * value)),
        repeats: vec![value, 1.0],
        remark: "unstable".into(),
    };
    let scatter = Scatter {
        x: (name.into(), Unit::Percent),
        y: (name.into(), Unit::BytesPerSecond),
        points: vec![Point { name: name.into(), colour: 7, x: value, y: 3.0 }],
        fit: vec![(0.0, 1.0), (value, value)],
        mark: Some((value, name.into())),
    };
    let shapes = [
        Shape::OverTime(vec![
            Panel {
                name: name.into(),
                unit: Unit::Percent,
                log: true,
                lines: vec![line(name, vec![(0, 1.0), (9, value)])],
            },
            Panel {
                name: name.into(),
                unit: Unit::Bytes,
                log: false,
                lines: vec![line(name, vec![(7, value)]), line("", vec![])],
            },
        ]),
        Shape::Histogram(vec![spread(name), spread("b")]),
        Shape::Percentiles(vec![spread(name), spread("b")]),
        Shape::Bars(Bars {
            unit: Unit::Nanoseconds,
            groups: vec![Group { name: name.into(), bars: vec![bar(value), bar(1.0)] }],
        }),
        Shape::Scatter(scatter),
    ];
    shapes.map(|shape| Plot { title: name.into(), shape }).into()
}

proptest! {
    #[test]
    fn plots_are_whole_for_any_name_and_value(
        name in "\\PC{0,40}|.{0,300}",
        value in proptest::num::f64::ANY,
    ) {
        for plot in each(&name, value) {
            let svg = plot.svg(SvgPlace::File);
            if name.is_empty() { roxmltree::Document::parse(&svg).unwrap(); } else { check(&svg); }
        }
    }

    #[test]
    fn thinning_keeps_the_extremes(values in proptest::collection::vec(-1e9..1e9f64, 1..5000)) {
        let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(i, v)| (i as f64, *v)).collect();
        let thinned = thin(&points);
        let ends = |p: &[(f64, f64)]| {
            let values = || p.iter().map(|p| p.1);
            (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max))
        };
        prop_assert_eq!(ends(&points), ends(&thinned));
        prop_assert!(thinned.len() <= 480 && thinned.is_sorted_by(|a, b| a.0 < b.0));
    }
}

#[test]
fn a_plot_of_very_many_points_stays_small() {
    let noise = |seed: u64| {
        (0..1_000_000u64).map(|i| (i * 1_000_000, (i.wrapping_mul(seed) % 9973) as f64)).collect()
    };
    let svg =
        over_time((1..5).map(|n| line(&format!("disk {n}"), noise(n * 7919))).collect()).svg(SvgPlace::File);
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
    check(&svg);
}

#[test]
fn a_plot_without_data_says_so() {
    let empty = Bars { unit: Unit::Count, groups: vec![] };
    for plot in [
        over_time(vec![]),
        over_time(vec![line("a", vec![])]),
        Plot { title: "b".into(), shape: Shape::Bars(empty) },
    ] {
        let svg = plot.svg(SvgPlace::Page);
        check(&svg);
        assert!(svg.contains("no data"), "{svg}");
    }
}

#[test]
fn a_plot_describes_its_content_in_words() {
    let plot = over_time(vec![line("tank", vec![(0, 12_000.0), (1, 419.0)])]);
    assert_eq!(plot.description(), "Over time: tank from 419 /s to 12.0 k/s.");
    let latency = Spread {
        name: "read".into(),
        unit: Unit::Nanoseconds,
        buckets: vec![(1e5, 1e5, 990), (5e8, 5e8, 10)],
    };
    let plot = Plot { title: "t".into(), shape: Shape::Percentiles(vec![latency]) };
    assert_eq!(plot.description(), "read: 50% within 100 us, 99% within 100 us, 99.9% within 500 ms");
}

#[test]
fn two_distant_modes_are_visible_in_the_histogram() {
    let latency = Spread {
        name: String::new(),
        unit: Unit::Nanoseconds,
        buckets: vec![(1e5, 1e5, 90), (5e8, 5e8, 10)],
    };
    let svg = Plot { title: "t".into(), shape: Shape::Histogram(vec![latency]) }.svg(SvgPlace::Page);
    assert_eq!(svg.matches("class=\"area").count(), 2, "two hills with nothing between them");
    for tick in ["100 us", "1 ms", "10 ms", "100 ms", "1 s"] {
        assert!(svg.contains(&format!(">{tick}<")), "{tick} in {svg}");
    }
}
