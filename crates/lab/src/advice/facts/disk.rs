//! A disk of the machine, and what its SMART records say over time.

/// A disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Disk {
    /// Its name in `/dev`: `sda`, `nvme0n1`.
    pub name: String,
    /// What it calls itself.
    pub model: Option<String>,
    /// Whether it has platters.
    pub rotational: Option<bool>,
    /// Its physical sector, in bytes.
    pub physical_sector_bytes: Option<u64>,
}
