//! Scaling projection: what a measured figure would be with another link or other disks, as a range with its assumptions.
//!
//! The run is taken as a closed system: N operations in flight, X a second, each taking R = N / X (Little). By the utilisation law the demand
//! of a resource is D = U / X: the time that it works for one operation. One device is replaced; the time R - r that operations spend
//! elsewhere stays, and so do the demands of all others. Then, whatever the distributions,
//! ```text
//!   N / (R - r + l + (N - 1) D')  <=  X'  <=  min(1 / max D', N / (R - r + l))
//! ```
//! with the new device's demand D' and its latency for one operation l. The upper bound is a full bottleneck or no queueing at all, the lower
//! one all operations always waiting for each other. The time r spent at the old device is known where its queue was sampled (disks),
//! and lies between D and what mean value analysis gives where not (links). What a kind of link or disk can do is a range too. So the
//! results are ranges, often wide ones: that is what one measurement allows to say.
//!
//! Source: Denning and Buzen 1978; Lazowska et al., Quantitative System Performance, chapter 5.

use serde::{Deserialize, Serialize};

use super::limits::{FULL, IN_THE_PATH, Resource};
use super::observed::Observed;
use crate::unit::{Unit, digits};

/// From and to.
type Range = (f64, f64);

/// A kind of link or disk that could be there instead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Its name.
    pub name: &'static str,
    /// Link or disk.
    pub resource: Resource,
    /// Bytes a second.
    pub bandwidth: Range,
    /// Operations a second, many at once.
    pub iops: Range,
    /// Nanoseconds of one operation alone.
    pub latency_ns: Range,
}

const fn link(name: &'static str, raw: f64) -> Device {
    // TCP over Ethernet leaves 90 to 95 % of the line for data.
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

/// Links and disks that people ask about. Disks: what data sheets and reviews of many models span, not the best of them.
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

/// What one operation needs, in nanoseconds, and how many are in flight.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Demands {
    /// Operations in flight.
    pub in_flight: f64,
    /// Bytes of an operation.
    pub bytes: f64,
    /// How long an operation takes.
    pub latency_ns: f64,
    /// Work of the link for one operation.
    pub link_ns: f64,
    /// Work of the busiest disk for one operation.
    pub disk_ns: f64,
    /// Disk operations for one operation, on the busiest disk.
    pub disk_operations: f64,
    /// Bytes of such a disk operation.
    pub disk_bytes: f64,
    /// Work of the processors for one operation, all of them together taken as one.
    pub cpu_ns: f64,
    /// Time of an operation that is not spent at the link, at least and at most.
    pub beside_link_ns: Range,
    /// Time of an operation that is not spent at disks, at least and at most.
    pub beside_disk_ns: Range,
}

/// What would be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// What is put in: `10 GbE`.
    pub with: String,
    /// In place of what.
    pub instead_of: Resource,
    /// Operations a second, at least and at most.
    pub iops: Range,
    /// Bytes a second, at least and at most.
    pub bandwidth: Range,
    /// The most by what was measured.
    pub gain: f64,
    /// What limits then, at best.
    pub next_limit: Resource,
    /// In a sentence.
    pub sentence: String,
}

/// A measured run put into other surroundings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Projected {
    /// The test.
    pub test: String,
    /// The target.
    pub target: String,
    /// What was concluded from the run.
    pub demands: Demands,
    /// One for each kind of device that was asked about and that the run can tell about.
    pub projections: Vec<Projection>,
    /// On what all of them rest.
    pub assumptions: Vec<String>,
}

impl Demands {
    /// Of a run; None if its latency was not measured, it moved no bytes, or it paused on purpose.
    pub fn of(o: &Observed) -> Option<Demands> {
        let (latency_ns, in_flight) = (o.latency_ns?, o.in_flight()?);
        if o.throttled || o.iops <= 0.0 || o.bandwidth <= 0.0 || in_flight <= 0.0 {
            return None;
        }
        let each_ns = |per_second: f64| per_second / o.iops * 1e9;
        let beside = |ns: f64| (latency_ns - ns).max(0.0);
        let in_flight = in_flight.max(1.0);
        // Links that carried other things than the data had no part in it.
        let links = o.links.iter().filter(|l| l.bandwidth >= IN_THE_PATH * o.bandwidth);
        let link = links.map(|l| l.bandwidth / l.speed).reduce(f64::max).unwrap_or(0.0);
        let disk = o.disks.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
        let at_disks = each_ns(o.disks.iter().map(|d| d.in_flight).sum());
        // Time on the wire is certainly not spent at disks.
        let beside_disk = beside(at_disks).max(each_ns(link));
        // Reads wait for the disk; writes may be put into memory and written behind the operation's back.
        let only_reads = o.read_bandwidth >= 0.99 * o.bandwidth;
        Some(Demands {
            in_flight,
            bytes: o.bandwidth / o.iops,
            latency_ns,
            link_ns: each_ns(link),
            disk_ns: disk.map_or(0.0, |d| each_ns(d.busy)),
            disk_operations: disk.map_or(0.0, |d| d.iops / o.iops),
            disk_bytes: disk.map_or(0.0, |d| d.bandwidth / d.iops),
            cpu_ns: o.cpu.map_or(0.0, each_ns),
            beside_link_ns: (beside(each_ns(queue(link, in_flight))), beside(each_ns(link))),
            beside_disk_ns: (beside_disk, if only_reads { beside_disk } else { latency_ns }),
        })
    }

