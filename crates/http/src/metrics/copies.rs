//! `cenote_replicate_*`: the copies that the agent keeps.

use cenote_host::pools::Pools;

use super::families::{Families, Kind};

/// Adds these metrics.
pub fn add(pools: &Pools, now_s: u64, families: &mut Families) {
    for ((source, target), copy) in pools.copies.all() {
        let labels = [("source", &*source), ("target", &*target)];
        let success = (Kind::Gauge, "Whether the last run was a success.");
        families.add("cenote_replicate_success", success, &labels, f64::from(copy.failed.is_none()));
        let ran = (Kind::Gauge, "End of the last run, in seconds since 1970.");
        families.add("cenote_replicate_last_run_timestamp_seconds", ran, &labels, copy.ran_s as f64);
        let sent = (Kind::Counter, "Bytes sent since the start of the daemon.");
        families.add("cenote_replicate_sent_bytes_total", sent, &labels, copy.sent_bytes as f64);
        if let Some(lag_s) = copy.lag_s(now_s) {
            let lag = (Kind::Gauge, "Age of the state of the copy: that of its oldest dataset.");
            families.add("cenote_replicate_lag_seconds", lag, &labels, lag_s as f64);
        }
    }
}
