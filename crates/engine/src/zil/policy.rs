//! Properties of the intent log.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogPolicy {
    pub(crate) sync: SyncPolicy,
    /// `logbias=throughput`: data always goes into its own blocks.
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
