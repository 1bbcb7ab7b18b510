//! The cases: loads, each without and with the device under test.

use std::fmt;

use cenote_control::text::nice_bytes;

/// Memory for cached blocks.
pub(super) const MEMORY_BYTES: u64 = 16 << 20;
/// Size of the cache device, including small labels and logs.
pub(super) const SECOND_BYTES: u64 = 96 << 20;
/// Largest working set: exceeds memory and the cache device.
pub(super) const LARGEST_BYTES: u64 = 192 << 20;
/// Range of durable writes.
pub(super) const WRITTEN_BYTES: u64 = 32 << 20;

/// State of the cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Second {
    /// No device.
    None,
    /// Just added.
    Cold,
    /// Fed with this load before an export and import.
    Warm,
}

/// Load and device of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Random reads after an import.
    Reads {
        /// Size of the range read.
        working_set_bytes: u64,
        /// State of the cache device.
        second: Second,
    },
    /// Random durable writes.
    Durable {
        /// Concurrent writers.
        clients: u64,
        /// With a log device.
        has_log: bool,
    },
}

impl Case {
    /// In report order: without the device first.
    pub fn all() -> Vec<Case> {
        let sets = [MEMORY_BYTES / 2, 4 * MEMORY_BYTES, LARGEST_BYTES];
        let reads = sets.into_iter().flat_map(|working_set_bytes| {
            [Second::None, Second::Cold, Second::Warm].map(|second| Case::Reads { working_set_bytes, second })
        });
        let durable = [1, 4]
            .into_iter()
            .flat_map(|clients| [false, true].map(|has_log| Case::Durable { clients, has_log }));
        reads.chain(durable).collect()
    }

    pub(super) fn file_bytes(self) -> u64 {
        match self {
            Case::Reads { working_set_bytes, .. } => working_set_bytes,
            Case::Durable { .. } => WRITTEN_BYTES,
        }
    }

    /// Device under test.
    pub fn device(self) -> &'static str {
        match self {
            Case::Reads { second: Second::None, .. } => "no L2ARC",
            Case::Reads { second: Second::Cold, .. } => "L2ARC, cold",
            Case::Reads { second: Second::Warm, .. } => "L2ARC, warm",
            Case::Durable { has_log: false, .. } => "no SLOG",
            Case::Durable { has_log: true, .. } => "SLOG",
        }
    }

    /// Load, without the device.
    pub fn load(self) -> String {
        match self {
            Case::Reads { working_set_bytes, .. } => format!("reads from {}", nice_bytes(working_set_bytes)),
            Case::Durable { clients: 1, .. } => "durable writes, 1 client".into(),
            Case::Durable { clients, .. } => format!("durable writes, {clients} clients"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.load(), self.device())
    }
}
