//! A piece of advice, and its parts.

use serde::{Deserialize, Serialize, Serializer};

use crate::unit::Unit;

/// How urgent it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something could be better; there is no hurry.
    Notice,
    /// Costs speed or space now, or will endanger data soon.
    Warning,
    /// Endangers data or the pool's service.
    Critical,
}

/// How risky a remedy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Command lines, in order; the reader replaces the words in capitals.
    pub commands: Vec<String>,
    /// Their risk.
    pub risk: Risk,
    /// What to watch out for.
    pub caution: String,
}

/// A fact that a piece of advice rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Its name: `capacity`, `log writes to the SLOG`.
    pub what: String,
    /// Its value.
    pub value: EvidenceValue,
}

/// Programs get the value, people what is shown.
impl Serialize for Evidence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Told<'a> {
            what: &'a str,
            #[serde(flatten)]
            value: &'a EvidenceValue,
            shown: String,
        }
        Told { what: &self.what, value: &self.value, shown: self.shown() }.serialize(serializer)
    }
}

/// The value of a piece of evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EvidenceValue {
    /// A number.
    Number {
        /// In the base unit.
        value: f64,
        /// Its unit.
        unit: Unit,
    },
    /// A word: a state, a name.
    Word {
        /// That word.
        value: String,
    },
}

/// A number that a rule watches, with two levels: from `raise` on it is bad; it is good again only from
/// `clear` on. Between them nothing changes, so that a value that wavers about a level gives one alert and
/// not many.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gauge {
    /// The value now, in the base unit.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// The level at which it is bad. Bad is high if this is above `clear`, low if it is below.
    pub raise: f64,
    /// The level at which it is good again.
    pub clear: f64,
}

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The rule's id: `fill-80`.
    pub rule: &'static str,
    /// How urgent.
    pub severity: Severity,
    /// What it is about: `tank`, `tank/mirror-0/sda`, `tank/db`, `arc`.
    pub subject: String,
    /// What is wrong, in one sentence.
    pub summary: String,
    /// What that rests on.
    pub evidence: Vec<Evidence>,
    /// Why that matters.
    pub reason: &'static str,
    /// Where that is written, or who measured it.
    pub sources: &'static [&'static str],
    /// What to do.
    pub remedy: Remedy,
    /// The number that is watched, where there is one.
    pub gauge: Option<Gauge>,
}

impl Severity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

impl Risk {
    /// Its name.
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
    /// A number.
    pub fn number(what: impl Into<String>, value: f64, unit: Unit) -> Evidence {
        Evidence { what: what.into(), value: EvidenceValue::Number { value, unit } }
    }

    /// A word.
    pub fn word(what: impl Into<String>, value: impl Into<String>) -> Evidence {
        Evidence { what: what.into(), value: EvidenceValue::Word { value: value.into() } }
    }

    /// The value with its unit, as people write it.
    pub fn shown(&self) -> String {
        match &self.value {
            // Few things are counted whole: not `3.00`.
            EvidenceValue::Number { value, unit: Unit::Count } if value.fract() == 0.0 && *value < 1000.0 => {
                format!("{value:.0}")
            }
            EvidenceValue::Number { value, unit } => unit.show(*value),
            EvidenceValue::Word { value } => value.clone(),
        }
    }
}

impl Gauge {
    /// Whether the value is at or past the level at which it is bad.
    pub fn bad(&self) -> bool {
        if self.raise >= self.clear { self.value >= self.raise } else { self.value <= self.raise }
    }

    /// Whether the value is at or past the level at which it is good again.
    pub fn good(&self) -> bool {
        if self.raise >= self.clear { self.value <= self.clear } else { self.value >= self.clear }
    }
}
