//! Watching: facts at every interval, alerts that are raised once and end once, told to whoever asked.
//!
//! ```text
//! every interval: gather ─> review ─> Alerts ─> events ─┬─> Outbox ─> webhook, again and again until it took them
//!                                       │               └─> whoever prints
//!                                       └─> metrics (text for Prometheus)
//! ```
//!
//! [`Alerts`] and the letters not delivered yet are kept in a file after each round, so that a restart neither
//! forgets nor repeats. How facts are had, how a letter is posted and what time it is come from outside ([`World`]): tests
//! have a clock of their own, and this crate needs no HTTP.

mod alert;
mod metrics;
mod outbox;
mod state;

pub use alert::{Alert, Alerts, Event, EventKind};
pub use outbox::Outbox;

use std::path::PathBuf;
use std::time::Duration;

use super::{Advice, Evidence, Facts, Fine, Remedy, Review, Risk, Severity, review};
use crate::control::Control;
use crate::{LabError, Result};

/// What a user chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Between rounds.
    pub interval: Duration,
    /// For how long all must be well before an alert ends.
    pub clear_after: Duration,
    /// Where alerts are kept across restarts.
    pub state: Option<PathBuf>,
    /// Whether there is a webhook to post to.
    pub webhook: bool,
}

/// All that watching needs of the world around it.
pub trait World {
    /// What is known now.
    ///
    /// # Errors
    /// It can't be had at all: that is an alert by itself.
    fn facts(&mut self) -> Result<Facts>;

    /// Posts one event as JSON.
    ///
    /// # Errors
    /// It was not taken: it is tried again later.
    fn post(&mut self, event: &Event) -> Result<()>;

    /// Seconds since 1970, UTC.
    fn unix_s(&self) -> u64;

    /// Waits, unless asked to stop.
    fn wait(&mut self, time: Duration, control: &Control);

    /// Tells what happened in a round.
    fn happened(&mut self, events: &[Event], metrics: String);
}

/// What the rounds so far came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Rounds {
    all: u64,
    failed: u64,
    posts_failed: u64,
    last_good_unix_s: u64,
}

/// Watches until it is told to stop.
///
/// # Errors
/// The state file can't be read or written.
pub fn watch(settings: &Settings, world: &mut dyn World, control: &Control) -> Result<()> {
    let (mut alerts, mut outbox) = match &settings.state {
        Some(path) => state::load(path)?,
        None => Default::default(),
    };
    let mut rounds = Rounds::default();
    let mut before: Option<Facts> = None;
    while !control.stopped() {
        let now = world.unix_s();
        rounds.all += 1;
        let facts = world.facts();
        let (facts, review) = match facts {
            Ok(facts) => {
                rounds.last_good_unix_s = now;
                // Counters of the time since the last round: what was wrong a month ago is over.
                let lately = before.as_ref().map_or_else(|| facts.clone(), |before| facts.since(before));
                let mut review = review(&lately);
                before = Some(facts.clone());
                review.fine.push(Fine { rule: BLIND, subject: MACHINE.into(), gauge: None });
                (facts, review)
            }
            Err(error) => {
                rounds.failed += 1;
                (Facts::default(), Review { advice: vec![blind(&error)], ..Review::default() })
            }
        };
        let events = alerts.step(now, settings.clear_after.as_secs(), &review);
        if settings.webhook {
            outbox.add(&events);
            rounds.posts_failed += u64::from(outbox.deliver(now, &mut |event| world.post(event)).is_err());
        }
        if let Some(path) = &settings.state {
            state::keep(path, &alerts, &outbox)?;
        }
        world.happened(&events, metrics::text(&facts, &review, &alerts, &rounds, outbox.len()));
        world.wait(settings.interval, control);
    }
    Ok(())
}

/// The id of the alert that nothing can be seen.
const BLIND: &str = "no-facts";
const MACHINE: &str = "machine";

fn blind(error: &LabError) -> Advice {
    Advice {
        rule: BLIND,
        severity: Severity::Warning,
        subject: MACHINE.into(),
        summary: format!("The pools can't be looked at: {error}"),
        evidence: vec![Evidence::word("error", error.to_string())],
        reason: "While nothing can be seen, nothing can be told: pools may fail unnoticed.",
        sources: &[],
        remedy: Remedy {
            commands: vec!["zpool status".into()],
            risk: Risk::None,
            caution: "It only looks: does it work as the user that watches?".into(),
        },
        gauge: None,
    }
}

#[cfg(test)]
mod tests;
