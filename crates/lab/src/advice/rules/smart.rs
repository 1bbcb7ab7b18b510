//! SMART values of the disks, and their trends.

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::facts::{Facts, Health};
use crate::advice::item::{Evidence, Risk, Severity};
use crate::unit::Unit;

pub(super) const SMART_TREND: Rule = Rule {
    id: "smart-trend",
    about: "A disk that fails its SMART check, or shows a failing trend.",
    reason: "A failed overall health means that the maker's own thresholds have been crossed. Many disks \
        fail without that; rising counts of reallocated, pending or uncorrectable sectors come first. \
        Transfer errors point to a cable or backplane, and wear to an SSD near its rated endurance. A single \
        value says little, growth says more: the rule compares records of several days.",
    sources: &[
        "smartctl(8): -H, -A",
        "NVM Express Base Specification: SMART / Health Information log",
        "field report 003 (daily SMART record)",
    ],
    check: |facts| if facts.pools.is_empty() { Vec::new() } else { all(facts) },
};

fn all(facts: &Facts) -> Vec<Finding> {
    if facts.health.is_empty() {
        let why = "no SMART record was read: that requires smartctl, root, and a folder for the records \
            (--smart)";
        return vec![Finding::unknown("disks", why)];
    }
    facts.health.iter().map(of_disk).collect()
}

/// Values whose growth means that sectors are failing.
const LOSING: [&str; 3] = ["reallocated", "pending", "uncorrectable"];

fn of_disk(health: &Health) -> Finding {
    let told: Vec<_> =
        health.trends.iter().filter_map(|trend| Some((trend, trend.meaning.as_ref()?))).collect();
    let failed = health.now.passed == Some(false);
    if !failed && told.is_empty() {
        return Finding::fine(&health.disk);
    }
    let losing = told.iter().any(|(trend, _)| LOSING.contains(&trend.name));
    let mut evidence = vec![
        Evidence::word("model", &health.now.model),
        Evidence::word("serial number", &health.now.serial),
        Evidence::word("overall health", if failed { "FAILED" } else { "not failed" }),
    ];
    for (trend, _) in &told {
        let went = format!(
            "{} to {} in {} days",
            crate::unit::digits(trend.first),
            crate::unit::digits(trend.last),
            trend.days
        );
        evidence.push(Evidence::word(trend.name, went));
    }
    evidence.extend(
        health
            .now
            .power_on_hours
            .map(|hours| Evidence::number("powered on", hours * 3600e9, Unit::Nanoseconds)),
    );
    Finding::bad(
        &health.disk,
        Problem {
            severity: match (failed, losing) {
                (true, _) => Severity::Critical,
                (false, true) => Severity::Warning,
                (false, false) => Severity::Notice,
            },
            summary: match told.first() {
                Some((_, meaning)) => format!("{}: {meaning}.", health.now.model),
                None => format!("{} reports its own failure.", health.now.model),
            },
            evidence,
            remedy: remedy(
                &[
                    format!("smartctl -x /dev/{}", health.disk),
                    format!("smartctl -t long /dev/{}", health.disk),
                    "zpool replace POOL DISK NEWDISK".into(),
                ],
                Risk::Medium,
                "The first two commands only read. Have a backup before the third, and check the serial \
                 number; NEWDISK is overwritten. Leave the old disk connected during the replacement if \
                 there is a free slot.",
            ),
        },
    )
}
