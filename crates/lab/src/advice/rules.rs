//! The rules, each with its reason and source. Each kind of rule has its own module.

mod cache;
mod datasets;
mod disks;
mod health;
mod layout;
mod log;
mod raidz;
pub(super) mod rule;
mod smart;
mod space;
mod special;
mod workers;

pub use rule::Rule;

/// All rules.
pub const RULES: &[Rule] = &[
    health::DEGRADED,
    special::SPECIAL_LESS_REDUNDANT,
    special::SPECIAL_FULL,
    space::FILL_90,
    space::FILL_80,
    space::FRAGMENTATION,
    health::UNSCRUBBED,
    smart::SMART_TREND,
    disks::SLOW_DISK,
    layout::ASHIFT,
    layout::MIXED_VDEVS,
    raidz::RAIDZ_PADDING,
    datasets::RECORDSIZE_IO_SIZE,
    log::SYNC_WITHOUT_SLOG,
    log::SLOG_UNMIRRORED,
    log::SLOG_UNUSED,
    cache::ARC_SMALL_FOR_METADATA,
    cache::L2ARC_HIT_RATE,
    cache::L2ARC_HEADERS,
    workers::PARALLEL_WORKERS,
];
