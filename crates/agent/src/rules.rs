//! The rules, as an administrator writes them.
//!
//! ```toml
//! look = "10 s"              # interval between looks at the pools
//!
//! [[scrub]]                  # pools without a rule are not scrubbed
//! pools = ["tank"]           # default: all
//! every = "30 days"
//! hours = "1-6"              # begin only then, in UTC
//!
//! [[trim]]
//! every = "7 days"
//!
//! [[replicate]]              # keeps a copy up to date
//! source = "tank/home"
//! target = "root@vault:store/home"
//! every = "1 h"
//! late = "4 h"               # a copy that is older gives an alert
//! recursive = true           # as the options of `cenote replicate`: raw, props, bookmark, hold, verify
//! rate = "20M"
//!
//! [alerts]
//! command = ["mail", "-s", "{subject}", "root"]    # the text is its standard input
//! webhook = "https://example.org/hook"             # the alert is posted as JSON
//! after = "1 min"            # shorter problems give no alert
//! again = "1 day"
//! capacity = 90              # percent
//!
//! [smart]
//! every = "1 day"
//! record = "/var/lib/cenote/smart"                 # a Parquet file a day
//! ```

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// All rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Interval between looks at the pools.
    #[serde(default = "ten_seconds", deserialize_with = "span")]
    pub look: Duration,
    /// Scrub schedules.
    #[serde(default)]
    pub scrub: Vec<Scheduled>,
    /// Trim schedules.
    #[serde(default)]
    pub trim: Vec<Scheduled>,
    /// Copies to keep.
    #[serde(default)]
    pub replicate: Vec<Replicated>,
    /// Alert settings.
    #[serde(default)]
    pub alerts: AlertRules,
    /// SMART settings; None leaves disks unasked.
    pub smart: Option<SmartRules>,
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

/// Schedule of a periodic task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    /// Pools concerned; empty means all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Interval since the last end.
    #[serde(deserialize_with = "span")]
    pub every: Duration,
    /// Hours of the day, in UTC, in which it may begin.
    #[serde(default, deserialize_with = "hours")]
    pub hours: Option<Range<u64>>,
}

/// A copy to keep; the switches are those of `cenote replicate`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replicated {
    /// `POOL/DATASET` or `[USER@]HOST:POOL/DATASET`.
    pub source: String,
    /// The copy.
    pub target: String,
    /// Interval between the beginnings of two runs.
    #[serde(deserialize_with = "span")]
    pub every: Duration,
    /// Hours of the day, in UTC, in which a run may begin.
    #[serde(default, deserialize_with = "hours")]
    pub hours: Option<Range<u64>>,
    /// Age from which the copy is too old.
    #[serde(default, deserialize_with = "span_if_any")]
    pub late: Option<Duration>,
    /// Include all descendants.
    #[serde(default)]
    pub recursive: bool,
    /// Send encrypted blocks as they are on disk.
    #[serde(default)]
    pub raw: bool,
    /// Send properties.
    #[serde(default)]
    pub props: bool,
    /// Bookmark the snapshot sent.
    #[serde(default)]
    pub bookmark: bool,
    /// Hold the snapshot sent on both sides.
    #[serde(default)]
    pub hold: bool,
    /// Compare both sides after each run.
    #[serde(default)]
    pub verify: bool,
    /// Most bytes a second, as `20M`.
    pub rate: Option<String>,
    /// The command that reaches other machines.
    pub ssh: Option<String>,
}

/// Alert settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertRules {
    /// Program and arguments, with `{subject}` as a placeholder.
    pub command: Vec<String>,
    /// URL that alerts are posted to.
    pub webhook: Option<String>,
    /// Time that a problem must last before its alert, and be gone before its end is reported.
    #[serde(deserialize_with = "span")]
    pub after: Duration,
    /// Interval of repeated alerts.
    #[serde(deserialize_with = "span")]
    pub again: Duration,
    /// Percent used from which a pool is reported.
    pub capacity: u64,
}

impl Default for AlertRules {
    fn default() -> AlertRules {
        AlertRules {
            command: Vec::new(),
            webhook: None,
            after: Duration::from_secs(60),
            again: Duration::from_secs(86_400),
            capacity: 90,
        }
    }
}

/// SMART settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SmartRules {
    /// Program that reads SMART data.
    pub smartctl: PathBuf,
    /// Interval.
    #[serde(deserialize_with = "span")]
    pub every: Duration,
    /// Folder for a file a day with all attributes.
    pub record: Option<PathBuf>,
}

impl Default for SmartRules {
    fn default() -> SmartRules {
        SmartRules { smartctl: "smartctl".into(), every: Duration::from_secs(86_400), record: None }
    }
}

