//! Resolves a device named by a user: guid, path or address, or last path component.
//!
//! Idea: every verb that names a device uses this. Paths are as the caller sees them. Guids and paths take
//! precedence; an ambiguous short name (`disk` of `/p/disk` and `/q/disk`) is refused with all its paths,
//! since detaching the wrong device is as easy as the right one.

use std::collections::BTreeMap;
use std::path::Path;

use cenote_device::Place;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{FoundPool, Pool, VdevConfig};

use crate::caller::Caller;
use crate::error::ControlError;

/// A leaf of the pool's tree; `None`: no such device.
///
/// # Errors
/// The short name is ambiguous.
pub fn leaf(caller: &Caller, pool: &Pool, typed: &str) -> Result<Option<Guid>, ControlError> {
    let (vdevs, found) = (pool.tree().vdevs(), pool.tree().found());
    meant(caller, &found, vdevs.tops().flat_map(VdevConfig::leaves), typed)
}

/// The same; the leaf must exist.
///
/// # Errors
/// No such leaf, or an ambiguous short name.
pub fn named(caller: &Caller, engine: &Engine, verb: &str, typed: &str) -> Result<Guid, ControlError> {
    let found = leaf(caller, &engine.pool(), typed)?;
    found.ok_or_else(|| ControlError::Refused(format!("cannot {verb} {typed}: no such device in pool")))
}

/// One of these devices; `None`: no such device.
///
/// # Errors
/// The short name is ambiguous.
pub fn meant<'v>(
    caller: &Caller,
    found: &FoundPool,
    vdevs: impl Iterator<Item = &'v VdevConfig>,
    typed: &str,
) -> Result<Option<Guid>, ControlError> {
    let vdevs: Vec<&VdevConfig> = vdevs.collect();
    let name = caller.place(Path::new(typed)).ok().map(|place| place.absolute().in_labels());
    let is_exact = |vdev: &&VdevConfig| {
        vdev.guid.to_string() == typed
            || paths(found, vdev).any(|path| name == Some(Place::from(Path::new(path)).in_labels()))
    };
    if let Some(vdev) = vdevs.iter().copied().find(is_exact) {
        return Ok(Some(vdev.guid));
    }
    let has_name = |path: &&str| Path::new(path).file_name().is_some_and(|name| name == typed);
    // Keyed by guid: an active spare is in the tree and among the spares.
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

/// A device's path in the pool, and the path where it was found.
fn paths<'a>(found: &'a FoundPool, vdev: &'a VdevConfig) -> impl Iterator<Item = &'a str> {
    let here = found.device(vdev.guid).map(|device| &*device.path);
    vdev.path.as_deref().into_iter().chain(here)
}
