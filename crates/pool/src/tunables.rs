//! Tunables: numbers that are known by OpenZFS's names and may be changed at any time.
//!
//! Idea: each part of the engine has a table of its own (names, defaults, bounds); a set of cells by that
//! table holds the values.
//!
//! Locking: none; every cell is an atomic of its own. Who reads several may see some changed and others not.
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

/// A tunable that can't be set so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSetting {
    /// There is none of this name.
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
        /// What was asked for.
        value: u64,
        /// The least that it can be.
        least: u64,
        /// The most.
        most: u64,
    },
}

impl<const N: usize> Tunables<N> {
    /// The defaults.
    pub fn new(table: &'static [Tunable; N]) -> Tunables<N> {
        Tunables { table, cells: table.map(|(_, default, ..)| default.into()) }
    }

    /// The tunable at this place of the table.
    pub fn get(&self, at: usize) -> u64 {
        self.cells[at].load(Ordering::Relaxed)
    }

    /// All values, in the order of the table.
    pub fn values(&self) -> [u64; N] {
        self.cells.each_ref().map(|cell| cell.load(Ordering::Relaxed))
    }

    /// All values, by name.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.table.iter().zip(self.values()).map(|((name, ..), value)| ((*name).to_owned(), value)).collect()
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// There is none of that name, or the value is out of range.
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
