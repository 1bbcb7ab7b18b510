//! Answers of a study of damaged pools, in report 003's order.
//!
//! It compares layouts, fill levels, widths and record sizes; a resilver with a copy of the whole disk; and
//! evacuation of a disk with a resilver after it fails. All findings state medians and claim no more:
//! comparisons with intervals are elsewhere.

use super::{Finding, Severity};
use crate::load::recovery::{Recovery, UNREADABLE_PERCENT};
use crate::load::result::FigureSummary;
use crate::load::suite::{Plan, Work};
use crate::unit::{Unit, digits};

const RESILVER: &str = "wiped.resilver.time";

/// Findings of the suite `recovery`; none for other suites.
pub fn recovery(plan: &Plan, figures: &[FigureSummary]) -> Vec<Finding> {
    let mut targets: Vec<&str> = figures.iter().map(|figure| figure.target.as_str()).collect();
    targets.sort_unstable();
    targets.dedup();
    let mut findings = Vec::new();
    for target in targets {
        let tests = plan.tests.iter().filter_map(|test| match &test.work {
            Work::Recovery(shape) => Some(Tested { name: &test.name, target, shape, figures }),
            _ => None,
        });
        let tests: Vec<Tested<'_>> = tests.filter(|test| test.time(RESILVER).is_some()).collect();
        findings.extend(beside(&tests, target));
        findings.extend(tests.iter().filter_map(Tested::copied));
        findings.extend(tests.iter().filter_map(Tested::exchanged));
    }
    findings
}

struct Tested<'a> {
    name: &'a str,
    target: &'a str,
    shape: &'a Recovery,
    figures: &'a [FigureSummary],
}

