//! A vdev: its layout, state, fill and latency; from `zpool status -j`, `zpool get all POOL all-vdevs`,
//! `zpool iostat -l`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Properties;
use super::status::{number, text};

/// Allocation class of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Data, and everything without its own class.
    Normal,
    /// Metadata, and small blocks if a dataset says so.
    Special,
    /// Deduplication tables.
    Dedup,
    /// Intent log (SLOG).
    Log,
    /// Second level of the ARC (L2ARC).
    Cache,
    /// Hot spare.
    Spare,
}

/// Construction of a vdev from its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VdevKind {
    /// A disk, partition or file.
    Leaf,
    /// Each child holds everything.
    Mirror,
    /// RAID-Z with this parity.
    Raidz(u32),
    /// dRAID with this parity.
    Draid(u32),
    /// A disk being replaced, or a spare in use: all children hold the same.
    Replacing,
    /// Anything else: a hole, a removed vdev.
    Other,
}

/// Mean latencies of a vdev's operations in nanoseconds; None without operations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Latencies {
    /// Reads, queue and disk together (`total_wait`).
    pub read_ns: Option<f64>,
    /// Writes, likewise.
    pub write_ns: Option<f64>,
    /// Reads on the disk alone (`disk_wait`).
    pub disk_read_ns: Option<f64>,
    /// Writes on the disk alone.
    pub disk_write_ns: Option<f64>,
    /// Reads per second.
    pub reads: f64,
    /// Writes per second.
    pub writes: f64,
}

/// A vdev with its children.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vdev {
    /// Name in the pool: `mirror-0`, `sda`.
    pub name: String,
    /// Path in `/dev`, for a leaf.
    pub path: Option<String>,
    /// Construction.
    pub kind: VdevKind,
    /// Allocation class.
    pub class: Class,
    /// `ONLINE`, `DEGRADED`, `FAULTED`, `OFFLINE`, `UNAVAIL`, `REMOVED`, `AVAIL`, `INUSE`.
    pub state: String,
    /// Read, write and checksum errors.
    pub errors: [u64; 3],
    /// Operations that took longer than `zio_slow_io_ms`.
    pub slow_ios: u64,
    /// Logarithm of the sector size it was created for.
    pub ashift: Option<u32>,
    /// Logarithm of its disk's reported sector size, if `zpool status` finds that larger.
    pub physical_ashift: Option<u32>,
    /// Bytes of a top-level vdev.
    pub size_bytes: Option<u64>,
    /// Allocated bytes of a top-level vdev.
    pub allocated_bytes: Option<u64>,
    /// Fragmentation of free space in percent.
    pub fragmentation_percent: Option<u64>,
    /// Set by the reader of `zpool iostat`.
    #[serde(skip)]
    pub latencies: Option<Latencies>,
    /// Child vdevs.
    pub children: Vec<Vdev>,
}

impl Vdev {
    pub(super) fn from_status(name: &str, value: &Value, class: Class) -> Vdev {
        Vdev {
            name: name.to_owned(),
            path: text(value, "path"),
            kind: kind(text(value, "vdev_type").as_deref().unwrap_or(""), name),
            class,
            state: text(value, "state").unwrap_or_default(),
            errors: ["read_errors", "write_errors", "checksum_errors"]
                .map(|key| number(value, key).unwrap_or(0)),
            slow_ios: number(value, "slow_ios").unwrap_or(0),
            ashift: number(value, "configured_ashift").map(|n| n as u32),
            physical_ashift: number(value, "physical_ashift").map(|n| n as u32),
            size_bytes: number(value, "total_space"),
            allocated_bytes: number(value, "total_space").map(|_| number(value, "alloc_space").unwrap_or(0)),
            fragmentation_percent: None,
            latencies: None,
            children: value.get("vdevs").map(|list| Vdev::list_from_status(list, class)).unwrap_or_default(),
        }
    }

