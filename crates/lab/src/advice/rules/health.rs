//! Pool health, and time since the last scrub.

use super::rule::{Finding, Problem, Rule, Verdict, remedy};
use crate::advice::facts::Facts;
use crate::advice::item::{Evidence, Gauge, Remedy, Risk, Severity};
use crate::load::machine::zpool::{Class, Pool, Vdev, VdevKind};
use crate::unit::Unit;

pub(super) const DEGRADED: Rule = Rule {
    id: "degraded",
    about: "A pool or vdev that is not ONLINE, damaged data, or disk errors.",
    reason: "A degraded pool keeps working with less or no redundancy: the next failure may lose data, and a \
        resilver takes hours or days. Errors that redundancy repaired are counted on the disk that caused \
        them; data errors could not be repaired.",
    sources: &["zpoolconcepts(7): Device Failure and Recovery", "zpool-status(8)"],
    check: |facts| facts.pools.iter().flat_map(degraded).collect(),
};

fn degraded(pool: &Pool) -> Vec<Finding> {
    let data = format!("{}: data", pool.name);
    let mut findings = vec![match pool.data_errors {
        0 => Finding::fine(data),
        _ => Finding::bad(data, damaged(pool)),
    }];

    let leaves = pool.vdevs.iter().flat_map(|vdev| vdev.leaves().into_iter().map(move |leaf| (vdev, leaf)));
    findings.extend(leaves.map(|(vdev, leaf)| {
        let subject = format!("{}/{}", pool.name, leaf.name);
        if is_well(leaf) { Finding::fine(subject) } else { Finding::bad(subject, sick(pool, vdev, leaf)) }
    }));
    let explained = findings.iter().any(|finding| matches!(finding.verdict, Verdict::Bad(_)));
    if explained || matches!(pool.state.as_str(), "ONLINE" | "") {
        findings.push(Finding::fine(&pool.name));
    } else {
        let what = pool.status.clone().unwrap_or_else(|| "see zpool status.".into());
        findings.push(Finding::bad(
            &pool.name,
            Problem {
                severity: Severity::Critical,
                summary: format!("The pool is {}: {what}", pool.state),
                evidence: vec![Evidence::word("state", &pool.state)],
                remedy: remedy(&[format!("zpool status -v {}", pool.name)], Risk::None, "It only reads."),
            },
        ));
    }
    findings
}

fn is_well(leaf: &Vdev) -> bool {
    let serves = matches!(leaf.state.as_str(), "ONLINE" | "AVAIL" | "INUSE" | "");
    serves && leaf.errors == [0; 3]
}

fn damaged(pool: &Pool) -> Problem {
    let name = &pool.name;
    Problem {
        severity: Severity::Critical,
        summary: "Some data are damaged beyond repair.".into(),
        evidence: vec![Evidence::number(
            "files and objects with errors",
            pool.data_errors as f64,
            Unit::Count,
        )],
        remedy: remedy(
            &[format!("zpool status -v {name}"), format!("zpool scrub {name}")],
            Risk::Low,
            "The first command names the files: restore them from a backup. Errors leave the list after one \
             or two scrubs that no longer find them (`zpool scrub -e` rereads only these, if the pool has \
             the feature head_errlog). Keep a copy of the list before you run `zpool clear`.",
        ),
    }
}

fn sick(pool: &Pool, top: &Vdev, leaf: &Vdev) -> Problem {
    let lost = top.leaves().iter().filter(|leaf| leaf.state != "ONLINE").count();
    let spare = top.may_lose().saturating_sub(lost);
    let holds_data = matches!(top.class, Class::Normal | Class::Special | Class::Dedup);
    let severity = match (leaf.state.as_str(), holds_data && spare == 0) {
        ("ONLINE", _) | (_, false) => Severity::Warning,
        _ => Severity::Critical,
    };
    let (name, disk) = (&pool.name, leaf.path.as_deref().unwrap_or(&leaf.name));
    let [read, write, checksum] = leaf.errors.map(|n| n as f64);
    let summary = match leaf.state.as_str() {
        "ONLINE" => "The disk is online but has errors.".to_owned(),
        state => format!("The disk is {state}; {} can lose {spare} more before data are lost.", top.name),
    };
    Problem {
        severity,
        summary,
        evidence: vec![
            Evidence::word("state", &leaf.state),
            Evidence::word("part of", format!("{} ({})", top.name, top.shape())),
            Evidence::number("read errors", read, Unit::Count),
            Evidence::number("write errors", write, Unit::Count),
            Evidence::number("checksum errors", checksum, Unit::Count),
        ],
        remedy: mend(name, disk, leaf),
    }
}

