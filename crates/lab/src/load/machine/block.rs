//! Finds the block devices under a path, down to the disks.
//!
//! A partition leads to its disk, a device mapper or array device to its `slaves`, a loop device to its file,
//! and that file to the device of its file system. Source: Linux sysfs-block; `/sys/fs/btrfs/UUID/devices`
//! for file systems on several disks.

use std::path::{Path, PathBuf};

use super::{Mount, Root, mount};

/// Longest possible chain; anything longer is a loop.
const DEEPEST: usize = 16;

/// All whole disks in use: without empty loop and ram devices.
pub fn all(root: &Root) -> Vec<String> {
    let mut names = root.list("sys/block");
    names.retain(|name| root.number(format!("sys/block/{name}/size")).is_some_and(|sectors| sectors > 0));
    names
}

/// Devices under a device node or file, top to bottom.
pub fn under(root: &Root, mounts: &[Mount], path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    add_path(root, mounts, path, &mut found, DEEPEST);
    found
}

pub fn under_mount(root: &Root, mounts: &[Mount], mount: &Mount) -> Vec<String> {
    let mut found = Vec::new();
    add_mount(root, mounts, mount, &mut found, DEEPEST);
    found
}

/// Dataset of a zvol's device node, by its link under `/dev/zvol`.
pub fn volume(root: &Root, path: &Path) -> Option<String> {
    let device = root.resolve(path.strip_prefix("/").unwrap_or(path))?;
    let mut folders = vec![PathBuf::from("dev/zvol")];
    while let Some(folder) = folders.pop() {
        for name in root.list(&folder) {
            let link = folder.join(name);
            match root.resolve(&link) {
                Some(leads) if leads == device => {
                    return Some(link.strip_prefix("dev/zvol").ok()?.to_string_lossy().into_owned());
                }
                Some(leads) if leads.is_dir() => folders.push(link),
                _ => {}
            }
        }
    }
    None
}

fn add_path(root: &Root, mounts: &[Mount], path: &Path, found: &mut Vec<String>, depth: usize) {
    let inside = path.strip_prefix("/").unwrap_or(path);
    let resolved = root.resolve(inside);
    let name =
        resolved.as_deref().unwrap_or(path).file_name().map(|name| name.to_string_lossy().into_owned());
    let Some(name) = name else { return };
    if path.starts_with("/dev") {
        add_device(root, mounts, &name, found, depth);
    } else if let Some(mount) = mount::of(mounts, path) {
        add_mount(root, mounts, mount, found, depth);
    }
}

fn add_mount(root: &Root, mounts: &[Mount], mount: &Mount, found: &mut Vec<String>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let (major, minor) = mount.device;
    let by_number = root.resolve(format!("sys/dev/block/{major}:{minor}"));
    if let Some(name) = by_number.as_deref().and_then(Path::file_name) {
        add_device(root, mounts, &name.to_string_lossy(), found, depth);
    } else if mount.kind == "btrfs" {
        let source = root.resolve(mount.source.trim_start_matches('/'));
        let name = source.as_deref().unwrap_or(Path::new(&mount.source)).file_name();
        let name = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let all =
            root.list("sys/fs/btrfs").into_iter().map(|id| root.list(format!("sys/fs/btrfs/{id}/devices")));
        let devices = all.into_iter().find(|devices| devices.contains(&name)).unwrap_or(vec![name]);
        devices.iter().for_each(|device| add_device(root, mounts, device, found, depth));
    } else if mount.source.starts_with("/dev/") {
        add_path(root, mounts, Path::new(&mount.source), found, depth);
    }
}

fn add_device(root: &Root, mounts: &[Mount], name: &str, found: &mut Vec<String>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let folder = format!("sys/class/block/{name}");
    if root.path(format!("{folder}/partition")).exists() {
        let disk = root
            .resolve(&folder)
            .and_then(|path| Some(path.parent()?.file_name()?.to_string_lossy().into_owned()));
        if let Some(disk) = disk {
            add_device(root, mounts, &disk, found, depth);
        }
        return;
    }
    if found.iter().any(|known| known == name) || !root.path(&folder).exists() {
        return;
    }
    found.push(name.to_owned());
    for slave in root.list(format!("{folder}/slaves")) {
        add_device(root, mounts, &slave, found, depth);
    }
    if let Some(file) = root.word(format!("{folder}/loop/backing_file")) {
        add_path(root, mounts, Path::new(&file), found, depth);
    }
}
