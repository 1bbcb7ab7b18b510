//! Advice: rules applied to the known facts about a machine and its pools.
//!
//! ```text
//! zpool, zfs, kstats, SMART ─┐
//! recorded outputs ──────────┼─> Facts ─> rules ─> Review ─┬─> text, JSON, report
//! a result folder ───────────┘                             └─> watch: alerts, metrics, webhook
//! ```
//!
//! A [rule](rules::RULES) gives one of three verdicts on each subject: it is fine ([`Fine`]), it needs action
//! ([`Advice`]), or a fact is missing ([`Unknown`]). Missing data do not mean health: an alert must not end
//! because a program failed to run.
//!
//! Rules hold for OpenZFS 2.3. Each gives its reason and its source; where common wisdom is wrong, the reason
//! says so.

pub mod facts;
mod item;
mod review;
pub mod rules;
pub mod text;
pub mod watch;

pub use facts::Facts;
pub use item::{Advice, Evidence, EvidenceValue, Gauge, Remedy, Risk, Severity};
pub use review::{Fine, Review, Unknown};

/// Applies all rules to the facts.
pub fn review(facts: &Facts) -> Review {
    Review::of(facts, rules::RULES)
}
