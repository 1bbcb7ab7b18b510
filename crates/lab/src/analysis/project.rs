//! Projection: the likely result with another link or other disks, as a range with its assumptions.
//!
//! The run is modelled as a closed system: N operations in flight, X per second, each taking R = N / X
//! (Little). By the utilisation law, a resource's demand is D = U / X: its working time for one operation.
//! One device is replaced. The time R - r that operations spend elsewhere stays, and so do all other demands.
//! Then, whatever the distributions,
//! ```text
//!   N / (R - r + l + (N - 1) D')  <=  X'  <=  min(1 / max D', N / (R - r + l))
//! ```
//! with the new device's demand D' and its latency l for one operation. The upper bound assumes a saturated
//! bottleneck or no queueing, the lower one that all operations always wait for each other. The time r spent
//! at the old device is known if its queue was sampled (disks); otherwise (links) it lies between D and the
//! estimate of mean value analysis. The speed of a kind of link or disk is itself a range. So the results are
//! ranges, often wide.
//!
//! The utilisation law holds for devices that serve one operation at a time: links, processors, rotating
//! disks. The upper bound leaves other disks out, and the lower one does not assume that a new one is faster.
//!
//! Source: Denning and Buzen 1978; Lazowska et al., Quantitative System Performance, chapter 5.

use serde::{Deserialize, Serialize};

use super::limits::{FULL, IN_THE_PATH, Resource};
use super::observed::Observed;
use crate::unit::{Unit, digits};

/// Minimum and maximum.
type Range = (f64, f64);

/// Kind of link or disk to project to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Name in reports.
    pub name: &'static str,
    /// Link or disk.
    pub resource: Resource,
    /// Bytes per second.
    pub bandwidth: Range,
    /// Operations per second with many in flight.
    pub iops: Range,
    /// Nanoseconds for a single operation.
    pub latency_ns: Range,
}

const fn link(name: &'static str, raw: f64) -> Device {
    // TCP over Ethernet leaves 90 to 95 % of the line rate for data.
    let bandwidth = (raw * 0.90, raw * 0.95);
    Device {
        name,
        resource: Resource::Network,
        bandwidth,
        iops: (f64::INFINITY, f64::INFINITY),
        latency_ns: (0.0, 0.0),
    }
}

const fn disk(name: &'static str, bandwidth: Range, iops: Range, latency_ns: Range) -> Device {
    Device { name, resource: Resource::Disk, bandwidth, iops, latency_ns }
}

/// Common links and disks. Disk ranges span the data sheets and reviews of many models.
pub const DEVICES: [Device; 8] = [
    link("1 GbE", 125e6),
    link("2.5 GbE", 312.5e6),
    link("10 GbE", 1.25e9),
    link("25 GbE", 3.125e9),
    link("100 GbE", 12.5e9),
    disk("HDD, 7200 rpm", (150e6, 270e6), (80.0, 200.0), (5e6, 14e6)),
    disk("SATA SSD", (400e6, 550e6), (30e3, 95e3), (60e3, 300e3)),
    disk("NVMe SSD", (2e9, 7e9), (150e3, 1e6), (15e3, 120e3)),
];

/// Demands of one operation in nanoseconds, and the number in flight.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Demands {
    /// Operations in flight.
    pub in_flight: f64,
    /// Bytes per operation.
    pub bytes: f64,
    /// Latency of an operation.
    pub latency_ns: f64,
    /// Link time for one operation.
    pub link_ns: f64,
    /// Time of the busiest disk for one operation, if it serves one at a time.
    pub disk_ns: f64,
    /// The disk rotates and serves one operation at a time. Otherwise its maximum is unknown.
    #[serde(default)]
    pub disk_is_serial: bool,
    /// Operations of the busiest disk per operation.
    pub disk_operations: f64,
    /// Bytes per disk operation.
    pub disk_bytes: f64,
    /// Processor time for one operation, all processors taken as one.
    pub cpu_ns: f64,
    /// Time of an operation not spent at the link, minimum and maximum.
    pub beside_link_ns: Range,
    /// Time of an operation not spent at disks, minimum and maximum.
    pub beside_disk_ns: Range,
}

/// Projected result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// New device: `10 GbE`.
    pub with: String,
    /// Resource that it replaces.
    pub instead_of: Resource,
    /// Operations per second, minimum and maximum.
    pub iops: Range,
    /// Bytes per second, minimum and maximum.
    pub bandwidth: Range,
    /// Maximum divided by the measurement.
    pub gain: f64,
    /// Minimum divided by the measurement: from 1 on the device is no slower.
    #[serde(default)]
    pub least_gain: f64,
    /// Next limit, at best.
    pub next_limit: Resource,
    /// Projection in a sentence.
    pub sentence: String,
}

