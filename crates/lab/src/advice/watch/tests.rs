//! Watching, with a scripted clock and world.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::collections::VecDeque;
use std::path::Path;

use super::*;

/// Each round has the pool's fill in percent, or no facts; rounds are a minute apart.
#[derive(Default)]
struct Script {
    rounds: VecDeque<Option<f64>>,
    now: u64,
    /// Number of posts that fail, from the first on.
    deaf: usize,
    posted: Vec<Event>,
    tries: Vec<u64>,
    told: Vec<(u64, EventKind, String)>,
    metrics: String,
}

/// A recorded pool with its fill changed.
fn filled(percent: f64) -> Facts {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/zfs/healthy");
    let mut facts = Facts::recorded(&folder).unwrap();
    let vdev = facts.pools[0].vdevs.iter_mut().find(|vdev| vdev.name == "mirror-0").unwrap();
    (vdev.size_bytes, vdev.allocated_bytes) = (Some(100_000), Some((percent * 1000.0) as u64));
    facts.pools[0].allocated_bytes = vdev.allocated_bytes;
    facts
}

impl World for Script {
    fn facts(&mut self) -> Result<Facts> {
        match self.rounds.front() {
            Some(Some(percent)) => Ok(filled(*percent)),
            _ => Err(LabError::Program { program: "zpool".into(), what: "permission denied".into() }),
        }
    }

    fn post(&mut self, event: &Event) -> Result<()> {
        self.tries.push(self.now);
        if self.deaf > 0 {
            self.deaf -= 1;
            return Err(LabError::Refused("connection refused".into()));
        }
        self.posted.push(event.clone());
        Ok(())
    }

    fn unix_s(&self) -> u64 {
        self.now
    }

    fn wait(&mut self, time: Duration, control: &Control) {
        self.now += time.as_secs();
        self.rounds.pop_front();
        if self.rounds.is_empty() {
            control.stop();
        }
    }

    fn happened(&mut self, events: &[Event], metrics: String) {
        self.told.extend(events.iter().map(|e| (e.unix_s / 60, e.event, e.alert.rule.clone())));
        self.metrics = metrics;
    }
}

fn settings(state: Option<&Path>) -> Settings {
    Settings {
        interval: Duration::from_secs(60),
        clear_after: Duration::from_secs(300),
        state: state.map(Path::to_owned),
        webhook: true,
    }
}

/// Runs these rounds, starting at minute `from`.
fn run(from: u64, rounds: &[Option<f64>], deaf: usize, state: Option<&Path>) -> Script {
    let mut script =
        Script { rounds: rounds.iter().copied().collect(), now: from * 60, deaf, ..Script::default() };
    watch(&settings(state), &mut script, &Control::default()).unwrap();
    script
}

/// Events of the fill rules.
fn fills(script: &Script) -> Vec<(u64, EventKind, &str)> {
    let fill =
        |(at, kind, rule): &'_ (u64, EventKind, String)| rule.starts_with("fill").then_some((*at, *kind));
    script.told.iter().filter_map(|told| fill(told).map(|(at, kind)| (at, kind, told.2.as_str()))).collect()
}

use EventKind::{Cleared, Raised};

#[test]
fn a_value_fluctuating_around_the_level_raises_one_alert() {
    let wavering: Vec<_> = (0..40).map(|n| Some(if n % 2 == 0 { 80.4 } else { 79.6 })).collect();
    assert_eq!(fills(&run(0, &wavering, 0, None)), [(0, Raised, "fill-80")]);
}

#[test]
fn an_alert_ends_after_five_uninterrupted_good_minutes() {
    let mut rounds = vec![Some(81.0); 3];
    rounds.extend([Some(77.0); 4]); // good from minute 3 to 6, not long enough
    rounds.push(Some(79.0)); // between the levels: the time restarts
    rounds.extend([Some(77.0); 10]); // good from minute 8: over at 13
    assert_eq!(fills(&run(0, &rounds, 0, None)), [(0, Raised, "fill-80"), (13, Cleared, "fill-80")]);
}

#[test]
fn missing_facts_are_not_good_and_raise_an_alert() {
    let mut rounds = vec![Some(81.0), Some(70.0)];
    rounds.extend([None; 10]);
    let script = run(0, &rounds, 0, None);
    assert_eq!(fills(&script), [(0, Raised, "fill-80")]);
    assert!(script.told.contains(&(2, Raised, "no-facts".into())));
    assert!(script.metrics.contains("cenote_watch_failures_total 10"), "{}", script.metrics);
}

#[test]
fn a_restart_neither_repeats_nor_forgets() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("alerts.json");
    assert_eq!(fills(&run(0, &[Some(85.0); 3], 0, Some(&state))).len(), 1);
    assert!(fills(&run(10, &[Some(85.0); 3], 0, Some(&state))).is_empty(), "already reported");
    assert_eq!(fills(&run(20, &[Some(10.0); 8], 0, Some(&state))), [(25, Cleared, "fill-80")]);
    std::fs::write(&state, "{").unwrap();
    let refused = watch(&settings(Some(&state)), &mut Script::default(), &Control::default()).unwrap_err();
    assert!(refused.to_string().contains("move it away"), "{refused}");
}

#[test]
fn an_unreachable_webhook_later_gets_every_event_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("alerts.json");
    let mut rounds = vec![Some(85.0), Some(85.0)];
    rounds.extend([Some(10.0); 8]);
    let deaf = run(0, &rounds, usize::MAX, Some(&state));
    assert!(deaf.posted.is_empty());
    let pauses: Vec<u64> = deaf.tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.is_sorted() && pauses.last() > pauses.first(), "pauses grow: {pauses:?}");
    let later = run(100, &[Some(10.0)], 0, Some(&state));
    let fill: Vec<_> = later.posted.iter().filter(|e| e.alert.rule == "fill-80").map(|e| e.event).collect();
    assert_eq!(fill, [Raised, Cleared]);
    assert!(later.metrics.contains("cenote_webhook_waiting 0"));
}

#[test]
fn metrics_contain_what_a_dashboard_needs() {
    let metrics = run(0, &[Some(91.5)], 0, None).metrics;
    for line in [
        "cenote_pool_allocated_bytes{pool=\"healthy\"} 91500.0",
        "cenote_rule_value{rule=\"fill-90\",subject=\"healthy\"} 91.5",
        "cenote_alert_active{rule=\"fill-90\",subject=\"healthy\",severity=\"warning\"} 1",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}
