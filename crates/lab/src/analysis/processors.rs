//! Processor use during a run, by owner: this program, the kernel, other processes, or the host of a virtual
//! machine.
//!
//! Only the work's own use may be called its limit. Other use slows a run and says nothing about the storage,
//! so it is kept apart.

use serde::{Deserialize, Serialize};

use crate::load::measurement::CpuTime;
use crate::load::samples::{Samples, Series};

/// Other processes above this share of all processors make a machine not quiet.
const OTHERS: f64 = 0.10;
/// So does a host that takes more than this share.
const STOLEN: f64 = 0.05;
/// If both together exceed this, waiting for processors is a large part of any latency.
const CROWDED: f64 = 0.25;

/// Shares of all processors' time during a run, from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Processors {
    /// Total use, including time taken by the host.
    pub busy: f64,
    /// This program and its children; None if unknown.
    pub own: Option<f64>,
    /// Kernel threads and interrupts, which serve everyone.
    pub kernel: f64,
    /// Taken by the host of a virtual machine (steal).
    pub stolen: f64,
    /// Share of the time in which some task waited for a processor (PSI), this program's included; None if
    /// not sampled.
    pub pressure: Option<f64>,
    /// Processors that this program kept busy; None if unknown.
    pub own_cores: Option<f64>,
}

impl Processors {
    /// Observes a run of `elapsed_ns`; None if the processors were not sampled. `worker` is the work's own
    /// measurement, for results whose samples lack this program's time.
    pub fn of(samples: &Samples, worker: Option<CpuTime>, elapsed_ns: u64) -> Option<Processors> {
        let whole = time(samples, "");
        let part = |name: &str| share(samples.find("cpu", "", name), whole);
        let busy = busy(samples, "")?;
        let sampled: Vec<&Series> =
            ["user", "system", "children"].iter().filter_map(|n| samples.find("own", "", n)).collect();
        let own_ns = match sampled.is_empty() {
            false => Some(sampled.into_iter().map(Series::growth).sum::<f64>()),
            true => worker.map(|used| used.total_ns() as f64),
        };
        let threads = share(samples.find("kernel_threads", "", "used"), whole).unwrap_or(0.0);
        let interrupts = part("irq").unwrap_or(0.0) + part("softirq").unwrap_or(0.0);
        Some(Processors {
            busy,
            own: own_ns.map(|ns| (ns / whole).min(busy)),
            kernel: threads + interrupts,
            stolen: part("steal").unwrap_or(0.0),
            pressure: samples
                .find("pressure", "cpu", "some_total")
                .and_then(per_time)
                .map(|part| part.min(1.0)),
            own_cores: own_ns.filter(|_| elapsed_ns > 0).map(|ns| ns / elapsed_ns as f64),
        })
    }

    /// Use by this program and by the kernel, which may have worked for it.
    pub fn ours(&self) -> Option<f64> {
        Some((self.own? + self.kernel).min(self.busy))
    }

    /// Use by other processes.
    pub fn others(&self) -> Option<f64> {
        Some((self.busy - self.stolen - self.ours()?).max(0.0))
    }

    /// Whether the machine did little else; None if unknown.
    pub fn is_quiet(&self) -> Option<bool> {
        if self.stolen > STOLEN {
            return Some(false);
        }
        Some(self.others()? <= OTHERS)
    }

    /// Whether other use was heavy enough that the work may have waited for a processor.
    pub fn is_crowded(&self) -> bool {
        self.others().unwrap_or(0.0) + self.stolen > CROWDED
    }
}

const TIMES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// Total nanoseconds of one processor, or of all (empty name).
pub fn time(samples: &Samples, cpu: &str) -> f64 {
    TIMES.iter().filter_map(|name| samples.find("cpu", cpu, name)).map(Series::growth).sum()
}

/// A counter's growth as a share of a whole.
pub fn share(part: Option<&Series>, whole: f64) -> Option<f64> {
    (whole > 0.0).then_some(part?.growth() / whole)
}

/// Share of a processor's time in which it was not idle.
pub fn busy(samples: &Samples, cpu: &str) -> Option<f64> {
    let whole = time(samples, cpu);
    let idle = share(samples.find("cpu", cpu, "idle"), whole)?;
    Some((1.0 - idle - share(samples.find("cpu", cpu, "iowait"), whole).unwrap_or(0.0)).max(0.0))
}

/// Growth of a nanosecond counter divided by the time sampled.
pub fn per_time(series: &Series) -> Option<f64> {
    let (first, last) = (series.points.first()?, series.points.last()?);
    (last.0 > first.0).then(|| series.growth() / (last.0 - first.0) as f64)
}
