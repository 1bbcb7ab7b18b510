//! Processes that use a mounted file system: with an open or mapped file, or a directory.
//!
//! Source: proc(5).

use std::fs::{read_dir, read_to_string};
use std::path::Path;

use super::device_of;

/// Most processes named.
const NAMED: usize = 8;

/// As `name (pid)`; other users' only as root.
pub fn of(dir: &Path) -> Vec<String> {
    let Some(device) = device_of(dir) else { return Vec::new() };
    let Ok(processes) = read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for process in processes.flatten() {
        let (path, pid) = (process.path(), process.file_name());
        let Some(pid) = pid.to_str().filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())) else {
            continue;
        };
        if uses(&path, device) {
            let name = read_to_string(path.join("comm")).unwrap_or_default();
            found.push(format!("{} ({pid})", name.trim()));
        }
    }
    found
}

fn uses(process: &Path, device: (u32, u32)) -> bool {
    let is_there = |path: &Path| device_of(path) == Some(device);
    if ["cwd", "root", "exe"].iter().any(|name| is_there(&process.join(name))) {
        return true;
    }
    let mut open = read_dir(process.join("fd")).into_iter().flatten().flatten();
    if open.any(|file| is_there(&file.path())) {
        return true;
    }
    // Addresses, permissions, offset, device (hexadecimal), inode, path.
    let number = format!("{:02x}:{:02x}", device.0, device.1);
    let maps = read_to_string(process.join("maps")).unwrap_or_default();
    maps.lines().any(|line| line.split_ascii_whitespace().nth(3) == Some(&number))
}

/// As the end of a sentence.
pub fn said(users: &[String]) -> String {
    match users.len() {
        0 => String::new(),
        count if count > NAMED => format!(" by {} and {} others", users[..NAMED].join(", "), count - NAMED),
        _ => format!(" by {}", users.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_file_open_uses_its_file_system() {
        // The test program uses its own file system.
        let program = std::env::current_exe().unwrap();
        let me = format!("({})", std::process::id());
        assert!(of(&program).iter().any(|user| user.ends_with(&me)));
    }

    #[test]
    fn many_are_counted() {
        let users: Vec<String> = (0..10).map(|n| format!("sh ({n})")).collect();
        assert!(said(&users).ends_with(", sh (7) and 2 others"));
        assert_eq!(said(&users[..2]), " by sh (0), sh (1)");
        assert_eq!(said(&[]), "");
    }
}
