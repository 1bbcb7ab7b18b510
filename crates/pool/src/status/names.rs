//! Names of vdevs, as `zpool status` prints them.

use crate::config::{PoolConfig, VdevConfig, VdevKind};
use crate::discover::FoundPool;
use cenote_device::Place;
use cenote_format::units::Guid;
use std::collections::BTreeMap;
use std::path::Path;

/// Leaf names: the last part of the path, or all of it if ambiguous or remote: servers often have exports of
/// the same name.
pub(super) struct Names(BTreeMap<Guid, String>);

impl Names {
    pub(super) fn gather(config: &PoolConfig, found: &FoundPool) -> Names {
        let mut paths: BTreeMap<Guid, String> = BTreeMap::new();
        for vdev in config.vdevs.iter().chain(&config.spares).chain(&config.l2cache) {
            for vdev in vdev.walk() {
                let path = match (found.device(vdev.guid), &vdev.path) {
                    (Some(device), _) => device.path.clone(),
                    (None, Some(path)) if vdev.whole_disk == Some(true) && vdev.kind == VdevKind::Disk => {
                        without_partition(path).into()
                    }
                    (None, Some(path)) => shown(path),
                    (None, None) => continue,
                };
                paths.insert(vdev.guid, path);
            }
        }
        let mut uses: BTreeMap<&str, u32> = BTreeMap::new();
        for path in paths.values() {
            *uses.entry(last_part(path)).or_default() += 1;
        }
        let name = |path: &String| match uses.get(last_part(path)) {
            Some(1) if !is_remote(path) => last_part(path).to_owned(),
            _ => path.clone(),
        };
        Names(paths.iter().map(|(guid, path)| (*guid, name(path))).collect())
    }

    pub(super) fn of(&self, config: &VdevConfig) -> String {
        if config.is_leaf() {
            return self.0.get(&config.guid).cloned().unwrap_or_else(|| config.guid.to_string());
        }
        let kind = match config.kind {
            VdevKind::Raidz => format!("raidz{}", config.parity),
            VdevKind::Draid => draid(config),
            _ => config.kind.to_string(),
        };
        format!("{kind}-{}", config.id)
    }
}

fn draid(config: &VdevConfig) -> String {
    let (parity, width) = (config.parity, config.children.len() as u64);
    let Some(draid) = config.draid else { return format!("draid{parity}:0d:{width}c:0s") };
    let (data, spares) = (draid.data, draid.spares);
    match width.checked_div(draid.failure_groups) {
        Some(children) if children < width => {
            format!("draid{parity}:{data}d:{children}c:{width}w:{spares}s")
        }
        _ => format!("draid{parity}:{data}d:{width}c:{spares}s"),
    }
}

/// A path, or the address of a remote disk whose path in labels it is.
pub(super) fn shown(path: &str) -> String {
    match Place::from(Path::new(path)) {
        Place::Path(_) => path.to_owned(),
        remote => remote.to_string(),
    }
}

fn is_remote(path: &str) -> bool {
    Place::from(Path::new(path)).is_remote()
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The disk's name, if ZFS partitioned it.
fn without_partition(path: &str) -> &str {
    if let Some((disk, number)) = path.rsplit_once("-part")
        && number.bytes().all(|b| b.is_ascii_digit())
    {
        return disk;
    }
    let disk = path.trim_end_matches(|c: char| c.is_ascii_digit());
    match disk.strip_suffix('p') {
        // nvme0n1p1, mmcblk0p1: after a disk name that ends in a digit, a 'p' sets off the partition.
        Some(before) if before.ends_with(|c: char| c.is_ascii_digit()) && disk != path => before,
        _ if last_part(disk).starts_with("nvme") => path,
        _ => disk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_taken_off_whole_disks() {
        for (path, disk) in [
            ("/dev/sda1", "/dev/sda"),
            ("/dev/nvme0n1p1", "/dev/nvme0n1"),
            ("/dev/nvme0n1", "/dev/nvme0n1"),
            ("/dev/disk/by-id/ata-X_123-part1", "/dev/disk/by-id/ata-X_123"),
        ] {
            assert_eq!(without_partition(path), disk);
        }
    }
}
