//! Statistics of cache devices, under the names of `arcstats`.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Statistics of a pool's cache devices (`arcstats`: `l2_*`).
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub struct L2Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct L2Counters {
            $(pub(crate) $name: Count,)*
        }

        impl L2Counters {
            pub(crate) fn stats(&self) -> L2Stats {
                L2Stats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }

        impl L2Stats {
            /// All of them, by their names in `arcstats`.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!("l2_", stringify!($name)), self.$name),)*]
            }

            /// Counts since `before`; sizes as they are now.
            #[must_use]
            pub fn since(&self, before: &L2Stats) -> L2Stats {
                L2Stats {
                    asize: self.asize,
                    bufs: self.bufs,
                    hdr_size: self.hdr_size,
                    staged_size: self.staged_size,
                    log_blk_count: self.log_blk_count,
                    log_blk_asize: self.log_blk_asize,
                    devices: self.devices,
                    ..self.zip(before, u64::saturating_sub)
                }
            }

            /// Combines each count with that of `other`.
            #[must_use]
            pub fn zip(&self, other: &L2Stats, f: fn(u64, u64) -> u64) -> L2Stats {
                L2Stats { $($name: f(self.$name, other.$name),)* }
            }
        }
    };
}

counts! {
    /// Reads answered by a device.
    hits,
    /// Reads missed by memory and devices.
    misses,
    /// Reads of blocks overwritten meanwhile.
    evict_reading,
    /// Bytes read from devices.
    read_bytes,
    /// Bytes written to devices, with log blocks.
    write_bytes,
    /// Rounds of feeding with writes.
    writes_sent,
    /// Complete rounds.
    writes_done,
    /// Failed rounds.
    writes_error,
    /// Blocks that did not match their pointer.
    cksum_bad,
    /// Reads that failed.
    io_error,
    /// Log blocks written.
    log_blk_writes,
    /// Devices rebuilt after an import.
    rebuild_success,
    /// Headers unreadable, or of another pool or version.
    rebuild_unsupported,
    /// Chains of log blocks that ended at a damaged one.
    rebuild_cksum_lb_errors,
    /// Rebuilds ended early for lack of memory.
    rebuild_lowmem,
    /// Log blocks found by rebuilds.
    rebuild_log_blks,
    /// Blocks found by rebuilds.
    rebuild_bufs,
    /// Their bytes on devices.
    rebuild_asize,
    /// Bytes on devices, with log blocks.
    asize,
    /// Blocks on devices.
    bufs,
    /// Memory of the index.
    hdr_size,
    /// Memory of waiting blocks.
    staged_size,
    /// Log blocks on devices.
    log_blk_count,
    /// Their bytes.
    log_blk_asize,
    /// Devices in use.
    devices,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }
}
