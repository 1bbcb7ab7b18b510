//! Usable and available memory of a program: the machine's, or its control group's if less.
//!
//! Source: Linux `sysinfo(2)`, `proc(5)` (`MemAvailable`), `cgroups(7)` (both versions),
//! `proc_pid_status(5)`.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

pub(crate) fn host_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    // Some fields are one machine word wide.
    #[allow(clippy::useless_conversion, reason = "only where words have 64 bits")]
    let bytes = u64::from(system.totalram).saturating_mul(system.mem_unit.into());
    let limits = own_groups().into_iter().filter_map(|group| group.limit());
    limits.fold(bytes, u64::min)
}

/// Reclaimable pages count as free.
pub(crate) fn host_available_bytes() -> u64 {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:"));
    let machine = machine.map_or(u64::MAX, |kib| kib.saturating_mul(1024));
    let groups = own_groups().into_iter().filter_map(|group| group.left());
    groups.fold(machine, u64::min)
}

/// Without shared file pages.
pub(crate) fn own_bytes() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "RssAnon:").unwrap_or(0).saturating_mul(1024)
}

struct Group {
    folder: PathBuf,
    names: &'static Names,
}

/// File names, and a line's name.
struct Names {
    limits: &'static [&'static str],
    used: &'static str,
    given_up: &'static str,
}

const V2: Names = Names {
    // Above `memory.high` the process is throttled.
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    given_up: "inactive_file",
};
/// Without a limit, the file holds a huge number.
const V1: Names = Names {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    given_up: "total_inactive_file",
};

fn own_groups() -> Vec<Group> {
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups.lines().flat_map(|line| groups_of(line, Path::new("/sys/fs/cgroup"))).collect()
}

/// Parses a line `HIERARCHY:CONTROLLERS:PATH`. In a container the path may be missing, but the root is its
/// group.
fn groups_of(line: &str, root: &Path) -> Vec<Group> {
    let mut words = line.splitn(3, ':').skip(1);
    let (controllers, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (root, names) = match controllers {
        "" => (root.to_path_buf(), &V2),
        some if some.split(',').any(|name| name == "memory") => (root.join("memory"), &V1),
        _ => return Vec::new(),
    };
    let own = root.join(path.trim_start_matches('/'));
    let chain = std::iter::successors(Some(own), |group| group.parent().map(PathBuf::from));
    let chain = chain.take_while(|group| group.starts_with(&root));
    chain.map(|folder| Group { folder, names }).collect()
}

impl Group {
    fn number(&self, name: &str) -> Option<u64> {
        // "max" without a limit.
        read_to_string(self.folder.join(name)).ok()?.trim().parse().ok()
    }

    fn limit(&self) -> Option<u64> {
        self.names.limits.iter().filter_map(|name| self.number(name)).min()
    }

    fn left(&self) -> Option<u64> {
        let (limit, used) = (self.limit()?, self.number(self.names.used)?);
        let stat = read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let given_up = field(&stat, self.names.given_up).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(given_up)))
    }
}

/// The number after a name.
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
    fn memory_that_is_used_is_this_process_s_own() {
        let before = own_bytes();
        let used = vec![1_u8; 64 << 20];
        assert!(own_bytes() >= before + (60 << 20), "{before} bytes, then {}", own_bytes());
        drop(used);
    }

    fn group(root: &Path, line: &str, files: &[(&str, &str)]) -> Group {
        let group = groups_of(line, root).swap_remove(0);
        std::fs::create_dir_all(&group.folder).expect("a folder");
        for (name, text) in files {
            write(group.folder.join(name), text).expect("a file");
        }
        group
    }

    #[test]
    fn a_group_leaves_what_its_limit_does_and_pages_of_files_are_given_up() {
        let root = std::env::temp_dir().join(format!("cenote-group-{}", std::process::id()));
        let say = |files| group(&root, "0::/a/b", files);
        let new = say(&[("memory.max", "max\n"), ("memory.current", "700\n")]);
        assert_eq!((new.limit(), new.left()), (None, None));
        let of_1000 = say(&[("memory.max", "1000\n")]);
        assert_eq!((of_1000.limit(), of_1000.left()), (Some(1000), Some(300)));
        say(&[("memory.stat", "anon 500\nfile 200\ninactive_file 150\nactive_file 50\n")]);
        assert_eq!(of_1000.left(), Some(450));
        say(&[("memory.high", "600\n")]);
        assert_eq!((of_1000.limit(), of_1000.left()), (Some(600), Some(50)));
        say(&[("memory.current", "900\n")]);
        assert_eq!(of_1000.left(), Some(0));

        let old = group(
            &root,
            "4:cpu,memory:/c",
            &[
                ("memory.limit_in_bytes", "2000\n"),
                ("memory.usage_in_bytes", "1500\n"),
                ("memory.stat", "inactive_file 1\ntotal_inactive_file 300\n"),
            ],
        );
        assert_eq!((old.limit(), old.left()), (Some(2000), Some(800)));
        assert!(groups_of("3:cpuset:/c", &root).is_empty());
        std::fs::remove_dir_all(&root).expect("it was made here");
    }
}
