//! How much memory a program may use on this host: the machine's, or its control group's limit if that is
//! less.
//!
//! Source: Linux `sysinfo(2)`, `cgroups(7)` (version 2: `memory.max` of the group and of all groups above
//! it).

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// In bytes.
pub(crate) fn host_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    // Some fields are one machine word wide.
    #[allow(clippy::useless_conversion, reason = "only where words have 64 bits")]
    let bytes = u64::from(system.totalram).saturating_mul(system.mem_unit.into());
    bytes.min(of_txg().unwrap_or(u64::MAX))
}

fn of_txg() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let chain = std::iter::successors(Some(root.join(own)), |group| group.parent().map(PathBuf::from));
    let limits = chain.take_while(|group| group.starts_with(root)).filter_map(|group| {
        // "max" if there is no limit.
        read_to_string(group.join("memory.max")).ok()?.trim().parse().ok()
    });
    limits.min()
}
