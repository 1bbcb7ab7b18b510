//! Findings across targets: rankings, tests that hide differences, and speed against fill.

use super::compare::{judge, pairs, words};
use super::fill::{FillPoint, NoCliff, cliff};
use super::{Cliff, Comparison, Finding, Setting, Severity, Side, Standing, is_headline};
use crate::load::measurement::words_of_figure;
use crate::load::result::FigureSummary;
use crate::unit::{Better, Unit, digits};

/// A target slower than every other by this factor is faulty or of another kind.
const FAR_BEHIND: f64 = 5.0;
/// Targets that differ by this factor in one test...
const APART: f64 = 5.0;
/// ... and by less than this in another: the second test does not distinguish them.
const TOGETHER: f64 = 1.1;

/// Compares all targets of a result in both directions.
pub fn compare_targets(figures: &[FigureSummary]) -> (Vec<Comparison>, Vec<Finding>) {
    let mut sides: Vec<Side> = Vec::new();
    for figure in figures {
        match sides.iter_mut().find(|side| side.name == figure.target) {
            Some(side) => side.figures.push(figure.clone()),
            None => sides.push(Side { name: figure.target.clone(), figures: vec![figure.clone()] }),
        }
    }
    let mut comparisons = Vec::new();
    for (at, a) in sides.iter().enumerate() {
        for b in &sides[at + 1..] {
            comparisons.extend(pairs(a, b));
        }
    }
    judge(&mut comparisons);
    let headline: Vec<&FigureSummary> = figures.iter().filter(|f| is_headline(figures, f)).collect();
    let mut findings = rankings(&headline, &comparisons);
    findings.extend(masked(&headline, &comparisons));
    (comparisons, findings)
}

pub fn is_worse(than: f64, value: f64, better: Better) -> bool {
    if better == Better::Lower { value > than } else { value < than }
}

/// One finding per test and figure: the best target, and how far the others are behind.
fn rankings(headline: &[&FigureSummary], comparisons: &[Comparison]) -> Vec<Finding> {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let mut findings = Vec::new();
    for figure in headline {
        let key = (figure.test.as_str(), figure.figure.as_str());
        if figure.better == Better::Neither || seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let of_test: Vec<&&FigureSummary> =
            headline.iter().filter(|f| (f.test.as_str(), f.figure.as_str()) == key).collect();
        findings.extend(ranking(&of_test, comparisons));
    }
    findings
}

fn ranking(figures: &[&&FigureSummary], comparisons: &[Comparison]) -> Option<Finding> {
    let standing = Standing::of(figures.iter().map(|figure| **figure), comparisons)?;
    let order = &standing.order;
    let (best, others) = order.split_first()?;
    let (last, rest) = others.split_last()?;
    let show = |f: &FigureSummary| format!("{} ({})", f.target, f.unit.show(f.spread.median));
    let behind = |f: &&FigureSummary| {
        let seen = words(best.spread.median, f.spread.median, f.unit, f.better);
        format!("{} is {seen} ({})", f.target, f.unit.show(f.spread.median))
    };
    let names =
        |figures: &[&FigureSummary]| figures.iter().map(|figure| show(figure)).collect::<Vec<_>>().join(", ");
    let head = format!("{}, {}", best.test, words_of_figure(&best.figure));
    let leaders = standing.leaders();
    let mut parts = vec![match leaders.as_slice() {
        [only] => format!("{head}: {} is best with {}", only.target, only.unit.show(only.spread.median)),
        _ if best.spread.n == 1 => format!("{head}: no winner after one run each: {}", names(&leaders)),
        _ => format!("{head}: no winner: the repeats cannot separate {}", names(&leaders)),
    }];
    parts.extend(standing.behind().iter().map(behind));
    let mut sentence = format!("{}.", parts.join("; "));
    // Compared with the next slowest, not the best: one fast target does not make all others bad.
    let next = rest.last().unwrap_or(best);
    let factor = (last.spread.median / next.spread.median).max(next.spread.median / last.spread.median);
    let is_far = is_worse(next.spread.median, last.spread.median, last.better) && factor >= FAR_BEHIND;
    let (id, severity) =
        if is_far { ("compare.far_behind", Severity::Warning) } else { ("compare.ranking", Severity::Info) };
    if is_far {
        sentence.push_str(&format!(
            " {} is {} than even the next slowest, {}.",
            last.target,
            words(next.spread.median, last.spread.median, last.unit, last.better),
            next.target
        ));
    }
    let mut finding = Finding::new(id, severity, sentence).of_test(&best.test);
    if is_far {
        finding = finding.of_target(&last.target);
    }
    Some(order.iter().fold(finding, |finding, f| finding.with(f.target.clone(), f.spread.median, f.unit)))
}

