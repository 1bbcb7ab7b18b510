//! The cases: loads, each without and with the device that it is about.

use std::fmt;

use cenote_control::text::nice_bytes;

/// Memory for cached blocks.
pub(super) const MEMORY_BYTES: u64 = 16 << 20;
/// The cache device; a small part is labels and logs.
pub(super) const SECOND_BYTES: u64 = 96 << 20;
/// The largest working set, which neither memory nor the cache device holds.
pub(super) const LARGEST_BYTES: u64 = 192 << 20;
/// What durable writes go to.
pub(super) const WRITTEN_BYTES: u64 = 32 << 20;

/// The cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Second {
    /// There is none.
    None,
    /// Just added.
    Cold,
    /// It was fed with this load before the pool was exported and imported.
    Warm,
}

/// One of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Random reads after an import.
    Reads {
        /// What they read from.
        working_set_bytes: u64,
        /// The cache device.
        second: Second,
    },
    /// Random durable writes.
    Durable {
        /// How many write at once.
        clients: u64,
        /// Whether there is a log device.
        has_log: bool,
    },
}

impl Case {
    /// In the order of the report: that without the device comes first.
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

    /// The file that it works on.
    pub(super) fn file_bytes(self) -> u64 {
        match self {
            Case::Reads { working_set_bytes, .. } => working_set_bytes,
            Case::Durable { .. } => WRITTEN_BYTES,
        }
    }

    /// The device that it is about.
    pub fn device(self) -> &'static str {
        match self {
            Case::Reads { second: Second::None, .. } => "no L2ARC",
            Case::Reads { second: Second::Cold, .. } => "L2ARC, cold",
            Case::Reads { second: Second::Warm, .. } => "L2ARC, warm",
            Case::Durable { has_log: false, .. } => "no SLOG",
            Case::Durable { has_log: true, .. } => "SLOG",
        }
    }

    /// The load, without the device.
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
