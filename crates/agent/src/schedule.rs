//! What is due: scrubs and trims.
//!
//! When a pool was last scrubbed is known to the pool (`scan_stats`), so neither a restart nor a scrub by
//! hand is forgotten. When it was trimmed is known while the agent runs; the first trim is due a whole
//! interval after the start.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::rules::Rules;

/// When pools were trimmed.
#[derive(Debug)]
pub struct Trims {
    started_s: u64,
    last_s: BTreeMap<String, u64>,
}

impl Trims {
    /// None was.
    pub fn new(now_s: u64) -> Trims {
        Trims { started_s: now_s, last_s: BTreeMap::new() }
    }
}

/// Work on a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Everything is verified.
    Scrub,
    /// Devices are told what is free.
    Trim,
}

impl Work {
    /// The verb of `zpool` that orders it.
    pub fn verb(self) -> &'static str {
        match self {
            Work::Scrub => "scrub",
            Work::Trim => "trim",
        }
    }
}

/// Work that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub work: Work,
    /// Whatever is in its name, it is one word.
    pub pool: String,
}

/// What is due; `status` is the document of `zpool status -j --json-int`.
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
