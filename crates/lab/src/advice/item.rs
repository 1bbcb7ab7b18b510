//! A piece of advice, and its parts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// Urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something could be better; no hurry.
    Notice,
    /// Costs speed or space now, or will endanger data soon.
    Warning,
    /// Endangers data or the pool's service.
    Critical,
}

/// Risk of a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Only reads.
    None,
    /// Can be undone; stored data are safe.
    Low,
    /// Cannot be undone, or loads the pool for hours.
    Medium,
    /// A mistake loses data: a backup is needed.
    High,
}

/// Commands that solve a problem, and their risk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// Command lines in order; the reader replaces the words in capitals.
    pub commands: Vec<String>,
    /// Risk of the commands.
    pub risk: Risk,
    /// Warning for the reader.
    pub caution: String,
}

/// Fact that a piece of advice rests on. As JSON, it also has its value with its unit (`shown`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Told", into = "Told")]
pub struct Evidence {
    /// Name: `capacity`, `log writes to the SLOG`.
    pub what: String,
    /// Number or word.
    pub value: EvidenceValue,
}

/// Evidence as JSON.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Evidence")]
struct Told {
    /// Name.
    what: String,
    #[serde(flatten)]
    value: EvidenceValue,
    /// For people.
    shown: String,
}

impl From<Evidence> for Told {
    fn from(evidence: Evidence) -> Told {
        let shown = evidence.shown();
        Told { what: evidence.what, value: evidence.value, shown }
    }
}

impl From<Told> for Evidence {
    fn from(Told { what, value, .. }: Told) -> Evidence {
        Evidence { what, value }
    }
}

/// Value of a piece of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EvidenceValue {
    /// A number.
    Number {
        /// In the base unit.
        value: f64,
        /// Unit of the number.
        unit: Unit,
    },
    /// A state or a name.
    Word {
        /// State or name.
        value: String,
    },
}

/// A number that a rule watches, with two levels: bad from `raise` on, and good again only from `clear` on.
/// In between the state stays the same, so that a value wavering about a level gives a single alert.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gauge {
    /// Current value, in the base unit.
    pub value: f64,
    /// Unit of all levels.
    pub unit: Unit,
    /// Level at which the value is bad. High values are bad if this is above `clear`, low ones otherwise.
    pub raise: f64,
    /// Level at which the value is good again.
    pub clear: f64,
}

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// Rule id: `fill-80`.
    pub rule: String,
    /// Urgency.
    pub severity: Severity,
    /// Pool, vdev, dataset or cache: `tank`, `tank/mirror-0/sda`, `tank/db`, `arc`.
    pub subject: String,
    /// Problem in one sentence.
    pub summary: String,
    /// Facts behind it.
    pub evidence: Vec<Evidence>,
    /// Why the problem matters.
    pub reason: String,
    /// Documentation or measurements that support it.
    pub sources: Vec<String>,
    /// Solution.
    pub remedy: Remedy,
    /// Number that the rule watches.
    pub gauge: Option<Gauge>,
}

impl Severity {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

impl Risk {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Risk::None => "none",
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
        }
    }
}

impl Evidence {
    /// Evidence with a number.
    pub fn number(what: impl Into<String>, value: f64, unit: Unit) -> Evidence {
        Evidence { what: what.into(), value: EvidenceValue::Number { value, unit } }
    }

    /// Evidence with a word.
    pub fn word(what: impl Into<String>, value: impl Into<String>) -> Evidence {
        Evidence { what: what.into(), value: EvidenceValue::Word { value: value.into() } }
    }

    /// Value with its unit, for people.
    pub fn shown(&self) -> String {
        match &self.value {
            // Whole counts below 1000 have no decimals.
            EvidenceValue::Number { value, unit: Unit::Count } if value.fract() == 0.0 && *value < 1000.0 => {
                format!("{value:.0}")
            }
            EvidenceValue::Number { value, unit } => unit.show(*value),
            EvidenceValue::Word { value } => value.clone(),
        }
    }
}

impl Gauge {
    /// Whether the value is at or past `raise`.
    pub fn bad(&self) -> bool {
        if self.raise >= self.clear { self.value >= self.raise } else { self.value <= self.raise }
    }

    /// Whether the value is at or past `clear`.
    pub fn good(&self) -> bool {
        if self.raise >= self.clear { self.value <= self.clear } else { self.value >= self.clear }
    }
}
