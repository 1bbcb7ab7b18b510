//! The machine: disks that outlive its runtimes, a kernel, and the daemon as it ships.
//!
//! ```text
//!   disk ... disk      for ever
//!   kernel             a life: from power-on to a cut
//!   daemon             its pools, verbs, mounts, NBD sessions over pipes in memory
//! ```
//!
//! Paths of disks are real: empty files of the right size lie in [`RACK`], so everything that looks at paths
//! runs as it ships. Only opening them is simulated (`cenote_device::Rack`).

pub mod daemon;
pub mod disk;
pub mod kernel;
pub mod nbd;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::{Device, Faulty, Rack};
use cenote_runtime::{Rng, Runtime};
use disk::Disk;
use tempfile::TempDir;

/// The folder of all disks of all worlds. Its files stay empty.
pub const RACK: &str = "/tmp/cenote-world";

/// Disks, and the daemon's own files.
pub struct Machine {
    disks: Vec<Arc<Disk>>,
    /// The daemon's record of its pools.
    own: TempDir,
}

impl Machine {
    /// With this many disks. `lies`: their flushes do nothing.
    ///
    /// # Errors
    /// The host's file system.
    pub fn new(disks: usize, size_bytes: u64, sector_bytes: u32, lies: bool) -> std::io::Result<Machine> {
        std::fs::create_dir_all(RACK)?;
        let disk = |number| {
            let path = path_of(number);
            File::options().create(true).append(true).open(&path)?.set_len(size_bytes)?;
            Ok(Arc::new(Disk::new(&path.to_string_lossy(), size_bytes, sector_bytes, lies)))
        };
        let disks = (0..disks).map(disk).collect::<std::io::Result<_>>()?;
        Ok(Machine { disks, own: TempDir::new()? })
    }

    /// Number of disks.
    pub fn disks(&self) -> usize {
        self.disks.len()
    }

    /// The power fails.
    pub fn cut(&self, rng: &mut Rng) {
        self.disks.iter().for_each(|disk| disk.cut(rng));
    }

    /// The daemon dies; the machine runs on.
    pub fn kill(&self) {
        self.disks.iter().for_each(|disk| disk.kill());
    }

    /// Puts the disks into the rack of a runtime, each below a layer for faults.
    pub fn power_on(&self, runtime: &Runtime) -> Vec<Arc<Faulty>> {
        let rack = Rack::default();
        let faulty = self.disks.iter().enumerate().map(|(number, disk)| {
            let faulty = Arc::new(Faulty::new(disk.attach(runtime), runtime.random_u64()));
            rack.insert(&path_of(number), faulty.clone() as Arc<dyn Device>);
            faulty
        });
        let faulty = faulty.collect();
        runtime.equip(Arc::new(rack));
        faulty
    }

    fn record(&self) -> PathBuf {
        self.own.path().join("pools")
    }
}

/// The path of a disk.
pub fn path_of(disk: usize) -> PathBuf {
    Path::new(RACK).join(format!("disk{disk:02}"))
}