/// A measured run, projected to other devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Projected {
    /// Name of the test.
    pub test: String,
    /// Name of the target.
    pub target: String,
    /// Demands derived from the run.
    pub demands: Demands,
    /// One for each requested kind of device that the run allows.
    pub projections: Vec<Projection>,
    /// Assumptions behind all projections.
    pub assumptions: Vec<String>,
}

impl Demands {
    /// Demands of a run; None if its latency is unknown, it moved no bytes, it paused deliberately, or other
    /// work used much of the processors.
    pub fn of(o: &Observed) -> Option<Demands> {
        let (latency_ns, in_flight) = (o.latency_ns?, o.in_flight()?);
        if o.throttled
            || o.cpu.is_some_and(|cpu| cpu.is_crowded())
            || o.iops <= 0.0
            || o.bandwidth <= 0.0
            || in_flight <= 0.0
        {
            return None;
        }
        let each_ns = |per_second: f64| per_second / o.iops * 1e9;
        let beside = |ns: f64| (latency_ns - ns).max(0.0);
        let in_flight = in_flight.max(1.0);
        // Links that carried other traffic had no part.
        let links = o.links.iter().filter(|l| l.bandwidth >= IN_THE_PATH * o.bandwidth);
        let link = links.map(|l| l.bandwidth / l.speed).reduce(f64::max).unwrap_or(0.0);
        let disk = o.disks.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
        let at_disks = each_ns(o.disks.iter().map(|d| d.in_flight).sum());
        // Time on the wire is certainly not spent at disks.
        let beside_disk = beside(at_disks).max(each_ns(link));
        // Reads wait for the disk; writes may go to memory and be flushed later.
        let only_reads = o.read_bandwidth >= 0.99 * o.bandwidth;
        Some(Demands {
            in_flight,
            bytes: o.bandwidth / o.iops,
            latency_ns,
            link_ns: each_ns(link),
            disk_ns: disk.map_or(0.0, |d| each_ns(d.busy)),
            disk_is_serial: o.disks.iter().all(|d| d.rotates == Some(true)),
            disk_operations: disk.map_or(0.0, |d| d.iops / o.iops),
            disk_bytes: disk.map_or(0.0, |d| d.bandwidth / d.iops),
            cpu_ns: o.cpu.map_or(0.0, |cpu| each_ns(cpu.ours().unwrap_or(cpu.busy))),
            beside_link_ns: (beside(each_ns(queue(link, in_flight))), beside(each_ns(link))),
            beside_disk_ns: (beside_disk, if only_reads { beside_disk } else { latency_ns }),
        })
    }

    /// Measured operations per second.
    pub fn measured(&self) -> f64 {
        self.in_flight / self.latency_ns * 1e9
    }

    /// Operations per second that all resources sustain, and the resource that sustains the fewest.
    fn capacity(&self) -> (f64, Resource) {
        let disk_ns = if self.disk_is_serial { self.disk_ns } else { 0.0 };
        let parts =
            [(Resource::Network, self.link_ns), (Resource::Disk, disk_ns), (Resource::Cpu, self.cpu_ns)];
        let (most, demand) =
            parts.into_iter().fold((Resource::Concurrency, 0.0), |a, b| if b.1 > a.1 { b } else { a });
        (if demand > 0.0 { 1e9 / demand } else { f64::INFINITY }, most)
    }

    /// Another device's demand for one operation, and the latency of a single one on it.
    fn at(&self, device: &Device, bandwidth: f64, iops: f64, latency_ns: f64) -> (f64, f64) {
        if device.resource == Resource::Network {
            let moving = self.bytes / bandwidth * 1e9;
            return (moving, moving);
        }
        // Caches, parity and copies determine the number of disk operations, which stays.
        let demand = (self.disk_bytes / bandwidth).max(1.0 / iops) * 1e9 * self.disk_operations;
        (demand, demand.max(latency_ns * self.disk_operations.min(1.0)))
    }

    fn replaced(&self, device: &Device, demand_ns: f64) -> Demands {
        match device.resource {
            Resource::Network => Demands { link_ns: demand_ns, ..*self },
            // A new disk's maximum is given.
            _ => Demands { disk_ns: demand_ns, disk_is_serial: true, ..*self },
        }
    }

    /// Maximum operations per second with another device, and the limit then.
    fn at_most(&self, device: &Device) -> (f64, Resource) {
        let (demand, alone) = self.at(device, device.bandwidth.1, device.iops.1, device.latency_ns.0);
        let (full, resource) = self.replaced(device, demand).capacity();
        let free = self.in_flight / (self.beside(device).0 + alone) * 1e9;
        if full <= free { (full, resource) } else { (free, Resource::Concurrency) }
    }

