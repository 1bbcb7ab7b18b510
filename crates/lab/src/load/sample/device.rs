//! Kernel counters of block devices and network interfaces.
//!
//! Source: Documentation/admin-guide/iostats.rst, sysfs-class-net-statistics.

use crate::load::machine::Root;
use crate::load::samples::Kind::{Counter, Gauge};
use crate::unit::Unit;

use super::recorder::{Head, Recorder};

/// Sector size in `/proc/diskstats`, independent of the disk's own.
const SECTOR_BYTES: f64 = 512.0;
const NS_PER_MS: f64 = 1e6;
/// A megabit per second, in bytes per second.
const MEGABIT_BYTES: f64 = 125_000.0;

#[derive(Debug, Clone, Copy)]
enum Counts {
    Operations,
    Sectors,
    Milliseconds,
    /// Currently in flight.
    Now,
}

/// Columns of `/proc/diskstats` after the device's name; the last six were added in Linux 4.18 and 5.5.
const DISK: [(&str, Counts); 17] = [
    ("read_ios", Counts::Operations),
    ("read_merges", Counts::Operations),
    ("read_bytes", Counts::Sectors),
    ("read_time", Counts::Milliseconds),
    ("write_ios", Counts::Operations),
    ("write_merges", Counts::Operations),
    ("write_bytes", Counts::Sectors),
    ("write_time", Counts::Milliseconds),
    ("in_flight", Counts::Now),
    ("io_time", Counts::Milliseconds),
    ("weighted_io_time", Counts::Milliseconds),
    ("discard_ios", Counts::Operations),
    ("discard_merges", Counts::Operations),
    ("discard_bytes", Counts::Sectors),
    ("discard_time", Counts::Milliseconds),
    ("flush_ios", Counts::Operations),
    ("flush_time", Counts::Milliseconds),
];

pub fn disks(root: &Root, devices: &[String], recorder: &mut Recorder) {
    let text = match root.read("proc/diskstats") {
        Ok(text) => text,
        Err(error) => return recorder.missing("diskstats", format!("/proc/diskstats: {error}")),
    };
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(2);
        let Some(device) = words.next().filter(|name| devices.iter().any(|device| device == name)) else {
            continue;
        };
        for ((name, counts), word) in DISK.iter().zip(words) {
            let Ok(value) = word.parse::<f64>() else { continue };
            let (kind, unit, factor) = match counts {
                Counts::Operations => (Counter, Unit::Count, 1.0),
                Counts::Sectors => (Counter, Unit::Bytes, SECTOR_BYTES),
                Counts::Milliseconds => (Counter, Unit::Nanoseconds, NS_PER_MS),
                Counts::Now => (Gauge, Unit::Count, 1.0),
            };
            let head = Head { source: "diskstats", subject: device, kind };
            recorder.note(head, name, unit, value * factor);
        }
    }
}

/// Samples the counters of these interfaces, and their link speed if known.
pub fn networks(root: &Root, interfaces: &[String], recorder: &mut Recorder) {
    for interface in interfaces {
        let folder = format!("sys/class/net/{interface}");
        let head = |kind| Head { source: "network", subject: interface, kind };
        for direction in ["rx", "tx"] {
            for (what, unit) in [
                ("bytes", Unit::Bytes),
                ("packets", Unit::Count),
                ("errors", Unit::Count),
                ("dropped", Unit::Count),
            ] {
                let name = format!("{direction}_{what}");
                match root.number(format!("{folder}/statistics/{name}")) {
                    Some(value) => recorder.note(head(Counter), &name, unit, value as f64),
                    None => recorder.missing("network", format!("/{folder}: no counters")),
                }
            }
        }
        // An unknown speed is -1, or an error while the link is down: neither parses here.
        if let Some(megabits) = root.number(format!("{folder}/speed")) {
            let speed = megabits as f64 * MEGABIT_BYTES;
            recorder.note(head(Gauge), "link_speed", Unit::BytesPerSecond, speed);
        }
    }
}
