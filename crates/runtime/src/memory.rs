//! How much memory a program may use on this host, and how much of it is left: the machine's, or its control
//! group's if that is less.
//!
//! Source: Linux `sysinfo(2)`, `proc(5)` (`MemAvailable`), `cgroups(7)` (version 2: `memory.max`,
//! `memory.high`, `memory.current`, `memory.stat` of the group and of all groups above it).

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// What it may use, in bytes.
pub(crate) fn host_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    // Some fields are one machine word wide.
    #[allow(clippy::useless_conversion, reason = "only where words have 64 bits")]
    let bytes = u64::from(system.totalram).saturating_mul(system.mem_unit.into());
    let limits = own_groups().into_iter().filter_map(|group| limit_of(&group));
    limits.fold(bytes, u64::min)
}

/// What it may use more than is in use, in bytes: pages that the kernel would give up count as free.
pub(crate) fn host_available_bytes() -> u64 {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:"));
    let machine = machine.map_or(u64::MAX, |kib| kib.saturating_mul(1024));
    let groups = own_groups().into_iter().filter_map(|group| left_in(&group));
    groups.fold(machine, u64::min)
}

/// The control group that this process is in, and all above it.
fn own_groups() -> Vec<PathBuf> {
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let root = Path::new("/sys/fs/cgroup");
    let chain = std::iter::successors(Some(root.join(own)), |group| group.parent().map(PathBuf::from));
    chain.take_while(|group| group.starts_with(root)).collect()
}

/// What a group may use; above `memory.high` it is slowed down.
fn limit_of(group: &Path) -> Option<u64> {
    // "max" if there is no limit.
    let limit = |name: &str| read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    [limit("memory.max"), limit("memory.high")].into_iter().flatten().min()
}

/// What is left of a group's limit.
fn left_in(group: &Path) -> Option<u64> {
    let limit = limit_of(group)?;
    let used: u64 = read_to_string(group.join("memory.current")).ok()?.trim().parse().ok()?;
    let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
    let given_up = field(&stat, "inactive_file").unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(given_up)))
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| words.next().filter(|word| *word == name).and(words.next())?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;

    #[test]
    fn what_is_left_is_never_more_than_there_is() {
        assert!(host_available_bytes() <= host_bytes(), "{} of {}", host_available_bytes(), host_bytes());
        assert!(host_available_bytes() > 0);
    }

    #[test]
    fn a_group_leaves_what_its_limit_does_and_pages_of_files_are_given_up() {
        let group = std::env::temp_dir().join(format!("cenote-group-{}", std::process::id()));
        std::fs::create_dir_all(&group).expect("a folder");
        let say = |name: &str, text: &str| write(group.join(name), text).expect("a file");
        say("memory.max", "max\n");
        say("memory.current", "700\n");
        assert_eq!((limit_of(&group), left_in(&group)), (None, None));
        say("memory.max", "1000\n");
        assert_eq!((limit_of(&group), left_in(&group)), (Some(1000), Some(300)));
        say("memory.stat", "anon 500\nfile 200\ninactive_file 150\nactive_file 50\n");
        assert_eq!(left_in(&group), Some(450));
        say("memory.high", "600\n");
        assert_eq!((limit_of(&group), left_in(&group)), (Some(600), Some(50)));
        say("memory.current", "900\n");
        assert_eq!(left_in(&group), Some(0));
        std::fs::remove_dir_all(&group).expect("it was made here");
    }
}