    /// Vdevs in a JSON object: sorted by name, and by number if they have one (JSON objects are unordered).
    pub(super) fn list_from_status(children: &Value, class: Class) -> Vec<Vdev> {
        let all = children.as_object().into_iter().flatten();
        let mut vdevs: Vec<Vdev> = all.map(|(name, value)| Vdev::from_status(name, value, class)).collect();
        vdevs.sort_by_cached_key(|vdev| {
            let (name, number) = numbered(&vdev.name);
            // Top-level vdevs are numbered across kinds: `mirror-0`, `raidz1-1`.
            (if name.ends_with('-') { String::new() } else { name.to_owned() }, number)
        });
        vdevs
    }

    pub(super) fn add_properties(&mut self, properties: &Properties) {
        let get = |name: &str| properties.number(&self.name, name);
        self.ashift = get("ashift").filter(|ashift| *ashift > 0).map(|n| n as u32).or(self.ashift);
        self.fragmentation_percent = get("fragmentation");
        if let (VdevKind::Raidz(parity) | VdevKind::Draid(parity), Some(said)) =
            (&mut self.kind, get("parity"))
        {
            *parity = said as u32;
        }
        self.children.iter_mut().for_each(|child| child.add_properties(properties));
    }

    /// Adds latencies from `zpool iostat -l`, by name.
    pub fn add_latencies(&mut self, of: &dyn Fn(&str) -> Option<Latencies>) {
        self.latencies = of(&self.name);
        self.children.iter_mut().for_each(|child| child.add_latencies(of));
    }

    /// Disks, partitions and files in it.
    pub fn leaves(&self) -> Vec<&Vdev> {
        match self.kind {
            VdevKind::Leaf => vec![self],
            _ => self.children.iter().flat_map(Vdev::leaves).collect(),
        }
    }

    /// Number of its disks that can fail before data are lost.
    pub fn may_lose(&self) -> usize {
        match self.kind {
            VdevKind::Mirror => self.children.len().saturating_sub(1),
            VdevKind::Raidz(parity) | VdevKind::Draid(parity) => parity as usize,
            VdevKind::Leaf | VdevKind::Replacing | VdevKind::Other => 0,
        }
    }

    /// Fill in percent.
    pub fn capacity_percent(&self) -> Option<f64> {
        let size = self.size_bytes.filter(|size| *size > 0)?;
        Some(self.allocated_bytes? as f64 / size as f64 * 100.0)
    }

    /// A description for people: `mirror of 2`, `raidz2 of 8`, `disk`.
    pub fn shape(&self) -> String {
        let width = self.children.len();
        match self.kind {
            VdevKind::Leaf => "disk".into(),
            VdevKind::Mirror => format!("mirror of {width}"),
            VdevKind::Raidz(parity) => format!("raidz{parity} of {width}"),
            VdevKind::Draid(parity) => format!("draid{parity} of {width}"),
            VdevKind::Replacing | VdevKind::Other => self.name.clone(),
        }
    }
}

/// A name without its trailing number, and that number.
fn numbered(name: &str) -> (&str, u64) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (name, number) = name.split_at(name.len() - digits);
    (name, number.parse().unwrap_or(0))
}

/// Kind from the type, with the parity from the name (`raidz2-0`, `draid1:4d:6c:1s-0`).
fn kind(vdev_type: &str, name: &str) -> VdevKind {
    let parity = |after: &str| {
        let digit = name.strip_prefix(after).and_then(|rest| rest.chars().next());
        digit.and_then(|digit| digit.to_digit(10)).unwrap_or(1)
    };
    match vdev_type {
        "disk" | "file" => VdevKind::Leaf,
        "mirror" => VdevKind::Mirror,
        "raidz" => VdevKind::Raidz(parity("raidz")),
        "draid" => VdevKind::Draid(parity("draid")),
        "replacing" | "spare" => VdevKind::Replacing,
        _ => VdevKind::Other,
    }
}
