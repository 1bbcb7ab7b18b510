//! Gathers facts from this machine, from Cenote's daemon on it, or from a recording: a folder with the
//! programs' output and the kernel's files under their paths (made by crates/lab/tests/recorded/zfs/record).

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use super::{Facts, Health};
use crate::load::machine::zpool::{Counters, Latencies, Pool, Zpool, named};
use crate::load::machine::{Machine, Root, disks_under};
use crate::load::sample::smart::{History, Smart};
use crate::load::samples::Missing;
use crate::{LabError, Result};

/// Scope of the look at this machine.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Pools to include; all if empty.
    pub pools: Vec<String>,
    /// Time to observe latencies; None means since the import.
    pub window: Option<Duration>,
    /// Folder of SMART records, to which today's is added; None leaves the disks unasked.
    pub smart: Option<History>,
}

impl Facts {
    /// Gathers the facts of this machine.
    ///
    /// # Errors
    /// OpenZFS is missing, a pool is not imported, or the programs failed.
    pub fn gather(look: &Look) -> Result<Facts> {
        let zpool = Zpool::find()?;
        let names = wanted(&zpool, look)?;
        let mut facts = Facts::of_zpool(&zpool, &names, &Root::default(), look.window)?;
        let texts = kernel_kstats(&Root::default(), &facts.pools);
        facts.add_kstats(&texts);
        if let Some(history) = &look.smart {
            facts.ask_disks(history);
        }
        Ok(facts)
    }

    /// Facts about pools that Cenote's daemon has open on this machine. `kstats`: texts by path below
    /// `/proc/spl/kstat/zfs`, which cover `counted_s` seconds.
    pub fn of_daemon(pools: Vec<Pool>, kstats: &BTreeMap<String, String>, counted_s: f64) -> Facts {
        let root = Root::default();
        let nothing = Err(LabError::Refused("the daemon knows its pools".into()));
        let mut facts = Facts::of_machine(&Machine::describe_at(&root, nothing, &[]));
        facts.missing.retain(|missing| missing.source != "zpool");
        facts.pools = pools;
        facts.find_disks(&root);
        facts.read_time(&root);
        facts.add_kstats(kstats);
        (facts.counted_s, facts.is_of_daemon) = (Some(counted_s), true);
        facts
    }

    /// Reads facts from a folder with the recorded output of one pool.
    ///
    /// # Errors
    /// A recorded output is missing or cannot be parsed.
    pub fn recorded(folder: &Path) -> Result<Facts> {
        let zpool = Zpool::recorded(folder)?;
        let root = Root::at(folder);
        let mut facts = Facts::of_zpool(&zpool, &zpool.names()?, &root, None)?;
        let texts = kernel_kstats(&root, &facts.pools);
        facts.add_kstats(&texts);
        Ok(facts)
    }

    fn of_zpool(zpool: &Zpool, names: &[String], root: &Root, window: Option<Duration>) -> Result<Facts> {
        let mut facts = Facts::of_machine(&Machine::describe_at(root, Ok(zpool.clone()), &[]));
        facts.pools.retain(|pool| names.contains(&pool.name));
        for pool in &mut facts.pools {
            match zpool.iostat_latencies(&pool.name, window) {
                Ok(table) => {
                    let latencies = latencies(&table);
                    let of = |name: &str| latencies.get(name).copied();
                    pool.vdevs.iter_mut().for_each(|vdev| vdev.add_latencies(&of));
                }
                Err(error) => {
                    facts.missing.push(Missing { source: "zpool iostat".into(), why: error.to_string() })
                }
            }
        }
        facts.find_disks(root);
        facts.read_time(root);
        Ok(facts)
    }

    fn find_disks(&mut self, root: &Root) {
        let leaves = self.pools.iter().flat_map(|pool| &pool.vdevs).flat_map(|vdev| vdev.leaves());
        let paths = leaves.filter_map(|leaf| leaf.path.clone());
        self.under = paths.map(|path| (path.clone(), disks_under(root, path.as_ref()))).collect();
    }

    pub(super) fn of_machine(machine: &Machine) -> Facts {
        Facts {
            memory_bytes: (machine.memory_bytes > 0).then_some(machine.memory_bytes),
            pools: machine.pools.clone(),
            disks: machine.disks.clone(),
            missing: machine.missing.clone(),
            ..Facts::default()
        }
    }

    fn read_time(&mut self, root: &Root) {
        self.counted_s =
            root.word("proc/uptime").and_then(|text| text.split_whitespace().next()?.parse().ok());
        let booted = root
            .word("proc/stat")
            .and_then(|text| text.lines().find_map(|line| line.strip_prefix("btime ")?.parse::<u64>().ok()));
        self.unix_s = booted.zip(self.counted_s).map(|(booted, up)| booted + up as u64);
    }

