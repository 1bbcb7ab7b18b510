//! The history of a simulation: a running hash of every step and draw, and optionally the first steps.

use crate::work::WorkKind;

/// One poll of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Virtual time.
    pub now_ns: u64,
    /// In order of spawning; zero is the main future.
    pub task: u64,
}

/// The report of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimReport {
    /// The seed.
    pub seed: u64,
    /// Elapsed virtual time.
    pub virtual_ns: u64,
    /// Polls of tasks.
    pub steps: u64,
    /// Tasks spawned.
    pub tasks: u64,
    /// Hash of all steps and random draws.
    pub history: u64,
    /// Core time charged by [`Runtime::work`](crate::Runtime::work), by kind.
    pub busy_ns: Vec<(WorkKind, u64)>,
    /// The first [`SimConfig::trace_steps`](crate::SimConfig::trace_steps) steps.
    pub trace: Vec<Step>,
}

pub(super) struct History {
    hash: u64,
    steps: u64,
    trace: Vec<Step>,
    trace_limit: usize,
}

impl History {
    pub(super) fn new(trace_limit: usize) -> History {
        History { hash: 0, steps: 0, trace: Vec::new(), trace_limit }
    }

    /// Returns the number of steps.
    pub(super) fn step(&mut self, step: Step) -> u64 {
        self.mix(step.now_ns);
        self.mix(step.task);
        if self.trace.len() < self.trace_limit {
            self.trace.push(step);
        }
        self.steps += 1;
        self.steps
    }

    /// Order counts: rotate, combine, multiply by an odd constant.
    pub(super) fn mix(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(23) ^ value).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub(super) fn report(
        &self,
        seed: u64,
        virtual_ns: u64,
        tasks: u64,
        busy_ns: Vec<(WorkKind, u64)>,
    ) -> SimReport {
        let trace = self.trace.clone();
        SimReport { seed, virtual_ns, steps: self.steps, tasks, history: self.hash, busy_ns, trace }
    }
}
