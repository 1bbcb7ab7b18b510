//! What the rules found: three lists, and how a rule's findings become them.

use serde::Serialize;

use super::rules::{Finding, Rule, Verdict};
use super::{Advice, Facts, Gauge};
use crate::samples::Missing;

/// A rule that found nothing wrong with something.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fine {
    /// The rule's id.
    pub rule: &'static str,
    /// What it looked at.
    pub subject: String,
    /// The number that is watched, where there is one.
    pub gauge: Option<Gauge>,
}

/// A rule that could not tell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unknown {
    /// The rule's id.
    pub rule: &'static str,
    /// What it was about.
    pub subject: String,
    /// What is not known, and what would help.
    pub why: String,
}

/// All that the rules say of some facts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Review {
    /// What should be done, the most urgent first.
    pub advice: Vec<Advice>,
    /// What could not be told.
    pub unknown: Vec<Unknown>,
    /// What was looked at and is well.
    pub fine: Vec<Fine>,
    /// What could not be had of the facts.
    pub missing: Vec<Missing>,
}

impl Review {
    /// Holds the facts against these rules.
    pub(super) fn of(facts: &Facts, rules: &'static [Rule]) -> Review {
        let mut review = Review { missing: facts.missing.clone(), ..Review::default() };
        for rule in rules {
            for finding in (rule.check)(facts) {
                review.add(rule, finding);
            }
        }
        // Stable: rules of one severity stay in the table's order.
        review.advice.sort_by_key(|advice| std::cmp::Reverse(advice.severity));
        review
    }

    fn add(&mut self, rule: &'static Rule, finding: Finding) {
        let Finding { subject, gauge, verdict } = finding;
        match verdict {
            Verdict::Fine => self.fine.push(Fine { rule: rule.id, subject, gauge }),
            Verdict::Unknown(why) => self.unknown.push(Unknown { rule: rule.id, subject, why }),
            Verdict::Bad(problem) => self.advice.push(Advice {
                rule: rule.id,
                severity: problem.severity,
                subject,
                summary: problem.summary,
                evidence: problem.evidence,
                reason: rule.reason,
                sources: rule.sources,
                remedy: problem.remedy,
                gauge,
            }),
        }
    }
}
