//! What stands between an open pool and its devices: counters, and faults that somebody ordered.
//!
//! Idea: every device that a pool opened for good gets, whenever it comes, the counters and the faults of its
//! leaf. So a disk that was away and is back is counted on, and is as broken as before.
//!
//! Locking: any task may call anything. `table` is held for one look or change; no other lock is taken
//! meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_device::{Counted, Counters, Counts, Device, Faults, Faulty, Op};
use cenote_format::units::Guid;
use cenote_runtime::Runtime;
use parking_lot::Mutex;

/// The taps of all leaves of a pool, those that left included.
pub struct Taps {
    runtime: Runtime,
    table: Mutex<BTreeMap<Guid, Tap>>,
}

/// The tap of a leaf.
#[derive(Clone)]
pub struct Tap {
    /// What passed.
    pub counters: Arc<Counters>,
    /// How it fails.
    pub faults: Arc<Faults>,
}

impl Taps {
    /// Counts nothing yet.
    pub fn new(runtime: &Runtime) -> Taps {
        Taps { runtime: runtime.clone(), table: Mutex::default() }
    }

    /// The tap of a leaf.
    pub fn of(&self, leaf: Guid) -> Tap {
        let make = || Tap { counters: Arc::default(), faults: Faults::new(leaf.0).into() };
        self.table.lock().entry(leaf).or_insert_with(make).clone()
    }

    /// What passed at all leaves, those that left included: it never becomes less.
    pub fn total(&self, op: Op) -> Counts {
        let mut total = Counts::default();
        self.table.lock().values().for_each(|tap| total.add(&tap.counters.of(op)));
        total
    }

    /// A device of a leaf, counted, and failing as ordered.
    pub fn over(&self, leaf: Guid, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let Tap { counters, faults } = self.of(leaf);
        Arc::new(Counted::new(Arc::new(Faulty::by(device, faults)), counters, &self.runtime))
    }
}

impl std::fmt::Debug for Taps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Taps({} leaves)", self.table.lock().len())
    }
}
