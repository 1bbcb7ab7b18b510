//! Tunables: numbers with OpenZFS's names that may be changed at any time.
//!
//! Idea: each part of the engine has a table (names, defaults, bounds) and cells with the values.
//!
//! Locking: none; every cell is an atomic. A reader of several may see some changed and others not.
//!
//! Source: zfs(4).

use std::sync::atomic::{AtomicU64, Ordering};

/// A tunable: name, default, least and most.
pub type Tunable = (&'static str, u64, u64, u64);

/// The values of a table of tunables.
#[derive(Debug)]
pub struct Tunables<const N: usize> {
    table: &'static [Tunable; N],
    cells: [AtomicU64; N],
}

/// Why a tunable can't be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSetting {
    /// No tunable has this name.
    #[error("no tunable {name:?}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The value is out of range.
    #[error("{name}: {value} is not between {least} and {most}")]
    OutOfRange {
        /// The name.
        name: String,
        /// The requested value.
        value: u64,
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
}

impl<const N: usize> Tunables<N> {
    /// All defaults.
    pub fn new(table: &'static [Tunable; N]) -> Tunables<N> {
        Tunables { table, cells: table.map(|(_, default, ..)| default.into()) }
    }

    /// The value at a table index.
    pub fn get(&self, at: usize) -> u64 {
        self.cells[at].load(Ordering::Relaxed)
    }

    /// All values, in table order.
    pub fn values(&self) -> [u64; N] {
        self.cells.each_ref().map(|cell| cell.load(Ordering::Relaxed))
    }

    /// All names and values.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.table.iter().zip(self.values()).map(|((name, ..), value)| ((*name).to_owned(), value)).collect()
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// Unknown name, or value out of range.
    pub fn set(&self, name: &str, value: u64) -> Result<(), BadSetting> {
        let found = self.table.iter().zip(&self.cells).find(|((known, ..), _)| *known == name);
        let Some((&(_, _, least, most), cell)) = found else {
            return Err(BadSetting::Unknown { name: name.into() });
        };
        if !(least..=most).contains(&value) {
            return Err(BadSetting::OutOfRange { name: name.into(), value, least, most });
        }
        cell.store(value, Ordering::Relaxed);
        Ok(())
    }
}
