//! `zpool import -c`: the file in which OpenZFS records imported pools, `/etc/zfs/zpool.cache`.
//!
//! It is an nvlist with each pool's configuration under its name. Only the device paths are used.
//!
//! Source: OpenZFS `spa_config.c`, `zpool_find_import_cached`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use cenote_format::nvlist::{NvValue, Nvlist};

use crate::outcome::CliError;

/// The size limit of the file: enough for thousands of disks.
const MAX_BYTES: u64 = 64 << 20;

/// The devices of all pools in the file.
pub fn devices(file: &Path) -> Result<Vec<PathBuf>, CliError> {
    let what = || format!("-c {}", file.display());
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|opened| opened.take(MAX_BYTES).read_to_end(&mut bytes));
    opened.map_err(CliError::io(what()))?;
    let pools = Nvlist::decode(&bytes)
        .map_err(|error| CliError::Refused(format!("{}: not a pool cache file: {error}", what())))?;
    let mut devices = Vec::new();
    for (_, pool) in pools.iter() {
        if let NvValue::Nvlist(config) = pool
            && let Some(tree) = config.get_nvlist("vdev_tree")
        {
            add(tree, &mut devices);
        }
    }
    match devices.is_empty() {
        true => Err(CliError::NotFound(format!("{}: it lists no devices", what()))),
        false => Ok(devices),
    }
}

/// The recursion is bounded: `Nvlist::decode` limits the depth.
fn add(vdev: &Nvlist, devices: &mut Vec<PathBuf>) {
    devices.extend(vdev.get_str("path").map(PathBuf::from));
    for below in ["children", "spares", "l2cache"] {
        vdev.get_nvlist_array(below).unwrap_or_default().iter().for_each(|child| add(child, devices));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, NvValue)]) -> Nvlist {
        let mut list = Nvlist::new();
        pairs.iter().for_each(|(name, value)| _ = list.insert(name, value.clone()));
        list
    }

    #[test]
    fn every_device_of_every_pool_is_named() {
        let leaf = |path: &str| list(&[("path", NvValue::String(path.into()))]);
        let mirror = list(&[("children", NvValue::NvlistArray(vec![leaf("/dev/a"), leaf("/dev/b")]))]);
        let spares = NvValue::NvlistArray(vec![leaf("/dev/c")]);
        let tree = list(&[("children", NvValue::NvlistArray(vec![mirror])), ("spares", spares)]);
        let tank = list(&[("vdev_tree", NvValue::Nvlist(tree))]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), list(&[("tank", NvValue::Nvlist(tank))]).encode()).unwrap();
        let found = devices(file.path()).unwrap();
        assert_eq!(found, ["/dev/a", "/dev/b", "/dev/c"].map(PathBuf::from));
        std::fs::write(file.path(), "tank").unwrap();
        assert!(devices(file.path()).unwrap_err().to_string().contains("not a pool cache file"));
        std::fs::write(file.path(), list(&[]).encode()).unwrap();
        assert!(devices(file.path()).unwrap_err().to_string().contains("lists no devices"));
    }
}
