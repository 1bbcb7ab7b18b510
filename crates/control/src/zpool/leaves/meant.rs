//! The device that a user names: by guid, by path, or by the last component of a path.
//!
//! Idea: every verb that names a device asks here. Paths are as the caller sees them. Guids and paths come
//! first; a short name that several devices have (`disk` of `/p/disk` and `/q/disk`) is refused with all
//! their paths, for the wrong one would be detached as readily as the right one.

use std::collections::BTreeMap;
use std::path::Path;

use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{FoundPool, Pool, VdevConfig};

use crate::caller::Caller;
use crate::error::ControlError;

/// A leaf of the pool's tree; `None`: there is no such device.
///
/// # Errors
/// Several leaves have that short name.
pub fn leaf(caller: &Caller, pool: &Pool, typed: &str) -> Result<Option<Guid>, ControlError> {
    let (vdevs, found) = (pool.vdevs(), pool.found());
    meant(caller, &found, vdevs.tops().flat_map(VdevConfig::leaves), typed)
}

/// The same; it has to be there.
///
/// # Errors
/// It is not, or several leaves have that short name.
pub fn named(caller: &Caller, engine: &Engine, verb: &str, typed: &str) -> Result<Guid, ControlError> {
    let found = leaf(caller, &engine.pool(), typed)?;
    found.ok_or_else(|| ControlError::Refused(format!("cannot {verb} {typed}: no such device in pool")))
}

/// One of these devices; `None`: none of them is called that.
///
/// # Errors
/// Several have that short name.
pub fn meant<'v>(
    caller: &Caller,
    found: &FoundPool,
    vdevs: impl Iterator<Item = &'v VdevConfig>,
    typed: &str,
) -> Result<Option<Guid>, ControlError> {
    let vdevs: Vec<&VdevConfig> = vdevs.collect();
    let absolute = std::path::absolute(caller.local(Path::new(typed))).ok();
    let is_exact = |vdev: &&VdevConfig| {
        vdev.guid.to_string() == typed
            || paths(found, vdev).any(|path| absolute.as_deref() == Some(Path::new(path)))
    };
    if let Some(vdev) = vdevs.iter().copied().find(is_exact) {
        return Ok(Some(vdev.guid));
    }
    let has_name = |path: &&str| Path::new(path).file_name().is_some_and(|name| name == typed);
    // By guid: a spare that is in use is in the tree and among the spares.
    let called: BTreeMap<Guid, &str> =
        vdevs.iter().filter_map(|vdev| Some((vdev.guid, paths(found, vdev).find(has_name)?))).collect();
    match called.len() {
        0 | 1 => Ok(called.into_keys().next()),
        _ => {
            let paths: Vec<&str> = called.into_values().collect();
            let why = format!("several devices are called that: {}", paths.join(", "));
            Err(ControlError::Refused(format!(
                "'{typed}': {why}; give the path, or the guid (`zpool status -g`)"
            )))
        }
    }
}

/// Where a device is: as the pool has it, and where it was found.
fn paths<'a>(found: &'a FoundPool, vdev: &'a VdevConfig) -> impl Iterator<Item = &'a str> {
    let here = found.device(vdev.guid).map(|device| &*device.path);
    vdev.path.as_deref().into_iter().chain(here)
}
