//! What properties say of the intent log.

/// What properties say of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogPolicy {
    pub(crate) sync: SyncPolicy,
    /// `logbias=throughput`: content always goes into blocks of its own.
    pub(crate) for_throughput: bool,
}

/// Property `sync`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum SyncPolicy {
    #[default]
    Standard,
    Always,
    Disabled,
}

impl LogPolicy {
    pub(crate) fn of_numbers(sync: u64, logbias: u64) -> LogPolicy {
        let sync = match sync {
            1 => SyncPolicy::Always,
            2 => SyncPolicy::Disabled,
            _ => SyncPolicy::Standard,
        };
        LogPolicy { sync, for_throughput: logbias == 1 }
    }
}
