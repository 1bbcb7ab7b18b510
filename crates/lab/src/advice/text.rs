//! Advice as terminal text: most urgent first, each with its evidence in columns.

use std::fmt::Write;

use super::item::{Advice, Severity};
use super::review::Review;
use super::rules::RULES;

/// Layout of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Colours, for terminals only.
    pub colour: bool,
    /// Adds reasons and sources, and the subjects that are fine.
    pub verbose: bool,
    /// Maximum columns.
    pub width: usize,
}

/// Default width in columns.
pub const WIDTH: usize = 120;

const INDENT: usize = 12;

/// Review as text; the last line counts verdicts.
pub fn text(review: &Review, layout: Layout) -> String {
    let mut out = String::new();
    for advice in &review.advice {
        one(&mut out, advice, layout);
        out.push('\n');
    }
    if layout.verbose {
        for fine in &review.fine {
            line(&mut out, "fine", &format!("{}: {}", fine.subject, fine.rule), layout);
        }
    }
    for unknown in &review.unknown {
        line(
            &mut out,
            "can't tell",
            &format!("{}: {}: {}", unknown.subject, unknown.rule, unknown.why),
            layout,
        );
    }
    for missing in &review.missing {
        line(&mut out, "no data", &format!("{}: {}", missing.source, missing.why), layout);
    }
    let count = |severity| review.advice.iter().filter(|advice| advice.severity == severity).count();
    _ = writeln!(
        out,
        "{} critical, {} warnings, {} notices; {} checks passed, {} undetermined",
        count(Severity::Critical),
        count(Severity::Warning),
        count(Severity::Notice),
        review.fine.len(),
        review.unknown.len()
    );
    out
}

/// All rules, with their reasons and sources.
pub fn rules(width: usize) -> String {
    let layout = Layout { colour: false, verbose: true, width };
    let mut out = String::new();
    for rule in RULES {
        _ = writeln!(out, "{}", rule.id);
        line(&mut out, "  finds", rule.about, layout);
        line(&mut out, "  why", rule.reason, layout);
        rule.sources.iter().for_each(|source| line(&mut out, "  source", source, layout));
        out.push('\n');
    }
    out
}

fn one(out: &mut String, advice: &Advice, layout: Layout) {
    let name = format!("{:<INDENT$}", advice.severity.name());
    let head = format!("{}: {} ({})", advice.subject, advice.summary, advice.rule);
    let mut lines = wrapped(&head, layout.width).into_iter();
    _ = writeln!(out, "{}{}", painted(&name, advice.severity, layout), lines.next().unwrap_or_default());
    lines.for_each(|more| _ = writeln!(out, "{:INDENT$}{more}", ""));
    let widest = advice.evidence.iter().map(|e| e.what.chars().count()).max().unwrap_or(0);
    for evidence in &advice.evidence {
        let gap = widest - evidence.what.chars().count();
        _ = writeln!(out, "{:INDENT$}  {}{:gap$}  {}", "", evidence.what, "", evidence.shown());
    }
    line(out, "  why", &advice.reason, layout);
    if layout.verbose {
        advice.sources.iter().for_each(|source| line(out, "  source", source, layout));
    }
    for command in &advice.remedy.commands {
        _ = writeln!(out, "{:<INDENT$}{command}", "  do");
    }
    line(out, "  risk", &format!("{}. {}", advice.remedy.risk.name(), advice.remedy.caution), layout);
}

fn line(out: &mut String, first: &str, text: &str, layout: Layout) {
    for (number, part) in wrapped(text, layout.width).into_iter().enumerate() {
        let first = if number == 0 { first } else { "" };
        _ = writeln!(out, "{first:<INDENT$}{part}");
    }
}

fn painted(word: &str, severity: Severity, layout: Layout) -> String {
    let colour = match severity {
        Severity::Critical => "1;31",
        Severity::Warning => "33",
        Severity::Notice => "36",
    };
    if layout.colour { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.saturating_sub(INDENT).max(30);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
