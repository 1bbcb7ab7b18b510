//! The machine: disks that outlive its runtimes, a kernel, and the daemon as it ships.
//!
//! ```text
//!   disk ... disk      for ever
//!   kernel             a life: from power-on to a cut
//!   daemon             its pools, verbs, mounts; sessions of NBD, iSCSI and virtio-blk in memory
//! ```
//!
//! Paths of disks are real: empty files of the right size in [`RACK`]. Only opening them is simulated
//! (`cenote_device::Rack`).

pub mod daemon;
pub mod disk;
pub mod faults;
pub mod kernel;
pub mod power;
pub mod volume;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::Rack;
use cenote_runtime::{Rng, Runtime};
use cenote_testkit::image::Image;
use disk::{Disk, Habits};
use faults::{Bay, Ledger};
use kernel::Kernel;
use parking_lot::Mutex;
use power::Power;
use tempfile::TempDir;

/// The folder of all disks of all worlds. Its files stay empty.
pub const RACK: &str = "/tmp/cenote-world";
/// The file with the pool's key: a property of the pool has its path, so that is the same in all worlds.
pub const KEY: &str = "/tmp/cenote-world.key";
/// A raw key, and a passphrase too.
const KEY_TEXT: &str = "0123456789abcdef0123456789abcdef";
/// The only pool.
pub const POOL: &str = "tank";

/// A state that a machine can go back to.
#[derive(Default)]
pub struct Past {
    images: Vec<Image>,
    record: Option<Vec<u8>>,
}

/// Disks, and the daemon's own files.
pub struct Machine {
    disks: Vec<Arc<Disk>>,
    ledger: Arc<Mutex<Ledger>>,
    /// Of all disks.
    pub power: Arc<Power>,
    /// Of the present life, of each daemon.
    on: Mutex<Vec<(Arc<Rack>, Arc<Kernel>)>>,
    /// The daemon's record of its pools, for each host.
    own: TempDir,
}

impl Machine {
    /// With disks of these sectors, and a key.
    ///
    /// # Errors
    /// The host's file system.
    pub fn new(size_bytes: u64, sectors_bytes: &[u32]) -> std::io::Result<Machine> {
        std::fs::create_dir_all(RACK)?;
        let own = TempDir::new()?;
        // Other worlds may read it just now.
        let new_key = own.path().join("key");
        std::fs::write(&new_key, KEY_TEXT)?;
        std::fs::rename(new_key, KEY)?;
        let power = Arc::<Power>::default();
        let disk = |(number, sector_bytes): (usize, &u32)| {
            let path = path_of(number);
            File::options().create(true).append(true).open(&path)?.set_len(size_bytes)?;
            Ok(Arc::new(Disk::new(&path.to_string_lossy(), size_bytes, *sector_bytes, power.clone())))
        };
        let disks = sectors_bytes.iter().enumerate().map(disk).collect::<std::io::Result<_>>()?;
        Ok(Machine { disks, ledger: Arc::default(), power, on: Mutex::default(), own })
    }

    /// The power fails.
    pub fn cut(&self, rng: &mut Rng) {
        self.ledger.lock().cut();
        self.disks.iter().for_each(|disk| disk.cut(rng));
        self.forget();
    }

    /// The daemon dies; the machine runs on.
    pub fn kill(&self) {
        self.ledger.lock().cut();
        self.disks.iter().for_each(|disk| disk.kill());
        self.forget();
    }

    /// Frees the life that has ended: its runtime has rack and kernel as parts, and these have the runtime.
    fn forget(&self) {
        for (rack, kernel) in std::mem::take(&mut *self.on.lock()) {
            (0..self.disks.len()).for_each(|disk| rack.remove(&path_of(disk)));
            kernel.forget();
        }
    }

    /// The content of all disks.
    pub fn images(&self) -> Vec<Image> {
        self.disks.iter().map(|disk| disk.image()).collect()
    }

    /// All that outlives the daemon now.
    pub fn past(&self) -> Past {
        Past { images: self.images(), record: std::fs::read(self.record(0)).ok() }
    }

    /// Goes back to another time; from then on, these disks may get into trouble.
    ///
    /// # Errors
    /// The host's file system.
    pub fn restore(&self, past: &Past, guilty: impl IntoIterator<Item = usize>) -> std::io::Result<()> {
        let mut ledger = Ledger::default();
        ledger.accuse(guilty.into_iter().collect());
        *self.ledger.lock() = ledger;
        self.disks.iter().zip(&past.images).for_each(|(disk, image)| disk.restore(image));
        past.record.as_ref().map_or(Ok(()), |record| std::fs::write(self.record(0), record))
    }

    /// Puts the disks into the rack of a runtime, except absent ones.
    pub fn power_on(&self, runtime: &Runtime) -> Bay {
        Bay::new(runtime, &self.disks, &self.ledger)
    }

    /// Flushes of all disks do nothing from now on.
    pub fn lie_about_flushes(&self) {
        let habits = Habits { flushes_lie: true, ..Habits::default() };
        self.disks.iter().for_each(|disk| disk.behave(habits));
    }

    /// Takes disks away that the pool can do without.
    pub fn take_away(&self, disks: BTreeSet<usize>) {
        let mut ledger = self.ledger.lock();
        ledger.accuse(disks.clone());
        ledger.away.extend(disks);
    }

    fn record(&self, host: u64) -> PathBuf {
        self.own.path().join(format!("pools{host}"))
    }
}

/// The path of a disk.
pub fn path_of(disk: usize) -> PathBuf {
    Path::new(RACK).join(format!("disk{disk:02}"))
}
