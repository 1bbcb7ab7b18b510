//! `verify`: a report, verdict first, then the findings, then the figures.

mod damage;

use std::time::Duration;

use cenote_control::inspect::verify::{Counts, Finding, Severity, VerifyReport};
use cenote_control::text::{counted, duration, nice_bytes};

use crate::table::{Align, Table};

/// The report as text; with `verbose`, every damaged block.
pub fn text(report: &VerifyReport, verbose: bool) -> String {
    let mut out = String::new();
    out.push_str(&verdict(report));
    out.push_str(&damage::text(&report.findings, verbose));
    if report.more_findings > 0 {
        out.push_str(&format!(
            "  and {} (--most shows more)\n",
            counted(report.more_findings, "more finding")
        ));
    }
    out.push_str(&datasets(report));
    out.push_str(&lagging(report));
    out.push_str(&devices(report));
    out.push_str(&counts(&report.counts));
    out.push_str(&space(report));
    let elapsed = Duration::from_nanos(report.elapsed_ns);
    let rate = report.verified_bytes as f64 / elapsed.as_secs_f64().max(1e-9);
    let there = match has_weak_vdevs(report) {
        true => "every copy and parity column that is there",
        false => "every copy and parity column",
    };
    out.push_str(&format!(
        "\nread {} in {}, {there}, in {} ({}/s)\n",
        nice_bytes(report.verified_bytes),
        counted(report.verified_blocks, "block"),
        duration(elapsed),
        nice_bytes(rate as u64),
    ));
    out
}

fn verdict(report: &VerifyReport) -> String {
    let head = format!("pool '{}' as of txg {}: ", report.pool, report.txg);
    let unfinished = match report.complete {
        true => "",
        false if report.overtaken => {
            "; stopped before the end: the pool is short of space and needs what was freed meanwhile"
        }
        false => "; stopped before the end",
    };
    let mut parts = Vec::new();
    if report.lost_blocks > 0 {
        parts.push(format!("{} lost", counted(report.lost_blocks, "block")));
    }
    if report.repairable_blocks > 0 {
        let blocks = counted(report.repairable_blocks, "block");
        parts.push(format!("{blocks} damaged that other copies or parity can repair"));
    }
    let space = &report.space;
    if space.not_allocated_bytes > 0 {
        parts.push(format!("{} in use but marked free", nice_bytes(space.not_allocated_bytes)));
    }
    if space.doubly_allocated_bytes > 0 {
        parts.push(format!("{} allocated twice", nice_bytes(space.doubly_allocated_bytes)));
    }
    if has_weak_vdevs(report) {
        parts.push("redundancy is gone".into());
    }
    if space.leaked_bytes > 0 {
        // Its owner may be among the lost data.
        let how = if report.lost_blocks > 0 { "allocated without a readable owner" } else { "leaked" };
        parts.push(format!("{} {how}", nice_bytes(space.leaked_bytes)));
    }
    if parts.is_empty() {
        let clean = if report.is_clean() { "no damage found" } else { "not everything could be checked" };
        parts.push(clean.into());
    } else if report.lost_blocks == 0 && report.complete && !has_lost_structures(report) {
        parts.insert(0, "no data is lost".into());
    }
    format!("{head}{}{unfinished}\n", parts.join(", "))
}

fn has_weak_vdevs(report: &VerifyReport) -> bool {
    report.findings.iter().any(|finding| matches!(finding, Finding::Redundancy(_)))
}

fn has_lost_structures(report: &VerifyReport) -> bool {
    report.findings.iter().any(|finding| finding.severity() == Severity::Lost)
}

/// Damage by dataset, if there is more than one.
fn datasets(report: &VerifyReport) -> String {
    if report.datasets.len() < 2 {
        return String::new();
    }
    let right = ["LOST", "REPAIRABLE"].map(|name| (name, Align::Right));
    let mut table = Table::new([("DATASET", Align::Left)].into_iter().chain(right));
    for damage in &report.datasets {
        let name = damage.dataset.clone().unwrap_or_else(|| "pool metadata".into());
        table.row([name, damage.lost_blocks.to_string(), damage.repairable_blocks.to_string()]);
    }
    format!("\n{}", table.aligned())
}

fn lagging(report: &VerifyReport) -> String {
    if report.lagging_devices.is_empty() {
        return String::new();
    }
    let lines: String = report.lagging_devices.iter().map(|device| format!("  {device}\n")).collect();
    format!("\ndata missing on these devices is not counted as damage; a resilver restores it:\n{lines}")
}

fn devices(report: &VerifyReport) -> String {
    let right = ["READ", "CKSUM", "PARITY", "DAMAGED"].map(|name| (name, Align::Right));
    let mut table = Table::new([("DEVICE", Align::Left)].into_iter().chain(right));
    for device in &report.devices {
        let numbers = [device.unreadable, device.checksum, device.parity].map(|n| n.to_string());
        table.row([device.device.clone()].into_iter().chain(numbers).chain([nice_bytes(device.bytes)]));
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.aligned()) }
}

fn counts(counts: &Counts) -> String {
    let total = &counts.total;
    let mut table = Table::new([("BLOCKS", Align::Left), ("COUNT", Align::Right), ("BYTES", Align::Right)]);
    let embedded: u64 = counts.embedded.values().sum();
    for (name, count, bytes) in [
        ("live", total.count, total.allocated_bytes),
        ("  gang", total.ganged, 0),
        ("deduplicated", counts.deduped.count, counts.deduped.allocated_bytes),
        ("cloned", counts.cloned.count, counts.cloned.allocated_bytes),
        ("embedded in pointers", embedded, 0),
    ] {
        if count > 0 {
            table.row([
                name.into(),
                count.to_string(),
                if bytes > 0 { nice_bytes(bytes) } else { String::new() },
            ]);
        }
    }
    let ratio = total.logical_bytes as f64 / total.physical_bytes.max(1) as f64;
    let sizes = [total.logical_bytes, total.physical_bytes, total.allocated_bytes].map(nice_bytes);
    let [logical, physical, allocated] = sizes;
    format!(
        "\n{}{logical} of content, {physical} compressed ({ratio:.2}x), {allocated} on disk\n",
        table.aligned()
    )
}

fn space(report: &VerifyReport) -> String {
    let space = &report.space;
    let note = match () {
        () if space.checked => "",
        () if !report.complete => "\nspace was not compared: verification was stopped\n",
        () if space.compared_vdevs == 0 => "\nspace was not compared with the space maps\n",
        () => "\nspace was compared with the space maps where they can be read\n",
    };
    if space.classes.is_empty() {
        return note.into();
    }
    let mut table = Table::new([("CLASS", Align::Left), ("ALLOC", Align::Right), ("SIZE", Align::Right)]);
    for class in &report.space.classes {
        table.row([
            class.class.to_string(),
            nice_bytes(class.allocated_bytes),
            nice_bytes(class.total_bytes),
        ]);
    }
    format!("\n{}{note}", table.aligned())
}
