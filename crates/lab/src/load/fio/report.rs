//! fio's final output: JSON (`json+`) with one entry per worker.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::load::job::Job;
use crate::load::measurement::{CpuTime, Latency, Second, Stream};
use crate::{LabError, Result};

#[derive(Debug, Deserialize)]
pub(super) struct Report {
    #[serde(rename = "fio version")]
    version: String,
    jobs: Vec<Worker>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Worker {
    jobname: String,
    error: i32,
    read: Direction,
    write: Direction,
    sync: Syncs,
    job_runtime: f64,
    usr_cpu: f64,
    sys_cpu: f64,
}

#[derive(Debug, Deserialize)]
struct Direction {
    io_bytes: u64,
    total_ios: u64,
    /// In milliseconds.
    runtime: u64,
    clat_ns: Latencies,
}

#[derive(Debug, Deserialize)]
struct Syncs {
    total_ios: u64,
    lat_ns: Latencies,
}

/// `bins` maps the middle of each bucket, in nanoseconds as text, to its count.
#[derive(Debug, Deserialize)]
struct Latencies {
    min: u64,
    max: u64,
    #[serde(default)]
    bins: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Seconds {
    pub read: Vec<Second>,
    pub write: Vec<Second>,
}

impl Report {
    pub fn read(path: &Path) -> Result<Report> {
        let text = fs::read_to_string(path).map_err(|e| failed(&format!("cannot read its report: {e}")))?;
        Report::parse(&text)
    }

    /// Parses the JSON. fio writes warnings and notes before and after it, with braces among them: the report
    /// is the first object that parses as one.
    pub fn parse(text: &str) -> Result<Report> {
        let mut refused = None;
        for (at, _) in text.match_indices('{') {
            match serde_json::Deserializer::from_str(&text[at..]).into_iter::<Report>().next() {
                Some(Ok(report)) => return Ok(report),
                // Objects nested in a broken report fail too; keep the outermost object's error.
                Some(Err(error)) => refused = refused.or(Some(error)),
                None => {}
            }
        }
        let why = refused.map_or("it has no JSON object".into(), |error| error.to_string());
        Err(failed(&format!("unexpected report format: {why}")))
    }

    pub fn version(&self) -> String {
        self.version.trim_start_matches("fio-").to_owned()
    }

    /// Processor time of all workers; fio gives it in percent of their runtimes.
    pub fn cpu(&self) -> CpuTime {
        let ns = |percent: fn(&Worker) -> f64| {
            let of_worker = |worker: &Worker| percent(worker) / 100.0 * worker.job_runtime * 1e6;
            self.jobs.iter().map(of_worker).sum::<f64>() as u64
        };
        CpuTime { user_ns: ns(|worker| worker.usr_cpu), system_ns: ns(|worker| worker.sys_cpu) }
    }

    /// Workers in job order; an error if one failed.
    pub fn into_workers(self) -> Result<Vec<Worker>> {
        match self.jobs.iter().find(|worker| worker.error != 0) {
            Some(worker) => {
                let error = std::io::Error::from_raw_os_error(worker.error);
                Err(failed(&format!("job {}: {error}", worker.jobname)))
            }
            None => Ok(self.jobs),
        }
    }
}

impl Worker {
    /// Streams, in the engine's form: reads and writes if the job does any (fio includes its verification
    /// reads), syncs if any happened.
    pub fn into_streams(self, job: &Job, seconds: Seconds) -> Vec<Stream> {
        let percent = job.pattern.read_percent;
        let sync_ms = self.read.runtime.max(self.write.runtime);
        let mut streams = Vec::new();
        if percent > 0 {
            streams.push(self.read.into_stream("read", seconds.read));
        }
        if percent < 100 {
            streams.push(self.write.into_stream("write", seconds.write));
        }
        if self.sync.total_ios > 0 {
            let Syncs { total_ios, lat_ns } = self.sync;
            let direction = Direction { io_bytes: 0, total_ios, runtime: sync_ms, clat_ns: lat_ns };
            streams.push(direction.into_stream("sync", Vec::new()));
        }
        streams
    }
}

impl Direction {
    fn into_stream(self, operation: &str, seconds: Vec<Second>) -> Stream {
        Stream {
            operation: operation.into(),
            operations: self.total_ios,
            bytes: self.io_bytes,
            runtime_ns: self.runtime * 1_000_000,
            errors: 0,
            latency: self.clat_ns.into_latency(),
            seconds,
        }
    }
}

impl Latencies {
    /// Shortest and longest are exact, the others are at the middle of their buckets.
    fn into_latency(self) -> Latency {
        let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
        for (ns, count) in self.bins {
            if let Ok(ns) = ns.parse() {
                *bins.entry(ns).or_default() += count;
            }
        }
        let mut latency = Latency::default();
        if let Some(mut shortest) = bins.first_entry() {
            *shortest.get_mut() = shortest.get().saturating_sub(1);
            latency.record(self.min);
        }
        if let Some(mut longest) = bins.last_entry().filter(|longest| *longest.get() > 0) {
            *longest.get_mut() -= 1;
            latency.record(self.max);
        }
        for (ns, count) in bins.into_iter().filter(|bin| bin.1 > 0) {
            latency.record_many(ns.clamp(self.min, self.max.max(self.min)), count);
        }
        latency
    }
}

pub(super) fn failed(what: &str) -> LabError {
    LabError::Program { program: "fio".into(), what: what.to_owned() }
}
