//! `cenote_vdev_*`: I/O counters of each device; `cenote_pool_suspended`, `cenote_pool_waiting`.

use cenote_device::Op;
use cenote_host::pools::Pools;

use super::families::{Families, Histogram, Kind};

const OPERATIONS: [(Op, &str); 3] = [(Op::Read, "read"), (Op::Write, "write"), (Op::Discard, "discard")];

/// Adds these metrics.
pub fn add(pools: &Pools, families: &mut Families) {
    let waiting = (Kind::Gauge, "Whether the pool waits to be opened [0: it is open, 1: it does not open].");
    for pool in pools.waiting.all() {
        families.add("cenote_pool_waiting", waiting, &[("pool", &*pool.pool.name)], 1.0);
    }
    for pool in pools.all() {
        let taps = pool.engine.pool().counters().leaf_io();
        let loads = pool.engine.pool().counters().loads();
        let health = pool.engine.pool().status();
        let family =
            (Kind::Gauge, "Whether the pool takes no changes [0: it does, 1: it waits, or has stopped].");
        let is_suspended = if health.standstill.is_some() { 1.0 } else { 0.0 };
        let labels = [("pool", &*pool.name)];
        families.add("cenote_pool_waiting", waiting, &labels, 0.0);
        families.add("cenote_pool_suspended", family, &labels, is_suspended);
        health.root.walk(&mut |vdev| {
            let guid = vdev.guid.0.to_string();
            let Some(path) = vdev.path.as_ref().filter(|_| vdev.children.is_empty()) else { return };
            let labels = [("pool", &*pool.name), ("vdev", &*guid), ("path", path)];
            for (kind, count) in
                [("read", vdev.errors.read), ("write", vdev.errors.write), ("checksum", vdev.errors.checksum)]
            {
                let labels = [labels[0], labels[1], labels[2], ("kind", kind)];
                let family = (Kind::Counter, "Errors since the pool was opened, or cleared.");
                families.add("cenote_vdev_errors_total", family, &labels, count as f64);
            }
            if let Some((_, load)) = loads.iter().find(|(leaf, _)| *leaf == vdev.guid) {
                let pending: u64 = load.iter().map(|class| class.waiting).sum();
                let family = (Kind::Gauge, "Operations that wait in the vdev's queue.");
                families.add("cenote_vdev_queue_pending", family, &labels, pending as f64);
            }
            let Some(taps) = &taps else { return };
            let counters = &taps.of(vdev.guid).counters;
            for (op, name) in OPERATIONS {
                let counts = counters.of(op);
                if counts.operations > 0 {
                    let labels = [labels[0], labels[1], labels[2], ("operation", name)];
                    let family = (Kind::Counter, "Bytes moved.");
                    families.add("cenote_vdev_bytes_total", family, &labels, counts.bytes as f64);
                    let (name, help) = ("cenote_vdev_latency_seconds", "How long operations took.");
                    let times = Histogram::of_times(&counts.times, counts.busy_ns as f64 / 1e9);
                    families.add_histogram(name, help, &labels, &times);
                }
            }
        });
    }
}