    /// Operations a second that all resources bear, and the one that bears the fewest.
    fn capacity(&self) -> (f64, Resource) {
        let parts =
            [(Resource::Network, self.link_ns), (Resource::Disk, self.disk_ns), (Resource::Cpu, self.cpu_ns)];
        let (most, demand) =
            parts.into_iter().fold((Resource::Concurrency, 0.0), |a, b| if b.1 > a.1 { b } else { a });
        (if demand > 0.0 { 1e9 / demand } else { f64::INFINITY }, most)
    }

    /// Work of another device for one operation, and how long one alone takes there.
    fn at(&self, device: &Device, bandwidth: f64, iops: f64, latency_ns: f64) -> (f64, f64) {
        if device.resource == Resource::Network {
            let moving = self.bytes / bandwidth * 1e9;
            return (moving, moving);
        }
        // How many disk operations there are is a matter of caches, parity and copies. That stays.
        let demand = (self.disk_bytes / bandwidth).max(1.0 / iops) * 1e9 * self.disk_operations;
        (demand, demand.max(latency_ns * self.disk_operations.min(1.0)))
    }

    fn replaced(&self, device: &Device, demand_ns: f64) -> Demands {
        match device.resource {
            Resource::Network => Demands { link_ns: demand_ns, ..*self },
            _ => Demands { disk_ns: demand_ns, ..*self },
        }
    }

    /// Operations a second with another device, at most, and what limits them then.
    fn at_most(&self, device: &Device) -> (f64, Resource) {
        let (demand, alone) = self.at(device, device.bandwidth.1, device.iops.1, device.latency_ns.0);
        let (full, resource) = self.replaced(device, demand).capacity();
        let free = self.in_flight / (self.beside(device).0 + alone) * 1e9;
        if full <= free { (full, resource) } else { (free, Resource::Concurrency) }
    }

    /// Operations a second with another device, at least.
    fn at_least(&self, device: &Device) -> f64 {
        let (demand, alone) = self.at(device, device.bandwidth.0, device.iops.0, device.latency_ns.1);
        let (full, _) = self.replaced(device, demand).capacity();
        let crowded =
            self.in_flight / (self.beside(device).1 + alone + (self.in_flight - 1.0) * demand) * 1e9;
        // A device that works less for each operation than the old one does not make anything slower.
        let was = if device.resource == Resource::Network { self.link_ns } else { self.disk_ns };
        let measured = self.in_flight / self.latency_ns * 1e9;
        let least = crowded.min(full);
        if demand <= was && alone <= was { least.max(measured) } else { least }
    }

    fn beside(&self, device: &Device) -> Range {
        if device.resource == Resource::Network { self.beside_link_ns } else { self.beside_disk_ns }
    }
}

/// Operations at a resource of which only the utilisation is known: all of them where it is full, otherwise by approximate mean
/// value analysis (Schweitzer).
fn queue(used: f64, in_flight: f64) -> f64 {
    if used >= FULL { in_flight } else { used / (1.0 - used * (in_flight - 1.0) / in_flight) }
}

/// Projects a run to these devices; None if it can't tell ([`Demands::of`]), or none of them had a part in it. Devices of a kind that had no part in the run are left out.
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
    let gain = iops.1 / observed.iops;
    let show = |(low, high): Range, unit: Unit| format!("{} to {}", unit.show(low), unit.show(high));
    let sentence = format!(
        "With {}: {} ({}), at most {}x what was measured; then {} limits.",
        device.name,
        show(bandwidth, Unit::BytesPerSecond),
        show(iops, Unit::PerSecond),
        digits(gain),
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
        next_limit,
        sentence,
    }
}

fn assumptions(d: &Demands) -> Vec<String> {
    let ns = |v: f64| Unit::Nanoseconds.show(v);
    vec![
        format!(
            "The workload stays as it is: {} operations of {} in flight. More in flight would move the bounds up to the next full resource.",
            digits(d.in_flight),
            Unit::Bytes.show(d.bytes)
        ),
        format!(
            "An operation needs {} of the link, {} of the busiest disk, {} of the processors (utilisation by throughput). What of its {} is \
             spent beside the device that is replaced stays.",
            ns(d.link_ns),
            ns(d.disk_ns),
            ns(d.cpu_ns),
            ns(d.latency_ns)
        ),
        "Writes may wait for the disks wholly (the upper end) or not at all (the lower); reads that reach a disk wait for it.".into(),
        "Hit rates, parity and copies stay as they were. Ethernet carries 90 to 95 % of its line rate."
            .into(),
        "What was not sampled (a remote server's disks, its processors) is part of the latency that stays."
            .into(),
    ]
}
