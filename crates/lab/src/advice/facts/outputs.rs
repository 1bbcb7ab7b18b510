//! Where facts come from: the outputs of `zpool` and `zfs` and the kernel's files, live or as somebody recorded them.
//!
//! A folder of recorded outputs has the kernel's files under the paths that they have in `/`, and beside them what the programs
//! said: `status.json`, `pool.tsv`, `vdevs.tsv`, `datasets.tsv`, `iostat-vl.tsv` (crates/lab/tests/recorded/zfs/record makes such).
//! What is not there is no error: it is told in [`Facts::missing`].

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::read::{Properties, kstat};
use super::{Counters, Dataset, Facts, Latencies, Pool};
use crate::samples::Missing;
use crate::{LabError, Result};

/// What the programs said, of one or of all pools.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// `zpool status -j --json-int`.
    pub(super) status: String,
    /// `zpool get -Hp all`.
    pub(super) pools: String,
    /// `zpool get -Hp all POOL all-vdevs`, by pool.
    pub(super) vdevs: HashMap<String, String>,
    /// `zfs get -Hp -t filesystem,volume all`.
    pub(super) datasets: String,
    /// `zpool iostat -Hpvl POOL`, perhaps several times one after the other, by pool.
    pub(super) iostat: HashMap<String, String>,
}

impl Facts {
    /// From a folder of recorded outputs of one pool.
    ///
    /// # Errors
    /// There is no `status.json`, or it is not what `zpool status -j` says.
    pub fn recorded(folder: &Path) -> Result<Facts> {
        let status_path = folder.join("status.json");
        let status =
            fs::read_to_string(&status_path).map_err(LabError::io(status_path.display().to_string()))?;
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let names = pool_names(&parse_status(&status)?);
        let of_each = |file: &str| names.iter().map(|pool| (pool.clone(), read(file))).collect();
        let said = Said {
            pools: read("pool.tsv"),
            vdevs: of_each("vdevs.tsv"),
            datasets: read("datasets.tsv"),
            iostat: of_each("iostat-vl.tsv"),
            status,
        };
        Facts::from_outputs(&said, folder)
    }

    /// Puts together what the programs said and the kernel's files under `root`.
    pub(super) fn from_outputs(said: &Said, root: &Path) -> Result<Facts> {
        let status = parse_status(&said.status)?;
        let mut facts =
            Facts { unix_s: status.get("time").and_then(Value::as_u64).unwrap_or(0), ..Facts::default() };
        let (pools, datasets) = (Properties::parse(&said.pools), Properties::parse(&said.datasets));
        for (name, value) in status.get("pools").and_then(Value::as_object).into_iter().flatten() {
            let mut pool = Pool::from_status(name, value);
            pool.add_properties(&pools);
            let vdevs = Properties::parse(said.vdevs.get(name).map_or("", String::as_str));
            let latencies = latencies(said.iostat.get(name).map_or("", String::as_str));
            for vdev in &mut pool.vdevs {
                vdev.add_properties(&vdevs);
                vdev.add_latencies(&|name| latencies.get(name).copied());
            }
            let ours = |name: &&String| name.split('/').next() == Some(pool.name.as_str());
            pool.datasets = datasets
                .names
                .iter()
                .filter(ours)
                .filter_map(|n| Dataset::from_properties(n, &datasets))
                .collect();
            add_dataset_counters(&mut pool, root);
            facts.pools.push(pool);
        }
        facts.read_kernel(root);
        Ok(facts)
    }

    /// What the kernel's files say of the machine.
    fn read_kernel(&mut self, root: &Path) {
        let mut read = |path: &str| match fs::read_to_string(root.join(path)) {
            Ok(text) => Some(text),
            Err(error) => {
                self.missing.push(Missing { source: format!("/{path}"), why: error.to_string() });
                None
            }
        };
        self.arc = read("proc/spl/kstat/zfs/arcstats").map(|text| kstat(&text).0);
        let uptime = read("proc/uptime");
        self.counted_s = uptime.and_then(|text| text.split_whitespace().next()?.parse().ok());
        let memory = read("proc/meminfo");
        let kib = memory.as_deref().and_then(|text| {
            text.lines().find_map(|line| {
                line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
            })
        });
        self.memory_bytes = kib.map(|kib| kib * 1024);
    }
}

fn parse_status(status: &str) -> Result<Value> {
    serde_json::from_str(status).map_err(|error| LabError::Program {
        program: "zpool".into(),
        what: format!("`zpool status -j` did not give JSON ({error}); it takes OpenZFS 2.3 or later"),
    })
}

pub(super) fn pool_names(status: &Value) -> Vec<String> {
    status
        .get("pools")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect()
}

/// Each data set's counters: the kstats `POOL/objset-0x…`, which say whose they are.
fn add_dataset_counters(pool: &mut Pool, root: &Path) {
    let folder = root.join("proc/spl/kstat/zfs").join(&pool.name);
    let mut by_name: HashMap<String, Counters> = HashMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with("objset-") {
            continue;
        }
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let (counters, words) = kstat(&text);
        if let Some(name) = words.get("dataset_name") {
            by_name.insert((*name).to_owned(), counters);
        }
    }
    for dataset in &mut pool.datasets {
        dataset.counters = by_name.remove(&dataset.name);
    }
}

/// Columns of `zpool iostat -Hpl`: name, allocated, free, then operations, bandwidth, waits, each of reads and writes.
const COLUMNS: [usize; 6] = [3, 4, 7, 8, 9, 10];

/// Each vdev's mean latencies: over all intervals that it was said for, weighed by their operations.
fn latencies(table: &str) -> HashMap<&str, Latencies> {
    #[derive(Default)]
    struct Sum {
        intervals: f64,
        operations: [f64; 2],
        waits: [Weighed; 4],
    }
    let mut sums: HashMap<&str, Sum> = HashMap::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let Some(&name) = cells.first() else { continue };
        let value = |column: usize| cells.get(column).and_then(|cell| cell.trim().parse::<f64>().ok());
        let [Some(reads), Some(writes)] = [COLUMNS[0], COLUMNS[1]].map(value) else { continue };
        let sum = sums.entry(name.trim()).or_default();
        sum.intervals += 1.0;
        sum.operations[0] += reads;
        sum.operations[1] += writes;
        for (index, wait) in sum.waits.iter_mut().enumerate() {
            let weight = if index % 2 == 0 { reads } else { writes };
            wait.add(value(COLUMNS[2 + index]), weight);
        }
    }
    let finish = |sum: Sum| Latencies {
        read_ns: sum.waits[0].mean(),
        write_ns: sum.waits[1].mean(),
        disk_read_ns: sum.waits[2].mean(),
        disk_write_ns: sum.waits[3].mean(),
        reads: sum.operations[0] / sum.intervals,
        writes: sum.operations[1] / sum.intervals,
    };
    sums.into_iter().map(|(name, sum)| (name, finish(sum))).collect()
}

/// A mean of values that weigh differently.
#[derive(Debug, Default, Clone, Copy)]
struct Weighed {
    sum: f64,
    weight: f64,
}

impl Weighed {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value.filter(|_| weight > 0.0) {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    fn mean(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}
