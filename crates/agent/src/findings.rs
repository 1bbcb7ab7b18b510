//! Problems of pools, as `zpool status` and `zpool list` report them.

use std::collections::BTreeMap;

use cenote_control::zpool::shown::status::diagnosis::Reason;
use cenote_control::zpool::shown::status::{PoolStatus, Statuses};
use cenote_pool::{ErrorCounts, Trouble, VdevState};

/// Findings by a key stable for the same problem.
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

/// Finds problems of pools, their devices and their space.
pub fn of_pools(status: &Statuses, used_percent: &Capacities, capacity_percent: u64) -> Findings {
    let mut findings = Findings::new();
    for PoolStatus { name, health, reason, opened, .. } in &status.pools {
        let mut add = |key: String, subject: String, text: String| {
            // Programs using a suspended pool hang or fail.
            let (pool, is_urgent) = (Some(name.clone()), key == SUSPENDED);
            findings.insert(format!("{name}: {key}"), Finding { pool, subject, text, is_urgent });
        };
        let advice = reason.as_ref().map_or_else(
            || "\n\n".to_owned(),
            |Reason { status, action, .. }| format!("{status}\n{action}\n"),
        );
        if health.standstill.is_some() || health.state() != VdevState::Online {
            let key = if health.standstill.is_some() { SUSPENDED } else { "state" };
            add(key.into(), format!("pool {name} is {}", health.shown_state()), advice.clone());
        }
        let errors = opened.as_ref().map_or(0, |opened| opened.data_errors);
        if errors > 0 {
            let see = format!("{advice}`zpool status -v {name}` lists the files.\n");
            add("errors".into(), format!("pool {name} has {errors} data errors"), see);
        }
        health.each_leaf(&mut |leaf| {
            let device = leaf.path.as_ref().unwrap_or(&leaf.name);
            // A spare in use is shown as unavailable.
            let is_meant = leaf.trouble == Some(Trouble::InUse);
            if !is_meant && ![VdevState::Online, VdevState::Offline].contains(&leaf.state) {
                let subject = format!("{device} of pool {name} is {}", leaf.state);
                add(format!("{device} state"), subject, advice.clone());
            }
            let ErrorCounts { read, write, checksum } = leaf.errors;
            if read + write + checksum > 0 {
                let subject = format!("{device} of pool {name} has errors");
                let counts = format!("{read} reading, {write} writing, {checksum} checksums\n{advice}");
                add(format!("{device} errors"), subject, counts);
            }
        });
    }
    for waits in &status.waiting {
        let (name, subject) = (&waits.name, format!("pool {} is UNAVAIL", waits.name));
        let text = format!("It does not open, and the daemon keeps trying: {}\n", waits.why);
        let finding = Finding { pool: Some(name.clone()), subject, text, is_urgent: false };
        findings.insert(format!("{name}: state"), finding);
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

/// If part of the pools can't be shown, keeps the earlier findings of pools missing now.
pub fn keep_unseen(
    found: &mut Findings,
    before: &Findings,
    status: &Statuses,
    used_percent: &Capacities,
    why: &str,
) {
    for (key, finding) in before {
        let is_unseen = |pool: &str| match key.ends_with(CAPACITY) {
            true => !used_percent.contains_key(pool),
            false => {
                let shown = status.pools.iter().map(|shown| &shown.name);
                !shown.chain(status.waiting.iter().map(|waits| &waits.name)).any(|name| name == pool)
            }
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
pub(crate) mod tests {
    use cenote_control::zpool::shown::status::Opened;
    use cenote_control::zpool::shown::status::progress::PoolProgress;
    use cenote_format::units::{Guid, Txg};
    use cenote_pool::{PoolHealth, Standstill, VdevClass, VdevKind, VdevStatus};

    use super::*;

    fn vdev(name: &str, kind: VdevKind, state: VdevState, children: Vec<VdevStatus>) -> VdevStatus {
        VdevStatus {
            name: name.into(),
            path: (kind == VdevKind::Disk).then(|| format!("/dev/{name}")),
            kind,
            id: 0,
            guid: Guid(1),
            class: VdevClass::Normal,
            state,
            trouble: None,
            resilvering: false,
            awaits_resilver: false,
            removing: false,
            non_allocating: false,
            size_bytes: None,
            expandable_bytes: 0,
            errors: ErrorCounts::default(),
            slow_ios: None,
            children,
        }
    }

    /// A pool without devices.
    pub(crate) fn pool(name: &str, state: VdevState) -> PoolStatus {
        let root = vdev(name, VdevKind::Root, state, Vec::new());
        let health = PoolHealth { root, spares: Vec::new(), l2cache: Vec::new(), standstill: None };
        PoolStatus { name: name.into(), guid: Guid(1), health, reason: None, opened: None }
    }

    /// The metadata of a pool without errors.
    pub(crate) fn opened() -> Opened {
        Opened {
            txg: Txg(4),
            usage: Vec::new(),
            work: PoolProgress::default(),
            resilvering: false,
            passes: BTreeMap::new(),
            lagging: Vec::new(),
            data_errors: 0,
            damaged: Vec::new(),
            dedup: None,
        }
    }

    fn of(pools: Vec<PoolStatus>) -> Statuses {
        Statuses { pools, ..Statuses::default() }
    }

    #[test]
    fn what_can_not_be_seen_is_not_over() {
        let none = Capacities::new();
        let degraded = of(vec![pool("a", VdevState::Degraded), pool("b", VdevState::Degraded)]);
        let before = of_pools(&degraded, &none, 90);
        let status = of(vec![pool("b", VdevState::Online)]);
        let mut found = of_pools(&status, &none, 90);
        keep_unseen(&mut found, &before, &status, &none, "pool 'a': I/O error");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a: state", "view"], "b is well, a was not seen");
        assert!(found["view"].text.contains("pool 'a': I/O error"));
    }

    #[test]
    fn what_is_wrong_is_found_and_what_is_meant_is_not() {
        let leaf = |name: &str, state, checksum| {
            let errors = ErrorCounts { checksum, ..ErrorCounts::default() };
            VdevStatus { errors, ..vdev(name, VdevKind::Disk, state, Vec::new()) }
        };
        let leaves = vec![
            leaf("a", VdevState::Faulted, 0),
            leaf("b", VdevState::Online, 3),
            leaf("c", VdevState::Offline, 0),
        ];
        let mut tank = pool("tank", VdevState::Degraded);
        tank.health.root.children = vec![vdev("mirror-0", VdevKind::Mirror, VdevState::Degraded, leaves)];
        let in_use = VdevStatus { trouble: Some(Trouble::InUse), ..leaf("t", VdevState::Unavailable, 0) };
        tank.health.spares = vec![leaf("s", VdevState::Online, 0), in_use];
        tank.opened = Some(Opened { data_errors: 2, ..opened() });
        let mut stuck = pool("well", VdevState::Online);
        stuck.health.standstill = Some(Standstill::Stopped);
        let stuck = of_pools(&of(vec![stuck]), &Capacities::new(), 90);
        assert!(stuck.values().all(|finding| finding.is_urgent) && stuck.contains_key("well: suspended"));
        let used = Capacities::from([("tank".into(), 90), ("well".into(), 89)]);
        let found = of_pools(&of(vec![tank, pool("well", VdevState::Online)]), &used, 90);
        let subjects: Vec<&str> = found.values().map(|finding| &*finding.subject).collect();
        assert_eq!(
            subjects,
            [
                "/dev/a of pool tank is FAULTED",
                "/dev/b of pool tank has errors",
                "pool tank is 90 % full",
                "pool tank has 2 data errors",
                "pool tank is DEGRADED",
            ]
        );
    }
}
