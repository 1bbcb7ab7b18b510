//! Whether the pool is whole, and has been looked through.

use super::{Finding, Problem, Rule, Verdict, remedy};
use crate::advice::{Evidence, Facts, Gauge, Remedy, Risk, Severity};
use crate::machine::zpool::{Class, Pool, Vdev, VdevKind};
use crate::unit::Unit;

pub(super) const DEGRADED: Rule = Rule {
    id: "degraded",
    about: "A pool that is not ONLINE, a vdev that is not, damaged data, or errors counted on a disk.",
    reason: "A degraded pool serves on, with less or no redundancy: the next failure may lose data, and a resilver takes hours or days. Errors \
        that redundancy repaired are counted on the disk that gave them; data errors are what nothing could repair.",
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
        let what = pool.status.clone().unwrap_or_else(|| "zpool status tells more.".into());
        findings.push(Finding::bad(
            &pool.name,
            Problem {
                severity: Severity::Critical,
                summary: format!("The pool is {}: {what}", pool.state),
                evidence: vec![Evidence::word("state", &pool.state)],
                remedy: remedy(&[format!("zpool status -v {}", pool.name)], Risk::None, "It only looks."),
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
        summary: "Data are damaged that no redundancy could repair.".into(),
        evidence: vec![Evidence::number(
            "files and objects with errors",
            pool.data_errors as f64,
            Unit::Count,
        )],
        remedy: remedy(
            &[format!("zpool status -v {name}"), format!("zpool scrub -e {name}")],
            Risk::Low,
            "The first names the files: restore them from a backup. The second reads only these again; errors leave the list after one or two \
             scrubs that don't meet them. Don't run `zpool clear` before the list is kept somewhere.",
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
        "ONLINE" => "The disk serves, but errors were counted on it.".to_owned(),
        state => format!("The disk is {state}; {} may lose {spare} more before data are lost.", top.name),
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
            "It was taken offline by hand: know why before. What was written meanwhile is resilvered.",
        ),
        "ONLINE" => remedy(
            &[
                format!("smartctl -x {disk}"),
                format!("zpool scrub {pool}"),
                format!("zpool clear {pool} {}", leaf.name),
            ],
            Risk::Low,
            "Checksum errors on several disks at once point to cable, controller or memory; on one disk to that disk. Clear the counters only \
             after the scrub, to see whether they come again.",
        ),
        _ => remedy(
            &[format!("smartctl -x {disk}"), format!("zpool replace {pool} {} NEWDISK", leaf.name)],
            Risk::Medium,
            "Check twice which disk it is (serial number); NEWDISK is overwritten. Resilvering burdens the others for hours.",
        ),
    }
}

/// Days after which a scrub is due. OpenZFS itself does none; its systemd timers come as weekly and monthly.
const SCRUB_DAYS: f64 = 35.0;

pub(super) const UNSCRUBBED: Rule = Rule {
    id: "unscrubbed",
    about: "No scrub for more than 35 days.",
    reason: "Only what is read is verified. Blocks that nobody reads go bad unseen, until the disk that had the good copy fails; a scrub reads \
        every copy and all parity while they can still be repaired. A resilver is no scrub of what it does not have to copy.",
    sources: &["zpool-scrub(8)", "OpenZFS: etc/systemd/system/zfs-scrub-monthly@.timer"],
    check: |facts| facts.pools.iter().map(|pool| unscrubbed(facts, pool)).collect(),
};

fn unscrubbed(facts: &Facts, pool: &Pool) -> Finding {
    let Some(now) = facts.unix_s else {
        return Finding::unknown(&pool.name, "not known when the facts were taken");
    };
    let scrub = pool.scan.as_ref().filter(|scan| scan.function == "SCRUB");
    let last = match scrub {
        Some(scan) if scan.state == "SCANNING" => return Finding::fine(&pool.name),
        Some(scan) if scan.state == "FINISHED" => scan.end_unix_s,
        _ if pool.scan.as_ref().is_some_and(|scan| scan.function == "RESILVER") => {
            return Finding::unknown(
                &pool.name,
                format!(
                    "`zpool status` tells only of the last resilver; look for scrubs in `zpool history -i {}`",
                    pool.name
                ),
            );
        }
        _ => {
            return Finding::bad(
                &pool.name,
                scrub_it(pool, "The pool was never scrubbed.", vec![Evidence::word("last scrub", "none")]),
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
        scrub_it(pool, "The last scrub is long ago.", evidence)
    })
}

fn scrub_it(pool: &Pool, summary: &str, evidence: Vec<Evidence>) -> Problem {
    let redundant = pool.class(Class::Normal).all(|vdev| vdev.kind != VdevKind::Leaf);
    Problem {
        severity: if redundant { Severity::Warning } else { Severity::Notice },
        summary: summary.to_owned(),
        evidence,
        remedy: remedy(
            &[
                format!("zpool scrub {}", pool.name),
                format!("systemctl enable --now zfs-scrub-monthly@{}.timer", pool.name),
            ],
            Risk::Low,
            "A scrub reads all that is allocated: hours to days, at low priority; `zpool scrub -p` pauses it.",
        ),
    }
}
