//! The outcome of a review: three lists, and how a rule's findings fill them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::facts::Facts;
use super::item::{Advice, Gauge, Severity};
use super::rules::rule::{Finding, Rule, Verdict};
use crate::load::samples::Missing;

/// A rule that found nothing wrong with a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fine {
    /// Rule id.
    pub rule: String,
    /// Subject checked.
    pub subject: String,
    /// Number that the rule watches.
    pub gauge: Option<Gauge>,
}

/// A rule that could not reach a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unknown {
    /// Rule id.
    pub rule: String,
    /// Subject checked.
    pub subject: String,
    /// Missing fact, and how to obtain it.
    pub why: String,
}

/// All verdicts on a set of facts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Review {
    /// Most urgent first.
    pub advice: Vec<Advice>,
    /// Rules without a verdict.
    pub unknown: Vec<Unknown>,
    /// Subjects that are fine.
    pub fine: Vec<Fine>,
    /// Facts that could not be determined.
    pub missing: Vec<Missing>,
}

impl Review {
    /// Whether something endangers data or a pool's service.
    pub fn is_critical(&self) -> bool {
        self.advice.iter().any(|advice| advice.severity == Severity::Critical)
    }

    /// Applies these rules to the facts.
    pub(super) fn of(facts: &Facts, rules: &'static [Rule]) -> Review {
        let mut review = Review { missing: facts.missing.clone(), ..Review::default() };
        for rule in rules {
            for finding in (rule.check)(facts) {
                review.add(rule, finding);
            }
        }
        // The sort is stable: rules of equal severity keep the table's order.
        review.advice.sort_by_key(|advice| std::cmp::Reverse(advice.severity));
        review
    }

    fn add(&mut self, rule: &'static Rule, finding: Finding) {
        let Finding { subject, gauge, verdict } = finding;
        let id = rule.id.to_owned();
        match verdict {
            Verdict::Fine => self.fine.push(Fine { rule: id, subject, gauge }),
            Verdict::Unknown(why) => self.unknown.push(Unknown { rule: id, subject, why }),
            Verdict::Bad(problem) => self.advice.push(Advice {
                rule: id,
                severity: problem.severity,
                subject,
                summary: problem.summary,
                evidence: problem.evidence,
                reason: rule.reason.to_owned(),
                sources: rule.sources.iter().map(|source| (*source).to_owned()).collect(),
                remedy: problem.remedy,
                gauge,
            }),
        }
    }
}