fn mend(pool: &str, disk: &str, leaf: &Vdev) -> Remedy {
    match leaf.state.as_str() {
        "OFFLINE" => remedy(
            &[format!("zpool online {pool} {}", leaf.name)],
            Risk::Low,
            "It was taken offline manually: find out why first. Data written since then are resilvered.",
        ),
        "ONLINE" => remedy(
            &[
                format!("smartctl -x {disk}"),
                format!("zpool scrub {pool}"),
                format!("zpool clear {pool} {}", leaf.name),
            ],
            Risk::Low,
            "Checksum errors on several disks at once point to a cable, controller or memory; on one disk, \
             to that disk. Clear the counters only after the scrub, to see whether errors return.",
        ),
        _ => remedy(
            &[format!("smartctl -x {disk}"), format!("zpool replace {pool} {} NEWDISK", leaf.name)],
            Risk::Medium,
            "Verify the disk by its serial number; NEWDISK is overwritten. Resilvering loads the other disks \
             for hours.",
        ),
    }
}

/// Days after which a scrub is due. OpenZFS runs none by itself; it ships weekly and monthly systemd timers.
const SCRUB_DAYS: f64 = 35.0;

pub(super) const UNSCRUBBED: Rule = Rule {
    id: "unscrubbed",
    about: "No scrub for more than 35 days.",
    reason: "ZFS verifies only what is read. Blocks that nobody reads decay unnoticed until the disk with \
        the good copy fails. A scrub reads every copy and all parity while they can still be repaired. A \
        resilver does not check data that it does not copy.",
    sources: &["zpool-scrub(8)", "OpenZFS: etc/systemd/system/zfs-scrub-monthly@.timer"],
    check: |facts| facts.pools.iter().map(|pool| unscrubbed(facts, pool)).collect(),
};

fn unscrubbed(facts: &Facts, pool: &Pool) -> Finding {
    let Some(now) = facts.unix_s else {
        return Finding::unknown(&pool.name, "the time of these facts is unknown");
    };
    let scrub = pool.scan.as_ref().filter(|scan| scan.function == "SCRUB");
    let last = match scrub {
        Some(scan) if scan.state == "SCANNING" => return Finding::fine(&pool.name),
        Some(scan) if scan.state == "FINISHED" => scan.end_unix_s,
        _ if pool.scan.as_ref().is_some_and(|scan| scan.function == "RESILVER") => {
            return Finding::unknown(
                &pool.name,
                format!(
                    "`zpool status` shows only the last resilver; look for scrubs in `zpool history -i {}`",
                    pool.name
                ),
            );
        }
        _ => {
            return Finding::bad(
                &pool.name,
                scrub_it(
                    facts,
                    pool,
                    "The pool has never been scrubbed.",
                    vec![Evidence::word("last scrub", "none")],
                ),
            );
        }
    };
    let days = now.saturating_sub(last) as f64 / 86_400.0;
    let gauge = Gauge {
        value: days * 86_400e9,
        unit: Unit::Nanoseconds,
        raise: SCRUB_DAYS * 86_400e9,
        clear: 34.0 * 86_400e9,
    };
    Finding::measured(&pool.name, gauge, || {
        let evidence = vec![Evidence::word("last scrub", format!("{days:.0} days ago"))];
        scrub_it(facts, pool, "The last scrub was long ago.", evidence)
    })
}

fn scrub_it(facts: &Facts, pool: &Pool, summary: &str, evidence: Vec<Evidence>) -> Problem {
    let redundant = pool.class(Class::Normal).all(|vdev| vdev.kind != VdevKind::Leaf);
    let regularly = match facts.is_of_daemon {
        // Rules of `cenote serve --agent`.
        true => "cenote serve --agent FILE    # with: [[scrub]] every = \"30 days\"".to_owned(),
        false => format!("systemctl enable --now zfs-scrub-monthly@{}.timer", pool.name),
    };
    Problem {
        severity: if redundant { Severity::Warning } else { Severity::Notice },
        summary: summary.to_owned(),
        evidence,
        remedy: remedy(
            &[format!("zpool scrub {}", pool.name), regularly],
            Risk::Low,
            "A scrub reads all allocated data: hours to days, at low priority; `zpool scrub -p` pauses it.",
        ),
    }
}
