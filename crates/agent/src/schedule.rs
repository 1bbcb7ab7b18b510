//! Due scrubs and trims.
//!
//! The pool itself records its last scrub, so that restarts and manual scrubs count. Only the
//! agent knows the last trim, while it runs; the first trim is due a whole interval after the start.

use std::collections::BTreeMap;

use cenote_control::zpool::shown::status::Statuses;
use cenote_format::scan::ScanPhys;
use cenote_pool::VdevState;

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

/// Task due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Scrub or trim.
    pub work: Work,
    /// Name, which may contain spaces.
    pub pool: String,
}

/// Tasks due.
pub fn due(status: &Statuses, rules: &Rules, trims: &mut Trims, now_s: u64) -> Vec<Due> {
    let mut all = Vec::new();
    for pool in &status.pools {
        let (name, health) = (&pool.name, &pool.health);
        let is_well = health.standstill.is_none() && health.state() >= VdevState::Degraded;
        let scan = pool.opened.as_ref().and_then(|opened| opened.work.scan.as_ref());
        let is_scanning = scan.is_some_and(ScanPhys::is_running);
        let scanned_s = scan.map_or(0, |scan| scan.end_time_s);
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
    use cenote_format::Phys;
    use cenote_format::scan::{DSS_FINISHED, DSS_SCANNING};
    use cenote_pool::Standstill;

    use super::*;
    use crate::findings::tests::{opened, pool};

    #[test]
    fn pools_are_scrubbed_and_trimmed_when_it_is_time() {
        let rules = "[[scrub]]\nevery = \"10 days\"\n[[trim]]\npools = [\"a\"]\nevery = \"1 day\"";
        let rules = Rules::parse(rules).unwrap();
        let day = 86_400;
        let pool = |name: &str, scan: Option<(u64, u64)>| {
            let mut pool = pool(name, VdevState::Online);
            let mut opened = opened();
            let none = ScanPhys::from_words(&[0; 24]).unwrap();
            opened.work.scan = scan.map(|(state, end_time_s)| ScanPhys { state, end_time_s, ..none });
            pool.opened = Some(opened);
            pool
        };
        let mut pools = vec![
            pool("a", Some((DSS_FINISHED, 95 * day))),
            pool("b", Some((DSS_FINISHED, 90 * day))),
            pool("c", Some((DSS_SCANNING, 0))),
            pool("d", Some((DSS_FINISHED, 0))),
            pool("my tank", None),
            pool("never", None),
        ];
        pools[3].health.standstill = Some(Standstill::Stopped);
        let status = Statuses { pools, ..Statuses::default() };
        let mut trims = Trims::new(100 * day);
        let work = |work, pool: &str| Due { work, pool: pool.into() };
        let scrubs = ["b", "my tank", "never"].map(|pool| work(Work::Scrub, pool));
        assert_eq!(due(&status, &rules, &mut trims, 100 * day), scrubs);
        assert_eq!(due(&status, &rules, &mut trims, 101 * day)[0], work(Work::Trim, "a"));
        assert!(!due(&status, &rules, &mut trims, 102 * day - 1).contains(&work(Work::Trim, "a")));
    }
}
