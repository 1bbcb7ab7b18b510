//! Machine-wide kernel counters: processor time, memory, pressure.
//!
//! Source: proc(5), Documentation/accounting/psi.rst.

use crate::load::machine::Root;
use crate::load::samples::Kind::{self, Counter, Gauge};
use crate::unit::Unit;

use super::recorder::{Head, Recorder};

/// Nanoseconds of a tick of `/proc/stat`: `USER_HZ` is 100 wherever OpenZFS runs.
pub const CLOCK_TICK_NS: f64 = 1e7;
/// Columns of a `cpu` line. Guest time is also part of `user` and `nice`, and therefore omitted.
const CPU: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
/// Entries of `/proc/meminfo` that matter for storage.
const MEMORY: [&str; 10] = [
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "Buffers",
    "Cached",
    "Dirty",
    "Writeback",
    "Slab",
    "SReclaimable",
    "SwapFree",
];
const NS_PER_US: f64 = 1e3;
const BYTES_PER_KIB: f64 = 1024.0;

/// `/proc/stat`: time spent by all processors together (empty subject) and by each one, in nanoseconds; tasks
/// running and waiting for I/O.
pub fn cpu(root: &Root, recorder: &mut Recorder) {
    let text = match root.read("proc/stat") {
        Ok(text) => text,
        Err(error) => return recorder.missing("cpu", format!("/proc/stat: {error}")),
    };
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let head = |subject, kind| Head { source: "cpu", subject, kind };
        match (first, words.next().and_then(|word| word.parse::<f64>().ok())) {
            ("procs_running" | "procs_blocked", Some(count)) => {
                recorder.note(head("", Gauge), first, Unit::Count, count);
            }
            ("ctxt", Some(count)) => recorder.note(head("", Counter), "context_switches", Unit::Count, count),
            (cpu, Some(user)) if cpu.starts_with("cpu") => {
                let subject = if cpu == "cpu" { "" } else { cpu };
                let rest = words.map(|word| word.parse().unwrap_or(0.0));
                for (name, ticks) in CPU.iter().zip(std::iter::once(user).chain(rest)) {
                    recorder.note(head(subject, Counter), name, Unit::Nanoseconds, ticks * CLOCK_TICK_NS);
                }
            }
            _ => {}
        }
    }
}

/// `/proc/meminfo`, in bytes, under its own names.
pub fn memory(root: &Root, recorder: &mut Recorder) {
    let text = match root.read("proc/meminfo") {
        Ok(text) => text,
        Err(error) => return recorder.missing("memory", format!("/proc/meminfo: {error}")),
    };
    let head = Head { source: "memory", subject: "", kind: Gauge };
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let kib = value.trim().strip_suffix("kB").and_then(|kib| kib.trim().parse::<f64>().ok());
        if let Some(kib) = kib.filter(|_| MEMORY.contains(&name)) {
            recorder.note(head, name, Unit::Bytes, kib * BYTES_PER_KIB);
        }
    }
}

/// `/proc/pressure`: for cpu, memory and io (the subject), the nanoseconds in which some or all tasks waited,
/// and the kernel's own averages in percent.
pub fn pressure(root: &Root, recorder: &mut Recorder) {
    for subject in ["cpu", "memory", "io"] {
        let text = match root.read(format!("proc/pressure/{subject}")) {
            Ok(text) => text,
            Err(error) => {
                let why = format!("/proc/pressure: {error}; requires Linux 4.20 with PSI (boot with psi=1)");
                return recorder.missing("pressure", why);
            }
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(who) = words.next() else { continue };
            for (name, value) in words.filter_map(|word| word.split_once('=')) {
                let Ok(value) = value.parse::<f64>() else { continue };
                let (kind, unit, value): (Kind, _, _) = match name {
                    "total" => (Counter, Unit::Nanoseconds, value * NS_PER_US),
                    _ => (Gauge, Unit::Percent, value),
                };
                let head = Head { source: "pressure", subject, kind };
                recorder.note(head, &format!("{who}_{name}"), unit, value);
            }
        }
    }
}
