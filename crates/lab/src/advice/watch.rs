//! Watching: gathers facts at intervals, and reports each alert once when raised and once when ended.
//!
//! ```text
//! every interval: gather ─> review ─> Alerts ─> events ─┬─> Outbox ─> webhook, retried until delivered
//!                                       │               └─> printer
//!                                       └─> metrics (text for Prometheus)
//! ```
//!
//! [`Alerts`] and undelivered events are saved to a file after each round, so a restart neither forgets nor
//! repeats any. Facts, posting and the clock come from a [`World`], so this crate needs no HTTP.

mod alert;
mod metrics;
mod outbox;
mod state;

pub use alert::{Alert, Alerts, Event, EventKind};
pub use outbox::Outbox;

use std::path::PathBuf;
use std::time::Duration;

use super::{Advice, Evidence, Facts, Fine, Remedy, Review, Risk, Severity, review};
use crate::load::control::Control;
use crate::{LabError, Result};

/// User's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Time between rounds.
    pub interval: Duration,
    /// Time a subject must be fine before its alert ends.
    pub clear_after: Duration,
    /// Keeps alerts across restarts.
    pub state: Option<PathBuf>,
    /// Events are posted to a webhook.
    pub webhook: bool,
}

/// Outside world of the watch.
pub trait World {
    /// Gathers the current facts.
    ///
    /// # Errors
    /// No facts: that raises its own alert.
    fn facts(&mut self) -> Result<Facts>;

    /// Posts one event as JSON.
    ///
    /// # Errors
    /// Not accepted: the outbox retries later.
    fn post(&mut self, event: &Event) -> Result<()>;

    /// Seconds since 1970, UTC.
    fn unix_s(&self) -> u64;

    /// Waits, unless asked to stop.
    fn wait(&mut self, time: Duration, control: &Control);

    /// Reports the events of a round.
    fn happened(&mut self, events: &[Event], metrics: String);
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Rounds {
    all: u64,
    failed: u64,
    posts_failed: u64,
    last_good_unix_s: u64,
}

/// Watches until told to stop.
///
/// # Errors
/// The state file cannot be read or written.
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
                // Judge only counters since the last round: last month's problems are over.
                let lately = before.as_ref().map_or_else(|| facts.clone(), |before| facts.since(before));
                let mut review = review(&lately);
                before = Some(facts.clone());
                review.fine.push(Fine { rule: BLIND.into(), subject: MACHINE.into(), gauge: None });
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

const BLIND: &str = "no-facts";
const MACHINE: &str = "machine";

fn blind(error: &LabError) -> Advice {
    Advice {
        rule: BLIND.into(),
        severity: Severity::Warning,
        subject: MACHINE.into(),
        summary: format!("The pools cannot be inspected: {error}"),
        evidence: vec![Evidence::word("error", error.to_string())],
        reason: "Without facts, pools may fail unnoticed.".into(),
        sources: Vec::new(),
        remedy: Remedy {
            commands: vec!["zpool status".into()],
            risk: Risk::None,
            caution: "It only reads. Try it as the user that runs the watch.".into(),
        },
        gauge: None,
    }
}

#[cfg(test)]
mod tests;
