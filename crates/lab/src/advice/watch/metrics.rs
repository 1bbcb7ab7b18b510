//! Metrics for Prometheus: pools, ARC, advice, alerts and the watch itself; rebuilt each round.

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::{Alerts, Rounds};
use crate::advice::{Facts, Review};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPool {
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRule {
    rule: String,
    subject: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAlert {
    rule: String,
    subject: String,
    severity: String,
}

type Float = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Metrics of pools: name, help, value.
type PoolNumber = (&'static str, &'static str, fn(&crate::load::machine::zpool::Pool) -> Option<f64>);

const POOL_NUMBERS: [PoolNumber; 5] = [
    ("pool_online", "1 if the pool's state is ONLINE", |pool| {
        Some(f64::from(u8::from(pool.state == "ONLINE")))
    }),
    ("pool_size_bytes", "Raw size of the pool's vdevs, without log and cache", |pool| {
        pool.size_bytes.map(|n| n as f64)
    }),
    ("pool_allocated_bytes", "Raw bytes allocated", |pool| pool.allocated_bytes.map(|n| n as f64)),
    ("pool_fragmentation_percent", "Fragmentation of free space", |pool| {
        pool.fragmentation_percent.map(|n| n as f64)
    }),
    ("pool_data_errors", "Files and objects with unrepairable errors", |pool| Some(pool.data_errors as f64)),
];

/// Counters and states of the ARC: kstat name, whether it is a counter, help.
const ARC_NUMBERS: [(&str, bool, &str); 9] = [
    ("size", false, "Bytes in the ARC"),
    ("c_max", false, "Maximum size of the ARC in bytes"),
    ("arc_meta_used", false, "Bytes of metadata in the ARC"),
    ("l2_asize", false, "Bytes in the L2ARC"),
    ("l2_hdr_size", false, "Bytes of L2ARC headers in memory"),
    ("hits", true, "ARC hits"),
    ("misses", true, "ARC misses"),
    ("l2_hits", true, "L2ARC hits"),
    ("l2_misses", true, "L2ARC misses"),
];

pub(super) fn text(
    facts: &Facts,
    review: &Review,
    alerts: &Alerts,
    rounds: &Rounds,
    waiting: usize,
) -> String {
    let mut registry = Registry::with_prefix("cenote");
    for (name, help, value) in POOL_NUMBERS {
        let family = Family::<OfPool, Float>::default();
        for pool in &facts.pools {
            if let Some(value) = value(pool) {
                family.get_or_create(&OfPool { pool: pool.name.clone() }).set(value);
            }
        }
        registry.register(name, help, family);
    }
    arc(&mut registry, facts);
    told(&mut registry, review, alerts);
    registry.register("watch_rounds", "Rounds of gathering facts", ConstCounter::new(rounds.all));
    registry.register(
        "watch_failures",
        "Rounds that could not gather facts",
        ConstCounter::new(rounds.failed),
    );
    registry.register(
        "webhook_failures",
        "Rounds in which the webhook did not accept every event",
        ConstCounter::new(rounds.posts_failed),
    );
    registry.register("webhook_waiting", "Events waiting for the webhook", ConstGauge::new(waiting as i64));
    let last = ConstGauge::new(rounds.last_good_unix_s as i64);
    registry.register("watch_last_success_unix_seconds", "Time of the last gathered facts", last);
    let mut out = String::new();
    match encode(&mut out, &registry) {
        Ok(()) => out,
        // Writing to a string cannot fail.
        Err(_) => String::new(),
    }
}

fn arc(registry: &mut Registry, facts: &Facts) {
    let Some(arc) = &facts.arc else { return };
    for (name, counts, help) in ARC_NUMBERS {
        let Some(value) = arc.get(name) else { continue };
        let full = format!("arc_{}", name.trim_start_matches("arc_"));
        match counts {
            true => registry.register(full, help, ConstCounter::new(value)),
            false => registry.register(full, help, ConstGauge::new(value as i64)),
        }
    }
}

fn told(registry: &mut Registry, review: &Review, alerts: &Alerts) {
    let levels = Family::<OfRule, Float>::default();
    let gauges = review.advice.iter().map(|advice| (&*advice.rule, &advice.subject, advice.gauge));
    for (rule, subject, gauge) in
        gauges.chain(review.fine.iter().map(|fine| (&*fine.rule, &fine.subject, fine.gauge)))
    {
        if let Some(gauge) = gauge {
            levels.get_or_create(&OfRule { rule: rule.into(), subject: subject.clone() }).set(gauge.value);
        }
    }
    registry.register("rule_value", "The value that a rule watches, in its base unit", levels);
    let active = Family::<OfAlert, Gauge>::default();
    for alert in alerts.active() {
        let labels = OfAlert {
            rule: alert.rule.clone(),
            subject: alert.subject.clone(),
            severity: alert.severity.name().into(),
        };
        active.get_or_create(&labels).set(1);
    }
    registry.register("alert_active", "1 for each active alert", active);
    let unknown = ConstGauge::new(review.unknown.len() as i64);
    registry.register("rules_unknown", "Checks without a verdict", unknown);
}
