//! A dataset's use of the caches: properties `primarycache`, `secondarycache` and `prefetch`.
//!
//! Idea: the views of an open object set share a cell, so `zfs set` reaches open datasets. Blocks cached
//! earlier stay, and are found, until evicted.
//!
//! Source: OpenZFS `dmu_objset.c` (`primary_cache_changed_cb`), `dbuf.c` (`dbuf_is_l2cacheable`).

use std::sync::atomic::{AtomicU8, Ordering};

use cenote_policy::Class;

/// Blocks that a cache takes (`zfs_cache_type_t`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// No blocks.
    None = 0,
    /// Metadata.
    Metadata = 1,
    /// All blocks.
    #[default]
    All = 2,
}

/// A dataset's use of the caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caching {
    /// Memory.
    pub primary: Scope,
    /// Cache devices.
    pub secondary: Scope,
    /// Read-ahead.
    pub prefetch: Scope,
}

impl Caching {
    /// Decodes the properties' numbers.
    pub fn of_numbers(primary: u64, secondary: u64, prefetch: u64) -> Caching {
        let [primary, secondary, prefetch] = [primary, secondary, prefetch].map(Scope::of_number);
        Caching { primary, secondary, prefetch }
    }
}

impl Scope {
    /// Unknown numbers are the default.
    fn of_number(number: u64) -> Scope {
        match number {
            0 => Scope::None,
            1 => Scope::Metadata,
            _ => Scope::All,
        }
    }

    pub(crate) fn takes(self, class: Class) -> bool {
        match self {
            Scope::None => false,
            Scope::Metadata => class == Class::Metadata,
            Scope::All => true,
        }
    }
}

/// A [`Caching`] that may change while it is read.
#[derive(Debug)]
pub struct CachingCell(AtomicU8);

impl CachingCell {
    /// A cell with this value.
    pub fn new(caching: Caching) -> CachingCell {
        CachingCell(AtomicU8::new(packed(caching)))
    }

    /// The current value.
    pub fn get(&self) -> Caching {
        let packed = u64::from(self.0.load(Ordering::Relaxed));
        Caching::of_numbers(packed & 3, packed >> 2 & 3, packed >> 4)
    }

    /// Changes the value.
    pub fn set(&self, caching: Caching) {
        self.0.store(packed(caching), Ordering::Relaxed);
    }
}

impl Default for CachingCell {
    fn default() -> CachingCell {
        CachingCell::new(Caching::default())
    }
}

fn packed(Caching { primary, secondary, prefetch }: Caching) -> u8 {
    primary as u8 | (secondary as u8) << 2 | (prefetch as u8) << 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_says_what_was_put_into_it() {
        let cell = CachingCell::default();
        assert_eq!(cell.get(), Caching::default());
        for n in 0..27 {
            let caching = Caching::of_numbers(n % 3, n / 3 % 3, n / 9);
            cell.set(caching);
            assert_eq!(cell.get(), caching);
        }
    }
}
