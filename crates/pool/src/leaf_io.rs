//! LeafIoTable between an open pool and its devices: I/O counters and injected faults.
//!
//! Idea: every device that joins an open pool gets the counters and faults of its leaf. So a disk that
//! returns continues its counts and keeps its faults.
//!
//! Locking: any task may call anything. `table` is held for one access; no other lock is taken under it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_device::{Counted, Counters, Counts, Device, Faults, Faulty, Op};
use cenote_format::units::Guid;
use cenote_runtime::Runtime;
use parking_lot::Mutex;

/// The taps of all leaves of a pool, including departed ones.
pub struct LeafIoTable {
    runtime: Runtime,
    table: Mutex<BTreeMap<Guid, LeafIo>>,
}

/// The tap of a leaf.
#[derive(Clone)]
pub struct LeafIo {
    /// I/O counters.
    pub counters: Arc<Counters>,
    /// Injected faults.
    pub faults: Arc<Faults>,
}

impl LeafIoTable {
    /// An empty table.
    pub fn new(runtime: &Runtime) -> LeafIoTable {
        LeafIoTable { runtime: runtime.clone(), table: Mutex::default() }
    }

    /// The tap of a leaf, created if necessary.
    pub fn of(&self, leaf: Guid) -> LeafIo {
        let make = || LeafIo { counters: Arc::default(), faults: Faults::new(leaf.0).into() };
        self.table.lock().entry(leaf).or_insert_with(make).clone()
    }

    /// Total over all leaves, including departed ones; never decreases.
    pub fn total(&self, op: Op) -> Counts {
        let mut total = Counts::default();
        self.table.lock().values().for_each(|tap| total.add(&tap.counters.of(op)));
        total
    }

    /// Wraps a leaf's device with its counters and faults.
    pub fn over(&self, leaf: Guid, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let LeafIo { counters, faults } = self.of(leaf);
        Arc::new(Counted::new(Arc::new(Faulty::by(device, faults)), counters, &self.runtime))
    }
}

impl std::fmt::Debug for LeafIoTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeafIoTable({} leaves)", self.table.lock().len())
    }
}
