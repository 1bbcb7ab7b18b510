//! Processors, memory, operating system and virtualisation.
//!
//! Source: proc(5), os-release(5), Linux sysfs (cpu, dmi, hypervisor).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Root;

/// Instructions useful for checksums, parity, encryption and compression.
const FEATURES: [&str; 20] = [
    "sse2",
    "ssse3",
    "avx",
    "avx2",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "bmi2",
    "aes",
    "vaes",
    "pclmulqdq",
    "vpclmulqdq",
    "sha_ni",
    "gfni",
    "asimd",
    "sve",
    "pmull",
    "sha2",
    "sha512",
    "sha3",
];

/// Processors of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Model name.
    pub model: String,
    /// Number of chips.
    pub sockets: usize,
    /// Number of cores.
    pub cores: usize,
    /// Number of logical processors.
    pub threads: usize,
    /// Highest clock rate in hertz, if known.
    pub max_hz: Option<u64>,
    /// Frequency governor: `performance`, `powersave`, `schedutil`.
    pub governor: Option<String>,
    /// Number of memory nodes (NUMA).
    pub nodes: usize,
    /// Available instructions useful to storage code.
    pub features: Vec<String>,
}

impl Cpu {
    pub(super) fn read(root: &Root) -> Cpu {
        let text = root.read("proc/cpuinfo").unwrap_or_default();
        let values = |key: &'static str| {
            let pairs = text.lines().filter_map(|line| line.split_once(':'));
            pairs.filter(move |(name, _)| name.trim() == key).map(|(_, value)| value.trim())
        };
        let threads = values("processor").count();
        let packages: Vec<&str> = values("physical id").collect();
        let cores: BTreeSet<(&str, &str)> = packages.iter().copied().zip(values("core id")).collect();
        let flags: Vec<&str> =
            values("flags").chain(values("Features")).next().unwrap_or_default().split(' ').collect();
        let frequency = "sys/devices/system/cpu/cpu0/cpufreq";
        let nodes = root.list("sys/devices/system/node");
        Cpu {
            model: values("model name").chain(values("Model")).next().unwrap_or_default().to_owned(),
            sockets: packages.iter().collect::<BTreeSet<_>>().len().max(1),
            cores: if cores.is_empty() { threads } else { cores.len() },
            threads,
            max_hz: root.number(format!("{frequency}/cpuinfo_max_freq")).map(|khz| khz * 1000),
            governor: root.word(format!("{frequency}/scaling_governor")),
            nodes: nodes.iter().filter(|name| name.starts_with("node")).count().max(1),
            features: FEATURES.iter().filter(|f| flags.contains(f)).map(|&f| f.to_owned()).collect(),
        }
    }
}

/// A value of `/proc/meminfo`, in bytes.
pub(super) fn memory(root: &Root, name: &str) -> Option<u64> {
    let text = root.read("proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

pub(super) fn os(root: &Root) -> Option<String> {
    let text = root.read("etc/os-release").or_else(|_| root.read("usr/lib/os-release")).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// Machine's host, as far as it is visible from inside.
pub(super) fn virtualisation(root: &Root) -> Option<String> {
    if let Some(container) = root.word("run/systemd/container") {
        return Some(format!("container ({container})"));
    }
    if root.path(".dockerenv").exists() {
        return Some("container (docker)".to_owned());
    }
    let dmi = |name: &str| root.word(format!("sys/class/dmi/id/{name}"));
    let is_guest = root.read("proc/cpuinfo").is_ok_and(|text| {
        text.lines().any(|line| line.starts_with("flags") && line.split(' ').any(|flag| flag == "hypervisor"))
    });
    let named = match (dmi("sys_vendor"), dmi("product_name")) {
        (Some(vendor), Some(product)) => Some(format!("virtual machine ({vendor} {product})")),
        (one, other) => one.or(other).map(|name| format!("virtual machine ({name})")),
    };
    let xen = root.word("sys/hypervisor/type").map(|kind| format!("virtual machine ({kind})"));
    xen.or(if is_guest { named.or(Some("virtual machine".to_owned())) } else { None })
}