    /// Adds the counters in kstats, by their paths below `/proc/spl/kstat/zfs`.
    fn add_kstats(&mut self, texts: &BTreeMap<String, String>) {
        match texts.get("arcstats") {
            Some(text) => self.arc = Some(Counters::of_kstat(text)),
            None => self.missing.push(Missing { source: "arcstats".into(), why: "cannot be read".into() }),
        }
        // A dataset's kstat is `POOL/objset-0x…`, and names its dataset.
        let named_dataset = |text: &str| {
            let mut names = named(text);
            names.find_map(|(name, value)| (name == "dataset_name").then(|| value.to_owned()))
        };
        let objsets = texts.iter().filter(|(path, _)| path.contains("/objset-"));
        let mut by_name: HashMap<String, Counters> =
            objsets.filter_map(|(_, text)| Some((named_dataset(text)?, Counters::of_kstat(text)))).collect();
        for dataset in self.pools.iter_mut().flat_map(|pool| &mut pool.datasets) {
            dataset.counters = by_name.remove(&dataset.name);
        }
    }

    /// Asks the disks under the pools, and files the answers with earlier ones.
    fn ask_disks(&mut self, history: &History) {
        let under = |disk: &&crate::load::machine::Disk| {
            self.under.values().any(|names| names.last() == Some(&disk.name))
        };
        let names: Vec<String> = self.disks.iter().filter(under).map(|disk| disk.name.clone()).collect();
        for disk in names {
            let health = Smart::read(&disk).and_then(|now| {
                history.record(&now, self.unix_s.unwrap_or(0))?;
                let trends = history.trends(&now.serial)?;
                Ok(Health { disk: disk.clone(), now, trends })
            });
            match health {
                Ok(health) => self.health.push(health),
                Err(error) => {
                    self.missing.push(Missing { source: format!("SMART of {disk}"), why: error.to_string() })
                }
            }
        }
    }
}

fn wanted(zpool: &Zpool, look: &Look) -> Result<Vec<String>> {
    let known = zpool.names()?;
    match look.pools.iter().find(|pool| !known.contains(pool)) {
        None if look.pools.is_empty() => Ok(known),
        None => Ok(look.pools.clone()),
        Some(other) => Err(LabError::Refused(format!(
            "{other}: no pool of that name is imported; there are: {}",
            known.join(", ")
        ))),
    }
}

/// Kstats that rules need, by path: those of the ARC, and of these pools' datasets.
fn kernel_kstats(root: &Root, pools: &[Pool]) -> BTreeMap<String, String> {
    let of_pool = |pool: &Pool| {
        let files = root.list(format!("{KSTATS}/{}", pool.name)).into_iter();
        let name = pool.name.clone();
        files.filter(|file| file.starts_with("objset-")).map(move |file| format!("{name}/{file}"))
    };
    let paths = ["arcstats".to_owned()].into_iter().chain(pools.iter().flat_map(of_pool));
    paths.filter_map(|path| Some((path.clone(), root.read(format!("{KSTATS}/{path}")).ok()?))).collect()
}

const KSTATS: &str = "proc/spl/kstat/zfs";

/// Columns of `zpool iostat -Hpl` after name, allocated and free: reads and writes; then total_wait and
/// disk_wait, each for reads and writes.
const OPERATIONS: [usize; 2] = [3, 4];
const WAITS: [usize; 4] = [7, 8, 9, 10];

/// Each vdev's mean latencies over all intervals in the table, weighted by operations.
fn latencies(table: &str) -> HashMap<&str, Latencies> {
    let mut sums: HashMap<&str, Sum> = HashMap::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.split('\t').map(str::trim).collect();
        let value = |column: usize| cells.get(column).and_then(|cell| cell.parse::<f64>().ok());
        let (Some(&name), [Some(reads), Some(writes)]) = (cells.first(), OPERATIONS.map(value)) else {
            continue;
        };
        let sum = sums.entry(name).or_default();
        sum.intervals += 1.0;
        sum.operations = [sum.operations[0] + reads, sum.operations[1] + writes];
        for ((wait, column), weight) in sum.waits.iter_mut().zip(WAITS).zip([reads, writes, reads, writes]) {
            wait.add(value(column), weight);
        }
    }
    sums.into_iter().map(|(name, sum)| (name, sum.means())).collect()
}

#[derive(Debug, Default)]
struct Sum {
    intervals: f64,
    operations: [f64; 2],
    waits: [Weighed; 4],
}

impl Sum {
    fn means(self) -> Latencies {
        let [read_ns, write_ns, disk_read_ns, disk_write_ns] = self.waits.map(Weighed::mean);
        let [reads, writes] = self.operations.map(|sum| sum / self.intervals);
        Latencies { read_ns, write_ns, disk_read_ns, disk_write_ns, reads, writes }
    }
}

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
