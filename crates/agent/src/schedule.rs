//! Due scrubs and trims.
//!
//! The pool itself records its last scrub (`scan_stats`), so that restarts and manual scrubs count. Only the
//! agent knows the last trim, while it runs; the first trim is due a whole interval after the start.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::rules::Rules;

/// Time of each pool's last trim.
#[derive(Debug)]
pub struct Trims {
    started_s: u64,
    last_s: BTreeMap<String, u64>,
}

impl Trims {
    /// No trims so far.
    pub fn new(now_s: u64) -> Trims {
        Trims { started_s: now_s, last_s: BTreeMap::new() }
    }
}

/// Periodic task of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Verify all data.
    Scrub,
    /// Discard free space.
    Trim,
}

impl Work {
    /// Verb of `zpool` that starts it.
    pub fn verb(self) -> &'static str {
        match self {
            Work::Scrub => "scrub",
            Work::Trim => "trim",
        }
    }
}

/// Task that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Scrub or trim.
    pub work: Work,
    /// Name, which may contain spaces.
    pub pool: String,
}

/// Tasks that are due; `status` is the document of `zpool status -j --json-int`.
pub fn due(status: &Value, rules: &Rules, trims: &mut Trims, now_s: u64) -> Vec<Due> {
    let mut all = Vec::new();
    for (name, pool) in status["pools"].as_object().into_iter().flatten() {
        let is_well = ["ONLINE", "DEGRADED"].contains(&pool["state"].as_str().unwrap_or_default());
        let scan = &pool["scan_stats"];
        let is_scanning = scan["state"] == "SCANNING";
        let scanned_s = scan["end_time"].as_u64().unwrap_or(0);
        let is_due =
            |rule: &&crate::rules::Scheduled, last_s| rule.is_for(name) && rule.is_due(last_s, now_s);
        if is_well && !is_scanning && rules.scrub.iter().any(|rule| is_due(&rule, scanned_s)) {
            all.push(Due { work: Work::Scrub, pool: name.clone() });
        }
        let trimmed_s = trims.last_s.get(name).copied().unwrap_or(trims.started_s);
        if is_well && rules.trim.iter().any(|rule| is_due(&rule, trimmed_s)) {
            trims.last_s.insert(name.clone(), now_s);
            all.push(Due { work: Work::Trim, pool: name.clone() });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pools_are_scrubbed_and_trimmed_when_it_is_time() {
        let rules = "[[scrub]]\nevery = \"10 days\"\n[[trim]]\npools = [\"a\"]\nevery = \"1 day\"";
        let rules = Rules::parse(rules).unwrap();
        let day = 86_400;
        let pool = |state: &str, scan: &str, end_s: u64| {
            let scan = json!({"state": scan, "end_time": end_s});
            json!({"state": state, "scan_stats": scan})
        };
        let status = json!({"pools": {
            "a": pool("ONLINE", "FINISHED", 95 * day),
            "b": pool("ONLINE", "FINISHED", 90 * day),
            "c": pool("ONLINE", "SCANNING", 0),
            "d": pool("SUSPENDED", "FINISHED", 0),
            "my tank": {"state": "ONLINE"},
            "never": {"state": "ONLINE"},
        }});
        let mut trims = Trims::new(100 * day);
        let work = |work, pool: &str| Due { work, pool: pool.into() };
        let scrubs = ["b", "my tank", "never"].map(|pool| work(Work::Scrub, pool));
        assert_eq!(due(&status, &rules, &mut trims, 100 * day), scrubs);
        assert_eq!(due(&status, &rules, &mut trims, 101 * day)[0], work(Work::Trim, "a"));
        assert!(!due(&status, &rules, &mut trims, 102 * day - 1).contains(&work(Work::Trim, "a")));
    }
}
