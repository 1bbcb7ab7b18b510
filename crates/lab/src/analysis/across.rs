//! What is to be said across targets: who is fastest and who falls behind, tests that hide differences, speed against fill.

use super::compare::words;
use super::fill::{FillPoint, NoCliff, cliff};
use super::{Cliff, Comparison, Finding, Setting, Severity, Side, Verdict, compare, is_headline};
use crate::measurement::words_of_figure;
use crate::result::FigureSummary;
use crate::unit::{Better, Unit, digits};

/// A target that is slower than every other by this factor has something wrong with it, or is of another kind.
const FAR_BEHIND: f64 = 5.0;
/// Targets that differ by this in one test...
const APART: f64 = 5.0;
/// ... and by less than this in another: that other does not tell them apart.
const TOGETHER: f64 = 1.1;

/// Compares all targets of a result with each other, in both directions, and says what stands out.
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
            comparisons.extend(compare(a, b));
        }
    }
    let headline: Vec<&FigureSummary> = figures.iter().filter(|f| is_headline(figures, f)).collect();
    let mut findings = rankings(&headline, &comparisons);
    findings.extend(masked(&headline, &comparisons));
    (comparisons, findings)
}

/// A result that is compared with others.
#[derive(Debug, Clone)]
pub struct Source {
    /// What it is called in the comparison.
    pub name: String,
    /// Its figures.
    pub figures: Vec<FigureSummary>,
    /// What is known of its targets.
    pub setting: Setting,
}

/// Compares results with each other: targets of the same name across results, as `tank (before)` and `tank (after)`; or all targets with each
/// other where no name comes twice, and those of a single result under their own names. Speed against fill is looked at over all of them.
pub fn compare_results(sources: &[Source]) -> (Vec<Comparison>, Vec<Finding>) {
    if let [only] = sources {
        let (comparisons, mut findings) = compare_targets(&only.figures);
        findings.extend(fill_against_speed(&only.figures, &only.setting));
        return (comparisons, findings);
    }
    let (mut figures, mut setting) = (Vec::new(), Setting::default());
    for source in sources {
        let label = |target: &str| format!("{target} ({})", source.name);
        figures
            .extend(source.figures.iter().map(|f| FigureSummary { target: label(&f.target), ..f.clone() }));
        let targets = source.setting.targets.iter();
        setting.targets.extend(targets.map(|(target, facts)| (label(target), facts.clone())));
    }
    let plain =
        |label: &str| label.rsplit_once(" (").map_or(label.to_owned(), |(target, _)| target.to_owned());
    let (mut comparisons, mut findings) = compare_targets(&figures);
    let is_same = |c: &Comparison| plain(&c.a) == plain(&c.b);
    if comparisons.iter().any(is_same) {
        comparisons.retain(is_same);
        let headline = comparisons.iter().filter(|c| {
            figures.iter().any(|f| {
                f.figure == c.figure && f.test == c.test && f.target == c.a && is_headline(&figures, f)
            })
        });
        findings = headline.map(changed).collect();
    }
    findings.extend(fill_against_speed(&figures, &setting));
    (comparisons, findings)
}

/// What became of a target between two results.
fn changed(c: &Comparison) -> Finding {
    let got_worse = is_worse(c.a_spread.median, c.b_spread.median, c.better);
    let is_sure = matches!(c.verdict, Verdict::Supported | Verdict::LargeButFew);
    let severity = if got_worse && is_sure { Severity::Warning } else { Severity::Info };
    let id = match (is_sure, got_worse) {
        (false, _) => "compare.same",
        (true, true) => "compare.worse",
        (true, false) => "compare.better",
    };
    Finding::new(id, severity, c.sentence.clone())
        .of_test(&c.test)
        .of_target(&c.b)
        .with(c.a.clone(), c.a_spread.median, c.unit)
        .with(c.b.clone(), c.b_spread.median, c.unit)
}

fn is_worse(than: f64, value: f64, better: Better) -> bool {
    if better == Better::Lower { value > than } else { value < than }
}

/// One finding for each test and figure: the best target and how far the others are behind.
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
    let mut order: Vec<&&FigureSummary> = figures.to_vec();
    order.sort_by(|a, b| match a.better {
        Better::Lower => a.spread.median.total_cmp(&b.spread.median),
        _ => b.spread.median.total_cmp(&a.spread.median),
    });
    let (best, others) = order.split_first()?;
    let (last, rest) = others.split_last()?;
    let show = |f: &FigureSummary| f.unit.show(f.spread.median);
    let seen = |f: &FigureSummary| words(best.spread.median, f.spread.median, f.unit, f.better);
    let behind: Vec<String> =
        others.iter().map(|f| format!("{} {} ({})", f.target, seen(f), show(f))).collect();
    let between = |x: &str, y: &str| {
        comparisons.iter().find(|c| {
            c.test == best.test
                && c.figure == best.figure
                && [(&*c.a, &*c.b), (&*c.b, &*c.a)].contains(&(x, y))
        })
    };
    let is_unsure =
        |c: &Comparison| matches!(c.verdict, Verdict::Unclear | Verdict::Unsupported | Verdict::Equal);
    let unsure: Vec<&str> = others
        .iter()
        .filter(|f| between(&best.target, &f.target).is_some_and(is_unsure))
        .map(|f| f.target.as_str())
        .collect();
    let mut sentence = format!(
        "{}, {}: {} is best with {}; {}.",
        best.test,
        words_of_figure(&best.figure),
        best.target,
        show(best),
        behind.join(", ")
    );
    if !unsure.is_empty() {
        sentence.push_str(&format!(" The difference to {} may be chance.", unsure.join(", ")));
    }
    // Far behind the next to last, not the best: one fast target does not make all others bad.
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

/// Tests in which two targets are alike that another test finds far apart.
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
            "{}, {}: {} and {} are within {:.0} % of each other, although {} finds them {}x apart. This test does not tell them apart: something \
             that both share, or its large operations, hides the difference. Its latency percentiles may still show it.",
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

/// Speed against fill of targets on the same kind of disks, for each headline figure: the cliff, or one finding that there is none to be seen.
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
        let sentence =
            format!("Speed against fill ({medium}): whether there is a cliff can't be told: {why}.");
        Finding::new("fill.unknown", Severity::Info, sentence)
    }));
    findings
}

fn cliff_finding(test: &str, figure: &str, medium: &str, cliff: &Cliff, layouts: &[&str]) -> Finding {
    let mut sentence = format!(
        "{test}, {} ({medium}): speed falls off a cliff between {} and {} % full: {}x slower beyond it, while all before lie within {}x.",
        words_of_figure(figure),
        digits(cliff.low_percent),
        digits(cliff.high_percent),
        digits(cliff.factor),
        digits(cliff.before_factor)
    );
    match cliff.knee_percent {
        Some(knee) => sentence.push_str(&format!(" Two lines fit best with the knee at {} %.", digits(knee))),
        None => sentence.push_str(" Where between these two it begins can't be said without pools that are filled to levels in between."),
    }
    if layouts.len() > 1 {
        sentence.push_str(&format!(
            " The targets differ in layout too ({}): fill is not the only difference between them.",
            layouts.join(", ")
        ));
    }
    Finding::new("fill.cliff", Severity::Warning, sentence)
        .of_test(test)
        .with("above", cliff.low_percent, Unit::Percent)
        .with("below", cliff.high_percent, Unit::Percent)
        .with("factor", cliff.factor, Unit::Number)
}
