//! Paths to search for disks: from the options, otherwise from the environment.

use std::path::PathBuf;

use crate::error::ControlError;

/// The environment variable with the values of `--disks`, separated by ':'.
const VARIABLE: &str = "CENOTE_DISKS";

/// The paths to search: typed ones, otherwise those in the environment. Empty means this machine's block
/// devices.
///
/// # Errors
/// A path does not exist: its disks would be missed silently.
pub fn named(typed: &[PathBuf]) -> Result<Vec<PathBuf>, ControlError> {
    let (by, places) = match std::env::var_os(VARIABLE) {
        Some(list) if typed.is_empty() => (VARIABLE, std::env::split_paths(&list).collect()),
        _ => ("--disks", typed.to_vec()),
    };
    let places: Vec<PathBuf> = places.into_iter().filter(|place| !place.as_os_str().is_empty()).collect();
    for place in &places {
        std::fs::metadata(place).map_err(ControlError::io(format!("{by} {}", place.display())))?;
    }
    Ok(places)
}
