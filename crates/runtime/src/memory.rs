//! How much memory a program may use on this host: that of the machine, or of its control group if that is less.
//!
//! Source: Linux `sysinfo(2)`, `cgroups(7)` (version 2: `memory.max` of the group and of all above it).

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Bytes.
pub(crate) fn host_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    // Some fields are as wide as a word of the machine.
    #[allow(clippy::useless_conversion, reason = "only where words have 64 bits")]
    let bytes = u64::from(system.totalram).saturating_mul(system.mem_unit.into());
    bytes.min(of_group().unwrap_or(u64::MAX))
}

fn of_group() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let chain = std::iter::successors(Some(root.join(own)), |group| group.parent().map(PathBuf::from));
    let limits = chain.take_while(|group| group.starts_with(root)).filter_map(|group| {
        // "max" where there is none.
        read_to_string(group.join("memory.max")).ok()?.trim().parse().ok()
    });
    limits.min()
}
