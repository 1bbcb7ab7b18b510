//! Who keeps a file system busy: processes that stand in it, run from it, have files open or mapped there.
//!
//! Source: proc(5). What this process may not see is left out, so the list can be shorter than the truth.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Processes named in a message.
const MAX_NAMED: usize = 5;

/// A process that uses a file system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// The processes that use the file system mounted on `dir`.
pub fn holders(dir: &Path) -> Vec<Holder> {
    let Ok(device) = fs::metadata(dir).map(|found| found.dev()) else { return Vec::new() };
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let mut found: Vec<Holder> = processes
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            uses(&entry.path(), device).then(|| {
                let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                Holder { pid, name: name.trim().into() }
            })
        })
        .collect();
    found.sort_unstable();
    found
}

fn uses(process: &Path, device: u64) -> bool {
    let is_there = |path: &Path| fs::metadata(path).is_ok_and(|found| found.dev() == device);
    if ["cwd", "root", "exe"].iter().any(|link| is_there(&process.join(link))) {
        return true;
    }
    // `fd` has the open files, `map_files` those that are mapped and closed.
    ["fd", "map_files"].iter().any(|folder| {
        let Ok(entries) = fs::read_dir(process.join(folder)) else { return false };
        entries.flatten().any(|entry| is_there(&entry.path()))
    })
}

/// The same for a message: ` (bash 4242, less 4250)`, or nothing.
pub fn named(dir: &Path) -> String {
    let holders = holders(dir);
    if holders.is_empty() {
        return String::new();
    }
    let mut names: Vec<String> =
        holders.iter().take(MAX_NAMED).map(|holder| format!("{} {}", holder.name, holder.pid)).collect();
    if holders.len() > MAX_NAMED {
        names.push(format!("and {} more", holders.len() - MAX_NAMED));
    }
    format!(" (used by {})", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_the_file_system_that_it_stands_in() {
        let here = std::env::current_dir().unwrap();
        assert!(holders(&here).iter().any(|holder| holder.pid == std::process::id()));
        assert!(named(&here).starts_with(" (used by "));
    }
}
