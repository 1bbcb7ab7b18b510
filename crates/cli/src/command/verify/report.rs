//! A verification's report for people: verdict first, then what is wrong, then the figures.

use std::time::Duration;

use cenote_inspect::verify::{Counts, VerifyReport};

use crate::render::{Align, Table, duration, nice_bytes};

/// The report as text.
pub fn text(report: &VerifyReport) -> String {
    let mut out = String::new();
    out.push_str(&verdict(report));
    for finding in &report.findings {
        out.push_str(&format!("  {finding}\n"));
    }
    if report.more_findings > 0 {
        out.push_str(&format!("  and {} more findings (--most shows more)\n", report.more_findings));
    }
    out.push_str(&lagging(report));
    out.push_str(&devices(report));
    out.push_str(&counts(&report.counts));
    out.push_str(&space(report));
    let elapsed = Duration::from_nanos(report.elapsed_ns);
    let rate = report.verified_bytes as f64 / elapsed.as_secs_f64().max(1e-9);
    out.push_str(&format!(
        "\nread {} in {} blocks, every copy and parity column, in {} ({}/s)\n",
        nice_bytes(report.verified_bytes),
        report.verified_blocks,
        duration(elapsed),
        nice_bytes(rate as u64),
    ));
    out
}

fn verdict(report: &VerifyReport) -> String {
    let head = format!("pool '{}' as of txg {}: ", report.pool, report.txg);
    let unfinished = if report.complete { "" } else { "; stopped before the end" };
    if report.is_clean() {
        return format!("{head}no damage found{unfinished}\n");
    }
    let mut parts = Vec::new();
    if report.lost_blocks > 0 {
        parts.push(format!("{} blocks lost", report.lost_blocks));
    }
    if report.repairable_blocks > 0 {
        parts.push(format!(
            "{} blocks damaged that other copies or parity can repair",
            report.repairable_blocks
        ));
    }
    if report.space.leaked_bytes > 0 {
        parts.push(format!("{} leaked", nice_bytes(report.space.leaked_bytes)));
    }
    if report.space.not_allocated_bytes > 0 {
        parts.push(format!("{} in use but marked free", nice_bytes(report.space.not_allocated_bytes)));
    }
    if report.space.doubly_allocated_bytes > 0 {
        parts.push(format!("{} allocated twice", nice_bytes(report.space.doubly_allocated_bytes)));
    }
    if parts.is_empty() {
        parts.push("not all could be checked".into());
    }
    format!("{head}{}{unfinished}\n", parts.join(", "))
}

fn lagging(report: &VerifyReport) -> String {
    if report.lagging_devices.is_empty() {
        return String::new();
    }
    let lines: String = report.lagging_devices.iter().map(|device| format!("  {device}\n")).collect();
    format!("\nwhat these devices lack is not counted as damage; a resilver brings it:\n{lines}")
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
    if !report.space.checked {
        return "\nspace was not checked\n".into();
    }
    let mut table = Table::new([("CLASS", Align::Left), ("ALLOC", Align::Right), ("SIZE", Align::Right)]);
    for class in &report.space.classes {
        table.row([
            class.class.to_string(),
            nice_bytes(class.allocated_bytes),
            nice_bytes(class.total_bytes),
        ]);
    }
    format!("\n{}", table.aligned())
}