impl Rules {
    /// Parses rules.
    ///
    /// # Errors
    /// Not TOML, or invalid rules; the text gives the place.
    pub fn parse(text: &str) -> Result<Rules, String> {
        let rules: Rules = toml::from_str(text).map_err(|error| error.to_string())?;
        if rules.alerts.capacity == 0 || rules.alerts.capacity > 100 {
            return Err("alerts.capacity: from 1 to 100 percent".into());
        }
        Ok(rules)
    }
}

impl Scheduled {
    /// Whether it applies to a pool.
    pub fn is_for(&self, pool: &str) -> bool {
        self.pools.is_empty() || self.pools.iter().any(|name| name == pool)
    }

    /// Whether it is due. Times are in seconds since 1970.
    pub fn is_due(&self, last_s: u64, now_s: u64) -> bool {
        is_due(self.every, self.hours.as_ref(), last_s, now_s)
    }
}

impl Replicated {
    /// Whether a run is due after one that began at `last_s`. Times are in seconds since 1970.
    pub fn is_due(&self, last_s: u64, now_s: u64) -> bool {
        is_due(self.every, self.hours.as_ref(), last_s, now_s)
    }
}

fn is_due(every: Duration, hours: Option<&Range<u64>>, last_s: u64, now_s: u64) -> bool {
    let hour = now_s / 3600 % 24;
    let is_hour = hours.is_none_or(|hours| match hours.start < hours.end {
        true => hours.contains(&hour),
        false => hour >= hours.start || hour < hours.end,
    });
    is_hour && now_s.saturating_sub(last_s) >= every.as_secs()
}

/// `90 s`, `5 min`, `12 h`, `30 days`, `4 weeks`.
fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let seconds = match text[at..].trim() {
        "s" | "sec" => 1,
        "m" | "min" => 60,
        "h" | "hour" | "hours" => 3600,
        "d" | "day" | "days" => 86_400,
        "w" | "week" | "weeks" => 7 * 86_400,
        _ => 0,
    };
    let span = text[..at].parse::<u64>().ok().and_then(|count| count.checked_mul(seconds));
    let span = span.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    span.ok_or_else(|| {
        serde::de::Error::custom(format!("'{text}' is no span of time, as 90 s, 12 h or 30 days"))
    })
}

fn span_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    span(from).map(Some)
}

/// `1-6`; `22-4` spans midnight.
fn hours<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Range<u64>>, D::Error> {
    let text = String::deserialize(from)?;
    let hour = |text: &str| text.trim().parse::<u64>().ok().filter(|hour| *hour <= 24);
    let parts = text.split_once('-').and_then(|(from, to)| Some(hour(from)?..hour(to)?));
    match parts.filter(|hours| hours.start != hours.end) {
        Some(hours) => Ok(Some(hours)),
        None => Err(serde::de::Error::custom(format!("'{text}' are no hours of the day, as 1-6 or 22-4"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_in_this_modules_text_are_understood() {
        let text: String = include_str!("rules.rs")
            .lines()
            .skip_while(|line| !line.contains("```toml"))
            .skip(1)
            .take_while(|line| !line.contains("```"))
            .map(|line| line.trim_start_matches("//!").to_owned() + "\n")
            .collect();
        let rules = Rules::parse(&text).unwrap();
        assert_eq!(rules.scrub[0].every, Duration::from_secs(30 * 86_400));
        assert_eq!((rules.trim.len(), rules.alerts.command[0].as_str()), (1, "mail"));
        assert!(rules.smart.unwrap().record.is_some());
        assert_eq!(rules.replicate[0].late, Some(Duration::from_secs(4 * 3600)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("[[scrub]]\nevery = \"soon\"", "no span of time"),
            ("[[scrub]]\nevery = \"0 days\"", "no span of time"),
            ("[[scrub]]\nevery = \"1 d\"\nhours = \"25-26\"", "no hours"),
            ("[[scrub]]\npool = \"x\"", "pool"),
            ("[[replicate]]\nsource = \"a\"\ntarget = \"b\"", "every"),
            ("[alerts]\ncapacity = 101", "percent"),
        ] {
            let refused = Rules::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn something_is_due_in_its_hours() {
        let rule = |hours: &str| {
            let text = format!("[[scrub]]\nevery = \"1 day\"\nhours = \"{hours}\"");
            Rules::parse(&text).unwrap().scrub.remove(0)
        };
        let day = 86_400;
        let due = |hours: &str, hour: u64| rule(hours).is_due(0, 10 * day + hour * 3600 + 1800);
        assert_eq!([due("1-6", 0), due("1-6", 1), due("1-6", 5), due("1-6", 6)], [false, true, true, false]);
        assert_eq!(
            [due("22-4", 21), due("22-4", 23), due("22-4", 3), due("22-4", 4)],
            [false, true, true, false]
        );
        assert!(!rule("0-24").is_due(10 * day, 11 * day - 1) && rule("0-24").is_due(10 * day, 11 * day));
    }
}
