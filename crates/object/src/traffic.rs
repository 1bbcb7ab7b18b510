//! What users of a dataset read, write and remove: the counts of its kstat, `objset-*`.
//!
//! Idea: cells that all states of an open object set share. Whoever serves its users adds to them: a file
//! system, a volume.
//!
//! Source: OpenZFS `dataset_kstats.c`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a dataset since it was opened.
#[derive(Debug, Default)]
pub struct Traffic([AtomicU64; NAMES.len()]);

const NAMES: [&str; 6] = ["writes", "nwritten", "reads", "nread", "nunlinks", "nunlinked"];

impl Traffic {
    /// So many bytes were written.
    pub fn wrote(&self, bytes: u64) {
        self.add(0, 1);
        self.add(1, bytes);
    }

    /// So many bytes were read.
    pub fn read(&self, bytes: u64) {
        self.add(2, 1);
        self.add(3, bytes);
    }

    /// Something lost its last name.
    pub fn unlinked(&self) {
        self.add(4, 1);
    }

    /// It was freed.
    pub fn freed(&self) {
        self.add(5, 1);
    }

    /// All counts, by name.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        NAMES.into_iter().zip(&self.0).map(|(name, cell)| (name, cell.load(Ordering::Relaxed))).collect()
    }

    fn add(&self, at: usize, count: u64) {
        self.0[at].fetch_add(count, Ordering::Relaxed);
    }
}