/// Tests in which two targets look alike although another test shows them far apart.
fn masked(headline: &[&FigureSummary], comparisons: &[Comparison]) -> Vec<Finding> {
    let is_headline = |c: &&Comparison| {
        headline
            .iter()
            .any(|f| f.test == c.test && f.figure == c.figure && (f.target == c.a || f.target == c.b))
    };
    let pairs: Vec<(&Comparison, f64)> =
        comparisons.iter().filter(is_headline).filter_map(|c| Some((c, c.factor()?))).collect();
    let mut findings: Vec<Finding> = Vec::new();
    for (alike, factor) in pairs.iter().filter(|pair| pair.1 < TOGETHER) {
        let same_pair = |c: &Comparison| c.a == alike.a && c.b == alike.b && c.test != alike.test;
        let apart =
            pairs.iter().filter(|(c, f)| same_pair(c) && *f >= APART).max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((apart, by)) = apart else { continue };
        let sentence = format!(
            "{}, {}: {} and {} are within {:.0} % of each other, although {} finds them {}x apart: this test \
             does not distinguish them. Compare their latency percentiles too.",
            alike.test,
            words_of_figure(&alike.figure),
            alike.a,
            alike.b,
            ((factor - 1.0) * 100.0).ceil(),
            apart.test,
            digits(*by)
        );
        findings.push(
            Finding::new("compare.masked", Severity::Notice, sentence)
                .of_test(&alike.test)
                .with(format!("{} by {}", alike.a, alike.b), *factor, Unit::Number)
                .with(format!("apart in {}", apart.test), *by, Unit::Number),
        );
    }
    findings
}

/// Speed against fill for each headline figure, over targets on the same kind of disk: the cliff,
/// or one finding that none is visible.
pub fn fill_against_speed(figures: &[FigureSummary], setting: &Setting) -> Vec<Finding> {
    let mut media: Vec<&str> = setting.targets.values().filter_map(|facts| facts.medium.as_deref()).collect();
    media.sort_unstable();
    media.dedup();
    media.into_iter().flat_map(|medium| of_medium(figures, setting, medium)).collect()
}

fn of_medium(figures: &[FigureSummary], setting: &Setting, medium: &str) -> Vec<Finding> {
    let facts = |f: &FigureSummary| {
        setting.targets.get(&f.target).filter(|facts| facts.medium.as_deref() == Some(medium))
    };
    let mut tests: Vec<(&str, &str)> = Vec::new();
    for figure in figures.iter().filter(|f| f.better == Better::Higher && is_headline(figures, f)) {
        let key = (figure.test.as_str(), figure.figure.as_str());
        if !tests.contains(&key) {
            tests.push(key);
        }
    }
    let mut layouts: Vec<&str> = figures.iter().filter_map(|f| facts(f)?.layout.as_deref()).collect();
    layouts.sort_unstable();
    layouts.dedup();
    let mut findings = Vec::new();
    let mut untold: Vec<String> = Vec::new();
    for (test, name) in tests {
        let of_test = figures.iter().filter(|f| f.test == test && f.figure == name);
        let points: Vec<FillPoint> = of_test
            .filter_map(|f| Some(FillPoint { fill_percent: facts(f)?.fill_percent?, speed: f.spread.median }))
            .collect();
        match cliff(&points) {
            Ok(cliff) => findings.push(cliff_finding(test, name, medium, &cliff, &layouts)),
            Err(NoCliff::CantTell(why)) if points.len() > 1 && !untold.contains(&why) => untold.push(why),
            Err(_) => {}
        }
    }
    findings.extend(untold.into_iter().map(|why| {
        let sentence = format!("Speed against fill ({medium}): whether there is a cliff is unknown: {why}.");
        Finding::new("fill.unknown", Severity::Info, sentence)
    }));
    findings
}

fn cliff_finding(test: &str, figure: &str, medium: &str, cliff: &Cliff, layouts: &[&str]) -> Finding {
    let mut sentence = format!(
        "{test}, {} ({medium}): speed collapses between {} and {} % full: it is {}x slower above, while all \
         points below lie within {}x.",
        words_of_figure(figure),
        digits(cliff.low_percent),
        digits(cliff.high_percent),
        digits(cliff.factor),
        digits(cliff.before_factor)
    );
    match cliff.knee_percent {
        Some(knee) => sentence.push_str(&format!(" Two lines fit best with the knee at {} %.", digits(knee))),
        None => {
            sentence.push_str(" Where exactly it collapses is unknown: measure at fill levels in between.")
        }
    }
    if layouts.len() > 1 {
        sentence.push_str(&format!(
            " The targets also differ in layout ({}): fill is not their only difference.",
            layouts.join(", ")
        ));
    }
    Finding::new("fill.cliff", Severity::Warning, sentence)
        .of_test(test)
        .with("above", cliff.low_percent, Unit::Percent)
        .with("below", cliff.high_percent, Unit::Percent)
        .with("factor", cliff.factor, Unit::Number)
}
