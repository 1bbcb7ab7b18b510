//! Modelled cores: a job goes to the core free first.
//!
//! N equal servers with one first-come, first-served queue need no queue in code: a job starts when the
//! earliest core is free, so it suffices to store when each core becomes free.

use crate::work::WorkKind;

pub(super) struct Cores {
    free_at_ns: Vec<u64>,
    busy_ns: [u64; WorkKind::ALL.len()],
}

impl Cores {
    pub(super) fn new(cores: usize) -> Cores {
        Cores { free_at_ns: vec![0; cores], busy_ns: [0; WorkKind::ALL.len()] }
    }

    /// Returns the instant of its end. A job cannot be withdrawn.
    pub(super) fn reserve(&mut self, now_ns: u64, kind: WorkKind, cost_ns: u64) -> u64 {
        self.busy_ns[kind as usize] += cost_ns;
        let Some(core) = self.free_at_ns.iter_mut().min() else { return now_ns };
        *core = (*core).max(now_ns).saturating_add(cost_ns);
        *core
    }

    /// By kind of work, without zeros.
    pub(super) fn busy_ns(&self) -> Vec<(WorkKind, u64)> {
        WorkKind::ALL.into_iter().zip(self.busy_ns).filter(|(_, ns)| *ns > 0).collect()
    }
}
