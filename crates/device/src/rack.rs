//! Opening devices by path: the host's, or those in the rack of a simulated machine.
//!
//! Locking: one mutex for the table, held for one look or change.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::error::{DeviceError, Result};
use crate::{Device, FileDevice, OpenOptions};

/// The disks of a simulated machine, by path ([`Runtime::equip`]).
#[derive(Default)]
pub struct Rack(Mutex<BTreeMap<PathBuf, Arc<dyn Device>>>);

impl Rack {
    /// Inserts a disk.
    pub fn insert(&self, path: &Path, disk: Arc<dyn Device>) {
        self.0.lock().insert(path.to_owned(), disk);
    }

    /// Takes a disk out. Programs that have it open keep it.
    pub fn remove(&self, path: &Path) {
        self.0.lock().remove(path);
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Device>> {
        let source = || Arc::new(ErrorKind::NotFound.into());
        let missing = || DeviceError::Open { path: path.to_string_lossy().into(), source: source() };
        self.0.lock().get(path).cloned().ok_or_else(missing)
    }
}

/// Opens a device. A simulated machine has those in its [`Rack`], always writable and without locks.
///
/// # Errors
/// As [`FileDevice::open`].
pub async fn open(path: &Path, options: OpenOptions, runtime: &Runtime) -> Result<Arc<dyn Device>> {
    match runtime.part::<Rack>() {
        Some(rack) => rack.open(path),
        None => Ok(Arc::new(FileDevice::open(path, options, runtime).await?)),
    }
}
