//! Problems of pools, as `zpool status` and `zpool list` report them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::view::vdevs;

/// Findings by a key that is stable for the same problem.
pub type Findings = BTreeMap<String, Finding>;

/// Key of a suspended pool.
const SUSPENDED: &str = "suspended";
/// Key suffix of a full pool.
const CAPACITY: &str = ": capacity";

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Pool concerned; None for a disk's SMART data.
    pub pool: Option<String>,
    /// One line.
    pub subject: String,
    /// Details and advice.
    pub text: String,
    /// Start and end are reported at once.
    pub is_urgent: bool,
}

/// Percent used, by pool.
pub type Capacities = BTreeMap<String, u64>;

/// Finds problems in `zpool status -j --json-int` and in the pools' capacities.
pub fn of_pools(status: &Value, used_percent: &Capacities, capacity_percent: u64) -> Findings {
    let mut findings = Findings::new();
    for (name, pool) in status["pools"].as_object().into_iter().flatten() {
        let text = |member: &str| pool[member].as_str().unwrap_or_default();
        let mut add = |key: String, subject: String, text: String| {
            // Programs using a suspended pool hang or fail.
            let (pool, is_urgent) = (Some(name.clone()), key == SUSPENDED);
            findings.insert(format!("{name}: {key}"), Finding { pool, subject, text, is_urgent });
        };
        let advice = format!("{}\n{}\n", text("status"), text("action"));
        if !text("state").is_empty() && text("state") != "ONLINE" {
            let key = if text("state") == "SUSPENDED" { SUSPENDED } else { "state" };
            add(key.into(), format!("pool {name} is {}", text("state")), advice.clone());
        }
        let errors = pool["error_count"].as_u64().unwrap_or(0);
        if errors > 0 {
            let see = format!("{advice}`zpool status -v {name}` lists the files.\n");
            add("errors".into(), format!("pool {name} has {errors} data errors"), see);
        }
        for vdev in vdevs(pool).into_iter().filter(|vdev| vdev["vdevs"].is_null()) {
            let device = vdev["path"].as_str().or(vdev["name"].as_str()).unwrap_or_default();
            let state = vdev["state"].as_str().unwrap_or_default();
            if !["ONLINE", "AVAIL", "INUSE", "OFFLINE", ""].contains(&state) {
                add(format!("{device} state"), format!("{device} of pool {name} is {state}"), advice.clone());
            }
            let count = |kind: &str| vdev[format!("{kind}_errors")].as_u64().unwrap_or(0);
            let [read, write, checksum] = ["read", "write", "checksum"].map(count);
            if read + write + checksum > 0 {
                let subject = format!("{device} of pool {name} has errors");
                let counts = format!("{read} reading, {write} writing, {checksum} checksums\n{advice}");
                add(format!("{device} errors"), subject, counts);
            }
        }
    }
    for (name, &used) in used_percent {
        if used >= capacity_percent {
            let subject = format!("pool {name} is {used} % full");
            let text = "Free space: destroy snapshots or datasets, or add vdevs.\n".to_owned();
            let finding = Finding { pool: Some(name.clone()), subject, text, is_urgent: false };
            findings.insert(name.clone() + CAPACITY, finding);
        }
    }
    findings
}

/// If part of the pools can't be shown, keeps the earlier findings of pools that are missing now.
pub fn keep_unseen(
    found: &mut Findings,
    before: &Findings,
    status: &Value,
    used_percent: &Capacities,
    why: &str,
) {
    for (key, finding) in before {
        let is_unseen = |pool: &str| match key.ends_with(CAPACITY) {
            true => !used_percent.contains_key(pool),
            false => status["pools"].get(pool).is_none(),
        };
        if finding.pool.as_deref().is_some_and(is_unseen) {
            found.entry(key.clone()).or_insert_with(|| finding.clone());
        }
    }
    let subject = "pools can't be shown as a whole".into();
    let finding = Finding { pool: None, subject, text: format!("{why}\n"), is_urgent: false };
    found.insert("view".into(), finding);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_can_not_be_seen_is_not_over() {
        let (none, one) = (Capacities::new(), |state: &str| json!({"state": state, "error_count": 0}));
        let before = of_pools(&json!({"pools": {"a": one("DEGRADED"), "b": one("DEGRADED")}}), &none, 90);
        let status = json!({"pools": {"b": one("ONLINE")}});
        let mut found = of_pools(&status, &none, 90);
        keep_unseen(&mut found, &before, &status, &none, "pool 'a': I/O error");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a: state", "view"], "b is well, a was not seen");
        assert!(found["view"].text.contains("pool 'a': I/O error"));
    }

    #[test]
    fn what_is_wrong_is_found_and_what_is_meant_is_not() {
        let leaf = |state: &str, errors: u64| {
            json!({"name": "d", "path": format!("/dev/{state}{errors}"), "state": state, "read_errors": 0,
                "write_errors": 0, "checksum_errors": errors})
        };
        let tree = json!({"tank": {"vdevs": {"mirror-0": {"state": "DEGRADED", "vdevs": {
            "a": leaf("FAULTED", 0), "b": leaf("ONLINE", 3), "c": leaf("OFFLINE", 0)}}}}});
        let pool = json!({"state": "DEGRADED", "status": "One.", "action": "Do.", "error_count": 2,
            "vdevs": tree, "spares": {"s": leaf("AVAIL", 0)}});
        let status = json!({"pools": {"tank": pool, "well": {"state": "ONLINE", "error_count": 0}}});
        let stuck = json!({"pools": {"well": {"state": "SUSPENDED", "error_count": 0}}});
        let stuck = of_pools(&stuck, &Capacities::new(), 90);
        assert!(stuck.values().all(|finding| finding.is_urgent) && stuck.contains_key("well: suspended"));
        let used = Capacities::from([("tank".into(), 90), ("well".into(), 89)]);
        let found = of_pools(&status, &used, 90);
        let subjects: Vec<&str> = found.values().map(|finding| &*finding.subject).collect();
        assert_eq!(
            subjects,
            [
                "/dev/FAULTED0 of pool tank is FAULTED",
                "/dev/ONLINE3 of pool tank has errors",
                "pool tank is 90 % full",
                "pool tank has 2 data errors",
                "pool tank is DEGRADED",
            ]
        );
    }
}