    fn at_least(&self, device: &Device) -> f64 {
        let (demand, alone) = self.at(device, device.bandwidth.0, device.iops.0, device.latency_ns.1);
        let (full, _) = self.replaced(device, demand).capacity();
        let crowded =
            self.in_flight / (self.beside(device).1 + alone + (self.in_flight - 1.0) * demand) * 1e9;
        // A device with a lower demand than the old one makes nothing slower.
        let was = match device.resource {
            Resource::Network => Some(self.link_ns),
            _ => Some(self.disk_ns).filter(|_| self.disk_is_serial),
        };
        let measured = self.measured();
        let least = crowded.min(full);
        let is_no_slower = was.is_some_and(|was| demand <= was && alone <= was);
        if is_no_slower { least.max(measured) } else { least }
    }

    fn beside(&self, device: &Device) -> Range {
        if device.resource == Resource::Network { self.beside_link_ns } else { self.beside_disk_ns }
    }
}

/// Operations queued at a resource of known utilisation: all if it is saturated, otherwise by approximate
/// mean value analysis (Schweitzer).
fn queue(used: f64, in_flight: f64) -> f64 {
    if used >= FULL { in_flight } else { used / (1.0 - used * (in_flight - 1.0) / in_flight) }
}

/// Projects a run to those devices that had a part in it; None if none, or without demands ([`Demands::of`]).
pub fn project(observed: &Observed, devices: &[Device]) -> Option<Projected> {
    let demands = Demands::of(observed)?;
    let had_part = |device: &&Device| match device.resource {
        Resource::Network => demands.link_ns > 0.0,
        _ => demands.disk_ns > 0.0,
    };
    let projections: Vec<Projection> =
        devices.iter().filter(had_part).map(|device| projection(observed, &demands, device)).collect();
    (!projections.is_empty()).then(|| Projected {
        test: observed.test.clone(),
        target: observed.target.clone(),
        demands,
        projections,
        assumptions: assumptions(&demands),
    })
}

fn projection(observed: &Observed, demands: &Demands, device: &Device) -> Projection {
    let (most, next_limit) = demands.at_most(device);
    let iops = (demands.at_least(device).min(most), most);
    let bandwidth = (iops.0 * demands.bytes, iops.1 * demands.bytes);
    let (least_gain, gain) = (iops.0 / observed.iops, iops.1 / observed.iops);
    let show = |(low, high): Range, unit: Unit| format!("{} to {}", unit.show(low), unit.show(high));
    let sentence = format!(
        "With {}: {} ({}), {} to {}x the measured {}{}; next limit at best: {}.",
        device.name,
        show(bandwidth, Unit::BytesPerSecond),
        show(iops, Unit::PerSecond),
        digits(least_gain),
        digits(gain),
        Unit::PerSecond.show(observed.iops),
        if least_gain < 1.0 { ", so it may be slower" } else { "" },
        match next_limit {
            Resource::Concurrency => "latency times concurrency",
            other => other.name(),
        }
    );
    Projection {
        with: device.name.into(),
        instead_of: device.resource,
        iops,
        bandwidth,
        gain,
        least_gain,
        next_limit,
        sentence,
    }
}

fn assumptions(d: &Demands) -> Vec<String> {
    let ns = |v: f64| Unit::Nanoseconds.show(v);
    vec![
        format!(
            "The workload stays the same: {} operations of {} in flight. More in flight would raise the \
             bounds up to the next saturated resource.",
            digits(d.in_flight),
            Unit::Bytes.show(d.bytes)
        ),
        format!(
            "An operation demands {} of the link, {} of the busiest disk, {} of the processors (utilisation \
             divided by throughput). Its total is {}; the time outside the replaced device stays.",
            ns(d.link_ns),
            ns(d.disk_ns),
            ns(d.cpu_ns),
            ns(d.latency_ns)
        ),
        if d.disk_is_serial {
            "Disks that rotate serve one operation at a time: their utilisation limits.".into()
        } else {
            "The disks do several operations at once: that they were busy does not say what they can do at \
             most, so they are no limit in the upper end."
                .into()
        },
        "Writes may wait for the disks entirely (upper end) or not at all (lower end); reads that reach a \
         disk wait for it."
            .into(),
        "Hit rates, parity and copies stay the same. Ethernet carries 90 to 95 % of its line rate.".into(),
        "Anything not sampled (a remote server's disks and processors) is part of the latency that stays."
            .into(),
    ]
}