/// One way in which tests' pools differ: its name, each pool's value, and the key of pools alike in all else.
type Differing = (&'static str, fn(&Recovery) -> String, fn(&Recovery) -> String);

/// Resilver times of pools that differ in one way only.
fn beside(tests: &[Tested<'_>], target: &str) -> Vec<Finding> {
    fn kind(shape: &Recovery) -> String {
        shape.layout.split(':').next().unwrap_or_default().to_owned()
    }
    fn record(shape: &Recovery) -> String {
        Unit::Bytes.show(shape.record_bytes as f64)
    }
    let by: [Differing; 4] = [
        ("layout", kind, |it| format!("{}, {}", it.fill_percent, it.record_bytes)),
        (
            "fill",
            |it| format!("{} %", it.fill_percent),
            |it| format!("{} of {}, {}", kind(it), it.disks, it.record_bytes),
        ),
        (
            "width",
            |it| format!("{} disks", it.disks),
            |it| format!("{}, {}, {}", kind(it), it.fill_percent, it.record_bytes),
        ),
        ("records", record, |it| format!("{} of {}, {}", kind(it), it.disks, it.fill_percent)),
    ];
    let mut findings = Vec::new();
    for (what, value, group) in by {
        let mut groups: Vec<(String, Vec<&Tested<'_>>)> = Vec::new();
        for test in tests {
            // Layouts are compared at their narrowest width only.
            if what == "layout" && test.is_wide(tests) {
                continue;
            }
            let name = group(test.shape);
            match groups.iter_mut().find(|(other, _)| *other == name) {
                Some((_, members)) => members.push(test),
                None => groups.push((name, vec![test])),
            }
        }
        for (_, members) in groups {
            if members.len() > 1 {
                findings.push(side_by_side(what, &members, value).of_target(target));
            }
        }
    }
    findings
}

fn side_by_side(what: &str, members: &[&Tested<'_>], value: fn(&Recovery) -> String) -> Finding {
    let of = members[0].shape;
    let kind = of.layout.split(':').next().unwrap_or_default();
    let head = match what {
        "layout" => format!("Layouts, {} % full", of.fill_percent),
        "fill" => format!("{kind} of {} disks by fill", of.disks),
        "width" => format!("{kind} by width, {} % full", of.fill_percent),
        _ => format!("{kind} of {} disks by the size of records, {} % full", of.disks, of.fill_percent),
    };
    let mut finding = Finding::new(&format!("recovery.{what}"), Severity::Info, "");
    let mut parts = Vec::new();
    for test in members {
        let Some(time) = test.time(RESILVER) else { continue };
        let scrub =
            test.time("zeros.scrub.time").map_or_else(String::new, |ns| format!(", scrub {}", span(ns)));
        parts.push(format!("{} resilver {}{scrub}", value(test.shape), span(time)));
        finding = finding.with(value(test.shape), time, Unit::Nanoseconds);
    }
    finding.sentence = format!("{head}: {}.", parts.join("; "));
    finding
}

impl Tested<'_> {
    fn figure(&self, name: &str) -> Option<f64> {
        let is = |f: &&FigureSummary| f.test == self.name && f.target == self.target && f.figure == name;
        self.figures.iter().find(is).map(|figure| figure.spread.median)
    }

    fn time(&self, name: &str) -> Option<f64> {
        self.figure(name).filter(|ns| *ns > 0.0)
    }

    /// Whether a test with fewer disks is otherwise the same.
    fn is_wide(&self, tests: &[Tested<'_>]) -> bool {
        let shape = self.shape;
        tests.iter().any(|other| {
            let other = other.shape;
            other.disks < shape.disks
                && other.layout == shape.layout
                && (other.fill_percent, other.record_bytes) == (shape.fill_percent, shape.record_bytes)
        })
    }

    /// A resilver, which copies only allocated data, against a copy of the whole disk.
    fn copied(&self) -> Option<Finding> {
        let (resilver, copy) = (self.time(RESILVER)?, self.time("copy.time")?);
        let brought = self
            .figure("wiped.resilver.repaired")
            .map_or_else(String::new, |bytes| format!(" and wrote {}", Unit::Bytes.show(bytes)));
        let sentence = format!(
            "{}: the resilver took {}{brought}; a sequential copy of the whole disk, with what is empty, \
             took {}, {} times as long.",
            self.name,
            span(resilver),
            span(copy),
            digits(copy / resilver)
        );
        let finding = Finding::new("recovery.copy", Severity::Info, sentence).of_test(self.name);
        let finding =
            finding.with("resilver", resilver, Unit::Nanoseconds).with("copy", copy, Unit::Nanoseconds);
        Some(finding.of_target(self.target))
    }

    fn exchanged(&self) -> Option<Finding> {
        const WAYS: [(&str, &str); 3] = [
            ("lost.resilver", "a resilver after the disk was lost"),
            ("well.evacuate", "its evacuation while it worked"),
            ("failing.evacuate", ""),
        ];
        let of = |name: &str| self.time(&format!("{name}.time"));
        let mut finding = Finding::new("recovery.evacuate", Severity::Info, "").of_test(self.name);
        let mut parts = Vec::new();
        for (name, words) in WAYS {
            let time = of(name)?;
            let words = match words {
                "" => format!("and with {UNREADABLE_PERCENT} % of its sectors unreadable"),
                words => words.to_owned(),
            };
            let bytes = |what: &str| {
                self.figure(&format!("{name}.{what}")).map_or_else(String::new, |it| Unit::Bytes.show(it))
            };
            let left = self.figure(&format!("{name}.may_fail")).unwrap_or(0.0);
            let others = if left == 1.0 { "1 more disk".into() } else { format!("{left} more disks") };
            parts.push(format!(
                "{words} took {}, read {} and wrote {}, and the pool could have lost {others} meanwhile",
                span(time),
                bytes("read"),
                bytes("written"),
            ));
            finding = finding.with(name, time, Unit::Nanoseconds);
        }
        let exposed = WAYS.map(|(name, _)| {
            let ns = self.figure(&format!("{name}.less_redundant")).unwrap_or(0.0);
            if ns > 0.0 { span(ns) } else { "no time".into() }
        });
        let mut sentence = format!("{}: {}.", self.name, parts.join("; "));
        sentence.push_str(&format!(
            " It was less redundant than usual for {}; what a failing disk can't read had been so before.",
            exposed.join(", ")
        ));
        if let Some(busy) = self.with_users() {
            sentence.push_str(&busy);
        }
        finding.sentence = sentence;
        Some(finding.of_target(self.target))
    }

    fn with_users(&self) -> Option<String> {
        let time = |name: &str| self.time(&format!("{name}.busy.time")).map(span);
        let p99 = |name: &str| self.time(&format!("{name}.read_p99")).map(span);
        Some(format!(
            " With users at work: {}, {} and {}; 99 % of their reads took up to {}, {} and {}, and {} \
             without anything else.",
            time("lost.resilver")?,
            time("well.evacuate")?,
            time("failing.evacuate")?,
            p99("lost.resilver.busy")?,
            p99("well.evacuate.busy")?,
            p99("failing.evacuate.busy")?,
            p99("users.alone")?,
        ))
    }
}

fn span(ns: f64) -> String {
    Unit::Nanoseconds.show(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::recovery::Engine;
    use crate::load::suite::{Options, recovery as suite};
    use crate::stats::Spread;
    use crate::unit::Better;

    fn summary(test: &str, figure: &str, unit: Unit, value: f64) -> FigureSummary {
        let (values, spread) = (vec![value], Spread::of(&[value]));
        let (test, figure) = (test.to_owned(), figure.to_owned());
        FigureSummary { test, target: "here".into(), figure, unit, better: Better::Lower, values, spread }
    }

    #[test]
    fn layouts_fills_widths_records_and_ways_of_recovery_are_put_side_by_side() {
        const SECOND: f64 = 1e9;
        let plan = suite::plan(&Options { engine: Engine::Cenote, ..Options::default() }, &[]);
        let mut figures = Vec::new();
        for (number, test) in plan.tests.iter().enumerate() {
            let mut add = |name: &str, unit, value| figures.push(summary(&test.name, name, unit, value));
            add(RESILVER, Unit::Nanoseconds, (number + 1) as f64 * SECOND);
            add("copy.time", Unit::Nanoseconds, 60.0 * SECOND);
            for (way, seconds, left) in
                [("lost.resilver", 10.0, 0.0), ("well.evacuate", 8.0, 1.0), ("failing.evacuate", 12.0, 1.0)]
            {
                add(&format!("{way}.time"), Unit::Nanoseconds, seconds * SECOND);
                add(&format!("{way}.read"), Unit::Bytes, 2e9);
                add(&format!("{way}.written"), Unit::Bytes, 1e9);
                add(&format!("{way}.may_fail"), Unit::Count, left);
            }
            add("lost.resilver.less_redundant", Unit::Nanoseconds, 11.0 * SECOND);
        }
        let findings = recovery(&plan, &figures);
        let said = |id: &str, words: &str| {
            let is = |finding: &&Finding| finding.id == id && finding.sentence.contains(words);
            assert!(findings.iter().any(|finding| is(&finding)), "{id}: {words}: {findings:#?}");
        };
        said("recovery.layout", "Layouts, 50 % full: mirror resilver 2.00 s; raidz1 resilver 5.00 s");
        said("recovery.fill", "raidz2 of 4 disks by fill: 25 % resilver 7.00 s; 50 %");
        said("recovery.width", "raidz2 by width, 50 % full: 4 disks resilver 8.00 s; 6 disks");
        said("recovery.records", "mirror of 2 disks by the size of records, 50 % full: 1.00 MiB");
        said("recovery.copy", "mirror-25: the resilver took 1.00 s; a sequential copy of the whole disk");
        said("recovery.evacuate", "a resilver after the disk was lost took 10.0 s");
        said("recovery.evacuate", "with 5 % of its sectors unreadable took 12.0 s");
        said("recovery.evacuate", "the pool could have lost 1 more disk meanwhile");
        said("recovery.evacuate", "less redundant than usual for 11.0 s, no time, no time");
        assert!(recovery(&plan, &[]).is_empty());
    }
}
