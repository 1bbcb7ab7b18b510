//! Stability: whether repeats agree, and whether a run was steady.

use super::{Finding, Severity, is_headline};
use crate::load::measurement::{Second, Stream, words_of_figure};
use crate::load::result::{FigureSummary, Run};
use crate::stats::{UNSTABLE_ABOVE, median};
use crate::unit::Unit;

/// A run whose last third differs from its first by more than this was not in a steady state.
const DRIFT: f64 = 0.25;
/// A run with fewer seconds has no thirds to compare.
const LEAST_SECONDS: usize = 9;

pub fn repeats(figures: &[FigureSummary]) -> Vec<Finding> {
    let headline: Vec<&FigureSummary> = figures.iter().filter(|f| is_headline(figures, f)).collect();
    let few = headline.iter().filter(|f| f.spread.n < 3).count();
    let mut findings = Vec::new();
    if few > 0 {
        let least = headline.iter().map(|f| f.spread.n).min().unwrap_or(0);
        let sentence = format!(
            "{few} of {} figures have fewer than three repeats. Their variation is unknown, so there are no \
             intervals and no tests of differences.",
            headline.len()
        );
        findings.push(Finding::new("repeats.few", Severity::Notice, sentence).with(
            "fewest repeats",
            least as f64,
            Unit::Count,
        ));
    }
    let (unstable, stable): (Vec<&FigureSummary>, Vec<&FigureSummary>) =
        headline.iter().copied().filter(|f| f.spread.n >= 3).partition(|f| f.spread.unstable);
    let most = stable.iter().filter_map(|f| f.spread.variation).reduce(f64::max);
    if let Some(most) = most {
        let sentence = format!(
            "{} of {} repeated figures stable (coefficient of variation at most {:.1} %).",
            stable.len(),
            stable.len() + unstable.len(),
            most * 100.0
        );
        let finding = Finding::new("repeats.stable", Severity::Info, sentence);
        findings.push(finding.with("largest variation", most * 100.0, Unit::Percent));
    }
    findings.extend(unstable.into_iter().map(unstable_finding));
    findings.extend(headline.iter().filter(|f| !f.spread.outliers.is_empty()).map(|f| outlier(f)));
    findings
}

fn unstable_finding(f: &FigureSummary) -> Finding {
    let variation = f.spread.variation.unwrap_or(0.0) * 100.0;
    let show = |v| f.unit.show(v);
    let sentence = format!(
        "{} on {}: {} is unstable: {} repeats vary by {variation:.0} % (from {} to {}; stable means at most \
         {:.0} %). Use more or longer repeats before comparing it.",
        f.test,
        f.target,
        words_of_figure(&f.figure),
        f.spread.n,
        show(f.spread.min),
        show(f.spread.max),
        UNSTABLE_ABOVE * 100.0
    );
    Finding::new("repeats.unstable", Severity::Warning, sentence)
        .of_test(&f.test)
        .of_target(&f.target)
        .with("variation", variation, Unit::Percent)
        .with("least", f.spread.min, f.unit)
        .with("greatest", f.spread.max, f.unit)
}

fn outlier(f: &FigureSummary) -> Finding {
    let which: Vec<String> = f
        .spread
        .outliers
        .iter()
        .filter_map(|&at| f.values.get(at).map(|v| format!("repeat {} ({})", at + 1, f.unit.show(*v))))
        .collect();
    let sentence = format!(
        "{} on {}: {} of {} {} far from the other repeats (median {}). Outliers are not excluded.",
        f.test,
        f.target,
        words_of_figure(&f.figure),
        which.join(" and "),
        if which.len() == 1 { "lies" } else { "lie" },
        f.unit.show(f.spread.median)
    );
    Finding::new("repeats.outlier", Severity::Notice, sentence).of_test(&f.test).of_target(&f.target).with(
        "median",
        f.spread.median,
        f.unit,
    )
}

/// Whether a stream slowed down or sped up during its run.
pub fn drift(run: &Run) -> Vec<Finding> {
    run.measurement.outcome.streams.iter().filter_map(|stream| drift_of(run, stream)).collect()
}

fn drift_of(run: &Run, stream: &Stream) -> Option<Finding> {
    // The last second may be partial.
    let seconds = stream.seconds.get(..stream.seconds.len().saturating_sub(1))?;
    if seconds.len() < LEAST_SECONDS {
        return None;
    }
    let third = seconds.len() / 3;
    let speed = |seconds: &[Second]| median(&seconds.iter().map(|s| s.operations as f64).collect::<Vec<_>>());
    let (first, last) = (speed(&seconds[..third]), speed(&seconds[seconds.len() - third..]));
    let change = last / first - 1.0;
    if first == 0.0 || change.abs() <= DRIFT {
        return None;
    }
    let m = &run.measurement;
    let sentence = format!(
        "{} on {}, repeat {}: {} changed from {} in the first third of the run to {} in the last ({:+.0} %). \
         It was not in a steady state, so the figure depends on the run's length. The cause is unknown.",
        m.test,
        m.target,
        m.repeat,
        stream.operation,
        Unit::PerSecond.show(first),
        Unit::PerSecond.show(last),
        change * 100.0
    );
    Some(
        Finding::new("run.drift", Severity::Notice, sentence)
            .of_test(&m.test)
            .of_target(&m.target)
            .with("first third", first, Unit::PerSecond)
            .with("last third", last, Unit::PerSecond),
    )
}
