//! Alerts: problems that a rule reported and that have not yet been fine for long enough.
//!
//! An alert is raised when a rule gives advice, and again only if it becomes more severe. It ends when its
//! subject has been *good* without interruption for some time: a number must be past the second of two levels
//! ([`Gauge`](crate::advice::Gauge)), and a value between the levels restarts the time. An undetermined
//! verdict neither raises nor ends an alert.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::advice::{Advice, Review, Severity};

/// An active alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Rule id.
    pub rule: String,
    /// Subject of the advice.
    pub subject: String,
    /// Worst severity so far.
    pub severity: Severity,
    /// Rule's summary at that severity.
    pub summary: String,
    /// Start: seconds since 1970, UTC.
    pub raised_unix_s: u64,
    /// Start of the present good spell, in seconds since 1970; None while not good.
    pub good_since_unix_s: Option<u64>,
}

/// Change of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The alert began.
    Raised,
    /// The alert became more severe.
    Worsened,
    /// The alert ended.
    Cleared,
}

/// Change to report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Kind of change.
    pub event: EventKind,
    /// Time in seconds since 1970, UTC.
    pub unix_s: u64,
    /// Alert after the change.
    pub alert: Alert,
    /// Evidence as shown to people: (name, value).
    pub evidence: Vec<(String, String)>,
    /// Commands of the remedy.
    pub commands: Vec<String>,
}

/// All active alerts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Alerts {
    by_key: BTreeMap<(String, String), Alert>,
}

/// State of an alert's subject in a review.
enum Now {
    Bad,
    Good,
    /// Between the levels, or undetermined.
    Neither,
}

impl Alerts {
    pub(super) fn kept(alerts: Vec<Alert>) -> Alerts {
        let key = |alert: Alert| ((alert.rule.clone(), alert.subject.clone()), alert);
        Alerts { by_key: alerts.into_iter().map(key).collect() }
    }

    /// Active alerts.
    pub fn active(&self) -> impl Iterator<Item = &Alert> {
        self.by_key.values()
    }

    /// Applies a review made at `now_unix_s`; returns the changes.
    pub fn step(&mut self, now_unix_s: u64, clear_after_s: u64, review: &Review) -> Vec<Event> {
        let mut events: Vec<Event> =
            review.advice.iter().filter_map(|advice| self.take(now_unix_s, advice)).collect();
        self.by_key.retain(|_, alert| {
            match now(review, alert) {
                Now::Bad | Now::Neither => alert.good_since_unix_s = None,
                Now::Good => {
                    let since = *alert.good_since_unix_s.get_or_insert(now_unix_s);
                    if now_unix_s.saturating_sub(since) >= clear_after_s {
                        events.push(Event::of(EventKind::Cleared, now_unix_s, alert, None));
                        return false;
                    }
                }
            }
            true
        });
        events
    }

    /// Raises an alert for this advice, or worsens the existing one.
    fn take(&mut self, now_unix_s: u64, advice: &Advice) -> Option<Event> {
        let key = (advice.rule.to_owned(), advice.subject.clone());
        let kind = match self.by_key.get_mut(&key) {
            Some(alert) if alert.severity >= advice.severity => return None,
            Some(alert) => {
                (alert.severity, alert.summary) = (advice.severity, advice.summary.clone());
                EventKind::Worsened
            }
            None => {
                let alert = Alert {
                    rule: advice.rule.to_owned(),
                    subject: advice.subject.clone(),
                    severity: advice.severity,
                    summary: advice.summary.clone(),
                    raised_unix_s: now_unix_s,
                    good_since_unix_s: None,
                };
                self.by_key.insert(key.clone(), alert);
                EventKind::Raised
            }
        };
        self.by_key.get(&key).map(|alert| Event::of(kind, now_unix_s, alert, Some(advice)))
    }
}

fn now(review: &Review, alert: &Alert) -> Now {
    let is_it = |rule: &str, subject: &str| rule == alert.rule && subject == alert.subject;
    if review.advice.iter().any(|advice| is_it(&advice.rule, &advice.subject)) {
        return Now::Bad;
    }
    if let Some(fine) = review.fine.iter().find(|fine| is_it(&fine.rule, &fine.subject)) {
        return if fine.gauge.is_none_or(|gauge| gauge.good()) { Now::Good } else { Now::Neither };
    }
    if review.unknown.iter().any(|unknown| is_it(&unknown.rule, &unknown.subject)) {
        return Now::Neither;
    }
    // The rule is silent about the subject. If it reports others in the pool, the subject is gone (a replaced
    // disk); otherwise the pool is.
    let pool = |subject: &str| subject.split('/').next().map(str::to_owned);
    let is_gone = |rule: &str, subject: &str| rule == alert.rule && pool(subject) == pool(&alert.subject);
    let told = review.advice.iter().any(|advice| is_gone(&advice.rule, &advice.subject))
        || review.fine.iter().any(|fine| is_gone(&fine.rule, &fine.subject));
    if told { Now::Good } else { Now::Neither }
}

impl Event {
    fn of(event: EventKind, unix_s: u64, alert: &Alert, advice: Option<&Advice>) -> Event {
        Event {
            event,
            unix_s,
            alert: alert.clone(),
            evidence: advice
                .into_iter()
                .flat_map(|a| &a.evidence)
                .map(|e| (e.what.clone(), e.shown()))
                .collect(),
            commands: advice.map(|advice| advice.remedy.commands.clone()).unwrap_or_default(),
        }
    }
}
